"""Faults: parts killed at any moment of a running workload, clocks that jump, disks that fill, clients in thousands.

After each, the same three questions: is a sandbox left that nobody has, is a Lease lost, was any answer wrong?
SANDBOX_TEST_FAST=1 runs fewer rounds; SANDBOX_TEST_SEED gives another course of events.
"""
import os
import random
import resource
import select
import socket
import threading
import time
import unittest

from tests.support import cases, client, http_client, platform, processes
from tests.support.cases import POOL, PATIENCE, Cases, over, settled, together

FAST = os.environ.get("SANDBOX_TEST_FAST") == "1"
SEED = int(os.environ.get("SANDBOX_TEST_SEED", "20240607"))
ROUNDS = 10 if FAST else 50

# What an answer may say while a part is away or has just come back. Anything else is wrong.
EXCUSES = {"SERVER_UNAVAILABLE", "SANDBOX_NOT_READY", "ABORTED", "FILE_TRANSFER_FAILED", "FILE_READ_FAILED", "FILE_WRITE_FAILED"}


def setUpModule():
    # Room for clients in thousands, for the programs too: they inherit it.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if hard != resource.RLIM_INFINITY else (65536, hard))
    del soft


class Worker(threading.Thread):
    """One Subject that acquires, works, checks every answer, and releases; until told to stop."""

    def __init__(self, whole, protocol, number):
        super().__init__(daemon=True)
        self.client = whole.client(protocol, "alpha", "worker-%s-%d" % (protocol, number))
        self.number = number
        self.stopping = threading.Event()
        self.wrong = []  # what was answered wrongly
        self.done = 0    # operations that succeeded
        self.leases = 0
        self.key = 0
        self.lease = None

    def check(self, condition, *what):
        if not condition:
            self.wrong.append("%s: %s" % (self.name, " ".join(map(repr, what))))

    def ask(self, call):
        """The Answer if it succeeded; None if it broke or has an excuse."""
        answer = settled(call)
        if answer is None:
            return None
        if answer.reason is not None:
            self.check(answer.reason in EXCUSES, "unexpected", answer)
            return None
        self.done += 1
        return answer

    def run(self):
        try:
            while not self.stopping.is_set() and not self.wrong:
                self.one_life()
        except (client.Rule, AssertionError, ValueError, OSError) as error:
            self.wrong.append("%s: %r" % (self.name, error))

    def one_life(self):
        self.key += 1
        key, lease = "life-%d" % self.key, None
        while lease is None and not self.stopping.is_set():
            answer = self.ask(lambda: self.client.acquire(POOL, key, 600))
            if answer is None:
                time.sleep(0.02)
                continue
            lease = answer.lease
        if lease is None:
            return
        self.lease = lease
        self.leases += 1
        for turn in range(6):
            if self.stopping.is_set():
                break
            self.work(lease, key, turn)
        self.end(lease)

    def work(self, lease, key, turn):
        text = "%d-%d-%d" % (self.number, self.key, turn)
        answer = self.ask(lambda: self.client.exec(lease.id, "printf %%s %s; printf %%s %s >&2; exit %d" % (text, text, turn)))
        if answer is not None:
            self.check(answer.execution == (text, text, turn), answer.execution, text)
        content = text.encode("ascii") * 20000
        if self.ask(lambda: self.client.upload(lease.id, "file", content)) is not None:
            answer = self.ask(lambda: self.client.download(lease.id, "file"))
            if answer is not None:
                self.check(answer.content == content, "content of", text)
        answer = self.ask(lambda: self.client.acquire(POOL, key, 600))
        if answer is not None:
            self.check(answer.value["replayed"] and answer.lease.id == lease.id, "the key gave", answer.lease.id, "not", lease.id)

    def end(self, lease):
        deadline = time.monotonic() + 30 * PATIENCE
        while True:
            answer = settled(lambda: self.client.release(lease.id))
            if answer is not None and (answer.reason is None or answer.reason in ("LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE")):
                break  # ended by this call, or by a former one whose answer was lost
            if answer is not None:
                self.check(answer.reason in EXCUSES, "release", answer)
            if time.monotonic() > deadline:
                self.wrong.append("%s could not be released: %r" % (lease.id, answer))
                return
            time.sleep(0.02)
        self.lease = None


class Chaos(unittest.TestCase):
    def test_parts_killed_at_random_moments_lose_nothing_and_leak_nothing(self):
        dice = random.Random(SEED)
        whole = platform.Platform().start()
        try:
            workers = [Worker(whole, protocol, number) for number, protocol in enumerate(("http", "grpc", "http", "grpc"))]
            for worker in workers:
                worker.start()
            parts = {"server": (whole.server, whole.start_server), "gateway": (whole.gateway, whole.start_gateway)}
            for turn in range(ROUNDS):  # each part dies once in each, at times both at the same moment
                names = dice.sample(sorted(parts), len(parts))
                for victims in [names] if dice.random() < 0.3 else [names[:1], names[1:]]:
                    time.sleep(dice.uniform(0.02, 0.5))
                    for victim in victims:
                        parts[victim][0].kill()
                    time.sleep(dice.uniform(0, 0.1))
                    for victim in victims:
                        parts[victim][1]()
                    wrong = [line for worker in workers for line in worker.wrong]
                    self.assertEqual(wrong, [], "round %d: %s" % (turn, victims))
            before = [worker.done for worker in workers]
            time.sleep(2 * PATIENCE)  # after the last fault everybody gets on
            stuck = [worker.client.protocol for worker, former in zip(workers, before) if worker.done == former]
            self.assertEqual(stuck, [], "no call has succeeded since the last fault")
            for worker in workers:
                worker.stopping.set()
            for worker in workers:
                worker.join(60 * PATIENCE)
                self.assertFalse(worker.is_alive(), "a worker hangs")
            self.assertEqual([line for worker in workers for line in worker.wrong], [])
            self.assertGreater(sum(worker.leases for worker in workers), 4)
            for number, protocol in enumerate(("http", "grpc", "http", "grpc")):
                left = whole.client("grpc", "alpha", "worker-%s-%d" % (protocol, number)).list().value["leases"]
                self.assertEqual(left, [], "a Lease that its holder has released or never got")
        finally:
            problems = whole.stop()
        self.assertEqual([line for line in problems if "had ended by itself" not in line], [])

    def test_agents_killed_at_random_moments_hurt_their_own_lease_alone(self):
        dice = random.Random(SEED + 1)
        whole = platform.Platform().start()
        try:
            bystander = Worker(whole, "grpc", 99)
            bystander.start()
            mine = whole.client("grpc", "alpha", "victim")
            for turn in range(ROUNDS):
                lease = mine.acquire(POOL, "key-%d" % turn).lease
                killer = threading.Timer(dice.uniform(0, 0.05), lambda lease=lease: settled(
                    lambda: mine.exec(lease.id, "kill -9 -1; kill -9 1", timeout=10 * PATIENCE)))
                killer.start()
                for _ in range(5):
                    answer = settled(lambda lease=lease: mine.exec(lease.id, "echo alive"))
                    if answer is not None and answer.reason is None and answer.execution.code == 0:
                        self.assertEqual(answer.execution.stdout, "alive\n")
                    elif answer is not None and answer.reason is not None:
                        self.assertIn(answer.reason, EXCUSES | {"LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE"})
                killer.join()
                answer = mine.delete(lease.id)
                if answer.reason is not None:
                    self.assertIn(answer.reason, ("LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE"))
            bystander.stopping.set()
            bystander.join(60 * PATIENCE)
            self.assertEqual(bystander.wrong, [])
            self.assertGreater(bystander.done, ROUNDS)
        finally:
            problems = whole.stop()
        self.assertEqual(problems, [])

    def test_sandboxes_killed_from_outside_at_random_moments_hurt_their_own_lease_alone(self):
        dice = random.Random(SEED + 2)
        whole = platform.Platform().start()
        try:
            bystander = Worker(whole, "http", 99)
            bystander.start()
            mine = whole.client("grpc", "alpha", "victim")
            for turn in range(ROUNDS):
                lease = mine.acquire(POOL, "key-%d" % turn).lease
                mark = "outside-%d" % turn
                answer = mine.exec(lease.id, "mkfifo gate; setsid sh -c 'echo >gate; exec sleep 1000' >/dev/null 2>&1 & "
                                             "read line <gate", env={"MARK": mark})
                self.assertIsNone(answer.reason, answer)
                agent = processes.first_of_namespace(whole.marked(mark)[0])
                killer = threading.Timer(dice.uniform(0, 0.05), processes.kill, (agent,))
                killer.start()
                answer = None
                while answer is None or answer.reason is None:  # until the sandbox is gone
                    answer = settled(lambda lease=lease: mine.exec(lease.id, "echo alive"))
                    if answer is not None and answer.reason is None:
                        self.assertEqual(answer.execution, ("alive\n", "", 0))
                killer.join()
                self.assertIn(answer.reason, EXCUSES | {"LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE"})
                self.assertEqual(processes.wait_gone([agent] + whole.marked(mark), PATIENCE), [])
                answer = mine.exec(lease.id, "true")
                self.assertIn(answer.reason, ("LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE", "SANDBOX_NOT_READY"))
                settled(lambda lease=lease: mine.delete(lease.id))
            bystander.stopping.set()
            bystander.join(60 * PATIENCE)
            self.assertEqual(bystander.wrong, [])
            self.assertGreater(bystander.done, ROUNDS)
        finally:
            problems = whole.stop()
        self.assertEqual(problems, [])


@over("http", "grpc")
class Away(Cases):
    """What happens when nobody comes back."""

    @classmethod
    def setUpClass(cls):
        cases.start_platform()

    @classmethod
    def tearDownClass(cls):
        cases.stop_platform()

    def test_warm_sandboxes_of_a_dead_server_end_by_themselves(self):
        if FAST or self.protocol == "http":
            self.skipTest("a minute long, and the same for both protocols")
        self.platform.server.kill()
        try:
            self.assertTrue(self.platform.sandbox_processes())
            self.assertEqual(processes.wait_gone(self.platform.sandbox_processes(), 75 * PATIENCE), [])
        finally:
            self.platform.start_server()

    def test_a_full_workspace_fails_writes_and_nothing_else(self):
        lease = self.acquire()
        self.succeeds(self.client.upload(lease.id, "file", b"old"))
        filled = self.run_command(lease, "i=0; while head -c 67108864 /dev/zero >big-$i; do i=$((i+1)); [ $i -lt 40 ] || break; done; "
                                         "echo $i; head -c 1 /dev/zero >tiny", timeout_seconds=120)
        if filled.code == 0:
            self.skipTest("the workspace of this pool has no limit that a test could reach")
        self.fails(self.client.upload(lease.id, "file", b"x" * 1000000), "FILE_TRANSFER_FAILED")
        self.fails(self.client.write(lease.id, "small", b"x" * 100000), "FILE_WRITE_FAILED")
        self.assertEqual(self.succeeds(self.client.download(lease.id, "file")).content, b"old")
        self.assertEqual(self.output(lease, "ls -A | grep -v -e big- -e tiny"), "file\n")
        self.output(lease, "rm -f big-* tiny")
        self.succeeds(self.client.upload(lease.id, "file", b"x" * 1000000))

    def test_ten_thousand_idle_connections_do_not_keep_others_out(self):
        if self.protocol == "grpc":
            self.skipTest("connections of the gateway")
        count = 2000 if FAST else 10000
        lease = self.acquire()
        held = []
        try:
            for _ in range(count):
                held.append(http_client.connect(self.platform.address))
            self.assertEqual(self.output(lease, "echo alive"), "alive\n")
            for answer in together([lambda: self.client.get(lease.id)] * 32):
                self.succeeds(answer)
            grown = processes.resident_kib(self.platform.gateway.process.pid)
            self.assertLess(grown, 120 * 1024 * PATIENCE, "KiB resident with %d connections" % count)
            # They have ten seconds to send a request, and are then closed.
            poll = select.poll()
            poll.register(held[-1], select.POLLIN)
            self.assertTrue(poll.poll(75000 * PATIENCE), "an idle connection was never closed")
        finally:
            for connection in held:
                connection.close()
        self.assertEqual(self.output(lease, "echo alive"), "alive\n")

    def test_clients_that_come_and_go_without_a_word_do_no_harm(self):
        if self.protocol == "grpc":
            self.skipTest("connections of the gateway")
        for _ in range(2000):
            connection = http_client.connect(self.platform.address)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
        self.succeeds(self.client.list())


class Clock(unittest.TestCase):
    """The server's wall clock jumps by an hour, forward and back; its Leases neither end early nor live longer."""

    library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

    def run_with_steps(self, steps, work):
        if not os.path.exists(self.library):
            self.skipTest("libfaketime is not installed")
        whole = platform.Platform()
        timestamp = os.path.join(whole.folder, "clock")

        def step(offset):
            with open(timestamp + ".new", "w", encoding="ascii") as file:
                file.write(offset)
            os.rename(timestamp + ".new", timestamp)

        step("+0")
        whole.server.environment.update({
            "LD_PRELOAD": self.library, "FAKETIME_TIMESTAMP_FILE": timestamp, "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
        try:
            whole.start()
            for offset in steps:
                work(whole, lambda offset=offset: step(offset))
                step("+0")
        finally:
            whole.stop()

    def test_leases_keep_their_length_when_the_clock_jumps(self):
        def work(whole, step):
            mine = whole.client("grpc", "alpha", "clock")
            long, short = mine.acquire(POOL, "long", 600).lease, mine.acquire(POOL, "short", 3).lease
            started = time.monotonic()
            step()
            # Tokens are judged by the server's clock: mint them for it.
            now = time.time() + self.offset
            mine = whole.client_with("grpc", lambda: "Bearer " + platform.tokens.mint(
                "alpha", "clock", platform.SECRETS["alpha"], now=now))
            self.assertEqual(mine.exec(long.id, "echo alive").execution.stdout, "alive\n")
            self.assertEqual(mine.exec(short.id, "echo alive").execution.stdout, "alive\n")
            time.sleep(max(0, started + 3.2 - time.monotonic()))
            self.assertIn(mine.exec(short.id, "true").reason, ("LEASE_NOT_ACTIVE", "LEASE_NOT_FOUND"))
            self.assertEqual(mine.exec(long.id, "echo alive").execution.stdout, "alive\n")
            self.assertEqual([lease.id for lease in mine.list().value["leases"]], [long.id])
            self.assertIsNone(mine.release(long.id).reason)
        for offset in (3600, -3600):
            self.offset = offset
            self.run_with_steps(["%+d" % offset], work)


if __name__ == "__main__":
    cases.main()
