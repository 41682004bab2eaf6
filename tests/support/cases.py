"""The frame of the contract's cases: written once against a client, run over HTTP and over gRPC.

    @over("http", "grpc")
    class Acquire(Cases):
        def test_a_blank_pool_is_refused(self): ...

makes the test classes AcquireOverHttp and AcquireOverGrpc in the same module. A method marked @only("http") exists in
that one alone.
"""
import concurrent.futures
import os
import re
import shutil
import sys
import threading
import time
import unittest

from tests.support import client as clients
from tests.support import platform as platforms
from tests.support import processes
from tests.support.reasons import REASONS

POOL, OTHER_POOL, PATIENCE = platforms.POOL, platforms.OTHER_POOL, platforms.PATIENCE

# False where processes of a sandbox are not processes of this machine: gVisor, a cluster.
VISIBLE = platforms.RUNTIME == "bubblewrap" and os.environ.get("SANDBOX_TEST_PROCESSES", "visible") == "visible"


def over(*protocols):
    def decorate(cases):
        module = sys.modules[cases.__module__]
        for protocol in protocols:
            name = "%sOver%s" % (cases.__name__, protocol.capitalize())
            body = {"protocol": protocol, "__module__": cases.__module__, "__doc__": cases.__doc__}
            for method in dir(cases):
                allowed = getattr(getattr(cases, method), "only_over", protocols)
                if method.startswith("test_") and protocol not in allowed:
                    body[method] = None
            setattr(module, name, type(name, (cases, unittest.TestCase), body))
        return cases
    return decorate


def only(*protocols):
    def decorate(method):
        method.only_over = protocols
        return method
    return decorate


class Cases:
    """Mixed into unittest.TestCase. The module's setUpModule puts the running Platform into `Cases.platform`."""

    protocol = None
    platform = None
    longMessage = True
    maxDiff = 2000

    def setUp(self):
        self.subject = self.platform.fresh_subject()
        self.client = self.client_of("alpha", self.subject)
        self.keys = 0

    def client_of(self, consumer, subject):
        """A client of that scope; its Leases are released at the end of the case."""
        made = self.platform.client(self.protocol, consumer, subject)
        self.addCleanup(self.release_all, consumer, subject)
        return made

    def release_all(self, consumer, subject):
        made = self.platform.client("grpc", consumer, subject)
        answer = made.list(limit=100)
        while answer.reason is None and answer.value["leases"]:
            for lease in answer.value["leases"]:
                made.delete(lease.id)
            answer = made.list(limit=100)

    def fresh_key(self):
        self.keys += 1
        return "key-%d" % self.keys

    # --- shorthands ---

    def acquire(self, pool=POOL, ttl=None, client=None):
        """A Lease of this case."""
        return self.succeeds((client or self.client).acquire(pool, self.fresh_key(), ttl)).lease

    def run_command(self, lease, command, **options):
        """Runs a command that must be answered; returns its Execution."""
        return self.succeeds(self.client.exec(lease.id, command, **options)).execution

    def output(self, lease, command, **options):
        """Standard output of a command that must exit with 0."""
        done = self.run_command(lease, command, **options)
        self.assertEqual((done.code, done.stderr), (0, ""), command)
        return done.stdout

    def mark(self):
        """A word to tell the processes of one command by: see Platform.marked."""
        self.keys += 1
        return "%s-%s-%d" % (self.protocol, self.subject, self.keys)

    def marked(self, mark):
        """The processes with this mark. Where the host cannot see into a sandbox, those that the sandboxes of this case
        show inside, as long as they are there and the server is."""
        if VISIBLE:
            return self.platform.marked(mark)
        found, answer = [], None
        if self.platform.server.alive():
            answer = settled(lambda: self.client.list(limit=100))
        for lease in answer.value["leases"] if answer is not None and answer.reason is None else ():
            look = "grep -lzx MARK=%s /proc/[0-9]*/environ 2>/dev/null" % mark
            done = settled(lambda lease=lease, look=look: self.client.exec(lease.id, look))
            if done is not None and done.reason is None:
                found += done.execution.stdout.split()
        return found

    def dead(self, mark, seconds=1):
        """Nothing that was started with this mark runs any longer, a while from now at the latest."""
        if VISIBLE:
            left = processes.wait_gone(self.platform.marked(mark), seconds * PATIENCE)
            self.assertEqual([processes.command_line(pid) for pid in left], [], "still running")
            return
        deadline = time.monotonic() + seconds * PATIENCE
        while self.marked(mark) and time.monotonic() < deadline:
            time.sleep(0.05)  # nobody outside is told of their end
        self.assertEqual(self.marked(mark), [], "still running")

    def alive(self, mark):
        """Something with this mark does run."""
        self.assertTrue(self.marked(mark), "nothing was started")

    def background(self, call):
        """Starts a call on a thread of its own; returns a Future of its result."""
        future = concurrent.futures.Future()

        def work():
            try:
                future.set_result(call())
            except BaseException as error:  # pylint: disable=broad-except
                future.set_exception(error)
        threading.Thread(target=work, daemon=True).start()
        return future

    def running_command(self, lease, command, client=None, **options):
        """Starts a command and returns the Future of its Answer once it surely runs: a FIFO tells."""
        self.keys += 1
        gate = "/workspace/.gate-%d" % self.keys
        self.output(lease, "mkfifo " + gate)
        future = self.background(lambda: (client or self.client).exec(lease.id, "echo >%s; rm %s; %s" % (gate, gate, command),
                                                                      **options))
        self.output(lease, "read line <" + gate)
        return future

    def succeeds(self, answer):
        self.assertIsNone(answer.reason, answer)
        return answer

    def fails(self, answer, reason, message=None):
        """The failure and its exact text: the table's, unless another one is given."""
        self.assertEqual(answer.reason, reason, answer)
        self.assertEqual(answer.message, REASONS[reason].message if message is None else message)
        return answer

    def gone(self, answer):
        """The answer about a Lease that has ended: it may be known still or not."""
        self.assertIn(answer.reason, ("LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE"), answer)
        return self.fails(answer, answer.reason)

    def wait_expiry(self, lease):
        """Sleeps until the Lease's own end: the passing of time is the event."""
        time.sleep(max(0, lease.expires / 1e9 - time.time()) + 0.05)


def together(jobs, timeout=120):
    """Runs functions at the same time, one thread each, all released at once; returns their results in order. The first
    exception of any is raised."""
    barrier = threading.Barrier(len(jobs))
    results, failures = [None] * len(jobs), []

    def work(place, job):
        try:
            barrier.wait(timeout)
            results[place] = job()
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout * PATIENCE)
        if thread.is_alive():
            raise AssertionError("a call has not come back in %d s" % (timeout * PATIENCE))
    if failures:
        raise failures[0]
    return results


def settled(call):
    """Calls; returns the Answer, or None if the connection broke first."""
    try:
        return call()
    except clients.Broken:
        return None
    except ValueError as error:
        if "channel" not in str(error).lower() or "closed" not in str(error).lower():
            raise  # else another thread has closed it to restart the server
        return None


class _Result(unittest.TextTestResult):
    """One line for each case: its name as words, and how long it took."""

    def startTest(self, test):
        super(unittest.TextTestResult, self).startTest(test)
        self._started = time.monotonic()

    def _line(self, verdict, test):
        words = re.sub(r"^test_", "", test.id().rsplit(".", 1)[-1]).replace("_", " ")
        self.stream.writeln("%-6s %7.2f s  %s: %s" % (verdict, time.monotonic() - getattr(self, "_started", time.monotonic()),
                                                      type(test).__name__, words))
        self.stream.flush()

    def addSuccess(self, test):
        super(unittest.TextTestResult, self).addSuccess(test)
        self._line("ok", test)

    def addFailure(self, test, err):
        super(unittest.TextTestResult, self).addFailure(test, err)
        self._line("FAIL", test)

    def addError(self, test, err):
        super(unittest.TextTestResult, self).addError(test, err)
        self._line("ERROR", test)

    def addSubTest(self, test, subtest, err):
        super(unittest.TextTestResult, self).addSubTest(test, subtest, err)
        if err is not None:
            self._line("FAIL", test)

    def addSkip(self, test, reason):
        super(unittest.TextTestResult, self).addSkip(test, reason)
        self._line("skip", test)


def start_platform(**settings):
    """For setUpModule."""
    if platforms.RUNTIME == "gvisor" and shutil.which("runsc") is None:
        raise unittest.SkipTest("runsc is not installed: gVisor is not tested")
    Cases.platform = platforms.Platform(**settings).start()


def stop_platform():
    """For tearDownModule: anything left behind fails the module."""
    stopped, Cases.platform = Cases.platform, None
    problems = stopped.stop()
    if problems:
        raise AssertionError("after the last case:\n" + "\n".join(problems[:50]))


def main():
    unittest.main(module="__main__", testRunner=unittest.TextTestRunner(resultclass=_Result, verbosity=1))
