"""TCP ports: the same as on a unix socket goes through the front, with TLS and without; and what a client can do to the
server's memory by HTTP/2 frames alone stays bounded."""

import os
import select
import socket
import ssl
import subprocess
import sys
import threading
import time
import unittest

import grpc

from tests.unit.server import program_test
from sandbox.lease.v1 import lease_pb2  # pylint: disable=wrong-import-order

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE = 0, 1, 3, 4, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
MIB = 1 << 20


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def indexed(name, value):
    """A header field that also enters HPACK's dynamic table."""
    return b"\x40" + bytes([len(name)]) + name + bytes([len(value)]) + value


FIRST = b"\x83\x86" + b"".join(indexed(*field) for field in (
    (b":path", b"/test.Plumbing/Unary"), (b":authority", b"x"), (b"te", b"trailers"),
    (b"content-type", b"application/grpc")))
NEXT = b"\x83\x86" + bytes(0x80 | index for index in (65, 64, 63, 62))


def literal(name, value):
    """A header field of up to 16 KiB, kept out of the table."""
    length = len(value)
    digits = bytes([length]) if length < 127 else bytes([127, (length - 127) & 0x7f | 0x80, (length - 127) >> 7])
    return b"\x00" + bytes([len(name)]) + name + digits + value


class Raw:
    """One HTTP/2 connection, frame by frame. What the server sends is read and thrown away, unless `deaf`."""

    def __init__(self, port, acknowledge=True, deaf=False):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.stream = 1
        self.closed = threading.Event()
        self.socket.sendall(PREFACE + frame(SETTINGS))
        if acknowledge:
            while self.read_frame()[0] != SETTINGS:
                pass
            self.socket.sendall(frame(SETTINGS, ACK))
        if not deaf:
            threading.Thread(target=self.read_on, daemon=True).start()

    def read_exactly(self, length):
        found = b""
        while len(found) < length:
            piece = self.socket.recv(length - len(found))
            if not piece:
                raise EOFError
            found += piece
        return found

    def read_frame(self):
        head = self.read_exactly(9)
        return head[3], self.read_exactly(int.from_bytes(head[:3], "big"))

    def read_on(self):
        try:
            while self.socket.recv(65536):
                pass
        except OSError:
            pass
        self.closed.set()

    def request(self, method, message):
        """Begins a call with a token. Nothing the server sends is held back: the window is as large as can be."""
        window = (0x7fffffff - 65535).to_bytes(4, "big")
        bearer = b"Bearer " + program_test.token().encode()
        fields = ((b":path", method), (b":authority", b"x"), (b"te", b"trailers"),
                  (b"content-type", b"application/grpc"), (b"authorization", bearer))
        block = b"\x83\x86" + b"".join(literal(*field) for field in fields)
        self.socket.sendall(
            frame(WINDOW_UPDATE, 0, 0, window) + frame(HEADERS, END_HEADERS, 1, block) +
            frame(WINDOW_UPDATE, 0, 1, window) +
            frame(DATA, END_STREAM, 1, b"\0" + len(message).to_bytes(4, "big") + message))

    def call(self, reset):
        """The frames of one call without a token."""
        flags = END_HEADERS if reset else END_HEADERS | END_STREAM
        frames = frame(HEADERS, flags, self.stream, FIRST if self.stream == 1 else NEXT)
        if reset:
            frames += frame(RST_STREAM, 0, self.stream, (8).to_bytes(4, "big"))
        self.stream += 2
        return frames

    def flood(self, seconds, reset=True, count=1 << 30):
        """As many calls as the server takes in the time, at most `count`."""
        deadline = time.monotonic() + seconds
        pending = b""
        try:
            while time.monotonic() < deadline and (pending or count > 0):
                if not pending:
                    pending = b"".join(self.call(reset) for _ in range(2000))
                    count -= 2000
                if select.select([], [self.socket], [], 0.1)[1]:
                    pending = pending[self.socket.send(pending, socket.MSG_DONTWAIT):]
        except (BrokenPipeError, ConnectionResetError):
            self.closed.set()

    def close(self):
        self.socket.close()


def flood(port, connections, seconds):
    """In a process of its own, so that the test's client has its share of time."""
    clients = [Raw(port) for _ in range(connections)]
    threads = [threading.Thread(target=client.flood, args=(seconds,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    closed = sum(client.closed.is_set() for client in clients)
    for client in clients:
        client.close()
    return closed


class TcpCase(program_test.Case):
    """Serves on a TCP port, and calls over it."""

    port = None

    def serve(self, wait=True, **changes):
        changes.setdefault("SANDBOX_GRPC_ADDRESS", "127.0.0.1:0")
        server = super().serve(wait, **changes)
        self.port = server.port()
        return server

    def channel(self, target=None, credentials=None, options=()):
        return super().channel(target or f"127.0.0.1:{self.port}", credentials, options)


class Calls(TcpCase, program_test.Calls):
    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port))


class Stop(TcpCase, program_test.Stop):
    pass


class TlsCalls(program_test.Tls, program_test.Calls):
    """The calls again, encrypted."""

    def setUp(self):
        program_test.Case.setUp(self)
        self.make("server")
        self.server = self.tls()
        self.trusted = grpc.ssl_channel_credentials(self.read("server.pem"))

    def channel(self, target=None, credentials=None, options=()):
        return super().channel(target or f"localhost:{self.server.port()}", credentials or self.trusted, options)

    def connect(self):
        context = ssl.create_default_context(cafile=os.path.join(self.folder, "server.pem"))
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("localhost", self.server.port()))
        return context.wrap_socket(plain, server_hostname="localhost")

    # The certificates themselves are tried in program_test.
    test_tls = test_mutual_tls = test_certificates_are_read_again_when_they_change = None
    test_useless_files_stop_the_start = None


class Streams(TcpCase):
    def test_large_messages_both_ways_at_once(self):
        """More than all buffers on the way hold: both directions must give way and go on."""
        self.serve()
        hello = lease_pb2.GetLeaseRequest(lease_id="hello").SerializeToString()
        messages = [hello] + [bytes([i]) * (1 << 20) for i in range(100)]
        answers = self.channel(options=(("grpc.max_receive_message_length", -1),)).stream_stream(
            "/test.Plumbing/Bidirectional")(iter(messages), metadata=program_test.bearer(), timeout=60)
        for message, answer in zip(messages, answers, strict=True):
            self.assertEqual(len(message), len(answer))
            self.assertEqual(message, answer)


    def test_messages_before_a_failure_all_leave(self):
        """gRPC core as a client drops what it has not read when it learns that the call fails; here nothing does."""
        self.serve()
        for pool, status in (("", b"\x010"), ("fail", b"\x0211"), ("eager", b"\x0211")):
            client = Raw(self.port, deaf=True)
            request = lease_pb2.ListLeasesRequest(limit=20, pool=pool)
            client.request(b"/test.Plumbing/ServerStream", request.SerializeToString())
            data, blocks = 0, []
            while len(blocks) < 2:  # the headers and the trailers
                kind, payload = client.read_frame()
                if kind == HEADERS:
                    blocks.append(payload)
                elif kind == DATA:
                    data += len(payload)
                    self.assertEqual(len(blocks), 1)
            self.assertEqual(data, 20 * (5 + 100004))
            self.assertIn(b"grpc-status" + status, blocks[1])
            client.close()


class Hostile(TcpCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def peak(self):
        """The most memory the server ever had, in bytes."""
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

    def sanitized(self):
        with open(f"/proc/{self.server.process.pid}/maps", encoding="utf-8") as maps:
            return "san.so" in maps.read()

    def assert_bounded(self, before, bound):
        grown = self.peak() - before
        if not self.sanitized():  # they keep what was freed for a while, and pad what was not
            self.assertLess(grown, bound)

    def assert_serves(self):
        self.assertEqual(self.unary(self.channel()).lease.id, "hello")

    def reset_calls(self, connections, seconds):
        """Other clients are served all the while; a client that resets much is slowed down, not cut off."""
        attack = subprocess.Popen([sys.executable, __file__, "flood", str(self.port), str(connections), str(seconds)],
                                  env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        while attack.poll() is None:
            self.assert_serves()
            time.sleep(0.1)
        self.assertEqual(attack.returncode, 0)
        self.assert_serves()

    def test_calls_that_are_reset_at_once(self):
        """Without a bound, each costs more than 5 KiB: 200,000 take 5 s and a gigabyte."""
        self.unary(self.channel())
        before = self.peak()
        self.reset_calls(1, 5)
        self.assert_bounded(before, 48 * MIB)

    def test_many_connections_that_reset(self):
        self.unary(self.channel())
        before = self.peak()
        self.reset_calls(2 if self.sanitized() else 20, 5)  # sanitized, it does less than all together may ask for
        self.assert_bounded(before, 128 * MIB)

    def test_a_client_that_never_acknowledges_the_settings(self):
        """Without a bound, gRPC takes any number of its calls: 200,000 open ones cost more than a gigabyte."""
        self.unary(self.channel())
        before = self.peak()
        client = Raw(self.port, acknowledge=False)
        client.flood(5, False, 200000)
        self.assertTrue(client.closed.wait(20))
        self.assert_bounded(before, 32 * MIB)
        self.assert_serves()

    def test_a_client_that_reads_nothing(self):
        self.unary(self.channel())
        before = self.peak()
        client = Raw(self.port, deaf=True)
        client.flood(5, False, 8000)
        self.assert_serves()
        self.assert_bounded(before, 192 * MIB)
        client.close()

    def test_clients_that_never_begin_are_closed(self):
        begun = time.monotonic()
        silent = socket.create_connection(("127.0.0.1", self.port))
        half = socket.create_connection(("127.0.0.1", self.port))
        half.sendall(PREFACE[:10])
        unsettled = Raw(self.port, acknowledge=False, deaf=True).socket
        for client in (silent, half, unsettled):
            client.settimeout(30)
            try:
                while client.recv(65536):
                    pass
            except ConnectionResetError:
                pass
            self.assertGreater(time.monotonic() - begun, 8)
            client.close()

    def test_idle_connections_cost_little(self):
        count = 1000
        before = self.peak()
        clients = [Raw(self.port, deaf=True) for _ in range(count)]
        self.assert_serves()
        self.assert_bounded(before, count * 64 << 10)
        poll = select.poll()
        for client in clients:
            poll.register(client.socket, select.POLLRDHUP)
        self.assertEqual(poll.poll(0), [])
        for client in clients:
            client.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["flood"]:
        sys.exit(flood(*(int(argument) for argument in sys.argv[2:])))
    unittest.main()
