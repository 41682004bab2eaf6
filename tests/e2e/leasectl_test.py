"""leasectl as a person and a script use it, against a real server and real sandboxes."""
import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

from tests.support import cases, paths
from tests.support.cases import PATIENCE, POOL, Cases
from tests.support.platform import SECRETS

LEASE = re.compile(r"^lease-[0-9a-f]{32}$")
MIB = 1048576


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


class Leasectl(Cases, unittest.TestCase):
    protocol = "grpc"

    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="leasectl-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {
            "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "SANDBOX_GRPC_ADDRESS": self.platform.socket,
            "SANDBOX_CONSUMER_ID": "alpha", "SANDBOX_SUBJECT_ID": self.subject,
            "SANDBOX_CONSUMER_SECRET": SECRETS["alpha"]}
        for name in os.environ:
            if name.endswith("SAN_OPTIONS"):
                self.environment[name] = os.environ[name]

    def start(self, *arguments, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("env", self.environment)
        started = subprocess.Popen([paths.built("tools/leasectl/leasectl"), *arguments], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=options.pop("stderr", subprocess.PIPE), **options)
        self.addCleanup(self.end, started)
        return started

    @staticmethod
    def end(started):
        if started.poll() is None:
            started.kill()
        started.wait()
        for stream in (started.stdin, started.stdout, started.stderr):
            try:
                if stream:
                    stream.close()
            except BrokenPipeError:  # what was still buffered for its input
                pass

    def run_tool(self, *arguments, data=None, status=0, **options):
        """Returns what it wrote to standard output and to standard error."""
        if data is not None:
            options["stdin"] = subprocess.PIPE
        started = self.start(*arguments, **options)
        out, err = started.communicate(data, timeout=60 * PATIENCE)
        self.assertEqual(started.returncode, status, (arguments, out[-2000:], err[-2000:]))
        return out, err.decode()

    def text(self, *arguments, **options):
        return self.run_tool(*arguments, **options)[0].decode()

    def failure(self, *arguments, status=1, **options):
        out, err = self.run_tool(*arguments, status=status, **options)
        self.assertEqual(out, b"")
        return err

    def acquired(self, *arguments):
        lease = self.text("acquire", "--pool", POOL, *arguments).strip()
        self.assertRegex(lease, LEASE)
        return lease

    def local(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        return path


class Leases(Leasectl):
    def test_a_lease_from_acquire_to_release(self):
        lease = self.acquired()
        self.assertIn(lease, self.text("list"))
        self.assertIn("active", self.text("get", lease))
        self.assertIn("released", self.text("release", lease))
        self.assertNotIn(lease, self.text("list"))
        other = self.acquired()
        self.assertEqual(self.text("delete", other), "")
        self.assertEqual(self.text("list"), "No active Leases.\n")

    def test_the_same_key_answers_with_the_same_lease(self):
        first = json.loads(self.text("acquire", "--pool", POOL, "--key", "one", "--ttl", "60", "--json"))
        again = json.loads(self.text("--json", "acquire", "--pool", POOL, "--key", "one"))
        self.assertEqual((first["replayed"], again["replayed"]), (False, True))
        self.assertEqual(first["lease"]["id"], again["lease"]["id"])
        self.assertNotEqual(self.acquired(), self.acquired())

    def test_json_has_the_names_of_the_http_api(self):
        lease = self.acquired()
        names = {"id", "pool", "status", "createdAt", "expiresAt", "lastUsedAt"}
        got = json.loads(self.text("get", "--json", lease))["lease"]
        self.assertEqual(set(got), names)
        self.assertEqual((got["id"], got["pool"], got["status"]), (lease, POOL, "active"))
        self.assertEqual([one["id"] for one in json.loads(self.text("list", "--json"))["leases"]], [lease])
        self.assertEqual(json.loads(self.text("list", "--json", "--pool", cases.OTHER_POOL)), {"leases": []})
        self.assertEqual(json.loads(self.text("release", lease, "--json"))["lease"]["status"], "released")
        self.assertEqual(json.loads(self.text("delete", self.acquired(), "--json")), {})

    def test_failures_say_what_and_what_to_do(self):
        unknown = "lease-" + "0" * 32
        err = self.failure("get", unknown)
        self.assertIn("LEASE_NOT_FOUND: Lease not found", err)
        self.assertIn("leasectl list", err)
        self.assertEqual(json.loads(self.failure("get", unknown, "--json")),
                         {"error": {"code": "LEASE_NOT_FOUND", "message": "Lease not found"}})
        self.assertIn("UNKNOWN_POOL", self.failure("acquire", "--pool", "nothing"))
        self.assertIn("INVALID_LEASE_TTL", self.failure("acquire", "--pool", POOL, "--ttl", "100000"))
        lease = self.acquired()
        self.text("delete", lease)
        self.assertRegex(self.failure("exec", lease, "true", status=125), "LEASE_NOT_ACTIVE|LEASE_NOT_FOUND")

    def test_wrong_usage_is_told_before_anything_happens(self):
        nowhere = dict(self.environment, SANDBOX_GRPC_ADDRESS="unix:/nonexistent")
        for arguments in ((), ("nothing",), ("get",), ("get", "a", "b"), ("acquire", "x"), ("acquire", "--ttl", "soon"),
                          ("list", "--nothing"), ("exec", "lease"), ("exec", "--timeout", "0", "l", "c"),
                          ("exec", "--env", "X", "l", "c"), ("cp", "a", "b"), ("cp", "lease-1:a", "lease-2:b"),
                          ("cp", "a"), ("token", "--lifetime", "301"), ("--nothing", "list"), ("release",),
                          ("delete", "--pool", "x")):
            self.assertIn("leasectl", self.failure(*arguments, status=2, env=nowhere), arguments)

    def test_a_wrong_option_is_told_once(self):
        for arguments, told in ((("acquire", "--pool"), "acquire: option '--pool' requires an argument"),
                                (("list", "--nothing"), "list: unrecognized option '--nothing'"),
                                (("exec", "-x"), "exec: invalid option -- 'x'"),
                                (("--nothing", "list"), "unrecognized option '--nothing'")):
            lines = self.failure(*arguments, status=2).splitlines()
            self.assertEqual(len(lines), 2, lines)
            self.assertIn(told, lines[0])
            self.assertEqual(lines[1], "See `leasectl --help`.")

    def test_an_ended_lease_has_no_time_left(self):
        self.assertRegex(self.text("release", self.acquired()), r" released  -  ")

    def test_help_and_version(self):
        for arguments in (("--help",), ("exec", "--help"), ("get", "--help")):
            self.assertIn("usage: leasectl", self.text(*arguments))
        self.assertRegex(self.text("--version"), r"^leasectl \d+\.\d+\.\d+\n$")


class Connecting(Leasectl):
    def settings_file(self, **changes):
        settings = {"baseUrl": "http://127.0.0.1:1", "grpcAddress": self.platform.socket, "consumerId": "alpha",
                    "subjectId": self.subject, "consumerSecret": SECRETS["alpha"]}
        settings.update(changes)
        os.makedirs(os.path.join(self.folder, ".sandbox-platform"))
        with open(os.path.join(self.folder, ".sandbox-platform", "local.json"), "w", encoding="utf-8") as file:
            json.dump(settings, file)
        return {"PATH": os.environ["PATH"]}

    def test_the_local_file_is_found_upward(self):
        lease = self.acquired()
        bare = self.settings_file()
        self.assertIn(lease, self.text("list", env=bare))
        below = os.path.join(self.folder, "a", "b")
        os.makedirs(below)
        done = subprocess.run([paths.built("tools/leasectl/leasectl"), "list"], cwd=below, env=bare, check=True,
                              stdout=subprocess.PIPE, text=True)
        self.assertIn(lease, done.stdout)

    def test_options_win_over_the_environment_and_that_over_the_file(self):
        lease = self.acquired()
        bare = self.settings_file(subjectId="file")
        self.assertEqual(self.text("list", env=bare), "No active Leases.\n")
        self.assertIn(lease, self.text("list", env=dict(bare, SANDBOX_SUBJECT_ID=self.subject)))
        self.assertIn(lease, self.text("list", "--subject", self.subject, env=dict(bare, SANDBOX_SUBJECT_ID="other")))

    def test_what_is_missing_is_named(self):
        for name in ("SANDBOX_GRPC_ADDRESS", "SANDBOX_CONSUMER_ID", "SANDBOX_SUBJECT_ID", "SANDBOX_CONSUMER_SECRET"):
            less = {key: value for key, value in self.environment.items() if key != name}
            self.assertIn(name, self.failure("list", env=less))

    def test_a_broken_file_is_named(self):
        bare = self.settings_file()
        with open(os.path.join(self.folder, ".sandbox-platform", "local.json"), "w", encoding="utf-8") as file:
            file.write("{")
        self.assertIn("local.json", self.failure("list", env=bare))

    def test_a_token_stands_for_all_of_the_identity(self):
        lease = self.acquired()
        token = self.text("token", "--lifetime", "60").strip()
        with_token = {"PATH": os.environ["PATH"], "SANDBOX_GRPC_ADDRESS": self.platform.socket}
        self.assertIn(lease, self.text("list", "--token", token, env=with_token))
        with_token["SANDBOX_TOKEN"] = token
        self.assertIn(lease, self.text("list", env=with_token))
        self.assertEqual(json.loads(self.text("token", "--json"))["token"].split(".")[0], "v1")

    def test_a_wrong_secret_and_a_dead_server_have_their_hints(self):
        wrong = dict(self.environment, SANDBOX_CONSUMER_SECRET="wrong")
        err = self.failure("list", env=wrong)
        self.assertIn("UNAUTHORIZED", err)
        self.assertIn("clock", err)
        self.assertNotIn("wrong", err)
        err = self.failure("list", "--address", "unix:" + self.local("nothing"))
        self.assertIn("SERVER_UNAVAILABLE", err)
        self.assertIn("lease-server", err)


class Exec(Leasectl):
    def setUp(self):
        super().setUp()
        self.lease = self.acquired()

    def test_output_goes_where_it_belongs_and_the_code_is_the_commands(self):
        out, err = self.run_tool("exec", self.lease, "--", "echo out; echo err >&2; exit 7", status=7)
        self.assertEqual((out, err), (b"out\n", "err\n"))
        self.assertEqual(self.run_tool("exec", self.lease, "kill -TERM $$", status=143), (b"", ""))

    def test_one_word_is_shell_text_and_several_are_words(self):
        self.assertEqual(self.text("exec", self.lease, "echo $((1 + 1))"), "2\n")
        words = ["a b", "", "it's", "$HOME", "*", "\\", "\n"]
        self.assertEqual(self.text("exec", self.lease, "--", "printf", "<%s>", *words),
                         "".join("<%s>" % word for word in words))

    def test_folder_environment_and_time_limit(self):
        self.text("exec", self.lease, "mkdir sub")
        self.assertEqual(self.text("exec", "--cwd", "sub", "--env", "A=1 =2", "--env", "B=", self.lease,
                                   "pwd; echo \"$A|$B\""), "/workspace/sub\n1 =2|\n")
        begun = time.monotonic()
        _, err = self.run_tool("exec", "--timeout", "1", self.lease, "sleep 60", status=137)
        self.assertIn("timed out", err)
        self.assertLess(time.monotonic() - begun, 30 * PATIENCE)

    def test_standard_input_is_passed_whole(self):
        data = os.urandom(5 * MIB)
        out, _ = self.run_tool("exec", self.lease, "cat", data=data)
        self.assertEqual(hashlib.sha256(out).digest(), hashlib.sha256(data).digest())
        self.assertEqual(self.run_tool("exec", "-n", self.lease, "wc -c", data=b"x" * 1000)[0].strip(), b"0")

    def test_output_of_any_length_comes_whole(self):
        out, err = self.run_tool("exec", self.lease, "head -c 30000000 /dev/zero; head -c 3000000 /dev/zero >&2")
        self.assertEqual((len(out), len(err)), (30000000, 3000000))

    def test_output_comes_while_the_command_runs(self):
        started = self.start("exec", self.lease, "echo first; read answer; echo $answer", stdin=subprocess.PIPE)
        self.assertEqual(started.stdout.readline(), b"first\n")
        started.stdin.write(b"second\n")
        started.stdin.flush()
        self.assertEqual(started.stdout.readline(), b"second\n")
        self.assertEqual(started.wait(30 * PATIENCE), 0)

    def test_signals_reach_the_command(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            started = self.start("exec", self.lease,
                                 "trap 'echo got; exit 9' %s; echo ready; while :; do sleep 0.1; done" %
                                 number.name[3:])
            self.assertEqual(started.stdout.readline(), b"ready\n")
            started.send_signal(number)
            self.assertEqual(started.stdout.readline(), b"got\n", number)
            self.assertEqual(started.wait(30 * PATIENCE), 9)

    def test_a_second_interrupt_gives_up(self):
        started = self.start("exec", self.lease, "trap 'echo ignored' INT; echo ready; while :; do sleep 0.1; done")
        self.assertEqual(started.stdout.readline(), b"ready\n")
        started.send_signal(signal.SIGINT)
        self.assertEqual(started.stdout.readline(), b"ignored\n")
        started.send_signal(signal.SIGINT)
        self.assertEqual(started.wait(30 * PATIENCE), 125)
        self.assertEqual(self.text("exec", self.lease, "ps ax | grep -c '[s]leep 0.1'; true").strip(), "0")

    def test_a_signal_gets_through_though_the_command_reads_nothing(self):
        started = self.start("exec", self.lease, "echo ready; sleep 600", stdin=subprocess.PIPE)
        self.assertEqual(started.stdout.readline(), b"ready\n")
        os.set_blocking(started.stdin.fileno(), False)
        try:
            for _ in range(400):  # until the pipe is full, which it is when nobody takes any more
                select.select([], [started.stdin], [], 0.5)
                started.stdin.write(bytes(65536))
                started.stdin.flush()
        except BlockingIOError:
            pass
        started.send_signal(signal.SIGTERM)
        self.assertIn(started.wait(30 * PATIENCE), (125, 143))

    def test_a_reader_that_goes_ends_the_command(self):
        started = self.start("exec", self.lease, "yes")
        self.assertEqual(started.stdout.read(2), b"y\n")
        started.stdout.close()
        self.assertEqual(started.wait(30 * PATIENCE), 125)

    def test_json_tells_every_event(self):
        lines = [json.loads(line) for line in self.text("exec", "--json", self.lease, "printf hello; exit 3",
                                                        status=3).splitlines()]
        self.assertEqual(lines[0], {"type": "output", "stream": "stdout", "offset": 0, "data": "aGVsbG8="})
        self.assertEqual(lines[-1], {"type": "ended", "endedBy": "exited", "exitCode": 3, "signal": 0, "stdoutBytes": 5,
                                     "stderrBytes": 0})

    def test_a_lease_that_ends_ends_the_command(self):
        started = self.start("exec", self.lease, "echo ready; sleep 600")
        self.assertEqual(started.stdout.readline(), b"ready\n")
        self.text("release", self.lease)
        self.assertEqual(started.wait(30 * PATIENCE), 137)
        self.assertIn(b"lease ended", started.stderr.read())


class Copy(Leasectl):
    def setUp(self):
        super().setUp()
        self.lease = self.acquired()

    def test_a_file_there_and_back(self):
        data = os.urandom(8 * MIB + 1)
        self.text("cp", self.local("data", data), self.lease + ":data")
        self.assertEqual(self.text("exec", self.lease, "sha256sum </workspace/data").split()[0],
                         hashlib.sha256(data).hexdigest())
        self.text("cp", self.lease + ":/workspace/data", self.local("back"))
        with open(self.local("back"), "rb") as file:
            self.assertEqual(file.read(), data)
        self.assertEqual(self.run_tool("cp", self.lease + ":data", "-")[0], data)
        self.assertEqual(json.loads(self.text("cp", "--json", self.lease + ":data", "again")), {})

    def test_an_empty_file(self):
        self.text("cp", self.local("empty", b""), self.lease + ":empty")
        self.text("cp", self.lease + ":empty", self.local("back"))
        self.assertEqual(os.path.getsize(self.local("back")), 0)

    def test_folders_keep_the_name(self):
        self.text("exec", self.lease, "mkdir sub")
        self.text("cp", self.local("name", b"content"), self.lease + ":sub/")
        os.mkdir(self.local("here"))
        self.text("cp", self.lease + ":sub/name", self.local("here"))
        with open(self.local("here/name"), "rb") as file:
            self.assertEqual(file.read(), b"content")

    def test_what_is_replaced_keeps_its_mode_and_its_links(self):
        self.text("cp", self.local("new", b"new"), self.lease + ":new")
        os.chmod(self.local("old", b"old"), 0o640)
        os.symlink("old", self.local("link"))
        self.text("cp", self.lease + ":new", self.local("link"))
        self.assertTrue(os.path.islink(self.local("link")))
        with open(self.local("old"), "rb") as file:
            self.assertEqual(file.read(), b"new")
        self.assertEqual(stat.S_IMODE(os.stat(self.local("old")).st_mode), 0o640)

    def test_a_pipe_or_device_is_written_to(self):
        self.text("cp", self.local("new", b"new"), self.lease + ":new")
        os.mkfifo(self.local("pipe"))
        started = self.start("cp", self.lease + ":new", "pipe")
        with open(self.local("pipe"), "rb") as pipe:
            self.assertEqual(pipe.read(), b"new")
        self.assertEqual(started.wait(30 * PATIENCE), 0)
        self.assertTrue(stat.S_ISFIFO(os.stat(self.local("pipe")).st_mode))
        self.text("cp", self.lease + ":new", "/dev/null")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))

    def test_failures_leave_nothing(self):
        before = sorted(os.listdir(self.folder))
        self.assertIn("FILE_NOT_FOUND", self.failure("cp", self.lease + ":nothing", self.local("target")))
        self.assertIn("INVALID_PATH", self.failure("cp", self.lease + ":../etc/passwd", self.local("target")))
        self.assertIn("cannot open", self.failure("cp", self.local("nothing"), self.lease + ":x"))
        self.assertIn("folder", self.failure("cp", self.folder, self.lease + ":x"))
        self.assertIn("cannot write", self.failure("cp", self.lease + ":x", "/nonexistent/target"))
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        with open(self.local("big"), "wb") as file:
            file.truncate(64 * MIB + 1)
        self.assertIn("64 MiB", self.failure("cp", self.local("big"), self.lease + ":x"))

    def test_the_bar_is_drawn_on_a_terminal_alone(self):
        self.local("data", bytes(3 * MIB))
        self.assertEqual(self.run_tool("cp", "data", self.lease + ":data"), (b"", ""))
        ours, theirs = pty.openpty()
        started = self.start("cp", "data", self.lease + ":data", stderr=theirs)
        os.close(theirs)
        drawn = b""
        try:
            while True:
                part = os.read(ours, 4096)
                if not part:
                    break
                drawn += part
        except OSError:  # the other side is closed
            pass
        os.close(ours)
        self.assertEqual(started.wait(30 * PATIENCE), 0)
        self.assertIn(b"100 %", drawn)


class Completion(Leasectl):
    def complete(self, *words):
        """What bash offers for the last word."""
        script = paths.source("tools/leasectl/completion/leasectl.bash")
        tool = os.path.dirname(paths.built("tools/leasectl/leasectl"))
        shell = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _leasectl; '
                 'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", shell, "bash", script, "leasectl", *words], cwd=self.folder, check=True,
                              env=dict(self.environment, PATH=tool + ":" + os.environ["PATH"]),
                              stdout=subprocess.PIPE, text=True)
        return done.stdout.split()

    def test_commands_options_and_leases_are_offered(self):
        self.assertEqual(self.complete("re"), ["release"])
        self.assertEqual(self.complete("acquire", "--p"), ["--pool"])
        lease = self.acquired()
        self.assertEqual(self.complete("get", "lease-"), [lease])
        self.assertEqual(self.complete("--json", "exec", "lease-"), [lease])
        self.assertEqual(self.complete("cp", "lease-"), [lease + ":"])

    def test_the_manual_knows_every_command_and_option(self):
        with open(paths.source("tools/leasectl/leasectl.1"), encoding="utf-8") as file:
            manual = file.read().replace("\\-", "-")
        for word in re.findall(r"^  (\w+) ", self.text("--help"), re.M) + re.findall(r"--[a-z-]+", self.text("--help")):
            self.assertIn(word, manual)


if __name__ == "__main__":
    cases.main()
