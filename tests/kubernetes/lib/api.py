"""Talks to a cluster's API server from outside its network; watches until an object is as it should be."""

import base64
import http.client
import json
import os
import ssl
import tempfile
import time
from urllib.parse import urlencode

from lib import kernel, network
from lib.say import Failure


def credentials(kubeconfig):
    """A TLS context with the identity of a kubeconfig that certificates.py wrote."""
    config = json.loads(kubeconfig.read_text())
    user, server = config["users"][0]["user"], config["clusters"][0]["cluster"]
    context = ssl.create_default_context(cadata=base64.b64decode(server["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as file:
        file.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
        file.flush()
        context.load_cert_chain(file.name)
    return context


def connect(cluster, seconds=60):
    """A connection of the administrator: its socket stays in the cluster's network, and this process does not."""
    connection = http.client.HTTPSConnection(
        network.API_ADDRESS, 443, context=credentials(cluster.kubeconfig), timeout=seconds
    )
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        cluster.join_network()
        try:
            connection.connect()
        finally:
            kernel.join(home, kernel.NETWORK)
    finally:
        os.close(home)
    return connection


class Watch:
    """The events of a collection's objects, or of the one with that name; `collection` is a path, as "/api/v1/nodes".

    The first events are about what is there already. After open() returns nothing is missed.
    """

    def __init__(self, cluster, collection, name=None, seconds=60):
        self.what = f"{collection}/{name}" if name else collection
        self.seconds = seconds
        query = {"watch": "true", "timeoutSeconds": seconds}
        query.update(sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true")
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        self.connection = connect(cluster, seconds)
        self.connection.request("GET", f"{collection}?{urlencode(query)}")
        self.response = self.connection.getresponse()
        if self.response.status != 200:
            said = self.response.read(2000).decode(errors="replace")
            raise Failure(f"The API server answered {self.response.status} to a watch of {self.what}: {said}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def events(self):
        """Yields (type, object) until the time is over, which is a failure."""
        deadline = time.monotonic() + self.seconds
        try:
            for line in self.response:
                event = json.loads(line)
                yield event["type"], event["object"]
                self.connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
        except TimeoutError:
            pass
        raise Failure(f"{self.what} was not as it should be within {self.seconds} s")


def wait_for(cluster, collection, name, satisfied, seconds=60):
    """Watches one object until satisfied(object)."""
    with Watch(cluster, collection, name, seconds) as watch:
        for kind, thing in watch.events():
            if kind in ("ADDED", "MODIFIED") and satisfied(thing):
                return


def wait_for_all(cluster, collection, names, satisfied, seconds=60):
    """Watches a collection until satisfied(object) has been true of each name."""
    missing = set(names)
    with Watch(cluster, collection, seconds=seconds) as watch:
        for kind, thing in watch.events():
            if kind in ("ADDED", "MODIFIED") and satisfied(thing):
                missing.discard(thing["metadata"]["name"])
            if not missing:
                return


def exists(_):
    """Satisfied by any object."""
    return True


def condition(kind):
    """Satisfied by an object whose status has this condition, and true."""

    def satisfied(thing):
        conditions = thing.get("status", {}).get("conditions", [])
        return any(c["type"] == kind and c["status"] == "True" for c in conditions)

    return satisfied
