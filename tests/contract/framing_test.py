"""HTTP that is cut short, ambiguous, too large, too slow or no HTTP at all: refused with our JSON, or cut; never believed."""
import socket
import time

from tests.support import cases, http_client, processes
from tests.support.cases import POOL, Cases, over, together
from tests.support.client import Broken
from tests.support.limits import LIMITS


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


class Raw(Cases):
    def exchange(self, data, seconds=10, half_close=False):
        """Sends bytes and returns all that comes until the other side closes or is silent for a while."""
        received = b""
        with http_client.connect(self.platform.address, seconds * cases.PATIENCE) as connection:
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
                chunk = connection.recv(65536)
                while chunk:
                    received += chunk
                    chunk = connection.recv(65536)
            except (ConnectionError, socket.timeout):
                pass
        return received

    def statuses(self, received):
        """The status of each answer in what came."""
        found = []
        for part in received.split(b"HTTP/1.1 ")[1:]:
            found.append(int(part[:3]))
        return found

    def refused(self, data, *reasons):
        """One error answer of ours with one of these reasons, or a plain cut if none is given; and nothing was done."""
        with http_client.connect(self.platform.address, 10 * cases.PATIENCE) as connection:
            try:
                connection.sendall(data)
            except ConnectionError:
                pass
            try:
                response = http_client.read_response(connection)
            except Broken:
                self.assertFalse(reasons, "the connection was cut without an answer")
                return
            code, _ = http_client.check_error(response)
            self.assertIn(code, reasons or (code,))
            # Behind a refusal of framing nothing on this connection can be believed: it must end.
            rest = b""
            try:
                rest = connection.recv(65536)
            except ConnectionError:
                pass
            self.assertEqual(rest, b"", "something was read from a connection that cannot be understood")

    def healthy(self):
        self.assertEqual(self.succeeds(self.client.list()).value["leases"], [])

    def request(self, *lines, method="POST", target="/v1/leases", body=b""):
        """A request with good authorization, and header lines as given, bytes included."""
        fixed = [b"Authorization: " + self.client.authorization().encode("ascii"), b"Idempotency-Key: key"]
        head = [("%s %s HTTP/1.1" % (method, target)).encode("ascii")] + fixed
        return b"\r\n".join(head + [line if isinstance(line, bytes) else line.encode("latin-1") for line in lines]) + b"\r\n\r\n" + body


BODY = b'{"pool":"%s"}' % POOL.encode("ascii")


@over("http")
class Ambiguous(Raw):
    def test_content_length_with_transfer_encoding_is_refused(self):
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
        for lines in (("Content-Length: %d" % len(BODY), "Transfer-Encoding: chunked"), ("Transfer-Encoding: chunked", "Content-Length: 3"),
                      ("content-length: 3", "TRANSFER-ENCODING: Chunked"), ("Content-Length: 0", "Transfer-Encoding: identity")):
            with self.subTest(lines=lines):
                self.refused(self.request("Host: x", *lines, body=chunked), "INVALID_REQUEST")
        self.healthy()

    def test_two_content_lengths_are_refused(self):
        for first, second in ((len(BODY), len(BODY) + 5), (len(BODY) + 5, len(BODY)), (0, len(BODY)), (len(BODY), 0)):
            with self.subTest(first=first, second=second):
                self.refused(self.request("Host: x", "Content-Length: %d" % first, "Content-Length: %d" % second, body=BODY), "INVALID_REQUEST")
        self.refused(self.request("Host: x", "Content-Length: %d, %d" % (len(BODY), len(BODY) + 1), body=BODY), "INVALID_REQUEST")
        self.healthy()

    def test_a_content_length_that_is_no_number_is_refused(self):
        for value in ("-2", "+2", "2x", "0x2", "1e3", "", " ", "99999999999999999999", "18446744073709551617", "2 2", "\u0662".encode("utf-8").decode("latin-1")):
            with self.subTest(value=value):
                self.refused(self.request("Host: x", "Content-Length: " + value, body=BODY), "INVALID_REQUEST", "BODY_TOO_LARGE")
        self.healthy()

    def test_no_host_and_two_hosts_are_refused(self):
        length = "Content-Length: %d" % len(BODY)
        self.refused(self.request(length, body=BODY), "INVALID_REQUEST")
        self.refused(self.request("Host: a", "Host: b", length, body=BODY), "INVALID_REQUEST")
        self.refused(b"GET /health HTTP/1.1\r\n\r\n", "INVALID_REQUEST")
        self.healthy()

    def test_other_transfer_encodings_are_refused(self):
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
        for value in ("gzip", "gzip, chunked", "chunked, chunked", "chunked, gzip", "identity", "xchunked", "chunked;x", "", "\x0bchunked"):
            with self.subTest(value=value):
                self.refused(self.request("Host: x", "Transfer-Encoding: " + value, body=chunked), "INVALID_REQUEST")
        self.refused(self.request("Host: x", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", body=chunked), "INVALID_REQUEST")
        self.healthy()

    def test_bad_chunks_are_refused(self):
        for body in (b"zz\r\n{}\r\n0\r\n\r\n", b"-2\r\n{}\r\n0\r\n\r\n", b"2\r\n{}x\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
                     b"7fffffffffffffff\r\n{}\r\n0\r\n\r\n", b"\r\n{}\r\n0\r\n\r\n", b" 2\r\n{}\r\n0\r\n\r\n"):
            with self.subTest(body=body):
                statuses = self.statuses(self.exchange(self.request("Host: x", "Transfer-Encoding: chunked", body=body), 3, half_close=True))
                self.assertNotIn(201, statuses)
                self.assertLessEqual(len(statuses), 1)
        self.healthy()

    def test_a_smuggled_second_request_is_never_answered(self):
        hidden = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        for lines, body in ((("Content-Length: %d" % len(hidden), "Transfer-Encoding: chunked"), b"0\r\n\r\n" + hidden),
                            (("Transfer-Encoding: chunked", "Content-Length: 4"), b"1\r\nx\r\n0\r\n\r\n" + hidden),
                            (("Content-Length: 0", "Content-Length: %d" % len(hidden)), hidden),
                            (("Transfer-Encoding: xchunked", "Content-Length: %d" % len(hidden)), hidden),
                            (("Content-Length : %d" % len(hidden),), hidden)):
            with self.subTest(lines=lines):
                statuses = self.statuses(self.exchange(self.request("Host: x", *lines, body=body), 3))
                self.assertLessEqual(len(statuses), 1)
                self.assertNotIn(200, statuses)


@over("http")
class Malformed(Raw):
    def test_what_is_no_http_is_refused(self):
        for data in (b"\0\1\2garbage\r\n\r\n", b"GET\r\n\r\n", b"GET /health\r\n\r\n", b"GET /health HTTP/3.0\r\nHost: x\r\n\r\n",
                     b"GET /health HTTP/1.1 x\r\nHost: x\r\n\r\n", b"GET  /health HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00" * 20,
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /he\0alth HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-x\r\n\r\n",
                     b"GET /health HTTP/1.1\r\nHost\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\nA\x01B: x\r\n\r\n",
                     b"GET /health HTTP/1.1\r\nHost: x\r\nA B: x\r\n\r\n", b"GET /health HTTP/1.1\r\n Host: x\r\n\r\n",
                     b"GET /health HTTP/1.1\r\nHost: x\r\n: empty\r\n\r\n", b"{\"json\": true}\r\n\r\n", b"\n\n\n\n"):
            with self.subTest(data=data[:40]):
                statuses = self.statuses(self.exchange(data, 3, half_close=True))
                self.assertNotIn(200, statuses)
        self.healthy()

    def test_a_nul_or_line_break_in_a_header_is_refused(self):
        for value in (b"a\0b", b"a\rb", b"a\nb: c"):
            with self.subTest(value=value):
                received = self.exchange(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + value + b"\r\n\r\n", 3, half_close=True)
                self.assertNotIn(b"\0", received)
                self.assertNotIn(b"X-Request-Id: a\r\n", received)

    def test_a_folded_header_is_refused(self):
        statuses = self.statuses(self.exchange(self.request("Host: x", "X-A: b", " folded", "Content-Length: 0"), 3))
        self.assertNotIn(201, statuses)

    def test_odd_methods_are_refused_politely(self):
        for method in ("get", "G3T", "FOO", "A" * 200):
            response = http_client.send_raw(self.platform.address, self.request("Host: x", method=method, target="/v1/leases"))
            self.assertIn(http_client.check_error(response)[0], ("METHOD_NOT_ALLOWED", "INVALID_REQUEST"))
        statuses = self.statuses(self.exchange(b"CONNECT example:443 HTTP/1.1\r\nHost: x\r\n\r\n", 2))
        self.assertNotIn(200, statuses)
        statuses = self.statuses(self.exchange(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 2))
        self.assertNotIn(200, statuses)

    def test_the_target_may_be_absolute(self):
        response = http_client.send_raw(self.platform.address, b"GET http://anywhere/health HTTP/1.1\r\nHost: anywhere\r\n\r\n")
        self.assertIn(response.status, (200, 400, 401, 404))

    def test_http_1_0_is_served_or_refused(self):
        response = http_client.send_raw(self.platform.address, b"GET /health HTTP/1.0\r\nHost: x\r\n\r\n")
        self.assertIn(response.status, (200, 400))


@over("http")
class TooLarge(Raw):
    def test_headers_have_at_most_32_kib(self):
        response = http_client.send_raw(self.platform.address, self.request("Host: x", "X-Padding: " + "x" * 20000, method="GET"))
        self.assertEqual(response.status, 200)
        for size in (33000, 100000, 500000):
            with self.subTest(size=size):
                self.refused(self.request("Host: x", "X-Padding: " + "x" * size, method="GET"), "HEADERS_TOO_LARGE")
        self.healthy()

    def test_at_most_100_headers(self):
        response = http_client.send_raw(self.platform.address, self.request("Host: x", *["X-%d: 1" % n for n in range(90)], method="GET"))
        self.assertEqual(response.status, 200)
        self.refused(self.request("Host: x", *["X-%d: 1" % n for n in range(120)], method="GET"), "HEADERS_TOO_LARGE")

    def test_a_target_that_is_too_long_is_refused(self):
        for size in (40000, 300000):
            self.refused(self.request("Host: x", method="GET", target="/v1/leases?" + "x" * size), "URI_TOO_LONG", "HEADERS_TOO_LARGE")
        self.healthy()

    def test_endless_headers_are_cut(self):
        with http_client.connect(self.platform.address, 20 * cases.PATIENCE) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
            started = time.monotonic()
            with self.assertRaises(ConnectionError):  # refused, lingered over for 5 s so that the answer can be read, and cut
                while time.monotonic() - started < 15 * cases.PATIENCE:
                    connection.sendall(b"X-More: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n" * 100)
                    time.sleep(0.01)
        self.healthy()


@over("http")
class CutShort(Raw):
    def test_a_request_cut_at_any_byte_does_nothing(self):
        whole = self.request("Host: x", "Content-Length: %d" % len(BODY), body=BODY)
        for length in range(len(whole)):
            with http_client.connect(self.platform.address) as connection:
                connection.sendall(whole[:length])
        self.healthy()
        self.assertTrue(self.platform.gateway.alive())

    def test_a_request_half_closed_at_any_byte_does_nothing(self):
        whole = self.request("Host: x", "Content-Length: %d" % len(BODY), body=BODY)
        for length in range(0, len(whole), 3):
            statuses = self.statuses(self.exchange(whole[:length], 5, half_close=True))
            self.assertNotIn(201, statuses)
        self.healthy()

    def test_a_chunked_request_cut_at_any_byte_does_nothing(self):
        whole = self.request("Host: x", "Transfer-Encoding: chunked", body=b"4\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (
            BODY[:4], len(BODY) - 4, BODY[4:]))
        for length in range(len(whole)):
            with http_client.connect(self.platform.address) as connection:
                connection.sendall(whole[:length])
        self.healthy()

    def test_an_upload_cut_at_any_byte_leaves_the_old_file(self):
        lease = self.acquire()
        self.succeeds(self.client.upload(lease.id, "file", b"old"))
        content = b"new content"
        headers = self.client.headers(None, [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(content))),
                                             ("Content-Digest", http_client.digest_header(content))])
        whole = http_client.head("PUT", self.client.content_path(lease.id, "file"), headers) + content
        for length in list(range(0, len(whole) - len(content), 7)) + list(range(len(whole) - len(content) - 2, len(whole))):
            with http_client.connect(self.platform.address) as connection:
                connection.sendall(whole[:length])
        deadline = time.monotonic() + 2 * cases.PATIENCE
        answer = self.client.upload(lease.id, "other", b"x")
        while answer.reason == "TRANSFER_LIMIT_REACHED" and time.monotonic() < deadline:
            time.sleep(0.02)
            answer = self.client.upload(lease.id, "other", b"x")
        self.succeeds(answer)
        self.assertEqual(self.output(lease, "cat file; rm other; ls -A"), "oldfile\n")

    def test_a_request_that_comes_byte_by_byte_is_served(self):
        whole = self.request("Host: x", "Content-Length: %d" % len(BODY), body=BODY)
        with http_client.connect(self.platform.address) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for place in range(len(whole)):
                connection.sendall(whole[place:place + 1])
            self.assertEqual(http_client.read_response(connection).status, 201)


@over("http")
class Held(Raw):
    """What the gateway holds for clients that stop has a bound, and does not keep others out."""

    def setUp(self):
        super().setUp()
        self.held = []
        self.before = self.resident()

    def tearDown(self):
        for connection in self.held:
            connection.close()

    def resident(self):
        return processes.resident_kib(self.platform.gateway.process.pid)

    def hold(self, data):
        connection = http_client.connect(self.platform.address, 30 * cases.PATIENCE)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)  # else the kernel holds a whole answer
        self.held.append(connection)
        connection.sendall(data)
        return connection

    def bounded(self):
        bound = LIMITS["HELD_BYTES"] // 1024 + 128 * 1024
        self.assertLess(self.resident() - self.before, bound * (1 if cases.PATIENCE == 1 else 2), "KiB of growth")

    def test_bodies_that_nobody_finishes(self):
        size = LIMITS["JSON_BODY_BYTES"]
        head = http_client.head("POST", "/v1/leases", [("Host", "x"), ("Content-Length", str(size))])
        for _ in range(600):
            self.hold(head + b"{" + b" " * (size - 2))
        lease = self.acquire()
        self.bounded()
        self.succeeds(self.client.write(lease.id, "file", b"x" * (size // 2)))

    def test_a_body_that_is_given_up_is_told(self):
        size = LIMITS["JSON_BODY_BYTES"]
        first = self.hold(self.request("Host: x", "Content-Length: %d" % size, body=b" " * (size - 1)))
        head = http_client.head("POST", "/v1/leases", [("Host", "x"), ("Content-Length", str(size))])
        for _ in range(LIMITS["HELD_BYTES"] // (size - 2) + 1):
            self.hold(head + b" " * (size - 2))
        self.assertEqual(http_client.check_error(http_client.read_response(first))[0], "SERVER_UNAVAILABLE")

    def test_answers_that_nobody_reads(self):
        lease = self.acquire()
        body = b'{"command":"yes | head -c 10000000 | tee /dev/stderr"}'
        for _ in range(30):
            data = http_client.head("POST", self.client.path(lease.id, "/exec"), self.client.headers(body)) + body
            self.assertEqual(self.hold(data).recv(12), b"HTTP/1.1 200")
        self.bounded()
        self.assertEqual(len(self.output(lease, "yes | head -c 10000000")), 10000000)


@over("http")
class Slow(Raw):
    """Each case is the passing of the gateway's own time limit; they run at the same time."""

    def trickle(self, begin, unit, seconds):
        """Sends `begin`, then `unit` once a second; returns (seconds until the end, what came)."""
        started = time.monotonic()
        received = b""
        with http_client.connect(self.platform.address, 1) as connection:
            connection.sendall(begin)
            while time.monotonic() - started < seconds:
                try:
                    chunk = connection.recv(65536)
                    if not chunk:
                        break
                    received += chunk
                except socket.timeout:
                    try:
                        connection.sendall(unit)
                    except ConnectionError:
                        break
                except ConnectionError:
                    break
        return time.monotonic() - started, received

    def test_slow_requests_are_cut_and_slow_uploads_are_not(self):
        lease = self.acquire()
        content = b"x" * 14
        headers = self.client.headers(None, [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(content))),
                                             ("Content-Digest", http_client.digest_header(content))])
        upload = http_client.head("PUT", self.client.content_path(lease.id, "slow"), headers)
        line, header, body, transfer = together([
            lambda: self.trickle(b"GET /hea", b"x", 50),
            lambda: self.trickle(b"GET /health HTTP/1.1\r\nHost: x\r\n", b"X-A: b\r\n", 50),
            lambda: self.trickle(self.request("Host: x", "Content-Length: 1000", body=b"{"), b" ", 50),
            lambda: self.trickle(upload, b"x", 50)])
        for name, (seconds, received), limit in (
                ("request line", line, LIMITS["HEADER_SECONDS"]), ("headers", header, LIMITS["HEADER_SECONDS"]),
                ("JSON body", body, LIMITS["BODY_SECONDS"])):
            with self.subTest(slow=name):
                self.assertTrue(limit - 1 < seconds < limit + 8 * cases.PATIENCE, seconds)
                self.assertIn(self.statuses(received), ([], [408]))
        self.assertIn(204, self.statuses(transfer[1]), "a slow upload is within its own two minutes")
        self.assertEqual(self.succeeds(self.client.download(lease.id, "slow")).content, content)


if __name__ == "__main__":
    cases.main()
