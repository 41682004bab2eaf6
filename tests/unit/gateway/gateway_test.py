"""lease-gateway over real sockets, in front of a test double of lease-server: what the contract asks of the gateway
alone, and what a real server never does to it."""
import base64
import hashlib
import http.client
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from tests.unit.gateway import lease_double

GOOD = "Bearer " + lease_double.TOKEN
LEASE = "/v1/leases/lease-0123456789abcdef0123456789abcdef"
OCTETS = "application/octet-stream"
TIMES = {"createdAt": "2026-01-02T03:04:05.000000001Z", "expiresAt": "2026-01-02T04:04:05.500000000Z",
         "lastUsedAt": "2026-01-02T03:04:05.000000000Z"}


def digest(data):
    return "sha-256=:%s:" % base64.b64encode(hashlib.sha256(data).digest()).decode()


def pattern(size):
    return (bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1))[:size]


class Gateway:
    """A running lease-gateway."""

    def __init__(self, grpc_address, **settings):
        environment = {"PATH": "/usr/bin:/bin", "SANDBOX_ADDRESS": "127.0.0.1:0", "SANDBOX_GRPC_ADDRESS": grpc_address}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        environment.update(settings)
        self.process = subprocess.Popen(["gateway/lease-gateway"], env=environment, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.port = None
        while self.port is None:
            line = self.process.stderr.readline()
            if not line:
                raise AssertionError("the gateway did not start: " + "".join(self.lines))
            self.lines.append(line)
            found = re.search(r'"gateway_listening","address":"127.0.0.1:(\d+)"', line)
            self.port = int(found.group(1)) if found else None
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self.reader.start()

    def stop(self, expected=0):
        self.process.send_signal(signal.SIGTERM)
        result = self.process.wait(30)
        self.finish()
        if result != expected:
            raise AssertionError("the gateway ended with %d: %s" % (result, "".join(self.lines)))

    def finish(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


class Case(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        # Not TEST_TMPDIR: a unix socket's path is short.
        cls.folder = tempfile.TemporaryDirectory(prefix="gateway")
        cls.address = "unix:%s/grpc" % cls.folder.name
        cls.double = lease_double.Double(cls.address)
        cls.gateway = Gateway(cls.address)

    @classmethod
    def tearDownClass(cls):
        cls.gateway.stop()
        cls.double.stop()
        cls.folder.cleanup()

    def setUp(self):
        self.service = self.double.service
        self.service.__init__()

    def start_gateway(self, address=None, **settings):
        gateway = Gateway(address or self.address, **settings)
        self.addCleanup(gateway.finish)
        return gateway

    def call(self, method, path, body=None, token=GOOD, headers=None, gateway=None):
        connection = http.client.HTTPConnection("127.0.0.1", (gateway or self.gateway).port, timeout=30)
        sent = {"Authorization": token} if token is not None else {}
        sent.update(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        connection.request(method, path, body=body, headers=sent)
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    def assert_error(self, answer, status, code, message=None):
        self.assertEqual((answer.status, answer.json()["error"]["code"]), (status, code), answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        self.assertEqual(answer.json()["error"]["requestId"], answer.headers["X-Request-Id"])
        self.assertEqual(sorted(answer.json()["error"]), ["code", "message", "requestId"])
        if message is not None:
            self.assertEqual(answer.json()["error"]["message"], message)

    def raw(self, data, gateway=None, end=False):
        """Everything the gateway sends until it closes."""
        with (gateway or self.gateway).connect() as connection:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            return self.rest(connection)

    def rest(self, connection):
        received = b""
        while True:
            piece = connection.recv(65536)
            if not piece:
                return received
            received += piece

    def eventually(self, condition, seconds=10):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "it did not come to pass")
            time.sleep(0.01)


class RoutesTest(Case):
    def test_health_needs_no_token(self):
        answer = self.call("GET", "/health", token=None)
        self.assertEqual((answer.status, answer.body), (200, b'{"status":"ok"}'))
        head = self.call("HEAD", "/health", token=None)
        self.assertEqual((head.status, head.body, head.headers["Content-Length"]), (200, b"", "15"))

    def test_ready_is_the_servers_word(self):
        self.assertEqual(self.call("GET", "/ready", token=None).body, b'{"status":"ready"}')
        self.double.health.ready = False
        answer = self.call("GET", "/ready", token=None)
        self.double.health.ready = True
        self.assertEqual((answer.status, answer.body), (503, b'{"status":"not_ready"}'))

    def test_lease(self):
        answer = self.call("GET", LEASE)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.json(), {"lease": {"id": LEASE[11:], "pool": "coding", "status": "active", **TIMES}})

    def test_release_reads_no_body(self):
        for body in (None, "no JSON", "{}"):
            answer = self.call("POST", LEASE + "/release", body=body)
            self.assertEqual((answer.status, answer.json()["lease"]["status"]), (200, "released"))

    def test_delete(self):
        answer = self.call("DELETE", LEASE)
        self.assertEqual((answer.status, answer.body, answer.headers["Content-Length"], answer.headers["Content-Type"]),
                         (204, b"", None, None))

    def test_path_is_decoded(self):
        self.call("GET", "/v1/le%61ses/a%2Fb%20c%C3%A9+")
        self.assertEqual(self.service.requests[-1].lease_id, "a/b cé+")
        self.call("GET", "http://elsewhere/v1/leases/absolute")
        self.assertEqual(self.service.requests[-1].lease_id, "absolute")

    def test_ids_that_cannot_be(self):
        for id_ in ("%00", "a%00b", "%ff"):
            self.assert_error(self.call("GET", "/v1/leases/" + id_), 404, "LEASE_NOT_FOUND", "Lease not found")
        for id_ in ("%", "%4", "%zz", "a%"):
            self.call("GET", "/v1/leases/" + id_)
            self.assertEqual(self.service.requests[-1].lease_id, id_)

    def test_unknown_path(self):
        for path in ("/", "/v1", "/v1/", "/v2/leases", "/v1/leases/", "/health/", "/v1/lease", "/ready/x", "/v1//leases", "*"):
            self.assert_error(self.call("GET", path), 404, "NOT_FOUND", "Route not found")

    def test_unknown_method(self):
        for method, path, allow in (("PUT", "/v1/leases", "GET, POST"), ("HEAD", "/v1/leases", "GET, POST"),
                                    ("PATCH", LEASE, "GET, DELETE"), ("POST", LEASE, "GET, DELETE"),
                                    ("GET", LEASE + "/exec", "POST"), ("GET", LEASE + "/release", "POST"),
                                    ("POST", LEASE + "/files/content", "GET, PUT"), ("GET", LEASE + "/files/read", "POST"),
                                    ("GET", LEASE + "/nothing", ""), ("POST", LEASE + "/files/nothing", ""),
                                    ("POST", LEASE + "/", ""), ("DELETE", LEASE + "/a/b/c/d/e", ""),
                                    ("BREW", LEASE, "GET, DELETE")):
            answer = self.call(method, path)
            self.assertEqual(answer.headers["Allow"], allow)
            if method != "HEAD":
                self.assert_error(answer, 405, "METHOD_NOT_ALLOWED", "Method not allowed")
        self.assertEqual(self.call("POST", "/health", token=None).status, 405)

    def test_token_is_checked_before_anything_else(self):
        digest_of_nothing = {"Content-Digest": digest(b"")}
        for method, path, body, headers in (
                ("GET", "/", None, {}), ("PUT", "/v1/leases", None, {}), ("GET", LEASE + "/nothing", None, {}),
                ("POST", "/v1/leases", "no JSON", {}), ("POST", "/v1/leases?a=b", "{}", {}),
                ("POST", LEASE + "/exec", "[]", {}), ("GET", "/v1/leases?limit=x", None, {}),
                ("POST", LEASE + "/exec", " " * 1048577, {}), ("GET", LEASE + "/files/content", None, {}),
                ("PUT", LEASE + "/files/content?path=a", "", {}), ("GET", "/v1/leases/%00", None, {}),
                ("PUT", LEASE + "/files/content?path=a", "", {"Content-Type": OCTETS}),
                ("PUT", LEASE + "/files/content?path=a", "", {"Content-Type": OCTETS, **digest_of_nothing}),
                ("GET", LEASE, None, {}), ("DELETE", LEASE, None, {})):
            for token in (None, "", "Bearer", "bearer " + lease_double.TOKEN, "Bearer  " + lease_double.TOKEN,
                          "Basic eDp5", "Bearer \xe9".encode("latin-1"), "Bearer " + "x" * 8192, "Bearer " + "x" * 8193, "Bearer " + "x" * 20000):
                answer = self.call(method, path, body, token, headers)
                self.assert_error(answer, 401, "UNAUTHORIZED", "Invalid or expired subject token")
                self.assertEqual(answer.headers["WWW-Authenticate"], "Bearer")

    def test_two_tokens_are_none(self):
        answer = self.raw(("GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: %s\r\nAuthorization: %s\r\n\r\n"
                           % (LEASE, GOOD, GOOD)).encode())
        self.assertTrue(answer.startswith(b"HTTP/1.1 401 "), answer)

    def test_request_id(self):
        self.assertEqual(self.call("GET", "/health", headers={"X-Request-Id": "My_own.id-1"}).headers["X-Request-Id"],
                         "My_own.id-1")
        seen = set()
        for given in (None, "", "no spaces", "x" * 129, "quote\"", "caf\xe9"):
            id_ = self.call("GET", "/health", headers={} if given is None else {"X-Request-Id": given.encode("latin-1")}
                            ).headers["X-Request-Id"]
            self.assertRegex(id_, "^[0-9a-f]{32}$")
            seen.add(id_)
        self.assertEqual(len(seen), 6)


class TranslationTest(Case):
    def acquire(self, body, key="key", query=""):
        return self.call("POST", "/v1/leases" + query, body, headers={} if key is None else {"Idempotency-Key": key})

    def test_acquire(self):
        answer = self.acquire({"pool": "coding", "ttlSeconds": 60, "unknown": [1, {}]})
        self.assertEqual(answer.status, 201)
        self.assertEqual(answer.json()["lease"]["pool"], "coding")
        self.assertIs(answer.json()["replayed"], False)
        request = self.service.requests[-1]
        self.assertEqual((request.pool, request.ttl_seconds, request.idempotency_key), ("coding", 60, "key"))
        self.assertIs(self.acquire({"pool": "coding"}, "again").json()["replayed"], True)
        self.assertFalse(self.service.requests[-1].HasField("ttl_seconds"))
        self.acquire({"pool": "coding", "ttlSeconds": None})
        self.assertFalse(self.service.requests[-1].HasField("ttl_seconds"))

    def test_idempotency_key_is_the_servers_to_judge(self):
        for sent, received in ((None, ""), ("  ", ""), (b"caf\xc3\xa9", "café"), (b"\xff", ""), ("k" * 200, "k" * 200),
                               ("k" * 5000, "k" * 201)):
            self.acquire({"pool": "coding"}, sent)
            self.assertEqual(self.service.requests[-1].idempotency_key, received)

    def test_acquire_accepts_no_query(self):
        message = "Acquire does not accept query parameters"
        self.assert_error(self.acquire("no JSON", query="?a=b"), 400, "INVALID_REQUEST", message)
        self.assert_error(self.acquire({"pool": "coding"}, query="?x"), 400, "INVALID_REQUEST", message)
        self.assertEqual(self.acquire({"pool": "coding"}, query="?").status, 201)

    def test_bodies_that_are_no_json(self):
        for body in ("", "x", "{", "{}x", "{} {}", "[]", "null", "1", '"x"', '{"pool":"a",}', "{'pool':'a'}", '{"pool":"\\ud800"}',
                     '{"pool":NaN}', b'{"pool":"\xff"}', "\ufeff{}".encode(), '{"pool":1}', '{"pool":[]}', '{"pool":{}}', '{"pool":true}',
                     '{"pool":"a","ttlSeconds":"1"}', '{"pool":"a","ttlSeconds":1.5}', '{"pool":"a","ttlSeconds":1e2}',
                     '{"pool":"a","ttlSeconds":99999999999999999999}', '{"pool":"a","ttlSeconds":true}',
                     '{"a":' * 100 + "1" + "}" * 100):
            self.assert_error(self.acquire(body), 400, "INVALID_JSON", "Request body must be valid JSON")
        for route, body in (("exec", {"command": 1}), ("exec", {"command": "a", "cwd": 1}), ("exec", {"command": "a", "env": []}),
                            ("exec", {"command": "a", "env": {"A": 1}}), ("exec", {"command": "a", "timeoutSeconds": "1"}),
                            ("files/read", {"path": []}), ("files/read", {"path": "a", "encoding": 8}),
                            ("files/write", {"path": "a", "content": 1})):
            self.assert_error(self.call("POST", LEASE + "/" + route, body), 400, "INVALID_JSON")

    def test_body_limit(self):
        whole = b'{"pool":"coding"}'.ljust(1048576)
        self.assertEqual(self.acquire(whole).status, 201)
        self.assert_error(self.acquire(whole + b" "), 413, "BODY_TOO_LARGE", "JSON body is too large")
        for size, status in ((1048576, b"201"), (1048577, b"413")):
            head = ("POST /v1/leases HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nIdempotency-Key: k\r\nConnection: close\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n" % GOOD).encode()
            body = b"".join(b"%x\r\n%s\r\n" % (len(whole.ljust(size)[at:at + 70000]), whole.ljust(size)[at:at + 70000])
                            for at in range(0, size, 70000))
            self.assertEqual(self.raw(head + body + b"0\r\n\r\n")[9:12], status)

    def test_any_content_type_will_do(self):
        for type_ in ("text/plain", "application/xml", "application/x-www-form-urlencoded"):
            answer = self.call("POST", "/v1/leases", {"pool": "a"}, headers={"Content-Type": type_, "Idempotency-Key": "k"})
            self.assertEqual(answer.status, 201)

    def test_text_that_no_message_can_hold(self):
        for route, body in (("", {"pool": "a\0"}), (LEASE[11:] + "/exec", {"command": "a\0b"}),
                            (LEASE[11:] + "/exec", {"command": "a", "env": {"A\0": "b"}}),
                            (LEASE[11:] + "/exec", {"command": "a", "env": {"A": "b\0"}}),
                            (LEASE[11:] + "/files/read", {"path": "\0"})):
            answer = self.call("POST", ("/v1/leases/" + route).rstrip("/"), body)
            self.assert_error(answer, 400, "INVALID_REQUEST")
            self.assertIn("must not contain U+0000", answer.json()["error"]["message"])

    def test_exec(self):
        answer = self.call("POST", LEASE + "/exec", {"command": "true", "cwd": "sub", "env": {"A": "1", "B": "é"},
                                                     "timeoutSeconds": 7})
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.json(), {"stdout": "out \ufffdé \0\"\n", "stderr": "\ufffd", "code": 137})
        command = self.service.requests[-1].command
        self.assertEqual((command.command, command.cwd, dict(command.env), command.timeout_seconds),
                         ("true", "sub", {"A": "1", "B": "é"}, 7))
        self.assertEqual(self.service.requests[-1].lease_id, LEASE[11:])
        self.call("POST", LEASE + "/exec", {"command": "true", "timeoutSeconds": 0})
        self.assertTrue(self.service.requests[-1].command.HasField("timeout_seconds"))

    def test_too_many_variables_reach_the_server_as_too_many(self):
        self.call("POST", LEASE + "/exec", {"command": "true", "env": {"A%d" % i: "" for i in range(50000)}})
        self.assertEqual(len(self.service.requests[-1].command.env), 257)

    def test_large_output(self):
        answer = self.call("POST", LEASE + "/exec", {"command": "10485760"})
        self.assertEqual(answer.json()["stdout"], "\0" * 10485760)

    def test_long_output_for_slow_clients(self):
        """Each slice goes out as the client takes the one before, in parts as small as the socket's buffers make them."""
        def read(seed):
            pace = random.Random(seed)
            body = json.dumps({"command": str(size)}).encode()
            with self.gateway.connect() as connection:
                connection.sendall(("POST %s/exec HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n"
                                    % (LEASE, GOOD, len(body))).encode() + body)
                received = 0
                while True:
                    piece = connection.recv(pace.choice([100, 5000, 65536, 1 << 20]))
                    if not piece:
                        break
                    received += len(piece)
                    if pace.random() < 0.02:
                        time.sleep(pace.random() * 0.02)
            answers.append(received)
        size, answers = 1000000, []
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(answers), 24)
        self.assertTrue(all(6 * size < received < 6 * size + 1000 for received in answers), answers)

    def test_long_files(self):
        for size in (32768, 100000, 10485760):
            noise = lease_double.noise(size)
            body = {"path": str(size), "encoding": "base64"}
            answer = self.call("POST", LEASE + "/files/read", body)
            self.assertEqual(int(answer.headers["Content-Length"]), len(answer.body))
            self.assertTrue(base64.b64decode(answer.json()["content"]) == noise)
            answer = self.call("POST", LEASE + "/files/read", {"path": str(size)})
            self.assertTrue(answer.json()["content"] == noise.decode("utf-8", "replace"))

    def test_read(self):
        for encoding, content in ((None, "café \ufffd\0"), ("utf8", "café \ufffd\0"), ("base64", "Y2Fmw6kg/wA=")):
            body = {"path": "/workspace/a \"b\"", "encoding": encoding}
            answer = self.call("POST", LEASE + "/files/read", body)
            self.assertEqual(answer.json(), {"path": body["path"], "content": content, "encoding": encoding or "utf8"})
        self.assert_error(self.call("POST", LEASE + "/files/read", {"path": "a", "encoding": "UTF8"}), 400, "INVALID_REQUEST",
                          "'encoding' must be 'utf8' or 'base64'")

    def test_write(self):
        for body, content in (({"content": "é\0"}, "é\0".encode()), ({"content": ""}, b""),
                              ({"content": "Y2Fmw6kg/wA=", "encoding": "base64"}, b"caf\xc3\xa9 \xff\0"),
                              ({"content": "", "encoding": "base64"}, b"")):
            answer = self.call("POST", LEASE + "/files/write", {"path": "a/b", **body})
            self.assertEqual((answer.status, answer.json()), (200, {"path": "a/b"}))
            self.assertEqual((self.service.requests[-1].path, self.service.requests[-1].content), ("a/b", content))
        calls = len(self.service.calls)
        for text in ("Y", "Y2F", "Y2Fm=", "Y2Fmw6kg_wA=", "Y2Fmw6kg/wA", " Y2Fm", "Y2Fm\n", "Y2Fmw6kg/wB=", "=", "é"):
            answer = self.call("POST", LEASE + "/files/write", {"path": "a", "content": text, "encoding": "base64"})
            self.assert_error(answer, 400, "INVALID_REQUEST")
        self.assertNotIn("WriteFile", self.service.calls[calls:])
        self.assert_error(self.call("POST", LEASE + "/files/write", {"path": "a"}), 400, "INVALID_REQUEST")

    def test_list(self):
        answer = self.call("GET", "/v1/leases?pool=my+pool%2B&limit=7")
        self.assertEqual([lease["id"] for lease in answer.json()["leases"]], ["a", "b"])
        self.assertEqual(answer.json()["nextCursor"], 'next"page')
        request = self.service.requests[-1]
        self.assertEqual((request.pool, request.limit, request.HasField("cursor")), ("my pool+", 7, False))
        answer = self.call("GET", "/v1/leases?cursor=next%22page")
        self.assertIs(answer.json()["nextCursor"], None)
        self.assertEqual(self.service.requests[-1].cursor, 'next"page')
        self.call("GET", "/v1/leases?&&")
        self.assertFalse(any(self.service.requests[-1].HasField(name) for name in ("pool", "limit", "cursor")))

    def test_list_refuses(self):
        for query in ("pool=", "pool=+", "pool=a&pool=a", "limit", "cursor=", "cursor=a&cursor=b", "x=1", "Pool=a", "pool=a&=b", "pool=%00",
                      "pool=%ff", "pool=%", "pool=%u1"):
            self.assert_error(self.call("GET", "/v1/leases?" + query), 400, "INVALID_REQUEST")
        for limit in ("x", "1.5", "%2B1", "-1", "01", "1000", "99999999999999999999", "0", "0x1", "1%20", "%31_"):
            self.assert_error(self.call("GET", "/v1/leases?limit=" + limit), 400, "INVALID_REQUEST",
                              "limit must be an integer between 1 and 100")

    def test_failures_of_the_server(self):
        self.assert_error(self.call("GET", "/v1/leases/missing"), 404, "LEASE_NOT_FOUND", "Lease not found")
        answer = self.acquire({"pool": "quota"})
        self.assert_error(answer, 429, "LEASE_QUOTA_EXCEEDED", "Lease quota exceeded")
        self.assertEqual(answer.headers["Retry-After"], "3")
        answer = self.acquire({"pool": "full"})
        self.assert_error(answer, 503, "POOL_EXHAUSTED")
        self.assertEqual(answer.headers["Retry-After"], "1")
        answer = self.acquire({"pool": "bare"})
        self.assert_error(answer, 500, "INTERNAL", "Internal server error")
        self.assertIsNone(answer.headers["Retry-After"])


class FramingTest(Case):
    def test_ambiguous_requests_close(self):
        for head in (b"", b"Host: a\r\nHost: a\r\n", b"Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
                     b"Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", b"Host: a\r\nTransfer-Encoding: gzip, chunked\r\n",
                     b"Host : a\r\n", b"Host: a\r\n folded\r\n", b"Host: a\r\nX: \x01\r\n"):
            answer = self.raw(b"GET /health HTTP/1.1\r\n" + head + b"\r\n")
            self.assertTrue(answer.startswith(b"HTTP/1.1 400 Bad Request\r\n"), answer)
            self.assertIn(b"\r\nConnection: close\r\n", answer)
            self.assertEqual(json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"], "INVALID_REQUEST")

    def test_limits(self):
        for head, status in ((b"GET /" + b"a" * 40000, b"414"), (b"GET /health HTTP/1.1\r\nX: " + b"a" * 40000, b"431"),
                             (b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 100 + b"\r\n", b"431")):
            self.assertEqual(self.raw(head)[9:12], status)

    def test_sent_ahead(self):
        one = ("GET /v1/leases/%%d HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\n\r\n" % GOOD)
        last = one.replace("Host: a", "Host: a\r\nConnection: close")
        answer = self.raw("".join([one % i for i in range(500)] + [last % 500]).encode())
        self.assertEqual(re.findall(rb'"id":"(\d+)"', answer), [b"%d" % i for i in range(501)])

    def test_old_client(self):
        answer = self.raw(b"GET /health HTTP/1.0\r\n\r\n")
        self.assertTrue(answer.endswith(b'\r\nConnection: close\r\n\r\n{"status":"ok"}'), answer)
        with self.gateway.connect() as connection:
            for _ in range(2):
                connection.sendall(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                received = b""
                while not received.endswith(b"}"):
                    received += connection.recv(1000)
                self.assertIn(b"\r\nConnection: keep-alive\r\n", received)

    def test_answer_before_the_body(self):
        """The client can read the answer although it was still sending."""
        with self.gateway.connect() as connection:
            connection.sendall(("PUT %s/files/content?path=a HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Length: 30000000\r\n\r\n"
                                % (LEASE, GOOD)).encode())
            for _ in range(300):
                connection.sendall(b"x" * 100000)
            answer = self.rest(connection)
        self.assertTrue(answer.startswith(b"HTTP/1.1 415 "), answer)
        self.assertIn(b"\r\nConnection: close\r\n", answer)

    def test_continue(self):
        head = ("POST %s/exec HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Length: 18\r\nExpect: 100-continue\r\n"
                "Connection: close\r\n\r\n" % (LEASE, GOOD)).encode()
        with self.gateway.connect() as connection:
            connection.sendall(head)
            self.assertEqual(connection.recv(1000), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(b'{"command":"true"}')
            self.assertTrue(self.rest(connection).startswith(b"HTTP/1.1 200 OK\r\n"))
        with self.gateway.connect() as connection:
            connection.sendall(head.replace(b"exec", b"nothing"))
            self.assertTrue(self.rest(connection).startswith(b"HTTP/1.1 405 "))

    def test_body_cut_short(self):
        answer = self.raw(("POST %s/exec HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Length: 180\r\n\r\n{" % (LEASE, GOOD)).encode(),
                          end=True)
        self.assertIn(b'"code":"INVALID_JSON"', answer)

    def test_client_gone(self):
        """Its command is cancelled, at once."""
        body = b'{"command":"slow"}'
        for how in ("close", "reset", "end"):
            self.service.__init__()
            connection = self.gateway.connect()
            connection.sendall(("POST %s/exec HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n"
                                % (LEASE, GOOD, len(body))).encode() + body)
            self.assertTrue(self.service.started.wait(10))
            self.assertFalse(self.service.cancelled.wait(0.2))
            if how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if how == "end":
                connection.shutdown(socket.SHUT_WR)
            else:
                connection.close()
            self.assertTrue(self.service.cancelled.wait(1), how)
            connection.close()
            self.service.go_on.set()


class TransferTest(Case):
    def put(self, data, path="a", **changes):
        headers = {"Content-Type": OCTETS, "Content-Digest": digest(data)}
        headers.update({name.replace("_", "-"): value for name, value in changes.items()})
        return self.call("PUT", LEASE + "/files/content?path=" + path, data,
                         headers={name: value for name, value in headers.items() if value is not None})

    def test_upload(self):
        for size in (0, 1, 65536, 65537, 262144, 1000000, 67108864):
            self.service.__init__()
            data = pattern(size)
            answer = self.put(data, "a+b%20c%2B")
            self.assertEqual((answer.status, answer.body), (204, b""))
            info = self.service.requests[-1].info
            self.assertEqual((info.path, info.lease_id, info.file.size_bytes, info.file.sha256, self.service.uploaded),
                             ("a b c+", LEASE[11:], size, hashlib.sha256(data).digest(), size))

    def test_upload_checks_in_order(self):
        self.assert_error(self.put(b"x", "", Content_Type="text/plain"), 400, "INVALID_REQUEST", "'path' must be a non-empty string")
        for query in ("", "?path", "?path=%20", "?path=a&path=b", "?other=a"):
            self.assert_error(self.call("PUT", LEASE + "/files/content" + query, b""), 400, "INVALID_REQUEST",
                              "'path' must be a non-empty string")
        self.assert_error(self.put(b"x", Content_Type=None, Content_Digest=None), 415, "UNSUPPORTED_MEDIA_TYPE")
        self.assert_error(self.put(b"x", Content_Type="application/octet-streams"), 415, "UNSUPPORTED_MEDIA_TYPE")
        head = "PUT %s/files/content?path=a HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Type: %s\r\n" % (LEASE, GOOD, OCTETS)
        for more, code in (("Transfer-Encoding: chunked\r\n\r\n", b"LENGTH_REQUIRED"), ("\r\n", b"LENGTH_REQUIRED"),
                           ("Content-Length: 67108865\r\n\r\n", b"TRANSFER_TOO_LARGE"),
                           ("Content-Length: 99999999999999999999999\r\n\r\n", b"TRANSFER_TOO_LARGE"),
                           ("Content-Length: 67108864\r\n\r\n", b"INVALID_CONTENT_DIGEST")):
            with self.gateway.connect() as connection:
                connection.sendall((head + more).encode())
                self.assertIn(b'"code":"%s"' % code, connection.recv(10000))
        good = digest(b"x")
        for bad in (None, "", good[:-1], good + " ;", good.replace("sha-256", "SHA-256"), good.replace("sha-256", "sha-512"),
                    "sha-256=::", good + ", " + good, good.replace("=:", "=: "), "sha-256=:%s:" % base64.b64encode(b"x" * 31).decode(),
                    "sha-256=:%s:" % base64.b64encode(b"x" * 33).decode(), "sha-256=:" + "A" * 42 + "B=:"):
            self.assert_error(self.put(b"x", Content_Digest=bad), 400, "INVALID_CONTENT_DIGEST")
        self.assertNotIn("UploadFile", self.service.calls)

    def test_upload_media_type_may_have_parameters(self):
        self.assertEqual(self.put(b"x", Content_Type="Application/Octet-Stream ; a=b").status, 204)

    def test_upload_with_another_digest(self):
        self.assert_error(self.put(b"x", Content_Digest=digest(b"y")), 422, "CONTENT_DIGEST_MISMATCH")

    def test_upload_refused_by_the_server(self):
        answer = self.put(b"x" * 5000000, "refuse")
        self.assert_error(answer, 429, "TRANSFER_LIMIT_REACHED")
        self.assertEqual(answer.headers["Retry-After"], "1")

    def test_upload_cut_short(self):
        answer = self.raw(("PUT %s/files/content?path=a HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Type: %s\r\n"
                           "Content-Digest: %s\r\nContent-Length: 10\r\n\r\n12345" % (LEASE, GOOD, OCTETS, digest(b"x"))).encode(), end=True)
        self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
        self.assertIn(b'"code":"CONTENT_LENGTH_MISMATCH"', answer)

    def test_client_gone_while_uploading(self):
        connection = self.gateway.connect()
        connection.sendall(("PUT %s/files/content?path=slow HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Type: %s\r\n"
                            "Content-Digest: %s\r\nContent-Length: 10000\r\n\r\n12345" % (LEASE, GOOD, OCTETS, digest(b"x"))).encode())
        self.assertTrue(self.service.started.wait(10))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
        self.assertTrue(self.service.cancelled.wait(1))

    def test_upload_is_held_back(self):
        """A server that takes nothing stops the client; nothing piles up in the gateway."""
        data = pattern(60000000)
        connection = self.gateway.connect()
        connection.sendall(("PUT %s/files/content?path=slow HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Type: %s\r\n"
                            "Content-Digest: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                            % (LEASE, GOOD, OCTETS, digest(data), len(data))).encode())
        self.assertTrue(self.service.started.wait(10))
        connection.settimeout(1)
        sent = 0
        with self.assertRaises(socket.timeout):
            while True:
                sent += connection.send(data[sent:sent + 100000])
        self.assertLess(sent, 30000000)
        self.service.go_on.set()
        connection.settimeout(60)
        connection.sendall(data[sent:])
        self.assertTrue(self.rest(connection).startswith(b"HTTP/1.1 204 "))
        connection.close()

    def test_download(self):
        for size in (0, 1, 99999, 100000, 100001, 67108864):
            data = pattern(size)
            answer = self.call("GET", LEASE + "/files/content?path=%d" % size)
            self.assertEqual(answer.status, 200)
            self.assertTrue(answer.body == data)
            self.assertEqual((answer.headers["Content-Type"], answer.headers["Content-Length"], answer.headers["Content-Digest"]),
                             (OCTETS, str(size), digest(data)))

    def test_download_keeps_the_connection(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=30)
        for size in (100, 300000, 0, 5):
            connection.request("GET", LEASE + "/files/content?path=%d" % size, headers={"Authorization": GOOD})
            self.assertEqual(len(connection.getresponse().read()), size)
        connection.close()

    def test_download_refused(self):
        self.assert_error(self.call("GET", LEASE + "/files/content?path=none"), 404, "FILE_NOT_FOUND")
        for query in ("", "?path=", "?path=+", "?path=a&path=a"):
            self.assert_error(self.call("GET", LEASE + "/files/content" + query), 400, "INVALID_REQUEST",
                              "'path' must be a non-empty string")

    def test_download_that_fails_on_the_way_is_cut(self):
        """However late the failure: the body never gets whole."""
        for path in ("1000000%20fail", "100%20fail", "1000000%20short", "1000000%20long", "1%20long", "1%20short"):
            with self.assertRaises(http.client.IncompleteRead):
                self.call("GET", LEASE + "/files/content?path=" + path)
        self.assert_error(self.call("GET", LEASE + "/files/content?path=0%20fail"), 502, "FILE_TRANSFER_FAILED")

    def test_download_is_held_back(self):
        """A client that takes nothing stops the server."""
        connection = self.gateway.connect()
        connection.sendall(("GET %s/files/content?path=67108864 HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nConnection: close\r\n\r\n"
                            % (LEASE, GOOD)).encode())
        time.sleep(1.5)
        before = self.service.uploaded
        time.sleep(0.5)
        self.assertEqual(self.service.uploaded, before)
        self.assertLess(before, 30000000)
        self.assertEqual(len(self.rest(connection).partition(b"\r\n\r\n")[2]), 67108864)
        connection.close()

    def test_client_gone_while_downloading(self):
        connection = self.gateway.connect()
        connection.sendall(("GET %s/files/content?path=100000%%20slow HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\n\r\n"
                            % (LEASE, GOOD)).encode())
        self.assertTrue(self.service.started.wait(10))
        connection.close()
        self.assertTrue(self.service.cancelled.wait(1))


class LifeTest(Case):
    def test_no_server(self):
        gateway = self.start_gateway("unix:%s/nobody" % self.folder.name)
        for method, path in (("GET", LEASE), ("GET", "/nothing"), ("POST", "/v1/leases")):
            answer = self.call(method, path, gateway=gateway)
            self.assert_error(answer, 503, "SERVER_UNAVAILABLE", "Service is temporarily unavailable")
            self.assertEqual(answer.headers["Retry-After"], "1")
        self.assertEqual(self.call("GET", "/ready", gateway=gateway).body, b'{"status":"not_ready"}')
        self.assertEqual(self.call("GET", "/health", gateway=gateway).status, 200)
        gateway.stop()
        self.assertTrue(any('"request_failed"' in line for line in gateway.lines))
        self.assertFalse(any(lease_double.TOKEN in line for line in gateway.lines))

    def test_server_comes_back(self):
        address = "unix:%s/other" % self.folder.name
        double = lease_double.Double(address)
        gateway = self.start_gateway(address)
        self.assertEqual(self.call("GET", LEASE, gateway=gateway).status, 200)
        double.stop()
        self.assertEqual(self.call("GET", LEASE, gateway=gateway).status, 503)
        double = lease_double.Double(address)
        self.eventually(lambda: self.call("GET", LEASE, gateway=gateway).status == 200)
        gateway.stop()
        double.stop()

    def test_stop_lets_running_requests_end(self):
        gateway = self.start_gateway()
        idle, slow = gateway.connect(), gateway.connect()
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertTrue(idle.recv(1000).startswith(b"HTTP/1.1 200 "))
        slow.sendall(("GET /v1/leases/slow HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\n\r\n" % GOOD).encode())
        self.assertTrue(self.service.started.wait(10))
        gateway.process.send_signal(signal.SIGTERM)
        self.assertEqual(idle.recv(1000), b"")
        self.eventually(lambda: self.refuses(gateway))
        self.assertIsNone(gateway.process.poll())
        self.service.go_on.set()
        answer = self.rest(slow)
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)
        self.assertIn(b"\r\nConnection: close\r\n", answer)
        self.assertEqual(gateway.process.wait(10), 0)
        idle.close()
        slow.close()

    @staticmethod
    def refuses(gateway):
        try:
            gateway.connect().close()
        except ConnectionRefusedError:
            return True
        return False

    def test_stop_does_not_wait_for_ever(self):
        gateway = self.start_gateway()
        with gateway.connect() as slow:
            slow.sendall(("GET /v1/leases/slow HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\n\r\n" % GOOD).encode())
            self.assertTrue(self.service.started.wait(10))
            begun = time.monotonic()
            gateway.stop()
            self.assertTrue(9 < time.monotonic() - begun < 14, time.monotonic() - begun)
            self.assertIn(b'"code":"ABORTED"', slow.recv(10000))

    def test_settings_that_are_wrong(self):
        for name, value, said in (("SANDBOX_GRPC_ADDRESS", "", "SANDBOX_GRPC_ADDRESS"), ("SANDBOX_ADDRESS", "nonsense", "SANDBOX_ADDRESS"),
                                  ("SANDBOX_ADDRESS", "127.0.0.1:%d" % self.gateway.port, "SANDBOX_ADDRESS"),
                                  ("SANDBOX_ADDRESS", "::1:80", "SANDBOX_ADDRESS"), ("SANDBOX_GATEWAY_LOOPS", "0", "SANDBOX_GATEWAY_LOOPS"),
                                  ("SANDBOX_TLS_CERT", "/nowhere", "SANDBOX_TLS_KEY"), ("SANDBOX_GRPC_TLS_CA", "/nowhere", "SANDBOX_GRPC_TLS_CA"),
                                  ("SANDBOX_LOG_LEVEL", "loud", "SANDBOX_LOG_LEVEL")):
            environment = {"SANDBOX_GRPC_ADDRESS": self.address, "SANDBOX_ADDRESS": "127.0.0.1:0", name: value}
            done = subprocess.run(["gateway/lease-gateway"], env=environment, stderr=subprocess.PIPE, text=True, timeout=20)
            self.assertEqual(done.returncode, 1, name)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(said, done.stderr)

    def test_command_line(self):
        for argument, result, said in (("--version", 0, "lease-gateway "), ("--help", 0, "Usage: "), ("--nonsense", 2, ""), ("extra", 2, "")):
            done = subprocess.run(["gateway/lease-gateway", argument], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
            self.assertEqual(done.returncode, result)
            self.assertTrue(done.stdout.startswith(said))

    def test_several_loops_and_addresses(self):
        gateway = self.start_gateway(self.address, SANDBOX_GATEWAY_LOOPS="3", SANDBOX_ADDRESS="127.0.0.1:0, [::1]:0")
        threads = [threading.Thread(target=lambda: [self.call("GET", LEASE, gateway=gateway) for _ in range(20)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.service.calls.count("GetLease"), 160)
        gateway.stop()

    def test_connections_at_the_limit(self):
        """The one that was idle for longest makes place; a busy one does not."""
        gateway = self.start_gateway(self.address, SANDBOX_GATEWAY_CONNECTIONS="3")
        busy = gateway.connect()
        busy.sendall(("GET /v1/leases/slow HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\n\r\n" % GOOD).encode())
        self.assertTrue(self.service.started.wait(10))
        idle = [gateway.connect() for _ in range(10)]
        for connection in idle[:8]:
            self.addCleanup(connection.close)
            self.assertEqual(connection.recv(1), b"")
        idle[9].sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertTrue(idle[9].recv(1000).startswith(b"HTTP/1.1 200 "))
        self.service.go_on.set()
        self.assertTrue(busy.recv(1000).startswith(b"HTTP/1.1 200 "))
        for connection in idle + [busy]:
            connection.close()
        gateway.stop()


class TlsTest(Case):
    def certificate(self, name, folder=None):
        """A fresh certificate; returns the paths of certificate and key."""
        base = "%s/%s" % (folder or self.folder.name, name)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        "/CN=" + name, "-addext", "subjectAltName=DNS:localhost", "-keyout", base + ".key", "-out", base + ".crt"],
                       check=True, stderr=subprocess.DEVNULL)
        return base + ".crt", base + ".key"

    def secure(self, gateway, authority, **settings):
        context = ssl.create_default_context(cafile=authority)
        for name, value in settings.items():
            setattr(context, name, value)
        return context.wrap_socket(gateway.connect(), server_hostname="localhost")

    def start(self, name):
        certificate, key = self.certificate(name)
        return self.start_gateway(SANDBOX_TLS_CERT=certificate, SANDBOX_TLS_KEY=key), certificate, key

    def test_requests(self):
        gateway, certificate, _ = self.start("one")
        data = pattern(5000000)
        with self.secure(gateway, certificate) as connection:
            for _ in range(3):
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
                received = b""
                while not received.endswith(b'{"status":"ok"}'):
                    received += connection.recv(10000)
            connection.sendall(("PUT %s/files/content?path=a HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Type: %s\r\nContent-Digest: %s\r\n"
                                "Content-Length: %d\r\n\r\n" % (LEASE, GOOD, OCTETS, digest(data), len(data))).encode() + data)
            self.assertTrue(connection.recv(10000).startswith(b"HTTP/1.1 204 "))
            connection.sendall(("GET %s/files/content?path=5000000 HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nConnection: close\r\n\r\n"
                                % (LEASE, GOOD)).encode())
            received = b""
            while len(received.partition(b"\r\n\r\n")[2]) < len(data):
                received += connection.recv(65536)
            self.assertTrue(received.partition(b"\r\n\r\n")[2] == data)
        gateway.stop()

    def test_upload_is_held_back(self):
        gateway, certificate, _ = self.start("held")
        data = pattern(60000000)
        connection = self.secure(gateway, certificate)
        connection.sendall(("PUT %s/files/content?path=slow HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Type: %s\r\n"
                            "Content-Digest: %s\r\nContent-Length: %d\r\n\r\n" % (LEASE, GOOD, OCTETS, digest(data), len(data))).encode())
        self.assertTrue(self.service.started.wait(10))
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        sender.join(2)
        self.assertTrue(sender.is_alive())
        self.service.go_on.set()
        sender.join(60)
        self.assertTrue(connection.recv(10000).startswith(b"HTTP/1.1 204 "))
        connection.close()
        gateway.stop()

    def test_client_gone(self):
        gateway, certificate, _ = self.start("gone")
        for how in ("unwrap", "close"):
            self.service.__init__()
            connection = self.secure(gateway, certificate)
            connection.sendall(("GET /v1/leases/slow HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\n\r\n" % GOOD).encode())
            self.assertTrue(self.service.started.wait(10))
            if how == "unwrap":
                connection.settimeout(0.1)
                try:
                    connection.unwrap()
                except (OSError, ValueError):
                    pass
            connection.close()
            self.assertTrue(self.service.cancelled.wait(1), how)
            self.service.go_on.set()
        gateway.stop()

    def test_old_versions_are_refused(self):
        gateway, certificate, _ = self.start("old")
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            self.secure(gateway, certificate, minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1)
        with self.secure(gateway, certificate, maximum_version=ssl.TLSVersion.TLSv1_2) as connection:
            self.assertEqual(connection.version(), "TLSv1.2")
        with self.secure(gateway, certificate) as connection:
            self.assertEqual(connection.version(), "TLSv1.3")
        with gateway.connect() as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assertNotIn(b"HTTP/1.1", plain.recv(1000))
        gateway.stop()

    def test_renewed_certificate(self):
        gateway, certificate, key = self.start("first")
        self.secure(gateway, certificate).close()
        second = self.certificate("second")
        os.replace(second[0], certificate)
        # Certificate and key do not belong together now: the first stays in use.
        self.assertEqual(self.refused(gateway, certificate), "CERTIFICATE_VERIFY_FAILED")
        os.replace(second[1], key)
        with self.secure(gateway, certificate) as connection:
            self.assertIn(((("commonName", "second"),)), connection.getpeercert()["subject"])
        gateway.stop()
        self.assertEqual(sum('"certificate_not_usable"' in line for line in gateway.lines), 1)

    def refused(self, gateway, authority):
        try:
            self.secure(gateway, authority).close()
        except ssl.SSLError as error:
            return error.reason
        return None


if __name__ == "__main__":
    unittest.main()
