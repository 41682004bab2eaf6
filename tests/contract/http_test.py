"""Contract §1, §3: routes, methods, JSON bodies, and the shape of every HTTP answer."""
import json
import os
import re
import socket

from tests.support import cases, http_client
from tests.support.cases import POOL, Cases, over, together

UNKNOWN = "lease-" + "0123456789abcdef" * 2


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


@over("http")
class Routes(Cases):
    def status(self, method, target, client=None, body=None):
        return (client or self.client).send(method, target, body).status

    def nobody(self):
        return self.platform.client_with("http", None)

    def test_health_needs_no_token(self):
        response = self.nobody().send("GET", "/health")
        self.assertEqual((response.status, response.json()), (200, {"status": "ok"}))
        self.assertEqual(response.headers.get_content_type(), "application/json")

    def test_ready_needs_no_token(self):
        response = self.nobody().send("GET", "/ready")
        self.assertEqual((response.status, response.json()), (200, {"status": "ready"}))

    def test_ready_stays_ready_while_a_pool_refills(self):
        for _ in range(5):
            self.acquire()
            self.assertEqual(self.nobody().send("GET", "/ready").status, 200)

    def test_the_token_is_checked_before_the_route(self):
        for method, target in (("GET", "/"), ("GET", "/nothing"), ("PATCH", "/v1/leases"), ("GET", "/v1/leases/x/y"), ("GET", "/v1"),
                               ("POST", "/v1/leases?x"), ("DELETE", "/v1/leases/" + UNKNOWN), ("GET", "/health/"), ("GET", "/healthx"),
                               ("PUT", "/v1/leases/x/files/content")):
            with self.subTest(target=target):
                response = self.nobody().send(method, target, b"")
                self.assertEqual(http_client.check_error(response), ("UNAUTHORIZED", "Invalid or expired subject token"))

    def test_unknown_paths_are_not_found(self):
        for target in ("/", "/v1", "/v1/", "/v2/leases", "/v1/lease", "/v1/leasesx", "/V1/leases", "/v1//leases", "//v1/leases", "/metrics",
                       "/favicon.ico", "/v1/leases%2Fx/y/z"):
            with self.subTest(target=target):
                self.fails(self.client.call("GET", target)[0], "NOT_FOUND")

    def test_other_methods_are_not_allowed_and_allow_says_which_are(self):
        below = "/v1/leases/" + UNKNOWN
        for target, allowed in (("/v1/leases", {"GET", "POST"}), (below, {"GET", "DELETE"}), (below + "/release", {"POST"}),
                                (below + "/exec", {"POST"}), (below + "/files/read", {"POST"}), (below + "/files/write", {"POST"}),
                                (below + "/files/content", {"GET", "PUT"})):
            for method in sorted({"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"} - allowed):
                with self.subTest(target=target, method=method):
                    answer, _ = self.client.call(method, target)
                    self.fails(answer, "METHOD_NOT_ALLOWED")
                    found = {name.strip() for name in answer.detail.headers["Allow"].split(",")}
                    self.assertEqual(found - {"HEAD"}, allowed)

    def test_whatever_else_is_below_a_lease_is_not_allowed(self):
        below = "/v1/leases/" + UNKNOWN
        for rest in ("/x", "/files", "/files/x", "/files/read/x", "/exec/", "/release/x", "/", "/exec/x", "//exec"):
            with self.subTest(rest=rest):
                self.fails(self.client.call("POST", below + rest)[0], "METHOD_NOT_ALLOWED")

    def test_ids_are_percent_decoded(self):
        lease = self.acquire()
        encoded = "".join("%%%02x" % ord(letter) for letter in lease.id)
        self.assertEqual(self.client.call("GET", "/v1/leases/" + encoded)[1]["lease"]["id"], lease.id)
        self.assertEqual(self.client.call("GET", "/v1/leases/%6Cease" + lease.id[5:])[1]["lease"]["id"], lease.id)
        for wrong in ("%2F", "a%2Fexec", "%00", lease.id + "%00", "%zz", "%", "%4", "lease-%g0", lease.id + "%20", "%ff", lease.id + "%2F..%2F"):
            with self.subTest(wrong=wrong):
                self.fails(self.client.call("GET", "/v1/leases/" + wrong)[0], "LEASE_NOT_FOUND")

    def test_dots_in_a_path_do_not_reach_another_route(self):
        for target in ("/v1/leases/../../health", "/x/../v1/leases", "/v1/leases/./", "/v1/./leases", "/v1/leases/%2e%2e/%2e%2e/health"):
            with self.subTest(target=target):
                self.assertNotEqual(self.status("GET", target, self.nobody()), 200)

    def test_release_reads_no_body(self):
        for body in (None, b"", b"no json", b"{}"):
            lease = self.acquire()
            response = self.client.send("POST", self.client.path(lease.id, "/release"), body)
            self.assertEqual(response.json()["lease"]["status"], "released")

    def test_acquire_takes_no_query(self):
        for query in ("?x=1", "?pool=" + POOL, "?x"):
            answer, _ = self.client.call("POST", "/v1/leases" + query, {"pool": POOL}, [("Idempotency-Key", "key")])
            self.fails(answer, "INVALID_REQUEST", "Acquire does not accept query parameters")
        answer, _ = self.client.call("POST", "/v1/leases?x=1", None)
        self.fails(answer, "INVALID_REQUEST", "Acquire does not accept query parameters")
        self.assertEqual(self.client.list().value["leases"], [])

    def test_head_answers_like_get_without_a_body(self):
        for target in ("/health", "/v1/leases"):
            response = self.client.send("HEAD", target)
            self.assertIn(response.status, (200, 405))
            self.assertEqual(response.body, b"")

    def test_answers_name_no_server_version(self):
        response = self.client.send("GET", "/health")
        self.assertNotRegex(response.headers.get("Server", ""), r"\d")

    def test_answers_with_secrets_of_a_subject_are_not_cached(self):
        # Only an explicit permission would let a shared cache keep an answer to an authorised request.
        self.assertNotIn("public", self.client.send("GET", "/v1/leases").headers.get("Cache-Control", ""))


@over("http")
class RequestId(Cases):
    def given(self, value):
        return self.client.send("GET", "/health", extra=[("X-Request-Id", value)]).headers["X-Request-Id"]

    def test_every_answer_has_one_of_its_own(self):
        seen = {self.client.send("GET", target).headers["X-Request-Id"] for target in ("/health", "/v1/leases", "/nothing") * 5}
        self.assertEqual(len(seen), 15)
        for value in seen:
            self.assertRegex(value, r"\A[A-Za-z0-9._-]{8,64}\Z")

    def test_a_sane_one_of_the_caller_is_kept(self):
        for value in ("abc-123", "0af7651916cd43dd8448eb211c80319c", "A_b.C-9", "x" * 64):
            self.assertEqual(self.given(value), value)

    def test_another_one_is_replaced(self):
        for value in ("x" * 5000, "a b", "a\"b", "<script>", "\u00e9".encode("latin-1").decode("latin-1"), "a;b\t"):
            if value.isascii():
                self.assertNotEqual(self.given(value), value)
        self.assertRegex(self.given(""), r"\A[A-Za-z0-9._-]{8,64}\Z")


@over("http")
class JsonBody(Cases):
    def post(self, body, extra=(), target="/v1/leases"):
        """A raw body to acquire; returns the Answer."""
        return self.client.settle(self.client.send("POST", target, body, [("Idempotency-Key", self.fresh_key())] + list(extra)))[0]

    def good(self, **more):
        return json.dumps({"pool": POOL, **more}).encode("utf-8")

    def test_its_content_type_does_not_matter(self):
        for value in ("application/json", "text/plain", "application/octet-stream", "application/x-www-form-urlencoded", ""):
            self.assertIsNone(self.post(self.good(), [("Content-Type", value)]).reason)
        self.assertIsNone(self.post(self.good()).reason)

    def test_unknown_fields_are_ignored(self):
        self.assertIsNone(self.post(self.good(other={"deep": [1, 2, {"x": None}]}, Pool="x")).reason)

    def test_white_space_around_it_is_allowed(self):
        self.assertIsNone(self.post(b" \t\r\n" + self.good() + b" \t\r\n").reason)

    def test_what_is_no_json_is_refused(self):
        good = self.good()
        for body in (b"", b" ", b"x", b"{", b"}", good[:-1], good + b"x", good + good, good + b",", b"\xef\xbb\xbf" + good, b"\0" + good,
                     good + b"\0", b"{'pool':'x'}", b'{pool:"x"}', b'{"pool":"x",}', b'{"pool":"x" "a":1}', b'{"pool":undefined}',
                     b'{"pool":NaN}', b'{"pool":"\n"}', b'{"pool":"\\x"}', b'{"pool":"\\u12"}', b'{"pool":"\\ud800"}',
                     b'{"pool":"\\udc00\\ud800"}', b'{"pool":"\xff"}', b'{"pool":"\xc0\x80"}', b'{"pool":"\xed\xa0\x80"}',
                     b'{"pool":"a"}//', b'/* */{"pool":"a"}', b'{"pool":01}', b'{"pool":+1}', b'{"pool":.5}', b'{"pool":1.}',
                     b'{"pool":"x","ttlSeconds":1e}', b'{"a":tru}', b"[" * 100000, b'{"a":' * 50000, b'{"pool":"unclosed'):
            with self.subTest(body=body[:60]):
                self.fails(self.post(body), "INVALID_JSON")

    def test_values_that_are_no_object_are_refused(self):
        for body in (b"null", b"true", b"1", b'"x"', b"[]", b'[{"pool":"x"}]'):
            with self.subTest(body=body):
                self.fails(self.post(body), "INVALID_JSON")

    def test_nesting_has_a_limit(self):
        def nested(depth):  # the object itself is one level
            return self.good()[:-1] + b',"x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
        self.assertIsNone(self.post(nested(32)).reason)
        self.fails(self.post(nested(33)), "INVALID_JSON")

    def test_fields_of_a_wrong_type_are_refused(self):
        for body in ({"pool": 1}, {"pool": True}, {"pool": []}, {"pool": {}}, {"pool": POOL, "ttlSeconds": "10"},
                     {"pool": POOL, "ttlSeconds": 1.5}, {"pool": POOL, "ttlSeconds": True}, {"pool": POOL, "ttlSeconds": [1]},
                     {"pool": POOL, "ttlSeconds": {}}, {"pool": POOL, "ttlSeconds": 10 ** 40}):
            with self.subTest(body=body):
                self.fails(self.post(json.dumps(body).encode("utf-8")), "INVALID_JSON")

    def test_null_is_as_if_the_field_were_absent(self):
        self.assertIsNone(self.post(self.good(ttlSeconds=None)).reason)
        self.fails(self.post(b'{"pool":null}'), "INVALID_REQUEST", "'pool' must be a non-empty string")
        self.fails(self.post(b"{}"), "INVALID_REQUEST", "'pool' must be a non-empty string")

    def test_fields_of_commands_and_files_of_a_wrong_type_are_refused(self):
        lease = self.acquire()
        for rest, body in (("/exec", {"command": 1}), ("/exec", {"command": ["true"]}), ("/exec", {"command": "true", "cwd": 1}),
                           ("/exec", {"command": "true", "env": "A=b"}), ("/exec", {"command": "true", "env": ["A"]}),
                           ("/exec", {"command": "true", "env": {"A": 1}}), ("/exec", {"command": "true", "env": {"A": True}}),
                           ("/exec", {"command": "true", "timeoutSeconds": "1"}), ("/exec", {"command": "true", "timeoutSeconds": 0.5}),
                           ("/files/read", {"path": 1}), ("/files/read", {"path": "f", "encoding": 1}), ("/files/write", {"path": ["f"], "content": ""}),
                           ("/files/write", {"path": "f", "content": 1}), ("/files/write", {"path": "f", "content": {}})):
            with self.subTest(rest=rest, body=body):
                self.fails(self.client.call("POST", self.client.path(lease.id, rest), body)[0], "INVALID_JSON")

    def test_u_0000_in_strings_is_refused(self):
        lease = self.acquire()
        for rest, body in (("/exec", {"command": "true\0"}), ("/exec", {"command": "\0"}), ("/exec", {"command": "true", "cwd": "a\0b"}),
                           ("/exec", {"command": "true", "env": {"A": "x\0"}}), ("/exec", {"command": "true", "env": {"A\0": "x"}}),
                           ("/files/read", {"path": "a\0b"}), ("/files/write", {"path": "a\0", "content": ""})):
            with self.subTest(rest=rest, body=body):
                answer, _ = self.client.call("POST", self.client.path(lease.id, rest), body)
                self.assertIn(answer.reason, ("INVALID_REQUEST", "INVALID_PATH"), answer)
        self.assertIn(self.post(b'{"pool":"%s\\u0000"}' % POOL.encode()).reason, ("UNKNOWN_POOL", "INVALID_REQUEST"))

    def test_of_fields_given_twice_the_last_counts(self):
        self.assertIsNone(self.post(b'{"pool":"nowhere","pool":"%s"}' % POOL.encode()).reason)
        self.fails(self.post(b'{"pool":"%s","pool":"nowhere"}' % POOL.encode()), "UNKNOWN_POOL")

    def test_escapes_are_understood(self):
        escaped = "".join("\\u%04x" % ord(letter) for letter in POOL).encode("ascii")
        self.assertIsNone(self.post(b'{"po\\u006fl":"%s"}' % escaped).reason)

    def test_a_body_has_at_most_one_mib(self):
        self.assertIsNone(self.post(self.good() + b" " * (1048576 - len(self.good()))).reason)
        self.fails(self.post(self.good() + b" " * (1048577 - len(self.good()))), "BODY_TOO_LARGE")
        self.fails(self.post(b"x" * 1048577), "BODY_TOO_LARGE")

    def test_a_chunked_body_has_at_most_one_mib(self):
        def chunked(length):
            body = self.good() + b" " * (length - len(self.good()))
            pieces = [body[start:start + 50000] for start in range(0, len(body), 50000)]
            return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        for length, reason in ((200, None), (1048576, None), (1048577, "BODY_TOO_LARGE")):
            headers = self.client.headers(None, [("Transfer-Encoding", "chunked"), ("Idempotency-Key", self.fresh_key())])
            response = http_client.send_raw(self.client.address, http_client.head("POST", "/v1/leases", headers) + chunked(length))
            self.assertEqual(self.client.settle(response)[0].reason, reason)

    def test_a_body_announced_too_large_is_refused_before_it_is_sent(self):
        headers = self.client.headers(None, [("Content-Length", str(2 ** 40)), ("Idempotency-Key", "key")])
        with http_client.connect(self.client.address, 5 * cases.PATIENCE) as connection:
            connection.sendall(http_client.head("POST", "/v1/leases", headers))
            self.fails(self.client.settle(http_client.read_response(connection))[0], "BODY_TOO_LARGE")

    def test_the_order_is_query_then_body_then_pool_then_key(self):
        def ask(target, body, key):
            extra = [("Idempotency-Key", key)] if key else []
            return self.client.settle(self.client.send("POST", target, body, extra))[0]
        self.fails(ask("/v1/leases?x", b"no json", None), "INVALID_REQUEST", "Acquire does not accept query parameters")
        self.fails(ask("/v1/leases", b"no json", None), "INVALID_JSON")
        self.fails(ask("/v1/leases", b'{"pool":" ","ttlSeconds":"x"}', None), "INVALID_JSON")
        self.fails(ask("/v1/leases", b'{"pool":" "}', None), "INVALID_REQUEST", "'pool' must be a non-empty string")
        self.fails(ask("/v1/leases", self.good(), None), "INVALID_REQUEST", "'idempotency-key' header is required")


@over("http")
class Answers(Cases):
    def test_times_have_a_fraction_and_end_with_z(self):
        _, body = self.client.call("POST", "/v1/leases", {"pool": POOL}, [("Idempotency-Key", "key")])
        for name in ("createdAt", "expiresAt", "lastUsedAt"):
            self.assertRegex(body["lease"][name], r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z\Z")

    def test_json_is_utf8_without_a_byte_order_mark(self):
        lease = self.acquire()
        response = self.client.send("POST", self.client.path(lease.id, "/exec"), '{"command":"printf \u00e9"}'.encode("utf-8"))
        self.assertTrue(response.body.startswith(b"{"))
        self.assertEqual(response.json()["stdout"], "\u00e9")

    def test_the_content_type_of_json_is_application_json(self):
        for target in ("/health", "/ready", "/v1/leases", "/nothing"):
            self.assertRegex(self.client.send("GET", target).headers["Content-Type"], re.compile(r"\Aapplication/json(; ?charset=utf-8)?\Z", re.I))


@over("http")
class Connections(Cases):
    def test_one_connection_serves_many_requests(self):
        with http_client.connect(self.client.address) as connection:
            for _ in range(20):
                connection.sendall(http_client.head("GET", "/v1/leases", self.client.headers()))
                self.assertEqual(http_client.read_response(connection).status, 200)

    def test_pipelined_requests_are_answered_in_order(self):
        lease = self.acquire()
        bodies = [json.dumps({"command": "sleep %s; echo %d" % (pause, place)}).encode("ascii")
                  for place, pause in enumerate(("0.3", "0.1", "0"))]
        data = b"".join(http_client.head("POST", self.client.path(lease.id, "/exec"), self.client.headers(body)) + body for body in bodies)
        with http_client.connect(self.client.address) as connection:
            connection.sendall(data)
            reader = connection.makefile("rb")
            found = []
            for _ in bodies:
                self.assertEqual(reader.readline().split()[1], b"200")
                length = 0
                line = reader.readline()
                while line.strip():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                    line = reader.readline()
                found.append(json.loads(reader.read(length))["stdout"])
            self.assertEqual(found, ["0\n", "1\n", "2\n"])

    def test_connection_close_is_obeyed(self):
        with http_client.connect(self.client.address, 5 * cases.PATIENCE) as connection:
            connection.sendall(http_client.head("GET", "/health", [("Host", "x"), ("Connection", "close")]))
            received = b""
            chunk = connection.recv(65536)
            while chunk:
                received += chunk
                chunk = connection.recv(65536)
            self.assertIn(b'{"status":"ok"}', received)

    def test_a_half_closed_client_still_gets_its_answer_or_a_clean_end(self):
        with http_client.connect(self.client.address, 5 * cases.PATIENCE) as connection:
            connection.sendall(http_client.head("GET", "/health", [("Host", "x")]))
            connection.shutdown(socket.SHUT_WR)
            received = connection.recv(65536)
            self.assertTrue(received == b"" or received.startswith(b"HTTP/1.1 200"), received)

    def test_many_clients_at_once_are_all_answered(self):
        lease = self.acquire()
        for answer in together([lambda: self.client.get(lease.id)] * 64):
            self.assertEqual(self.succeeds(answer).lease.id, lease.id)

    def test_no_descriptor_is_left_after_many_connections(self):
        def descriptors():
            return len(os.listdir("/proc/%d/fd" % self.platform.gateway.process.pid))
        self.client.list()
        before = descriptors()
        together([lambda: [self.client.list() for _ in range(20)]] * 16)
        self.assertLessEqual(descriptors() - before, 16, "connections that are closing may still count")


if __name__ == "__main__":
    cases.main()
