#!/usr/bin/python3
"""The Kubernetes backend on a real cluster: lease-server from this checkout, in the cluster's network, asked over gRPC.

    bazel build //server:lease-server //backend/sandboxd //proto/... && tests/kubernetes/backend_test.py [-v] [NAME…]

Needs root. Uses the cluster that $SANDBOX_CLUSTER names, else the one of this checkout, and leaves it up.
"""

import concurrent.futures
import hashlib
import hmac
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent)]

from tests.support import paths, tokens
from tests.support.grpc_client import GrpcClient, channel
from tests.support.stubs import lease_pb2

NAMESPACE = "platform"
PREFIX = "sandbox.geminixiang.dev/"
METADATA_SECRET = "metadata-secret"
POOLS = {
    "coding": {"warmPoolName": "coding", "runtimeClassName": "runc", "containerName": "shell"},
    "gvisor": {"warmPoolName": "gvisor", "runtimeClassName": "gvisor"},
}


def program(name, *arguments, check=True, **options):
    """Runs `cluster` or `platform`; answers its output."""
    done = subprocess.run([HERE / name, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, **options)
    if check and done.returncode:
        raise AssertionError(f"{name} {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
    return done.stdout


def kubectl(*arguments, **options):
    """kubectl in the platform's namespace."""
    return program("cluster", "kubectl", *arguments, f"--namespace={NAMESPACE}", **options)


def get(*arguments):
    """An object, or the items of a list."""
    found = json.loads(kubectl("get", "-o", "json", *arguments))
    return found.get("items", found)


def apply(*documents):
    """Creates or changes objects."""
    text = "\n---\n".join(json.dumps(document) for document in documents)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)


def claims():
    """Claims that are not on their way out."""
    return [claim for claim in get("sandboxclaims") if "deletionTimestamp" not in claim["metadata"]]


def eventually(check, seconds=30):
    """Waits until the check is true, and answers what it answered. For what only the cluster knows."""
    end = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.1)


def wait_warm(pool="coding", count=4):
    """Until a pool is full, so that a case begins where the one before it did."""
    eventually(lambda: get("sandboxwarmpool", pool).get("status", {}).get("readyReplicas", 0) >= count, 90)


def label(*parts):
    """What is stored instead of a name (contract §9)."""
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
    return hmac.new(METADATA_SECRET.encode(), text.encode(), hashlib.sha256).hexdigest()[:40]


class Server:
    """One lease-server in the cluster's network."""

    made = 0

    def __init__(self, folder, pools=None, **settings):
        self.folder = Path(folder)
        Server.made += 1
        self.socket = self.folder / f"{Server.made}.sock"
        self.log = self.folder / f"{Server.made}.log"
        self.pools = pools or POOLS
        self.settings = settings
        self.process = None
        self.channel = None
        self.starts = 0
        self.start()

    def start(self):
        """Starts it and waits until it serves."""
        kubeconfig = self.settings.get("SANDBOX_KUBECONFIG") or f"{program('cluster', 'folder').strip()}/admin.kubeconfig"
        settings = {
            "SANDBOX_BACKEND": "kubernetes",
            "SANDBOX_GRPC_ADDRESS": f"unix:{self.socket}",
            "SANDBOX_METADATA_SECRET": METADATA_SECRET,
            "SANDBOX_CONSUMER_SECRETS": '{"app":"secret"}',
            "SANDBOX_K8S_NAMESPACE": NAMESPACE,
            "SANDBOX_K8S_POOLS": json.dumps(self.pools),
            "SANDBOX_K8S_SANDBOXD": paths.built("backend/sandboxd/sandboxd"),
            "SANDBOX_SWEEP_INTERVAL": "1s",
            **self.settings,
            "SANDBOX_KUBECONFIG": kubeconfig,
        }
        given = [f"{name}={value}" for name, value in settings.items()]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [HERE / "cluster", "exec", "--", "env", *given, paths.built("server/lease-server")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.starts += 1
        self.wait_for('"event":"started"', count=self.starts)
        self.channel = channel(f"unix:{self.socket}")

    def wait_for(self, text, seconds=30, count=1):
        """Until the log has a text."""
        def found():
            if self.process.poll() is not None:
                raise AssertionError(f"lease-server has ended: {self.log.read_text()}")
            return self.log.read_text().count(text) >= count
        eventually(found, seconds)

    def client(self, subject="someone", timeout=60):
        """The calls of one Subject."""
        return GrpcClient(self.channel, lambda: "Bearer " + tokens.mint("app", subject, "secret"), timeout)

    def pid(self):
        """Of the server itself, not of the program that entered the namespace."""
        for folder in Path("/proc").iterdir():
            try:
                if f"unix:{self.socket}\0".encode() in (folder / "environ").read_bytes() and \
                        os.readlink(folder / "exe").endswith("/lease-server"):
                    return int(folder.name)
            except (OSError, ValueError):
                continue
        return None

    def kill(self, number=signal.SIGKILL):
        """Ends it and waits for that."""
        pid = self.pid()
        if pid:
            os.kill(pid, number)
        self.process.wait(30)

    def stop(self):
        """An orderly end. The log must not have what only a bug writes."""
        if self.channel:
            self.channel.close()
        if self.process.poll() is None:
            self.kill(signal.SIGTERM)
        log = self.log.read_text()
        for word in ("Sanitizer", "runtime error", "stop_hangs", "stop_failed"):
            if word in log:
                raise AssertionError(f"lease-server says: {log[max(0, log.index(word) - 500):][:4000]}")
        if self.process.returncode != 0:
            raise AssertionError(f"lease-server ended with code {self.process.returncode}: {log[-2000:]}")


class Case(unittest.TestCase):
    """One or more servers, and nothing left when they end."""

    @classmethod
    def setUpClass(cls):
        program("cluster", "up")
        program("platform", "up")
        cls.folder = tempfile.mkdtemp(prefix="backend-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)

    def setUp(self):
        self.key = f"{self.id()}-{time.time_ns()}"
        self.addCleanup(self.clean)

    def clean(self):
        """The next case begins with full pools."""
        kubectl("delete", "sandboxclaims", "--all", "--timeout=60s")
        wait_warm()

    def server(self, pools=None, **settings):
        """A server for this case."""
        server = Server(self.folder, pools, **settings)
        self.addCleanup(server.stop)
        return server

    def acquired(self, answer):
        """The Lease of an acquire that succeeded."""
        self.assertIsNone(answer.reason, answer.message)
        return answer.value["lease"]

    def refused(self, answer, reason):
        """An acquire that failed for that reason, and left nothing."""
        self.assertEqual(answer.reason, reason)
        eventually(lambda: not claims())


class Life(Case):
    """From acquire to the end."""

    def test_one_claim_as_the_contract_says(self):
        client = self.server().client()
        lease = self.acquired(client.acquire("coding", self.key, 60))
        [claim] = claims()
        self.assertRegex(claim["metadata"]["name"], "^lease-[0-9a-f]{20}$")
        self.assertEqual(lease.id, claim["metadata"]["name"] + claim["metadata"]["uid"].replace("-", "")[:12])
        found = claim["metadata"]["labels"]
        self.assertEqual({name[len(PREFIX):]: value for name, value in found.items() if name.startswith(PREFIX)}, {
            "managed": "true", "scope": label("scope", "app", "someone"), "consumer": label("consumer", "app"),
            "idempotency": label("idempotency", "app", "someone", self.key),
            "pool": label("idempotency", "pool", "pool", "coding")})
        self.assertEqual(claim["metadata"]["annotations"][PREFIX + "pool-name"], "coding")
        self.assertEqual(claim["spec"]["warmPoolRef"]["name"], "coding")
        self.assertEqual(claim["spec"]["lifecycle"]["shutdownPolicy"], "DeleteForeground")
        everything = json.dumps(claim)
        for secret in ("someone", self.key, '"app"'):
            self.assertNotIn(secret, everything)
        self.assertEqual(client.get(lease.id).value["lease"].id, lease.id)
        self.assertEqual([one.id for one in client.list().value["leases"]], [lease.id])
        self.assertIsNone(client.release(lease.id).reason)
        self.assertEqual(claims(), [])
        self.assertEqual(client.list().value["leases"], [])
        self.assertIn(client.get(lease.id).reason, ("LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE"))

    def test_commands_in_both_pools(self):
        client = self.server().client()
        for pool in POOLS:
            lease = self.acquired(client.acquire(pool, f"{self.key}-{pool}"))
            done = client.exec(lease.id, "echo out; echo err >&2; exit 3")
            self.assertIsNone(done.reason, done.message)
            self.assertEqual((done.execution.stdout, done.execution.stderr, done.execution.code), ("out\n", "err\n", 3))
            self.assertIsNone(client.release(lease.id).reason)

    def test_a_key_is_replayed_and_then_free_again(self):
        client = self.server().client()
        first = client.acquire("coding", self.key)
        again = client.acquire("coding", self.key)
        self.assertFalse(first.value["replayed"])
        self.assertTrue(again.value["replayed"])
        self.assertEqual(self.acquired(first).id, self.acquired(again).id)
        self.assertEqual(client.acquire("gvisor", self.key).reason, "IDEMPOTENCY_CONFLICT")
        self.assertIsNone(client.delete(self.acquired(first).id).reason)
        other = client.acquire("coding", self.key)  # while the first Claim is still on its way out
        self.assertFalse(other.value["replayed"])
        self.assertNotEqual(self.acquired(other).id, self.acquired(first).id)

    def test_leases_survive_the_server(self):
        server = self.server()
        lease = self.acquired(server.client().acquire("coding", self.key))
        server.kill()
        server.start()
        self.assertEqual(server.client().get(lease.id).value["lease"].expires, lease.expires)
        self.assertEqual(self.acquired(server.client().acquire("coding", self.key)).id, lease.id)
        self.assertEqual(server.client("another").get(lease.id).reason, "LEASE_NOT_FOUND")
        self.assertIsNone(server.client().release(lease.id).reason)

    def test_expiry(self):
        client = self.server().client()
        lease = self.acquired(client.acquire("coding", self.key, 1))
        eventually(lambda: not claims(), 10)
        self.assertEqual(client.list().value["leases"], [])
        self.assertIn(client.get(lease.id).reason, ("LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE"))

    def test_claims_of_the_reference_platform(self):
        now = time.time()
        stamp = lambda when: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when)) + ".123456789Z"
        name = "lease-0123456789abcdef0123456789abcdef"
        apply({"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "metadata": {
            "name": name, "labels": {
                PREFIX + "managed": "true", PREFIX + "scope": label("scope", "app", "someone"),
                PREFIX + "consumer": label("consumer", "app"), PREFIX + "pool": label("idempotency", "pool", "pool", "coding"),
                PREFIX + "idempotency": label("idempotency", "app", "someone", self.key)},
            "annotations": {PREFIX + "pool-name": "coding", PREFIX + "created-at": stamp(now),
                            PREFIX + "expires-at": stamp(now + 600)}},
            "spec": {"warmPoolRef": {"name": "coding"}}})
        kubectl("wait", "--for=condition=Ready", f"sandboxclaim/{name}", "--timeout=30s")
        client = self.server().client()
        self.assertEqual([one.id for one in client.list().value["leases"]], [name])
        self.assertTrue(client.acquire("coding", self.key).value["replayed"])
        self.assertIsNone(client.release(name).reason)
        self.assertEqual(claims(), [])

    def test_a_pod_that_is_gone_ends_the_lease(self):
        client = self.server().client()
        lease = self.acquired(client.acquire("coding", self.key))
        [claim] = claims()
        kubectl("delete", "pod", claim["status"]["sandbox"]["name"], "--grace-period=0", "--force")
        eventually(lambda: not claims())
        self.assertEqual(client.list().value["leases"], [])
        self.assertIn(client.get(lease.id).reason, ("LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE"))
        self.assertFalse(client.acquire("coding", self.key).value["replayed"])

    def test_a_claim_deleted_behind_our_back(self):
        client = self.server().client()
        lease = self.acquired(client.acquire("coding", self.key))
        kubectl("delete", "sandboxclaims", "--all")
        eventually(lambda: client.list().value["leases"] == [])
        self.assertIn(client.get(lease.id).reason, ("LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE"))

    def kubeconfig(self, user):
        """A kubeconfig for somebody on this cluster."""
        admin = json.loads(kubectl("config", "view", "--raw", "-o", "json"))
        config = Path(self.folder) / "kubeconfig"
        config.write_text(json.dumps({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": admin["clusters"][0]["cluster"]}],
            "users": [{"name": "u", "user": user}]}))
        return config

    def test_the_rights_of_the_manifest_are_enough(self):
        (Path(self.folder) / "token").write_text(kubectl("create", "token", "lease-server").strip() + "\n")
        server = self.server(SANDBOX_KUBECONFIG=self.kubeconfig({"tokenFile": "token"}))
        lease = self.acquired(server.client().acquire("coding", self.key))
        self.assertEqual(server.client().exec(lease.id, "echo yes").execution.stdout, "yes\n")
        self.assertIsNone(server.client().release(lease.id).reason)
        self.assertNotIn("cache_refused", server.log.read_text())

    def test_a_credential_plugin(self):
        version = "client.authentication.k8s.io/v1"
        credential = {"apiVersion": version, "kind": "ExecCredential",
                      "status": {"token": kubectl("create", "token", "lease-server").strip()}}
        (Path(self.folder) / "credential").write_text(json.dumps(credential))
        plugin = Path(self.folder) / "plugin"
        plugin.write_text('#!/bin/sh\nexec cat "$(dirname "$0")/credential"\n')
        plugin.chmod(0o700)
        config = self.kubeconfig({"exec": {"apiVersion": version, "command": "./plugin", "interactiveMode": "Never"}})
        client = self.server(SANDBOX_KUBECONFIG=config).client()
        self.assertIsNone(client.release(self.acquired(client.acquire("coding", self.key)).id).reason)

    def test_a_token_that_is_refused_is_read_again(self):
        token = Path(self.folder) / "token"
        token.write_text(kubectl("create", "token", "lease-server").strip())
        server = self.server(SANDBOX_KUBECONFIG=self.kubeconfig({"tokenFile": "token"}))
        token.write_text("nonsense")
        self.assertEqual(server.client().acquire("coding", self.key).reason, "SERVER_UNAVAILABLE")
        token.write_text(kubectl("create", "token", "lease-server").strip())
        self.acquired(server.client().acquire("coding", self.key))


class Replicas(Case):
    """Two servers on one namespace."""

    def test_one_key_on_both_at_once(self):
        servers = [self.server(), self.server()]
        for turn in range(3):
            with concurrent.futures.ThreadPoolExecutor(8) as crew:
                answers = list(crew.map(lambda i: servers[i % 2].client().acquire("coding", f"{self.key}-{turn}"), range(8)))
            ids = {self.acquired(answer).id for answer in answers}
            self.assertEqual(len(ids), 1)
            self.assertGreaterEqual(sum(not answer.value["replayed"] for answer in answers), 1)
            [claim] = claims()
            self.assertTrue(ids.pop().startswith(claim["metadata"]["name"]))
            # The next turn's key meets a name that is on its way out.
            servers[turn % 2].client().delete(self.acquired(answers[0]).id)

    def test_a_lease_is_known_to_the_other_at_once(self):
        one, two = self.server().client(), self.server().client()
        for _ in range(4):
            lease = self.acquired(one.acquire("coding", f"{self.key}-{time.time_ns()}"))
            self.assertEqual(two.get(lease.id).value["lease"], lease)
            self.assertIsNone(two.release(lease.id).reason)
            eventually(lambda: one.list().value["leases"] == [], 5)

    def test_a_released_key_on_the_other(self):
        one, two = self.server().client(), self.server().client()
        seen = set()
        for turn in range(6):
            client = (one, two)[turn % 2]
            eventually(lambda who=client: who.list().value["leases"] == [], 5)  # it has heard of the release
            answer = client.acquire("coding", self.key)
            self.assertFalse(answer.value["replayed"])
            seen.add(self.acquired(answer).id)
            self.assertIsNone(client.delete(self.acquired(answer).id).reason)
        self.assertEqual(len(seen), 6)


TEMPLATE = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxTemplate"}
WARM_POOL = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool"}


class Failures(Case):
    """Each state of a cluster has its own answer, and no failed acquire leaves a Claim."""

    def broken_pool(self, name, container=None, **spec):
        """A Pool whose Pods are made from this."""
        main = {"name": "shell", "image": "localhost/busybox:test", "imagePullPolicy": "Never", "command": ["sleep", "3600"],
                **(container or {})}
        apply({**TEMPLATE, "metadata": {"name": name}, "spec": {"podTemplate": {"spec": {
            "runtimeClassName": "runc", "terminationGracePeriodSeconds": 0, "containers": [main], **spec}}}},
              {**WARM_POOL, "metadata": {"name": name}, "spec": {"replicas": 0, "sandboxTemplateRef": {"name": name}}})
        self.addCleanup(kubectl, "delete", "--ignore-not-found", "sandboxwarmpool,sandboxtemplate", name)
        return {**POOLS, name: {"warmPoolName": name, "runtimeClassName": "runc"}}

    def test_another_runtime(self):
        pools = {**POOLS, "wrong": {"warmPoolName": "coding", "runtimeClassName": "gvisor"}}
        self.refused(self.server(pools).client().acquire("wrong", self.key), "RUNTIME_CLASS_MISMATCH")

    def test_no_such_container(self):
        pools = {**POOLS, "wrong": {"warmPoolName": "coding", "runtimeClassName": "runc", "containerName": "other"}}
        self.refused(self.server(pools).client().acquire("wrong", self.key), "SANDBOX_CONTAINER_NOT_FOUND")

    def test_a_cluster_that_is_full(self):
        pools = self.broken_pool("huge", {"resources": {"requests": {"cpu": "10000"}}})
        server = self.server(pools, SANDBOX_K8S_EXHAUSTED_TIMEOUT="2s")
        began = time.monotonic()
        self.refused(server.client().acquire("huge", self.key), "POOL_EXHAUSTED")
        self.assertGreater(time.monotonic() - began, 2)
        self.assertLess(time.monotonic() - began, 15)
        self.assertIn("nodes are available", server.log.read_text())  # the scheduler's word is the operator's

    def test_an_image_that_is_missing(self):
        pools = self.broken_pool("imageless", {"image": "localhost/nothing:test"})
        self.refused(self.server(pools).client().acquire("imageless", self.key), "SANDBOX_START_FAILED")

    def test_a_crash_loop(self):
        pools = self.broken_pool("crashing", {"command": ["false"], "readinessProbe": {
            "exec": {"command": ["true"]}, "initialDelaySeconds": 30}})
        self.refused(self.server(pools).client().acquire("crashing", self.key), "SANDBOX_START_FAILED")

    def test_a_program_that_is_not_there(self):
        pools = self.broken_pool("programless", {"command": ["/nonexistent"]})
        self.refused(self.server(pools).client().acquire("programless", self.key), "SANDBOX_START_FAILED")

    def test_never_ready(self):
        pools = self.broken_pool("unready", {"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}})
        server = self.server(pools, SANDBOX_K8S_READY_TIMEOUT="5s")
        self.refused(server.client().acquire("unready", self.key), "SANDBOX_READY_TIMEOUT")

    def test_a_template_that_was_deleted(self):
        pools = self.broken_pool("templateless")
        kubectl("delete", "sandboxtemplate", "templateless")
        server = self.server(pools, SANDBOX_K8S_EXHAUSTED_TIMEOUT="2s")
        self.refused(server.client().acquire("templateless", self.key), "SANDBOX_START_FAILED")

    def test_a_warm_pool_that_is_not_there(self):
        pools = {**POOLS, "nowhere": {"warmPoolName": "nowhere", "runtimeClassName": "runc"}}
        self.refused(self.server(pools).client().acquire("nowhere", self.key), "SANDBOX_START_FAILED")

    def test_a_runtime_class_that_was_deleted(self):
        apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "fleeting"}, "handler": "runc"})
        pools = self.broken_pool("fleeting", runtimeClassName="fleeting")
        pools["fleeting"]["runtimeClassName"] = "fleeting"
        kubectl("delete", "runtimeclass", "fleeting")
        server = self.server(pools, SANDBOX_K8S_EXHAUSTED_TIMEOUT="2s")
        self.refused(server.client().acquire("fleeting", self.key), "SANDBOX_START_FAILED")

    def test_a_cordoned_node(self):
        server = self.server(SANDBOX_K8S_EXHAUSTED_TIMEOUT="2s")
        [node] = get("nodes")
        kubectl("cordon", node["metadata"]["name"])
        self.addCleanup(kubectl, "uncordon", node["metadata"]["name"])
        eventually(lambda: get("node", node["metadata"]["name"])["spec"].get("unschedulable"))
        self.refused(server.client().acquire("coding", self.key), "POOL_EXHAUSTED")
        self.assertIn("sandbox_given_back", server.log.read_text())

    def test_a_caller_who_goes_away(self):
        pools = self.broken_pool("slow", {"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}})
        client = self.server(pools).client()
        call = client.stub.AcquireLease.future(
            lease_pb2.AcquireLeaseRequest(pool="slow", idempotency_key=self.key), metadata=client.metadata())
        eventually(claims)
        call.cancel()
        eventually(lambda: not claims())

    def test_a_cold_start_gets_its_whole_time(self):
        pools = self.broken_pool("cold", {"readinessProbe": {"exec": {"command": ["true"]}, "initialDelaySeconds": 4,
                                                              "periodSeconds": 1}})
        before = time.time()
        lease = self.acquired(self.server(pools).client().acquire("cold", self.key, 60))
        self.assertGreater(lease.expires / 1e9, before + 63)
        [claim] = claims()
        self.assertIn("shutdownTime", claim["spec"]["lifecycle"])


class Faults(Case):
    """Parts of the cluster that go away for a while."""

    def test_the_api_server_is_killed(self):
        server = self.server()
        client = server.client()
        lease = self.acquired(client.acquire("coding", self.key))
        program("cluster", "part", "kill", "kube-apiserver")
        self.assertEqual(client.get(lease.id).value["lease"].id, lease.id)  # reads need no API server
        outcome = []
        waiting = threading.Thread(target=lambda: outcome.append(client.acquire("coding", self.key + "-2")))
        waiting.start()
        program("cluster", "up")
        waiting.join(60)
        self.acquired(outcome[0])
        self.assertEqual({one.id for one in client.list().value["leases"]}, {lease.id, outcome[0].value["lease"].id})
        self.assertEqual(len(claims()), 2)
        self.assertIsNone(client.release(lease.id).reason)

    def test_the_controller_is_away_during_an_acquire(self):
        client = self.server().client()
        program("cluster", "part", "kill", "agent-sandbox-controller")
        outcome = []
        waiting = threading.Thread(target=lambda: outcome.append(client.acquire("coding", self.key)))
        waiting.start()
        eventually(claims)
        program("cluster", "up")
        waiting.join(90)
        self.acquired(outcome[0])

    def test_etcd_pauses(self):
        client = self.server().client()
        program("cluster", "part", "pause", "etcd")
        outcome = []
        waiting = threading.Thread(target=lambda: outcome.append(client.acquire("coding", self.key)))
        waiting.start()
        waiting.join(10)
        program("cluster", "part", "resume", "etcd")
        waiting.join(60)
        self.acquired(outcome[0])
        eventually(lambda: len(claims()) == 1)

    def test_a_server_killed_again_and_again(self):
        server = self.server()
        for turn in range(5):
            with concurrent.futures.ThreadPoolExecutor(4) as crew:
                answers = [crew.submit(server.client(timeout=20).acquire, "coding", f"{self.key}-{turn}-{i}", 20)
                           for i in range(3)]
                time.sleep(0.02 * turn)
                server.kill()
                for answer in answers:
                    try:
                        answer.result()
                    except Exception:  # the connection is gone, as it was meant to be
                        pass
            server.start()
            # Whatever came about is a Lease of its key, or nothing.
            for one in server.client().list().value["leases"]:
                self.assertIsNone(server.client().delete(one.id).reason)
        eventually(lambda: not claims(), 60)


if __name__ == "__main__":
    unittest.main()
