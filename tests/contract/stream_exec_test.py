"""StreamExec: output as it comes, standard input, signals, and how a command ended (lease.proto)."""
import hashlib
import threading

import grpc

from tests.support import cases, grpc_client, processes
from tests.support.cases import Cases, over
from tests.support.stubs import lease_pb2

MIB = 1048576


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


@over("grpc")
class StreamExec(Cases):
    def setUp(self):
        super().setUp()
        self.lease = self.acquire()

    def stream(self, command, **options):
        opened = grpc_client.Stream(self.client, self.lease.id, command, timeout=60 * cases.PATIENCE, **options)
        self.addCleanup(opened.cancel)
        return opened

    def kind(self, reply):
        return reply.WhichOneof("response")

    def failure(self, stream):
        with self.assertRaises(grpc.RpcError) as raised:
            while stream.next() is not None:
                pass
        return grpc_client.failure(raised.exception)

    def assertEnded(self, end, ended_by, exit_code, signal=0):
        self.assertEqual((end.ended_by, end.exit_code, end.signal), (ended_by, exit_code, signal))

    def test_started_comes_first_and_ended_last(self):
        stream = self.stream("echo out; echo err >&2; exit 3")
        self.assertEqual(self.kind(stream.next()), "started")
        out, err, end = stream.finish()
        self.assertEqual((out, err), (b"out\n", b"err\n"))
        self.assertEnded(end, lease_pb2.ENDED_BY_EXITED, 3)
        self.assertEqual((end.stdout_bytes, end.stderr_bytes), (4, 4))

    def test_output_comes_while_the_command_runs(self):
        stream = self.stream("echo one; read line; echo two", stdin=True)
        stream.next()
        self.assertEqual(stream.next().output.data, b"one\n")
        stream.stdin(b"go\n")
        self.assertEqual(stream.next().output.data, b"two\n")
        self.assertEqual(self.kind(stream.next()), "ended")
        self.assertIsNone(stream.next())

    def test_standard_input_arrives_whole_and_ends(self):
        content = bytes(range(256)) * 8192  # 2 MiB
        stream = self.stream("sha256sum", stdin=True)
        for start in range(0, len(content), 100000):
            stream.stdin(content[start:start + 100000])
        stream.stdin_end()
        out, _, end = stream.finish()
        self.assertEqual(out.split()[0].decode("ascii"), hashlib.sha256(content).hexdigest())
        self.assertEnded(end, lease_pb2.ENDED_BY_EXITED, 0)

    def test_standard_input_is_empty_unless_asked_for(self):
        out, _, end = self.stream("cat; echo end").finish()
        self.assertEqual(out, b"end\n")
        self.assertEnded(end, lease_pb2.ENDED_BY_EXITED, 0)

    def test_input_that_the_command_does_not_read_does_no_harm(self):
        stream = self.stream("exec <&-; echo closed; sleep 0.3; exit 4", stdin=True)
        for _ in range(20):
            stream.stdin(b"x" * 100000)
        out, _, end = stream.finish()
        self.assertEqual(out, b"closed\n")
        self.assertEnded(end, lease_pb2.ENDED_BY_EXITED, 4)

    def test_half_closing_without_stdin_end_leaves_the_command_alone(self):
        stream = self.stream("sleep 0.3; echo done")
        stream.half_close()
        self.assertEqual(stream.finish()[0], b"done\n")

    def test_a_signal_reaches_the_command(self):
        stream = self.stream("trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.1; done")
        stream.next()
        stream.next()
        stream.signal(10)
        out, _, end = stream.finish()
        self.assertEqual(out, b"caught\n")
        self.assertEnded(end, lease_pb2.ENDED_BY_EXITED, 9)

    def test_death_by_signal_is_told(self):
        stream = self.stream("echo ready; exec sleep 1000")
        stream.next()
        stream.next()
        stream.signal(15)
        self.assertEnded(stream.finish()[2], lease_pb2.ENDED_BY_SIGNALLED, 143, 15)

    def test_a_time_limit_is_told(self):
        self.assertEnded(self.stream("echo x; sleep 1000", timeout_seconds=1).finish()[2], lease_pb2.ENDED_BY_TIMED_OUT, 137, 9)

    def test_a_hundred_mib_arrive_whole(self):
        stream = self.stream("head -c %d /dev/zero | tr '\\0' 'x' | tee /dev/stderr" % (100 * MIB))
        sums = {1: hashlib.sha256(), 2: hashlib.sha256()}
        reply = stream.next()
        while reply is not None:
            if self.kind(reply) == "output":
                sums[reply.output.stream].update(reply.output.data)
            reply = stream.next()
        expected = hashlib.sha256(b"x" * (100 * MIB)).hexdigest()
        self.assertEqual({one.hexdigest() for one in sums.values()}, {expected})
        self.assertEqual((stream.ended.stdout_bytes, stream.ended.stderr_bytes), (100 * MIB, 100 * MIB))

    def test_a_reader_that_stops_stops_the_command_and_costs_the_server_little(self):
        before = processes.resident_kib(self.platform.server.process.pid)
        stream = self.stream("yes | tee /dev/stderr")
        stream.next()
        stream.next()
        gate = threading.Event()
        gate.wait(2)  # nobody reads meanwhile: `yes` writes gigabytes if nothing holds it back
        grown = processes.resident_kib(self.platform.server.process.pid) - before
        self.assertLess(grown, 16 * 1024 * cases.PATIENCE, "KiB of growth while nobody read")
        for _ in range(2000):
            stream.next()  # offsets are checked: nothing was dropped

    def test_cancelling_kills_the_command_and_its_descendants(self):
        mark = self.mark()
        stream = self.stream("setsid sleep 1000 & sleep 1000 & echo ready; sleep 1000", env={"MARK": mark})
        stream.next()
        stream.next()
        self.alive(mark)
        stream.cancel()
        self.dead(mark)

    def test_release_ends_it(self):
        stream = self.stream("echo ready; sleep 1000")
        stream.next()
        stream.next()
        self.succeeds(self.client.release(self.lease.id))
        try:
            end = stream.finish()[2]
            self.assertEqual(end.ended_by, lease_pb2.ENDED_BY_LEASE_ENDED)
        except grpc.RpcError as error:
            self.fails(grpc_client.failure(error), "ABORTED")

    def test_the_first_message_must_be_start(self):
        for first in (lease_pb2.StreamExecRequest(stdin=b"x"), lease_pb2.StreamExecRequest(),
                      lease_pb2.StreamExecRequest(signal=lease_pb2.Signal(number=9))):
            self.assertEqual(self.failure(self.stream("true", first=first)).reason, "INVALID_REQUEST")

    def test_a_second_start_is_refused(self):
        stream = self.stream("sleep 1000")
        stream.next()
        stream.send(lease_pb2.StreamExecRequest(start=lease_pb2.StreamExecStart(
            lease_id=self.lease.id, command=self.client.command("true"))))
        self.assertEqual(self.failure(stream).reason, "INVALID_REQUEST")

    def test_bad_signals_are_refused(self):
        for number in (0, -1, 65, 2 ** 31 - 1):
            with self.subTest(number=number):
                stream = self.stream("sleep 1000")
                stream.next()
                stream.signal(number)
                self.assertEqual(self.failure(stream).reason, "INVALID_REQUEST")

    def test_rules_on_commands_are_those_of_exec(self):
        self.fails(self.failure(self.stream(" ")), "INVALID_REQUEST", "'command' must be a non-empty string")
        self.fails(self.failure(self.stream("true", cwd="/etc")), "INVALID_PATH")
        self.assertEqual(self.failure(self.stream("true", env={"1": "x"})).reason, "INVALID_REQUEST")
        self.assertEqual(self.failure(self.stream("true", timeout_seconds=0)).reason, "INVALID_REQUEST")

    def test_strangers_do_not_find_the_lease(self):
        stranger = self.client_of("beta", self.subject)
        stream = grpc_client.Stream(stranger, self.lease.id, "true")
        self.fails(self.failure(stream), "LEASE_NOT_FOUND")

    def test_no_token_is_refused(self):
        stream = grpc_client.Stream(self.platform.client_with("grpc", None), self.lease.id, "true")
        self.fails(self.failure(stream), "UNAUTHORIZED")


if __name__ == "__main__":
    cases.main()
