"""The program from outside, through a gRPC client in another language: configuration, addresses, sockets, TLS, tokens,
what hostile or clumsy clients get, health, reflection, and how it ends."""

import base64
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import google
import grpc

# The generated packages google.rpc and grpc.health share their first names with packages of the machine.
for _folder in list(sys.path):
    if os.path.isdir(os.path.join(_folder, "sandbox", "lease", "v1")):
        for _package in (google, grpc):
            _package.__path__.append(os.path.join(_folder, _package.__name__))

# pylint: disable=wrong-import-position
from google.protobuf import descriptor_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc.health.v1 import health_pb2, health_pb2_grpc
from grpc.reflection.v1 import reflection_pb2, reflection_pb2_grpc
from grpc.reflection.v1alpha import reflection_pb2 as alpha_pb2, reflection_pb2_grpc as alpha_pb2_grpc
from sandbox.lease.v1 import lease_pb2

SERVER = os.path.abspath("tests/unit/server/server_double")
SECRET = "a secret"


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(consumer="app", subject="user", secret=SECRET, lifetime=60, version="v1"):
    claims = {"consumerId": consumer, "subjectId": subject, "exp": int(time.time()) + lifetime}
    signed = version + "." + base64url(json.dumps(claims).encode())
    return signed + "." + base64url(hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest())


def bearer(**claims):
    return (("authorization", "Bearer " + token(**claims)),)


def reason(error):
    """ErrorInfo's reason of a failed call; None if it has none."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    assert info.domain == "sandbox.lease.v1"
                    return info.reason
    return None


class Server:
    """One lease-server; `lines` are the JSON objects it logged."""

    def __init__(self, environment, wait=True):
        self.process = subprocess.Popen([SERVER], env=environment, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.plain = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if wait:
            self.await_event("started")

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                if line.startswith("{"):
                    self.lines.append(json.loads(line))
                else:
                    self.plain.append(line)
                self.changed.notify_all()
        with self.changed:
            self.lines.append({"event": "end of log"})
            self.changed.notify_all()

    def await_event(self, event, count=1):
        def found():
            matching = [line for line in self.lines if line["event"] == event]
            return matching if len(matching) >= count else None

        with self.changed:
            if not self.changed.wait_for(lambda: found() or self.lines[-1:] == [{"event": "end of log"}], timeout=20):
                raise AssertionError(f"no {event} in {self.lines} {self.plain}")
            if not found():
                raise AssertionError(f"no {event} in {self.lines} {self.plain}")
            return found()[-1]

    def port(self):
        return [line["port"] for line in self.lines if line["event"] == "listening" and "port" in line][0]

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        code = self.process.wait(timeout=30)
        self.reader.join(timeout=30)
        self.process.stderr.close()
        return code


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="lease-", dir="/tmp")
        self.path = os.path.join(self.folder, "socket")
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            if server.process.poll() is None:
                server.process.kill()
                server.wait()
        shutil.rmtree(self.folder)

    def environment(self, **changes):
        environment = {
            "PATH": os.environ["PATH"],
            "SANDBOX_GRPC_ADDRESS": "unix:" + self.path,
            "SANDBOX_BACKEND": "double",
            "SANDBOX_CONSUMER_SECRETS": json.dumps({"app": SECRET}),
            "SANDBOX_METADATA_SECRET": "metadata secret",
        }
        for name in os.environ:
            if name.endswith("SAN_OPTIONS"):
                environment[name] = os.environ[name]
        environment.update(changes)
        return {name: value for name, value in environment.items() if value is not None}

    def serve(self, wait=True, **changes):
        server = Server(self.environment(**changes), wait=wait)
        self.servers.append(server)
        return server

    def channel(self, target=None, credentials=None, options=()):
        target = target or "unix:" + self.path
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)) + tuple(options)
        if credentials:
            channel = grpc.secure_channel(target, credentials, options)
        else:
            channel = grpc.insecure_channel(target, options)
        self.addCleanup(channel.close)
        return channel

    def unary(self, channel, lease_id="hello", metadata=None, method="Unary", **options):
        call = channel.unary_unary(
            "/test.Plumbing/" + method,
            request_serializer=lambda request: request if isinstance(request, bytes) else request.SerializeToString(),
            response_deserializer=lease_pb2.GetLeaseResponse.FromString)
        request = lease_id if isinstance(lease_id, bytes) else lease_pb2.GetLeaseRequest(lease_id=lease_id)
        return call(request, metadata=bearer() if metadata is None else metadata, timeout=20, **options)

    def failure(self, *arguments, **options):
        with self.assertRaises(grpc.RpcError) as caught:
            self.unary(*arguments, **options)
        return caught.exception


class Configuration(Case):
    def refused(self, **changes):
        result = subprocess.run([SERVER], env=self.environment(**changes), capture_output=True, text=True, timeout=20)
        self.assertEqual(result.returncode, 1, result.stderr)
        plain = [line for line in result.stderr.splitlines() if not line.startswith("{")]
        self.assertEqual(len(plain), 1, result.stderr)
        self.assertTrue(plain[0].startswith("lease-server: "))
        return plain[0]

    def test_missing_settings_are_named(self):
        for name in ("SANDBOX_GRPC_ADDRESS", "SANDBOX_BACKEND", "SANDBOX_CONSUMER_SECRETS", "SANDBOX_METADATA_SECRET"):
            self.assertIn(name, self.refused(**{name: None}))
            self.assertIn(name, self.refused(**{name: ""}))

    def test_bad_values_are_named_and_secrets_are_not_shown(self):
        cases = [
            ("SANDBOX_BACKEND", "cloud"), ("SANDBOX_BACKEND", "kubernetes"),
            ("SANDBOX_CONSUMER_SECRETS", "hunter2"), ("SANDBOX_CONSUMER_SECRETS", '{"app":["hunter2",""]}'),
            ("SANDBOX_CONSUMER_SECRETS", '["hunter2"]'), ("SANDBOX_CONSUMER_SECRETS", "{}"),
            ("SANDBOX_GRPC_THREADS", "0"), ("SANDBOX_GRPC_THREADS", "17"), ("SANDBOX_GRPC_THREADS", "two"),
            ("SANDBOX_LOG_LEVEL", "loud"),
            ("SANDBOX_GRPC_ADDRESS", "unix:"), ("SANDBOX_GRPC_ADDRESS", "nonsense"), ("SANDBOX_GRPC_ADDRESS", ","),
            ("SANDBOX_GRPC_ADDRESS", "host:"), ("SANDBOX_GRPC_ADDRESS", ":1"), ("SANDBOX_GRPC_ADDRESS", "host:65536"),
            ("SANDBOX_GRPC_ADDRESS", "::1:80"), ("SANDBOX_GRPC_ADDRESS", "unix:" + "x" * 200),
            ("SANDBOX_GRPC_ADDRESS", "unix:/nonexistent/socket"), ("SANDBOX_GRPC_ADDRESS", "127.0.0.1:http"),
            ("SANDBOX_GRPC_ADDRESS", ",".join(["127.0.0.1:0"] * 17)),
            ("SANDBOX_GRPC_TLS_CERT", "/nonexistent"), ("SANDBOX_GRPC_TLS_KEY", "/nonexistent"),
            ("SANDBOX_GRPC_TLS_CLIENT_CA", "/nonexistent"),
        ]
        for name, value in cases:
            line = self.refused(**{name: value})
            self.assertIn(name, line, value)
            self.assertNotIn("hunter2", line)
        self.assertEqual(os.listdir(self.folder), [])

    def test_config_file_gives_the_same(self):
        config = os.path.join(self.folder, "config.json")
        settings = {name: value for name, value in self.environment().items() if name.startswith("SANDBOX_")}
        settings["SANDBOX_CONSUMER_SECRETS"] = {"app": SECRET}
        with open(config, "w") as file:
            json.dump(settings, file)
        process = subprocess.Popen([SERVER, "--config", config], env={"PATH": os.environ["PATH"]},
                                   stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if '"started"' in line:
                break
        self.assertEqual(self.unary(self.channel()).lease.id, "hello")
        process.terminate()
        process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=20), 0)

    def test_command_line(self):
        for argument, code in (("--help", 0), ("--version", 0), ("--nonsense", 2), ("nonsense", 2)):
            result = subprocess.run([SERVER, argument], capture_output=True, text=True, timeout=20)
            self.assertEqual(result.returncode, code)
        result = subprocess.run([SERVER, "--config", "/nonexistent"], env=self.environment(), capture_output=True,
                                text=True, timeout=20)
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent", result.stderr)

    def test_backend_that_fails_to_start_ends_the_program(self):
        server = self.serve(wait=False, SANDBOX_BACKEND="broken")
        self.assertEqual(server.wait(), 1)
        self.assertEqual(server.await_event("start_failed")["detail"], "it is broken")
        self.assertEqual(os.listdir(self.folder), [])

    def test_signal_while_starting_ends_the_program(self):
        server = self.serve(wait=False, SANDBOX_BACKEND="slow")
        server.await_event("listening")
        self.assertEqual(server.stop(), 0)


class Sockets(Case):
    def test_socket_is_the_owners_alone_and_goes_with_the_server(self):
        server = self.serve()
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        self.assertEqual(self.unary(self.channel()).lease.pool, "app/user")
        self.assertEqual(server.stop(), 0)
        self.assertEqual(os.listdir(self.folder), [])

    def test_second_server_leaves_the_first_alone(self):
        self.serve()
        second = self.serve(wait=False)
        self.assertEqual(second.wait(), 1)
        self.assertIn("another server", "".join(second.plain))
        self.assertEqual(self.unary(self.channel()).lease.id, "hello")

    def test_socket_of_a_killed_server_is_taken_over(self):
        server = self.serve()
        server.process.kill()
        server.wait()
        self.assertTrue(os.path.exists(self.path))
        self.serve()
        self.assertEqual(self.unary(self.channel()).lease.id, "hello")

    def test_what_is_not_ours_is_left_alone(self):
        with open(self.path, "w") as file:
            file.write("precious")
        server = self.serve(wait=False)
        self.assertEqual(server.wait(), 1)
        self.assertIn("not a socket", "".join(server.plain))
        with open(self.path) as file:
            self.assertEqual(file.read(), "precious")
        os.unlink(self.path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(self.path)
            other.listen()
            server = self.serve(wait=False)
            self.assertEqual(server.wait(), 1)
            self.assertIn("another program", "".join(server.plain))
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(self.path)

    def test_several_addresses(self):
        server = self.serve(SANDBOX_GRPC_ADDRESS=f"unix:{self.path}, 127.0.0.1:0 ,unix:{self.path}2")
        for target in ("unix:" + self.path, f"127.0.0.1:{server.port()}", f"unix:{self.path}2"):
            self.assertEqual(self.unary(self.channel(target)).lease.id, "hello")

    def test_port_in_use_is_told(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            server = self.serve(wait=False, SANDBOX_GRPC_ADDRESS=f"unix:{self.path},127.0.0.1:{other.getsockname()[1]}")
            self.assertEqual(server.wait(), 1)
            self.assertIn("SANDBOX_GRPC_ADDRESS", "".join(server.plain))
            self.assertEqual(os.listdir(self.folder), [])


class Tls(Case):
    def make(self, name, authority=None, subject="localhost"):
        """A key and a certificate under the folder: `name`.key and `name`.pem."""
        key, certificate = (os.path.join(self.folder, name + end) for end in (".key", ".pem"))
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                   "-keyout", key, "-out", certificate, "-subj", f"/CN={subject}", "-days", "1", "-addext",
                   "subjectAltName=DNS:localhost"]
        if authority:
            command += ["-CA", os.path.join(self.folder, authority + ".pem"), "-CAkey",
                        os.path.join(self.folder, authority + ".key")]
        subprocess.run(command, check=True, capture_output=True)
        return certificate, key

    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def tls(self, **changes):
        names = {"SANDBOX_GRPC_TLS_CERT": "server.pem", "SANDBOX_GRPC_TLS_KEY": "server.key"}
        settings = {name: os.path.join(self.folder, file) for name, file in names.items()}
        settings.update(changes)
        return self.serve(SANDBOX_GRPC_ADDRESS="localhost:0", **settings)

    def test_tls(self):
        self.make("server")
        server = self.tls()
        trusting = grpc.ssl_channel_credentials(self.read("server.pem"))
        self.assertEqual(self.unary(self.channel(f"localhost:{server.port()}", trusting)).lease.id, "hello")
        error = self.failure(self.channel(f"localhost:{server.port()}"))
        self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)

    def test_mutual_tls(self):
        self.make("server")
        self.make("clients", subject="clients")
        self.make("client", "clients", subject="client")
        self.make("stranger", subject="stranger")
        server = self.tls(SANDBOX_GRPC_TLS_CLIENT_CA=os.path.join(self.folder, "clients.pem"))
        target = f"localhost:{server.port()}"

        def credentials(name):
            return grpc.ssl_channel_credentials(self.read("server.pem"), self.read(name + ".key"),
                                                self.read(name + ".pem"))

        self.assertEqual(self.unary(self.channel(target, credentials("client"))).lease.id, "hello")
        for refused in (credentials("stranger"), grpc.ssl_channel_credentials(self.read("server.pem"))):
            self.assertEqual(self.failure(self.channel(target, refused)).code(), grpc.StatusCode.UNAVAILABLE)

    def test_certificates_are_read_again_when_they_change(self):
        self.make("server")
        self.make("next")
        old = grpc.ssl_channel_credentials(self.read("server.pem"))
        new = grpc.ssl_channel_credentials(self.read("next.pem"))
        server = self.tls()
        target = f"localhost:{server.port()}"
        self.assertEqual(self.unary(self.channel(target, old)).lease.id, "hello")
        # Half of the change: the certificate is there, its key is not. The old pair stays in force.
        os.replace(os.path.join(self.folder, "next.pem"), os.path.join(self.folder, "server.pem"))
        self.assertEqual(self.unary(self.channel(target, old)).lease.id, "hello")
        server.await_event("certificates_unusable")
        os.replace(os.path.join(self.folder, "next.key"), os.path.join(self.folder, "server.key"))
        self.assertEqual(self.unary(self.channel(target, new)).lease.id, "hello")
        self.assertEqual(self.failure(self.channel(target, old)).code(), grpc.StatusCode.UNAVAILABLE)

    def test_useless_files_stop_the_start(self):
        self.make("server")
        self.make("other")
        for cert, key, told in (("server.key", "server.key", "holds no PEM certificate"),
                                ("server.pem", "server.pem", "holds no usable PEM private key"),
                                ("server.pem", "other.key", "is not the one of the certificate")):
            server = self.serve(wait=False, SANDBOX_GRPC_ADDRESS="localhost:0",
                                SANDBOX_GRPC_TLS_CERT=os.path.join(self.folder, cert),
                                SANDBOX_GRPC_TLS_KEY=os.path.join(self.folder, key))
            self.assertEqual(server.wait(), 1)
            self.assertIn(told, "".join(server.plain))
            self.assertIn("SANDBOX_GRPC_TLS", "".join(server.plain))


class Calls(Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def assert_alive(self):
        self.assertEqual(self.unary(self.channel()).lease.id, "hello")

    def connect(self):
        client = socket.socket(socket.AF_UNIX)
        client.connect(self.path)
        return client

    def test_tokens(self):
        channel = self.channel()
        self.assertEqual(self.unary(channel, metadata=bearer(subject="Zo\u00eb")).lease.pool, "app/Zo\u00eb")
        good = token()
        refused = [(), bearer(lifetime=-10), bearer(lifetime=400), bearer(secret="other"), bearer(consumer="stranger"),
                   bearer(version="v2"), (("authorization", good),), (("authorization", "bearer " + good),),
                   (("authorization", "Bearer  " + good),), bearer() + bearer(),
                   (("authorization", "Bearer " + "x" * 9000),)]
        for metadata in refused:
            error = self.failure(channel, metadata=metadata)
            self.assertEqual(error.code(), grpc.StatusCode.UNAUTHENTICATED, metadata)
            self.assertEqual(error.details(), "Invalid or expired subject token")
            self.assertEqual(reason(error), "UNAUTHORIZED")

    def test_unknown_method_and_service(self):
        for path in ("/test.Plumbing/Nothing", "/nothing.Service/Unary", "/grpc.health.v1.Health/Nothing"):
            with self.assertRaises(grpc.RpcError) as caught:
                self.channel().unary_unary(path)(b"", metadata=bearer(), timeout=20)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
            self.assertEqual(reason(caught.exception), "NOT_FOUND")

    def test_bad_request_names_the_field(self):
        error = self.failure(self.channel(), lease_id="")
        self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertEqual(reason(error), "INVALID_REQUEST")
        error = self.failure(self.channel(), lease_id=b"\xff\xff\xff")
        self.assertEqual(reason(error), "INVALID_REQUEST")

    def test_message_over_the_limit(self):
        error = self.failure(self.channel(), lease_id=bytes(12 << 20))
        self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assert_alive()

    def test_compressed_message(self):
        error = self.failure(self.channel(), lease_id="x" * 10000, compression=grpc.Compression.Gzip)
        self.assertEqual(error.code(), grpc.StatusCode.UNIMPLEMENTED)
        self.assert_alive()

    def test_headers_without_end(self):
        metadata = bearer() + tuple((f"x-filler-{i}", "y" * 1000) for i in range(40))
        error = self.failure(self.channel(), metadata=metadata)
        self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, error)
        self.assert_alive()

    def test_garbage_on_the_socket(self):
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        settings = b"\0\0\0\4\0\0\0\0\0"
        for garbage in (b"", b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", preface, preface + b"\xff" * 1000,
                        preface + settings + b"\0\0\5\1\5\0\0\0\1\xff\xff\xff\xff\xff",
                        preface + settings + b"\xff\xff\xff\0\0\0\0\0\1", os.urandom(5000)):
            with self.connect() as client:
                try:
                    client.sendall(garbage)
                    client.shutdown(socket.SHUT_WR)
                    client.settimeout(20)
                    while client.recv(65536):
                        pass
                except (BrokenPipeError, ConnectionResetError):
                    pass
            self.assert_alive()

    def test_deadline(self):
        call = self.channel().unary_unary("/test.Plumbing/Unary")
        with self.assertRaises(grpc.RpcError) as caught:
            call(lease_pb2.GetLeaseRequest(lease_id="wait").SerializeToString(), metadata=bearer(), timeout=0.2)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)

    def test_streams(self):
        channel = self.channel()
        hello = lease_pb2.GetLeaseRequest(lease_id="hello").SerializeToString()
        self.assertEqual(list(channel.stream_stream("/test.Plumbing/Bidirectional")(
            iter([hello, b"1", b"2"]), metadata=bearer(), timeout=20)), [hello, b"1", b"2"])
        answer = channel.stream_unary("/test.Plumbing/ClientStream")(iter([hello] * 50), metadata=bearer(), timeout=20)
        self.assertEqual(lease_pb2.GetLeaseResponse.FromString(answer).lease.id, "50")
        request = lease_pb2.ListLeasesRequest(limit=30, pool="").SerializeToString()
        chunks = [lease_pb2.UploadFileRequest.FromString(message).data for message in channel.unary_stream(
            "/test.Plumbing/ServerStream")(request, metadata=bearer(), timeout=20)]
        self.assertEqual(chunks, [bytes([left]) * 100000 for left in range(29, -1, -1)])


class Health(Case):
    def test_check(self):
        self.serve()
        stub = health_pb2_grpc.HealthStub(self.channel())
        for service in ("", "sandbox.lease.v1.LeaseService"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
            self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)
        with self.assertRaises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="nothing"), timeout=20)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertEqual(reason(caught.exception), "NOT_FOUND")

    def test_watch(self):
        server = self.serve()
        stub = health_pb2_grpc.HealthStub(self.channel())
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=20)
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="nothing"), timeout=20)
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
        self.assertEqual(next(unknown).status, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        server.process.terminate()
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.NOT_SERVING)
        self.assertEqual(list(watch), [])
        self.assertEqual(list(unknown), [])
        self.assertEqual(server.wait(), 0)

    def test_cancelled_watch_is_forgotten(self):
        server = self.serve()
        channel = self.channel()
        for _ in range(50):
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=20)
            self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
            watch.cancel()
        self.assertEqual(server.stop(), 0)


class Reflection(Case):
    VERSIONS = ((reflection_pb2, reflection_pb2_grpc), (alpha_pb2, alpha_pb2_grpc))

    def ask(self, version, **question):
        messages, services = version
        stub = services.ServerReflectionStub(self.channel())
        request = messages.ServerReflectionRequest(host="host", **question)
        answers = list(stub.ServerReflectionInfo(iter([request]), timeout=20))
        self.assertEqual(len(answers), 1)
        self.assertEqual(answers[0].valid_host, "host")
        self.assertEqual(answers[0].original_request, request)
        return answers[0]

    def files(self, answer):
        return [descriptor_pb2.FileDescriptorProto.FromString(file).name
                for file in answer.file_descriptor_response.file_descriptor_proto]

    def test_services_are_listed(self):
        self.serve()
        for version in self.VERSIONS:
            answer = self.ask(version, list_services="")
            self.assertEqual(sorted(service.name for service in answer.list_services_response.service), [
                "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection", "sandbox.lease.v1.LeaseService"])

    def test_files_come_with_what_they_import(self):
        self.serve()
        wanted = ["sandbox/lease/v1/lease.proto", "google/protobuf/timestamp.proto"]
        for version in self.VERSIONS:
            self.assertEqual(self.files(self.ask(version, file_by_filename=wanted[0])), wanted)
            for symbol in ("sandbox.lease.v1.LeaseService", "sandbox.lease.v1.LeaseService.Exec",
                           "sandbox.lease.v1.Lease", "sandbox.lease.v1.Lease.id", "sandbox.lease.v1.Command.EnvEntry",
                           "sandbox.lease.v1.LeaseStatus", "sandbox.lease.v1.LEASE_STATUS_ACTIVE",
                           "sandbox.lease.v1.StreamExecRequest.request"):
                self.assertEqual(self.files(self.ask(version, file_containing_symbol=symbol)), wanted, symbol)

    def test_every_service_can_be_described(self):
        self.serve()
        listed = self.ask(self.VERSIONS[0], list_services="").list_services_response.service
        for service in listed:
            self.assertTrue(self.files(self.ask(self.VERSIONS[0], file_containing_symbol=service.name)))
        self.assertIn("google/rpc/error_details.proto",
                      self.files(self.ask(self.VERSIONS[0], file_containing_symbol="google.rpc.ErrorInfo")))

    def test_what_is_unknown(self):
        self.serve()
        for version in self.VERSIONS:
            extension = version[0].ExtensionRequest(containing_type="sandbox.lease.v1.Lease", extension_number=1)
            for question in ({"file_by_filename": "nothing.proto"}, {"file_containing_symbol": "nothing"},
                             {"file_containing_symbol": ""}, {"file_containing_symbol": "sandbox.lease.v1"},
                             {"file_containing_extension": extension}, {"all_extension_numbers_of_type": "nothing"}):
                self.assertEqual(self.ask(version, **question).error_response.error_code,
                                 grpc.StatusCode.NOT_FOUND.value[0], question)
            answer = self.ask(version, all_extension_numbers_of_type="sandbox.lease.v1.Lease")
            self.assertEqual(answer.all_extension_numbers_response.base_type_name, "sandbox.lease.v1.Lease")
            self.assertEqual(list(answer.all_extension_numbers_response.extension_number), [])

    def test_a_question_that_asks_nothing_is_refused(self):
        self.serve()
        stub = reflection_pb2_grpc.ServerReflectionStub(self.channel())
        with self.assertRaises(grpc.RpcError) as caught:
            list(stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest()]), timeout=20))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_many_questions_on_one_stream(self):
        self.serve()
        stub = reflection_pb2_grpc.ServerReflectionStub(self.channel())
        requests = [reflection_pb2.ServerReflectionRequest(file_containing_symbol="sandbox.lease.v1.Lease")] * 40
        self.assertEqual(len(list(stub.ServerReflectionInfo(iter(requests), timeout=20))), 40)


class Stop(Case):
    def begin(self, lease_id):
        channel = self.channel()
        call = channel.unary_unary("/test.Plumbing/Unary", response_deserializer=lease_pb2.GetLeaseResponse.FromString)
        request = lease_pb2.GetLeaseRequest(lease_id=lease_id).SerializeToString()
        future = call.future(request, metadata=bearer(), timeout=60)
        self.unary(channel)  # on the same connection: when it is answered, the one before has arrived
        return future

    def test_idle_connections_do_not_hold_it_up(self):
        server = self.serve()
        channel = self.channel()
        self.unary(channel)
        begun = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - begun, 5)
        server.await_event("stopped")

    def test_open_reflection_does_not_hold_it_up(self):
        server = self.serve()
        release = threading.Event()

        def questions():
            yield reflection_pb2.ServerReflectionRequest(list_services="")
            release.wait(30)

        stream = reflection_pb2_grpc.ServerReflectionStub(self.channel()).ServerReflectionInfo(questions(), timeout=30)
        next(stream)
        begun = time.monotonic()
        self.assertEqual(server.stop(signal.SIGINT), 0)
        self.assertLess(time.monotonic() - begun, 5)
        release.set()

    def test_running_call_gets_its_time_and_is_then_aborted(self):
        server = self.serve()
        future = self.begin("wait")
        begun = time.monotonic()
        server.process.terminate()
        error = future.exception(timeout=30)
        self.assertEqual(error.code(), grpc.StatusCode.CANCELLED)
        self.assertEqual(reason(error), "ABORTED")
        self.assertGreater(time.monotonic() - begun, 9)
        self.assertEqual(server.wait(), 0)
        self.assertLess(time.monotonic() - begun, 15)

    def test_second_signal_ends_it_at_once(self):
        server = self.serve()
        future = self.begin("wait")
        server.process.terminate()
        server.await_event("stopping")
        begun = time.monotonic()
        server.process.terminate()
        self.assertEqual(server.wait(), 128 + signal.SIGTERM)
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(os.listdir(self.folder), [])
        self.assertEqual(future.exception(timeout=20).code(), grpc.StatusCode.UNAVAILABLE)


if __name__ == "__main__":
    unittest.main()
