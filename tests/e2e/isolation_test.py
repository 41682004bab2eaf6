"""Hostile code in a sandbox: what it reaches of the host, of other Leases, of the network and of the kernel, and what
it can use up. SANDBOX_TEST_RUNTIME=gvisor and SANDBOX_TEST_USER run the same against gVisor and without root.
"""

import json
import os
import socket
import subprocess
import time
import unittest

from tests.support import cases, platform, processes, reasons
from tests.support.cases import PATIENCE, Cases, over, settled, together

GVISOR = platform.RUNTIME == "gvisor"
FAST = os.environ.get("SANDBOX_TEST_FAST") == "1"
MIB = 1 << 20
POOL = {
    "runtime": platform.RUNTIME,
    "warm": 1,
    "memoryBytes": 256 * MIB,
    "workspaceBytes": 128 * MIB,
    "processes": 128,
    "workspaceFiles": 20000,
}


def setUpModule():
    cases.start_platform(server={"SANDBOX_LOCAL_POOLS": json.dumps({cases.POOL: POOL})})


def tearDownModule():
    cases.stop_platform()


class Sandboxed(Cases):
    def setUp(self):
        super().setUp()
        self.lease = self.acquire()

    def python(self, program, lease=None, **options):
        """Runs a program inside, and returns what it printed. stdin is empty, so the program comes as a file."""
        lease = lease or self.lease
        self.succeeds(self.client.write(lease.id, ".program.py", program.encode("utf-8")))
        return self.output(lease, "python3 .program.py", **options)

    def usable(self, lease=None):
        self.assertEqual(self.output(lease or self.lease, "echo alive"), "alive\n")


@over("grpc")
class Host(Sandboxed):
    def test_files_of_the_host_are_not_there(self):
        with open(os.path.join(self.platform.folder, "canary"), "w", encoding="ascii") as file:
            file.write("canary")
        os.chmod(file.name, 0o644)
        os.chmod(self.platform.folder, 0o755)
        hidden = [
            file.name,
            self.platform.state,
            os.path.abspath(__file__),
            "/etc/shadow",
            "/root",
            "/var/lib/dpkg",
            "/boot",
            "/sys/fs/cgroup/cgroup.procs",
            "/sys/fs/cgroup/memory",
            "/sys/kernel/debug",
            "/mnt",
            "/opt",
            "/srv",
        ]
        roots = ["", "/proc/1/root", "/proc/self/root", "/proc/1/cwd/..", "/workspace/../..", "/proc/self/cwd/../.."]
        for root in roots:
            for path in hidden:
                self.assertNotEqual(
                    self.run_command(self.lease, "test -e '%s%s'" % (root, path)).code, 0, root + path
                )
        self.assertEqual(self.output(self.lease, "find / -name canary -not -path '/proc/*' 2>/dev/null || true"), "")
        self.assertEqual(
            self.output(self.lease, "find /home /run /var -mindepth 1 2>/dev/null | sort | tr '\\n' ' '").split(),
            sorted(
                ["/home/sandbox", "/run/sandboxd", "/var/run", "/var/tmp"]
                + (["/run/guest", "/run/channel", "/run/channel/agent"] if GVISOR else ["/run/channel"])
                + (["/run/memory-events"] if not GVISOR and not platform.USER else [])
            ),
        )

    def test_only_its_own_places_can_be_written(self):
        for path in (
            "/",
            "/usr",
            "/usr/bin",
            "/etc",
            "/run",
            "/run/channel",
            "/var",
            "/home",
            "/dev",
            "/sys",
            "/proc",
        ):
            done = self.run_command(self.lease, "touch %s/mine" % path)
            self.assertNotEqual(done.code, 0, path)
        for path in (
            "/etc/passwd",
            "/usr/bin/env",
            "/run/sandboxd",
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/hostname",
            "/proc/sysrq-trigger",
            "/run/memory-events",
        ):
            self.assertNotEqual(self.run_command(self.lease, "echo x >>%s" % path).code, 0, path)
        for path in ("/workspace", "/home/sandbox", "/tmp", "/dev/shm"):
            self.output(self.lease, "echo x >%s/mine && cat %s/mine" % (path, path))
        # Neither may a mount be made to change that.
        self.assertNotEqual(self.run_command(self.lease, "mount -o remount,rw / || mount -t tmpfs none /etc").code, 0)

    def test_processes_of_the_host_can_be_neither_seen_nor_ended(self):
        victim = subprocess.Popen(["/bin/sleep", "1000"])  # pylint: disable=consider-using-with
        try:
            seen = self.output(self.lease, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
            for stranger in ("lease-server", "bwrap", "sleep 1000", "python3", "runsc"):
                self.assertNotIn(stranger, seen)
            numbers = [int(number) for number in self.output(self.lease, "cd /proc; echo [0-9]*").split()]
            self.assertLess(max(numbers), 1000, "numbers of a namespace of its own")
            self.run_command(self.lease, "kill -9 %d; kill -9 %d" % (victim.pid, self.platform.server.process.pid))
            self.assertIsNone(victim.poll())
            settled(lambda: self.client.exec(self.lease.id, "kill -9 -1"))
            self.assertIsNone(victim.poll())
            self.assertTrue(self.platform.server.alive())
        finally:
            victim.kill()
            victim.wait()

    def test_nothing_of_the_server_is_inherited(self):
        seen = self.output(
            self.lease,
            "env; for file in /proc/self/fd/*; do readlink $file || true; done; cat /proc/self/environ | tr '\\0' '\\n'; cat /proc/self/cgroup",
        )
        for secret in (platform.METADATA_SECRET, self.platform.folder, "SANDBOX_LOCAL", "lease-server"):
            self.assertNotIn(secret, seen)

    def test_the_agent_cannot_be_taken_over(self):
        for command in (
            "head -c 1 /proc/1/mem",
            "echo >/proc/1/fd/2",
            "cat /proc/1/environ",
            "ls /proc/1/fd/",
            "readlink /proc/1/exe",
        ):
            if GVISOR and command.startswith(("cat", "readlink")):
                continue  # there every process may see that much of every other
            done = self.run_command(self.lease, command)
            self.assertTrue(done.stdout == "" and done.code != 0, (command, done))
        program = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(16, 1, 0, 0))  # PTRACE_ATTACH
print(libc.ptrace(0x4206, 1, 0, 0))  # PTRACE_SEIZE
"""
        self.assertEqual(self.python(program), "-1\n-1\n")
        self.usable()


@over("grpc")
class Neighbours(Sandboxed):
    def setUp(self):
        super().setUp()
        self.other = self.acquire()

    def test_files_of_another_lease_are_not_there(self):
        for path in ("/workspace/of-one", "/tmp/of-one", "/dev/shm/of-one", "/home/sandbox/of-one"):
            self.output(self.lease, "echo secret >%s && chmod 777 %s" % (path, path))
        self.assertEqual(self.output(self.other, "find / -name of-one 2>/dev/null || true"), "")

    def test_sockets_and_shared_memory_of_another_lease_are_not_there(self):
        program = """
import ctypes, socket, time
libc = ctypes.CDLL(None, use_errno=True)
abstract = socket.socket(socket.AF_UNIX)
abstract.bind(b"\\0canary")
abstract.listen()
local = socket.socket()
local.bind(("127.0.0.1", 4242))
local.listen()
libc.shmget(4242, 4096, 0o1777)
open("ready", "w").close()
time.sleep(1000)
"""
        self.succeeds(self.client.write(self.lease.id, "serve.py", program.encode("ascii")))
        self.output(
            self.lease,
            "mkfifo gate; setsid python3 serve.py >/dev/null 2>&1 & while ! [ -e ready ]; do sleep 0.05; done",
        )
        program = """
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
for family, address in ((socket.AF_UNIX, b"\\0canary"), (socket.AF_INET, ("127.0.0.1", 4242))):
    try:
        socket.socket(family).connect(address)
        print("reached")
    except OSError:
        print("nobody")
print(libc.shmget(4242, 4096, 0))
"""
        self.assertEqual(self.python(program, self.other), "nobody\nnobody\n-1\n")
        shared = self.python(program, self.lease).split()
        self.assertEqual(shared[:2], ["reached", "reached"], "else the case above proves nothing")

    def test_processes_of_another_lease_are_not_there(self):
        self.output(self.lease, "setsid sleep 4242 >/dev/null 2>&1 &")
        self.assertNotIn("4242", self.output(self.other, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))
        settled(lambda: self.client.exec(self.other.id, "kill -9 -1"))
        self.assertIn("sleep 4242", self.output(self.lease, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))


@over("grpc")
class Network(Sandboxed):
    def test_no_address_of_the_host_or_of_the_world_can_be_reached(self):
        with socket.socket() as listener:
            listener.bind(("0.0.0.0", 0))
            listener.listen()
            own = subprocess.run(["hostname", "-I"], stdout=subprocess.PIPE, text=True, check=False).stdout.split()
            hosts = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "1.1.1.1"] + [
                one for one in own if "." in one
            ]
            program = """
import socket
for host, port in %r:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        made = socket.socket(socket.AF_INET, kind)
        made.settimeout(5)
        try:
            made.connect((host, port))
            if kind == socket.SOCK_STREAM or host != "127.0.0.1":
                print("reached", host, port, kind)
        except OSError as error:
            assert not isinstance(error, TimeoutError), "it is tried for"
try:
    socket.getaddrinfo("example.com", 80)
    print("resolved")
except OSError:
    pass
"""
            ports = [(host, port) for host in hosts for port in (listener.getsockname()[1], 53)]
            self.assertEqual(self.python(program % ports), "")
        self.assertEqual(self.output(self.lease, "sed 's/:.*//' /proc/net/dev | tail -n +3 | tr -d ' '"), "lo\n")

    def test_loopback_is_its_own(self):
        program = """
import socket
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
made = socket.create_connection(listener.getsockname())
listener.accept()[0].sendall(b"hello")
print(made.recv(5).decode())
"""
        self.assertEqual(self.python(program), "hello\n")


@over("grpc")
class Kernel(Sandboxed):
    # Number of the call on x86-64, arguments. Every one must fail, whatever the reason.
    CALLS = {
        "mount": (165, b"none", b"/tmp", b"tmpfs", 0, 0),
        "umount2": (166, b"/tmp", 0),
        "pivot_root": (155, b"/tmp", b"/tmp"),
        "chroot": (161, b"/tmp"),
        "swapon": (167, b"/tmp", 0),
        "reboot": (169, 0xFEE1DEAD, 672274793, 0x1234567),
        "sethostname": (170, b"mine", 4),
        "iopl": (172, 3),
        "ioperm": (173, 0, 1, 1),
        "init_module": (175, 0, 0, b""),
        "delete_module": (176, b"x", 0),
        "acct": (163, 0),
        "settimeofday": (164, b"\0" * 16, 0),
        "kexec_load": (246, 0, 0, 0, 0),
        "add_key": (248, b"user", b"x", b"x", 1, -4),
        "keyctl": (250, 0, -4, 1),
        "perf_event_open": (298, b"\0" * 128, 0, -1, -1, 0),
        "fanotify_init": (300, 0, 0),
        "open_by_handle_at": (304, -100, b"\0" * 16, 0),
        "setns": (308, 0, 0),
        "finit_module": (313, 0, b"", 0),
        "bpf": (321, 0, b"\0" * 64, 64),
        "userfaultfd": (323, 1),
        "open_tree": (428, -100, b"/", 1),
        "fsopen": (430, b"tmpfs", 0),
        "mount_setattr": (442, -100, b"/", 0, b"\0" * 32, 32),
        "clock_settime": (227, 0, b"\0" * 16),
    }
    # gVisor has these as its own: they reach nothing of the host's.
    SHARED = {
        "mbind": (237, 0, 0, 0, 0, 0, 0),
        "io_uring_setup": (425, 8, b"\0" * 120),
        "mknod": (133, b"/tmp/disk", 0o60666, 0x800),
        "unshare of users": (272, 0x10000000),
        "unshare of mounts": (272, 0x20000),
        "clone with users": (56, 0x10000011, 0, 0, 0, 0),
        "clone3": (435, b"\0" * 88, 88),
        "vsock": (41, 40, 1, 0),
        "packets": (41, 17, 3, 0),
        "netfilter": (41, 16, 3, 12),
        "crypto": (41, 38, 5, 0),
        "raw packets": (41, 2, 3, 6),
    }

    def test_calls_that_reach_into_the_kernel_are_refused(self):
        calls = dict(self.CALLS)
        if not GVISOR:
            calls.update(self.SHARED)
        program = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
parent = os.getpid()
for name, call in %r.items():
    arguments = [ctypes.c_char_p(one) if isinstance(one, bytes) else ctypes.c_long(one) for one in call]
    result = libc.syscall(*arguments)
    if os.getpid() != parent:
        os._exit(0)
    if result != -1:
        print(name, "returned", result)
"""
        self.assertEqual(self.python(program % calls), "")
        self.usable()

    def test_no_privilege_can_be_had(self):
        self.assertEqual(self.output(self.lease, "id -u; id -G"), "10001\n10001\n")
        found = dict(
            line.split(":\t")
            for line in self.output(self.lease, "grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status").splitlines()
        )
        for name in ("CapPrm", "CapEff", "CapInh", "CapAmb" if "CapAmb" in found else "CapEff"):
            self.assertEqual(int(found[name], 16), 0, name)
        if not GVISOR:
            self.assertEqual((int(found["CapBnd"], 16), found["NoNewPrivs"], found["Seccomp"]), (0, "1", "2"))
        self.assertNotEqual(self.run_command(self.lease, "su -c id; sudo -n id").code, 0)
        self.assertEqual(self.output(self.lease, "find /workspace /tmp /dev/shm /home -perm /6000"), "")
        # A program that is setuid gives nothing, whoever owns it.
        self.output(self.lease, "cp /usr/bin/id mine && chmod 6755 mine; [ $(./mine -u) = 10001 ]")

    def test_devices_are_the_harmless_ones(self):
        names = [
            "mem",
            "kmem",
            "kmsg",
            "port",
            "sda",
            "vda",
            "loop0",
            "kvm",
            "mapper",
            "vsock",
            "userfaultfd",
            "uinput",
        ]
        for name in names + ([] if GVISOR else ["fuse"]):
            self.assertNotEqual(self.run_command(self.lease, "test -e /dev/" + name).code, 0, name)
        self.output(self.lease, "echo x >/dev/null; head -c 4 /dev/urandom | wc -c")

    def test_the_kernel_is_the_one_that_was_asked_for(self):
        inside = self.output(self.lease, "cat /proc/version")
        with open("/proc/version", encoding="utf-8") as version:
            host = version.read()
        if GVISOR:
            self.assertNotEqual(inside, host)
            self.assertIn("Starting gVisor", self.output(self.lease, "dmesg"))
        else:
            self.assertEqual(inside, host)


@over("grpc")
class Exhaustion(Sandboxed):
    """What a sandbox uses up is its own; its neighbour does not notice, and nothing is left of it."""

    def setUp(self):
        super().setUp()
        self.other = self.acquire()

    def neighbour(self):
        started = time.monotonic()
        self.usable(self.other)
        self.assertLess(time.monotonic() - started, 10 * PATIENCE)

    def ends(self):
        """Releasing it ends all of it, however much that is."""
        self.client.release(self.lease.id)
        self.neighbour()

    def test_a_fork_bomb(self):
        bomb = self.background(
            lambda: settled(
                lambda: self.client.exec(self.lease.id, "bomb() { bomb | bomb & }; bomb; sleep 3", timeout_seconds=10)
            )
        )
        for _ in range(5):
            self.neighbour()
            time.sleep(0.2)
        bomb.result(60 * PATIENCE)
        self.ends()

    def test_a_fork_bomb_of_processes_that_stay(self):
        answer = settled(
            lambda: self.client.exec(
                self.lease.id,
                "i=0; while [ $i -lt 3000 ]; do sleep 1000 & i=$((i+1)); done; echo $i",
                timeout_seconds=20,
            )
        )
        if not GVISOR:
            self.assertTrue(
                answer is None or answer.reason is not None or answer.execution.stdout != "3000\n",
                "there is no limit",
            )
        self.neighbour()
        self.ends()

    def test_many_short_commands_at_once_for_long(self):
        # Debian's runsc takes ever more threads of the host for this, and dies where it gets none.
        each = 100 if FAST else 300
        answer = self.client.exec(
            self.lease.id,
            "for i in 1 2 3 4 5 6 7 8; do (n=0; while [ $n -lt %d ]; do sh -lc true; n=$((n+1)); done) & done; wait; echo all" % each,
            timeout_seconds=120,
        )
        self.succeeds(answer)
        self.assertEqual(answer.execution.stdout, "all\n")

    def test_a_memory_bomb_is_told(self):
        program = b"""
held = []
try:
    while len(held) < 2048:
        held.append(b"x" * (1 << 20))
except MemoryError:
    print("refused")
"""
        self.succeeds(self.client.write(self.lease.id, "bomb.py", program))
        answer = settled(lambda: self.client.exec(self.lease.id, "exec python3 bomb.py", timeout_seconds=60))
        self.neighbour()
        if GVISOR:
            # Its kernel is what grew: the sandbox is lost as a whole, if there are cgroups to say so.
            self.ends()
            return
        self.succeeds(answer)
        if platform.USER:
            self.assertEqual(answer.execution.stdout, "refused\n")
        else:
            self.assertEqual(answer.detail.ended_by, 5, "ENDED_BY_OUT_OF_MEMORY")
        self.usable()
        self.ends()

    def test_a_million_files(self):
        program = """
made, failed = 0, ""
try:
    while made < %d:
        open("f%%d" %% made, "w").close()
        made += 1
except OSError as error:
    failed = error.strerror
print(made, failed)
"""
        count = 20000 if GVISOR and FAST else 100000 if GVISOR else 1000000
        self.output(self.lease, "mkdir many")
        self.succeeds(self.client.write(self.lease.id, "many/.program.py", (program % count).encode("ascii")))
        done = self.run_command(self.lease, "cd many && python3 .program.py", timeout_seconds=300)
        if not GVISOR:
            made, _, failed = done.stdout.strip().partition(" ")
            self.assertEqual(failed, "No space left on device")
            self.assertLess(int(made), POOL["workspaceFiles"] + 100)
            self.fails(self.client.write(self.lease.id, "another", b"x"), "FILE_WRITE_FAILED")
        self.neighbour()
        started = time.monotonic()
        self.ends()
        self.assertLess(time.monotonic() - started, 10 * PATIENCE)

    def test_full_places(self):
        for place in ("/workspace", "/tmp", "/dev/shm", "/home/sandbox"):
            done = self.run_command(
                self.lease, "head -c 1G /dev/zero >%s/big; rm %s/big" % (place, place), timeout_seconds=60
            )
            self.assertIn("No space left", done.stderr, place)
        self.usable()
        self.neighbour()

    def test_busy_loops_of_one_leave_the_other_its_share(self):
        bomb = self.background(
            lambda: settled(
                lambda: self.client.exec(
                    self.lease.id,
                    "for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; sleep 3",
                    timeout_seconds=10,
                )
            )
        )
        for _ in range(5):
            self.neighbour()
            time.sleep(0.2)
        bomb.result(60 * PATIENCE)


# A call that writes may make the directory anew while it is away.
SWAP = """
import os, shutil, time
end, swapped = time.time() + %d, 0
while time.time() < end:
    try:
        os.rename("real", "kept")
        os.rename("link", "real")
        swapped += 1
        os.rename("real", "link")
        os.rename("kept", "real")
    except OSError:
        shutil.rmtree("kept", ignore_errors=True)
print(swapped)
""" % (2 if FAST else 5)


@over("grpc")
class FileCalls(Sandboxed):
    def test_what_is_swapped_for_a_symlink_meanwhile_is_never_followed(self):
        self.output(
            self.lease,
            "mkdir -p real hidden; echo inside >real/file; echo outside >hidden/file; ln -s ../workspace/hidden link",
        )
        self.succeeds(self.client.write(self.lease.id, "swap.py", SWAP.encode("ascii")))
        swapping = self.background(lambda: settled(lambda: self.client.exec(self.lease.id, "python3 swap.py")))
        while not swapping.done():
            answer = self.client.read(self.lease.id, "real/file")
            if answer.reason is None:
                self.assertEqual(answer.content, b"inside\n")
            else:
                self.assertIn(answer.reason, ("FILE_READ_FAILED", "INVALID_PATH"))
            answer = self.client.download(self.lease.id, "real/file")
            if answer.reason is None:
                self.assertEqual(answer.content, b"inside\n")
            else:
                self.assertIn(answer.reason, ("FILE_NOT_FOUND", "INVALID_PATH", "FILE_TRANSFER_FAILED"))
            answer = self.client.write(self.lease.id, "real/file", b"inside\n")
            self.assertIn(answer.reason, (None, "FILE_WRITE_FAILED", "INVALID_PATH"))
        done = self.succeeds(swapping.result(30)).execution
        self.assertEqual((done.stderr, done.code), ("", 0))
        self.assertGreater(int(done.stdout), 50, "else this proves nothing")
        self.assertEqual(self.output(self.lease, "cat hidden/file"), "outside\n")

    def test_files_that_are_none_do_not_hold_a_call(self):
        self.output(
            self.lease,
            "mkfifo fifo; ln -s /dev/zero zero; ln -s /proc/self/mem memory; mkdir directory; "
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'",
        )
        calls = []
        for path in ("fifo", "zero", "memory", "directory", "socket"):
            calls += [
                lambda path=path: self.client.read(self.lease.id, path),
                lambda path=path: self.client.download(self.lease.id, path),
            ]
        started = time.monotonic()
        for answer in together(calls[:8], 60) + together(calls[8:], 60):
            self.assertIn(answer.reason, set(reasons.REASONS) - {"INTERNAL", "SANDBOX_NOT_READY"})
        self.assertLess(time.monotonic() - started, 10 * PATIENCE)
        self.usable()


@over("grpc")
class End(Sandboxed):
    """With the server dead, too, nothing runs on behind its deadline, whatever a command did to the agent."""

    def first_process(self, lease):
        """The process with which everything in the sandbox ends."""
        folder = os.path.join(self.platform.state, "sandboxes")
        for name in os.listdir(folder):
            with open(os.path.join(folder, name, "record"), encoding="utf-8") as text:
                record = json.load(text)
            if record.get("id") == lease.id:
                return record["first"]["pid"]
        raise AssertionError("no record of " + lease.id)

    def test_stopping_the_agent_does_not_put_the_deadline_off(self):
        lease = self.acquire(ttl=int(8 * PATIENCE))
        stop = "for one in /proc/[0-9]*; do grep -q sandboxd $one/cmdline && kill -STOP ${one#/proc/}; done"
        self.output(lease, "(sleep 1; %s; while :; do sleep 1; done) >/dev/null 2>&1 &" % stop)
        first = self.first_process(lease)
        self.platform.server.kill()
        try:
            self.assertTrue(processes.status(first))
            self.wait_expiry(lease)
            left = processes.wait_gone([first], 3 * PATIENCE)
            self.assertEqual([processes.describe(pid) for pid in left], [], "still running")
        finally:
            self.platform.start_server()
        self.gone(self.client.exec(lease.id, "true"))

    def test_a_server_that_stops_leaves_nothing_of_the_sandboxes_it_was_making(self):
        self.succeeds(self.client.release(self.lease.id))
        self.platform.server.terminate()
        try:
            for moment in (0, 0.02, 0.05, 0.1, 0.2):
                self.platform.server.start()
                time.sleep(moment)  # in the middle of making a warm one
                self.assertEqual(self.platform.server.terminate(), 0)
                self.assertEqual(self.platform.state_leftovers(), [], moment)
                self.assertEqual(list(processes.cgroups(self.platform.cgroup)), [], moment)
        finally:
            self.platform.start_server()


if __name__ == "__main__":
    cases.main()
