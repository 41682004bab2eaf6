"""grpcurl against a real server: reflection, commands and errors, over a unix socket and over TCP, with a token that
leasectl minted. tools/test builds grpcurl; where it is missing, the test says how to get it and fails."""
import base64
import functools
import json
import os
import re
import shutil
import subprocess
import unittest

from tests.support import paths
from tests.support.cases import PATIENCE, POOL
from tests.support.platform import SECRETS, Platform

SERVICE = "sandbox.lease.v1.LeaseService"


def grpcurl_path():
    places = ("~/.cache/agent-sandbox-platform/grpcurl-1.9.3", "~/go/bin")
    found = shutil.which("grpcurl", path=os.pathsep.join([os.path.expanduser(place) for place in places] +
                                                         [os.environ["PATH"]]))
    if not found:
        raise AssertionError("grpcurl is missing: go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3")
    return found


class Grpcurl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.platform = Platform()
        unix = cls.platform.server.environment["SANDBOX_GRPC_ADDRESS"]
        cls.platform.server.environment["SANDBOX_GRPC_ADDRESS"] = unix + ",127.0.0.1:0"
        cls.platform.start()
        port = cls.platform.server.log.find("listening", tls="none")["port"]
        cls.addresses = (unix, "127.0.0.1:%d" % port)

    @classmethod
    def tearDownClass(cls):
        cls.platform.stop()

    def run_grpcurl(self, address, *arguments, data=None, token=None, status=0):
        """Returns what it wrote to standard output and to standard error."""
        command = [grpcurl_path(), "-plaintext", "-max-time", str(int(30 * PATIENCE))]
        if token:
            command += ["-H", "authorization: Bearer " + token]
        if data is not None:
            command += ["-d", json.dumps(data)]
        done = subprocess.run(command + [address, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, timeout=60 * PATIENCE, check=False)
        self.assertEqual(done.returncode, status, (arguments, done.stdout, done.stderr))
        return done.stdout, done.stderr

    def call(self, address, token, method, data):
        """A unary call's answer."""
        return json.loads(self.run_grpcurl(address, SERVICE + "/" + method, data=data, token=token)[0])

    def token(self):
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "SANDBOX_CONSUMER_ID": "alpha",
                       "SANDBOX_SUBJECT_ID": "grpcurl", "SANDBOX_CONSUMER_SECRET": SECRETS["alpha"]}
        done = subprocess.run([paths.built("tools/leasectl/leasectl"), "token"], env=environment, text=True,
                              stdout=subprocess.PIPE, check=True)
        return done.stdout.strip()

    def test_list(self):
        for address in self.addresses:
            services = self.run_grpcurl(address, "list")[0].split()
            self.assertIn(SERVICE, services)
            self.assertIn("grpc.health.v1.Health", services)
            methods = self.run_grpcurl(address, "list", SERVICE)[0].split()
            self.assertIn(SERVICE + ".StreamExec", methods)

    def test_describe(self):
        for address in self.addresses:
            self.assertIn("rpc Exec (", self.run_grpcurl(address, "describe", SERVICE)[0])
            message = self.run_grpcurl(address, "describe", "sandbox.lease.v1.ExecRequest")[0]
            self.assertRegex(message, r"string lease_id = \d+;")
            self.assertIn("is a service", self.run_grpcurl(address, "describe", "grpc.health.v1.Health")[0])

    def test_health(self):
        for address in self.addresses:
            out = self.run_grpcurl(address, "grpc.health.v1.Health/Check")[0]
            self.assertEqual(json.loads(out)["status"], "SERVING")

    def test_a_lease_and_a_command(self):
        token = self.token()
        for number, address in enumerate(self.addresses):
            call = functools.partial(self.call, address, token)
            lease = call("AcquireLease", {"pool": POOL, "idempotency_key": "grpcurl-%d" % number})["lease"]["id"]
            self.assertRegex(lease, re.compile("^lease-[0-9a-f]{32}$"))
            done = call("Exec", {"lease_id": lease, "command": {"command": "echo out; echo err >&2; exit 3"}})
            self.assertEqual(base64.b64decode(done["stdout"]), b"out\n")
            self.assertEqual(base64.b64decode(done["stderr"]), b"err\n")
            self.assertEqual(done["exitCode"], 3)
            self.assertEqual(call("ReleaseLease", {"lease_id": lease})["lease"]["status"], "LEASE_STATUS_RELEASED")

    def test_errors_are_decoded(self):
        """grpcurl prints the details of an error when it knows their types: from reflection, as everything else."""
        for address in self.addresses:
            unknown = {"lease_id": "lease-" + "0" * 32}
            said = self.run_grpcurl(address, SERVICE + "/GetLease", data=unknown, token=self.token(), status=64 + 5)[1]
            self.assertIn("Code: NotFound", said)
            self.assertRegex(said, r'"@type": ?"type.googleapis.com/google.rpc.ErrorInfo"')
            self.assertRegex(said, r'"reason": ?"LEASE_NOT_FOUND"')
            self.assertRegex(said, r'"domain": ?"sandbox.lease.v1"')
            said = self.run_grpcurl(address, SERVICE + "/GetLease", data=unknown, status=64 + 16)[1]
            self.assertRegex(said, r'"reason": ?"UNAUTHORIZED"')
            said = self.run_grpcurl(address, SERVICE + "/AcquireLease", data={"pool": ""}, token=self.token(),
                                    status=64 + 3)[1]
            self.assertRegex(said, r'"field": ?"')


if __name__ == "__main__":
    unittest.main()
