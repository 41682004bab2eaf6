"""tools/up, tools/down and tools/test as a newcomer meets them, and every line of the README, each on a platform that
tools/up has started: in a folder and on a port of its own, so that a platform of yours is not touched.

Not a Bazel test, because tools/up calls Bazel. tools/test runs it; by hand:
`PYTHONPATH=. /usr/bin/python3 tests/e2e/tools_test.py [-k NAME]`.
"""
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import unittest

from tests.support import cases, processes
from tests.support.paths import ROOT

UP, DOWN, TEST = (os.path.join(ROOT, "tools", name) for name in ("up", "down", "test"))
PATIENCE = cases.PATIENCE
# A shell that starts this in the background makes it, and all that it starts, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def alive(mark):
    """Processes of this machine that were started with this in their environment, whoever runs them."""
    return processes.with_variable([int(name) for name in os.listdir("/proc") if name.isdigit()], "MARK=" + mark)


class Checkout:
    """A folder where tools/up keeps its files, and a port."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="asp-tools-")
        self.kept = os.path.join(self.folder, ".sandbox-platform")
        self.port = free_port()
        self.environment = dict(os.environ, SANDBOX_PLATFORM_FOLDER=self.kept, SANDBOX_PLATFORM_PORT=str(self.port))

    def start(self, program, *arguments):
        return subprocess.Popen([program, *arguments], env=self.environment, cwd=self.folder, start_new_session=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, program, *arguments, status=0):
        """What it prints; fails if it ends otherwise."""
        started = self.start(program, *arguments)
        said, _ = started.communicate(timeout=600 * PATIENCE)
        if started.returncode != status:
            raise AssertionError("%s ended with %d:\n%s" % (program, started.returncode, said))
        return said

    def file(self, name):
        with open(os.path.join(self.kept, name), encoding="utf-8") as file:
            return file.read()

    def pid(self, name):
        return int(self.file(name + ".pid").split()[0])

    def leasectl(self, *arguments):
        return subprocess.run([os.path.join(self.kept, "bin", "leasectl"), *arguments], cwd=self.folder, check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def busy_lease(self, mark):
        """A Lease in which a process with this mark runs."""
        lease = self.leasectl("acquire").strip()
        self.leasectl("exec", "--env", "MARK=" + mark, lease, "--", "mkfifo gate; setsid sh -c 'echo >gate; exec sleep 1000' "
                      ">/dev/null 2>&1 & read line <gate")
        return lease

    def remove(self):
        if os.path.isdir(self.kept):
            self.run(DOWN)
            state = self.file("state.path").strip() if os.path.exists(os.path.join(self.kept, "state.path")) else self.kept
            shutil.rmtree(state, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Tools(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.here = Checkout()
        self.addCleanup(self.here.remove)
        self.mark = os.path.basename(self.here.folder)

    def assert_nothing_runs(self, here):
        for name in ("lease-server", "lease-gateway"):
            self.assertFalse(os.path.exists(os.path.join(here.kept, name + ".pid")), name)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            self.assertNotIn(here.kept, processes.command_line(int(pid)))


class Up(Tools):
    def test_it_says_what_it_did_and_how_to_go_on(self):
        said = self.here.run(UP)
        self.assertRegex(said, r"Started lease-server \(pid \d+\) and lease-gateway \(pid \d+\)")
        self.assertRegex(said, r"Acquired lease-[0-9a-f]{32} from pool coding")
        self.assertRegex(said, r"Ran a command in it: +Hello from sandbox: Linux .*, user [1-9]")
        self.assertIn("Wrote and read a file:  written through the API", said)
        lines = re.findall(r"^  (\S.*)$", said, re.M)
        self.assertEqual(len(lines), 4, said)
        done = subprocess.run(["bash", "-euc", "curl() { command curl --fail-with-body \"$@\"; }\n" + "\n".join(lines)],
                              cwd=self.here.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("hello.txt", done.stdout)

    def test_local_json_has_the_names_that_others_read_and_is_for_its_owner_only(self):
        self.here.run(UP)
        path = os.path.join(self.here.kept, "local.json")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(self.here.kept).st_mode), 0o700)
        with open(path, encoding="utf-8") as file:
            local = json.load(file)
        self.assertEqual(set(local), {"baseUrl", "grpcAddress", "consumerId", "subjectId", "consumerSecret"})
        self.assertEqual(local["baseUrl"], "http://127.0.0.1:%d" % self.here.port)

    def test_a_second_call_finds_it_running(self):
        self.here.run(UP)
        pids = [self.here.pid(name) for name in ("lease-server", "lease-gateway")]
        said = self.here.run(UP)
        self.assertIn("Already running: lease-server (pid %d), lease-gateway (pid %d)" % tuple(pids), said)
        self.assertNotIn("Building", said)

    def test_after_a_crash_it_goes_on_with_the_leases(self):
        self.here.run(UP)
        lease = self.here.busy_lease(self.mark)
        for name in ("lease-server", "lease-gateway"):
            victim = self.here.pid(name)
            processes.kill(victim)
            processes.wait_gone([victim], 5)
            said = self.here.run(UP)
            self.assertIn("Only a part of the platform runs", said)
            self.assertNotEqual(self.here.pid(name), victim)
            self.assertIn(lease, self.here.leasectl("list"))
        self.assertEqual(len(alive(self.mark)), 1)

    def test_two_at_once_take_turns(self):
        both = [self.here.start(UP) for _ in range(2)]
        said = [one.communicate(timeout=600 * PATIENCE)[0] for one in both]
        self.assertEqual([one.returncode for one in both], [0, 0], said)
        self.assertEqual(sorted("Waiting for another tools/up or tools/down to end" in one for one in said), [False, True])
        self.assertEqual(sorted("Already running" in one for one in said), [False, True])

    def test_a_stranger_on_the_port_is_named_and_left_alone(self):
        stranger = subprocess.Popen(["/usr/bin/python3", "-m", "http.server", "--bind", "127.0.0.1", str(self.here.port)],
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    env=dict(os.environ, PYTHONUNBUFFERED="1"))
        try:
            self.assertIn("Serving", stranger.stdout.readline())
            said = self.here.run(UP, status=1)
            self.assertIn("Port %d is taken by another process: /usr/bin/python3 -m http.server" % self.here.port, said)
            self.assertIn("(pid %d). It was left alone" % stranger.pid, said)
            self.assertIn("left alone: /usr/bin/python3", self.here.run(DOWN))
            self.assertIsNone(stranger.poll())
        finally:
            stranger.kill()
            stranger.communicate()
        self.assert_nothing_runs(self.here)

    def test_ctrl_c_leaves_no_half_platform(self):
        interrupted = self.here.start(UP)
        said = interrupted.stdout.readline()
        self.assertIn("Building", said)
        os.killpg(interrupted.pid, signal.SIGINT)
        rest, _ = interrupted.communicate(timeout=120 * PATIENCE)
        self.assertEqual(interrupted.returncode, 130, rest)
        self.assertIn("Interrupted. Run tools/up again to go on.", rest)
        self.assert_nothing_runs(self.here)
        self.here.run(UP)

    def test_a_space_in_the_path_is_told_before_anything_happens(self):
        folder = os.path.join(self.here.folder, "a clone")
        shutil.copytree(os.path.join(ROOT, "tools"), os.path.join(folder, "tools"))
        said = self.here.run(os.path.join(folder, "tools", "up"), status=1)
        self.assertIn("The path of this folder has a space in it", said)
        self.assertFalse(os.path.exists(self.here.kept))
        said = self.here.run(os.path.join(folder, "tools", "test"), status=1)
        self.assertIn("The path of this folder has a space in it", said)
        self.assertEqual(said.splitlines()[-1], "0 passed, 1 failed")

    def test_a_wrong_word_is_told(self):
        self.assertIn("usage: tools/up", self.here.run(UP, "--help-me", status=1))
        self.assertIn("usage: tools/down [--keep-leases]", self.here.run(DOWN, "--all", status=1))
        self.here.environment["SANDBOX_PLATFORM_PORT"] = "65536"
        self.assertIn("SANDBOX_PLATFORM_PORT must be a port, 1 to 65535", self.here.run(UP, status=1))
        self.assertIn("usage: tools/test [--fast]", self.here.run(TEST, "--slow", status=1))


class Down(Tools):
    def test_nothing_of_the_platform_runs_on(self):
        self.here.run(UP)
        self.here.busy_lease(self.mark)
        self.assertEqual(len(alive(self.mark)), 1)
        said = self.here.run(DOWN)
        self.assertRegex(said, r"Stopped lease-gateway \(pid \d+\)\nStopped lease-server \(pid \d+\)\nEnded 2 Leases\n$")
        self.assertEqual(alive(self.mark), [])
        self.assert_nothing_runs(self.here)
        self.assertEqual(self.here.run(DOWN), "lease-gateway was not running\nlease-server was not running\nNo Lease was left\n")

    def test_leases_end_after_a_crash_too(self):
        self.here.run(UP)
        self.here.busy_lease(self.mark)
        for name in ("lease-server", "lease-gateway"):
            processes.kill(self.here.pid(name))
        self.assertIn("Ended 2 Leases", self.here.run(DOWN))
        self.assertEqual(alive(self.mark), [])

    def test_kept_leases_go_on_and_are_found_again(self):
        self.here.run(UP)
        lease = self.here.busy_lease(self.mark)
        self.assertIn("Leases that are active go on until they expire", self.here.run(DOWN, "--keep-leases"))
        self.assertEqual(len(alive(self.mark)), 1)
        self.assert_no_program_runs()
        self.here.run(UP)
        self.assertIn(lease, self.here.leasectl("list"))
        self.here.leasectl("exec", lease, "--", "test -p gate")
        self.here.run(DOWN)
        self.assertEqual(alive(self.mark), [])

    def assert_no_program_runs(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            self.assertNotRegex(processes.command_line(int(pid)), re.escape(self.here.kept) + "/bin/lease-")

    def test_before_any_up_there_is_nothing_to_do(self):
        self.assertEqual(self.here.run(DOWN), "Nothing to stop: tools/up has not run here\n")


class Test(Tools):
    def test_the_last_line_counts_even_when_it_is_broken_off(self):
        interrupted = self.here.start(TEST, "--fast")
        self.assertIn("Building", interrupted.stdout.readline())
        os.killpg(interrupted.pid, signal.SIGINT)
        said, _ = interrupted.communicate(timeout=120 * PATIENCE)
        self.assertNotEqual(interrupted.returncode, 0)
        self.assertRegex(said.splitlines()[-1], r"^\d+ passed, [1-9]\d* failed$", said)


def blocks(heading):
    """The shell blocks below a heading of the README, up to the next heading."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        text = file.read()
    section = re.search(r"^#+ %s\n(.*?)(?=^#|\Z)" % re.escape(heading), text, re.M | re.S).group(1)
    return re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)


class Readme(unittest.TestCase):
    """The lines as they stand, in the order they stand in."""

    @classmethod
    def setUpClass(cls):
        cls.here = Checkout()
        cls.addClassCleanup(cls.here.remove)
        cls.here.run(UP)
        shutil.copy(os.path.join(ROOT, "README.md"), cls.here.folder)

    def run_block(self, heading, count, before=""):
        found = blocks(heading)
        self.assertEqual(len(found), 1, heading)
        lines = [line for line in found[0].rpartition("\n\n")[2].splitlines() if line]
        self.assertEqual(len(lines), count, lines)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", before + found[0]], cwd=self.here.folder, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def assert_in_order(self, parts, text):
        place = 0
        for part in parts:
            found = re.compile(part).search(text, place)
            self.assertIsNotNone(found, "%s after %d of:\n%s" % (part, place, text))
            place = found.end()

    def test_curl(self):
        said = self.run_block("Five lines of curl", 5, 'curl() { command curl --fail-with-body "$@"; }\n')
        self.assert_in_order(['"status":"active"', r"uid=[1-9]\d*\(sandbox\)", r"/workspace\\n", '{"path":"hello.txt"}', "hello\n",
                              '"status":"released"'], said)

    def test_grpcurl(self):
        before = ""
        if not shutil.which("grpcurl", path=os.path.expanduser("~/go/bin") + ":" + os.environ["PATH"]):
            before = "grpcurl() { PYTHONPATH='%s' /usr/bin/python3 -m tests.support.grpcurl \"$@\"; }\n" % ROOT
        said = self.run_block("Five lines of grpcurl", 5, before)
        self.assert_in_order(["grpc.health.v1.Health", "sandbox.lease.v1.LeaseService", "rpc Exec", "LEASE_STATUS_ACTIVE",
                              '"stdout": "[A-Za-z0-9+/=]+"', "LEASE_STATUS_RELEASED"], said)

    def test_leasectl(self):
        said = self.run_block("leasectl", 6)
        self.assert_in_order(["line 1\nline 2\nline 3\n", r"[1-9]\d* README.md\n", "released"], said)

    def test_the_manual_page_is_where_it_says(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            page = re.search(r"`man (\S+)`", file.read()).group(1)
        self.assertTrue(os.path.exists(os.path.join(ROOT, page)))

    def test_the_two_commands_are_there(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            named = re.findall(r"`(?:\./)?(tools/[a-z/]+)|^(tools/[a-z]+)", file.read(), re.M)
        for name in {one or other for one, other in named}:
            self.assertTrue(os.path.exists(os.path.join(ROOT, name)), name)


if __name__ == "__main__":
    cases.main()
