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


def wait_for(cluster, collection, name, satisfied, seconds=60):
    """Watches one object until satisfied(object); `collection` is the path of all of its kind, as "/api/v1/nodes"."""
    deadline = time.monotonic() + seconds
    query = urlencode({"watch": "true", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": seconds})
    connection = connect(cluster, seconds)
    try:
        connection.request("GET", f"{collection}?{query}")
        response = connection.getresponse()
        if response.status != 200:
            raise Failure(
                f"The API server answered {response.status} to a watch of {collection}: {response.read(2000).decode()}"
            )
        for line in response:
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED") and satisfied(event["object"]):
                return
            connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
        raise TimeoutError
    except TimeoutError:
        raise Failure(f"{collection}/{name} was not as it should be within {seconds} s") from None
    finally:
        connection.close()


def exists(_):
    """Satisfied by any object."""
    return True


def condition(kind):
    """Satisfied by an object whose status has this condition, and true."""

    def satisfied(thing):
        conditions = thing.get("status", {}).get("conditions", [])
        return any(c["type"] == kind and c["status"] == "True" for c in conditions)

    return satisfied
