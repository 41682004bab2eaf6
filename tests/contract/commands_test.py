"""Contract §6: commands."""
import json
import socket
import time

from tests.support import cases, http_client
from tests.support.cases import Cases, only, over, together
from tests.support.stubs import lease_pb2

OUTPUT_LIMIT = 10485760
COMMAND_MESSAGE = "'command' must be a non-empty string"
TIMEOUT_MESSAGE = "'timeoutSeconds' must be a positive integer"


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


class WithLease(Cases):
    def setUp(self):
        super().setUp()
        self.lease = self.acquire()

    def command(self, command, **options):
        return self.run_command(self.lease, command, **options)

    def refuses(self, reason, message, command="true", **options):
        return self.fails(self.client.exec(self.lease.id, command, **options), reason, message)

    def usable(self):
        self.assertEqual(self.output(self.lease, "echo still usable"), "still usable\n")


@over("http", "grpc")
class Command(WithLease):
    def test_output_and_exit_code_come_back(self):
        self.assertEqual(self.command("echo out; echo err >&2; exit 7"), ("out\n", "err\n", 7))
        self.assertEqual(self.command("true"), ("", "", 0))
        self.assertEqual(self.command("exit 255").code, 255)

    def test_death_by_signal_n_is_128_plus_n(self):
        for number in (1, 2, 6, 9, 11, 15):
            with self.subTest(signal=number):
                self.assertEqual(self.command("kill -%d $$; sleep 10" % number).code, 128 + number)

    def test_it_is_a_login_shell(self):
        self.assertEqual(self.output(self.lease, "case $0 in -*) echo login;; *) cat /proc/$$/cmdline | tr '\\0' ' ';; esac")
                         .split()[:2] in (["login"], ["sh", "-lc"]), True)

    def test_stdin_is_empty(self):
        self.assertEqual(self.command("cat; echo end"), ("end\n", "", 0))

    def test_not_found_and_syntax_errors_are_the_shells_own(self):
        missing = self.command("no-such-program-here")
        self.assertEqual((missing.code, missing.stdout), (127, ""))
        self.assertIn("not found", missing.stderr)
        self.assertEqual(self.command("if").code, 2)

    def test_a_blank_command_is_refused(self):
        for command in ("", " ", "\t\n "):
            with self.subTest(command=command):
                self.refuses("INVALID_REQUEST", COMMAND_MESSAGE, command)

    def test_text_of_any_script_goes_in_and_out(self):
        text = "\u00e9\u4e16\U0001F310 \u0645\u0631 e\u0301 \u202e \ufeff'\"\\$`"
        self.assertEqual(self.command("printf %s \"$TEXT\"", env={"TEXT": text}).stdout, text)
        self.assertEqual(self.command("printf %s '\u00e9\u4e16\U0001F310'").stdout, "\u00e9\u4e16\U0001F310")

    def test_a_long_command_runs_or_is_answered(self):
        self.assertEqual(self.command(": " + "x" * 100000 + "\necho ran").stdout, "ran\n")
        answer = self.client.exec(self.lease.id, ": " + "x" * 500000 + "\necho ran")
        if answer.reason is None and answer.execution.code == 0:
            self.assertEqual(answer.execution.stdout, "ran\n")
        self.usable()

    def test_commands_of_one_lease_run_at_the_same_time(self):
        # Each waits for all the others: it only works if none waits in a queue.
        self.output(self.lease, "mkfifo a b c")
        jobs = ["echo 1 >a; cat b", "cat a; echo 2 >c", "cat c; echo 3 >b"]
        done = together([lambda job=job: self.client.exec(self.lease.id, job) for job in jobs])
        self.assertEqual([self.succeeds(answer).execution.stdout for answer in done], ["3\n", "1\n", "2\n"])

    def test_many_commands_at_once_are_not_mixed_up(self):
        answers = together([lambda n=n: self.client.exec(self.lease.id, "for i in 1 2 3 4 5; do echo %d; done; exit %d" % (n, n))
                            for n in range(32)])
        for number, answer in enumerate(answers):
            self.assertEqual(self.succeeds(answer).execution, ("%d\n" % number * 5, "", number))

    def test_the_answer_does_not_wait_for_daemons(self):
        started = time.monotonic()
        self.assertEqual(self.command("sleep 1000 & echo done").stdout, "done\n")
        self.assertEqual(self.command("setsid sh -c 'sleep 1000; echo late' & echo done").stdout, "done\n")
        self.assertLess(time.monotonic() - started, 20 * cases.PATIENCE)

    def test_output_written_just_before_the_end_is_not_lost(self):
        for _ in range(20):
            done = self.command("head -c 200000 /dev/zero | tr '\\0' x; head -c 150000 /dev/zero | tr '\\0' y >&2")
            self.assertEqual((len(done.stdout), len(done.stderr), done.code), (200000, 150000, 0))


@over("http", "grpc")
class WorkingDirectory(WithLease):
    def test_the_default_is_workspace(self):
        self.assertEqual(self.output(self.lease, "pwd"), "/workspace\n")

    def test_paths_are_absolute_under_workspace_or_relative_to_it(self):
        self.output(self.lease, "mkdir -p 'a/b c' \u00e9")
        for cwd, expected in (("/workspace", ""), ("/workspace/", ""), (".", ""), ("./", ""), ("a", "/a"), ("a/", "/a"),
                              ("/workspace/a/b c", "/a/b c"), ("a//b c", "/a/b c"), ("a/./b c/..", "/a"),
                              ("a/../a", "/a"), ("\u00e9", "/\u00e9")):
            with self.subTest(cwd=cwd):
                self.assertEqual(self.output(self.lease, "pwd", cwd=cwd), "/workspace%s\n" % expected)

    def test_outside_workspace_is_refused(self):
        for cwd in ("/", "/etc", "..", "../etc", "a/../..", "/workspace/..", "/workspace/../etc", "/workspacex", "//etc", "/tmp",
                    "/proc/self/cwd", "a/../../x"):
            with self.subTest(cwd=cwd):
                self.refuses("INVALID_PATH", None, cwd=cwd)

    def test_one_that_does_not_exist_is_the_shells_failure(self):
        for cwd in ("nowhere", "file", "/workspace/a/b"):
            self.output(self.lease, "echo >file")
            with self.subTest(cwd=cwd):
                done = self.command("echo ran", cwd=cwd)
                self.assertNotEqual(done.code, 0)
                self.assertEqual(done.stdout, "")
                self.assertNotEqual(done.stderr, "")

    def test_paths_have_at_most_4096_bytes(self):
        self.assertNotEqual(self.command("true", cwd="/workspace/" + "a/" * 2042 + "b").code, 0)
        self.refuses("INVALID_PATH", None, cwd="/workspace/" + "a" * 4086)


@over("http", "grpc")
class Environment(WithLease):
    def test_variables_are_set(self):
        env = {"PLAIN": "value", "EMPTY": "", "_x9": "a b", "lower": "'\"\\$HOME `id`\n\n", "TEXT": "\u00e9\U0001F310"}
        found = self.output(self.lease, "for n in PLAIN EMPTY _x9 lower TEXT; do eval \"printf '%s|' \\\"\\${$n-unset}\\\"\"; done", env=env)
        self.assertEqual(found, "".join(value + "|" for value in env.values()))

    def test_bad_names_are_refused(self):
        for name in ("", "1A", "A-B", "A B", "A=B", "A.B", "\u00c4", "A\n", "=", "A$"):
            with self.subTest(name=name):
                answer = self.client.exec(self.lease.id, "true", env={name: "x"})
                self.assertEqual(answer.reason, "INVALID_REQUEST", answer)

    def test_at_most_256_variables(self):
        env = {"V%d" % number: str(number) for number in range(256)}
        self.assertEqual(self.output(self.lease, "echo $V0 $V255", env=env), "0 255\n")
        env["V256"] = "256"
        self.assertEqual(self.client.exec(self.lease.id, "true", env=env).reason, "INVALID_REQUEST")

    def test_at_most_128_kib_in_all(self):
        def env(total):
            found = {"V%03d" % number: "x" * 1020 for number in range(127)}  # 127 of 1,024 bytes
            found["LAST"] = "y" * (total - 127 * 1024 - 4)
            return found
        self.assertEqual(self.output(self.lease, "echo ${#LAST}", env=env(131072)), "1020\n")
        self.assertEqual(self.client.exec(self.lease.id, "true", env=env(131073)).reason, "INVALID_REQUEST")

    def test_nothing_of_the_platforms_own_environment_is_inside(self):
        found = self.output(self.lease, "env")
        for secret in ("SANDBOX_", "SECRET", "secret"):
            self.assertNotIn(secret, found)


@over("http", "grpc")
class TimeLimit(WithLease):
    def test_it_is_at_least_one_second(self):
        for seconds in (0, -1, -2 ** 53):
            with self.subTest(seconds=seconds):
                self.refuses("INVALID_REQUEST", TIMEOUT_MESSAGE, timeout_seconds=seconds)

    def test_a_command_in_time_is_not_touched(self):
        self.assertEqual(self.command("echo quick", timeout_seconds=1).stdout, "quick\n")
        self.assertEqual(self.command("echo quick", timeout_seconds=2 ** 53).stdout, "quick\n")

    def test_a_command_out_of_time_is_aborted_with_all_its_descendants(self):
        mark = self.mark()
        running = self.running_command(self.lease, "setsid sleep 1001 & sleep 1002 & sh -c \"trap '' TERM HUP INT; sleep 1003\"",
                                       timeout_seconds=2, env={"MARK": mark})
        self.fails(running.result(10 * cases.PATIENCE), "ABORTED")
        self.dead(mark)
        self.assertEqual(self.output(self.lease, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'slee[p] 100' || true"), "0\n")
        self.usable()


@over("http", "grpc")
class OutputLimit(WithLease):
    def test_ten_mib_on_each_stream_are_delivered(self):
        done = self.command("head -c %d /dev/zero | tr '\\0' o; head -c %d /dev/zero | tr '\\0' e >&2" % (OUTPUT_LIMIT, OUTPUT_LIMIT))
        self.assertEqual(done.code, 0)
        self.assertTrue(done.stdout == "o" * OUTPUT_LIMIT, len(done.stdout))
        self.assertTrue(done.stderr == "e" * OUTPUT_LIMIT, len(done.stderr))

    def test_one_byte_more_on_either_stream_is_too_large(self):
        for redirect in ("", " >&2"):
            with self.subTest(redirect=redirect):
                self.refuses("OUTPUT_TOO_LARGE", None, "head -c %d /dev/zero | tr '\\0' x%s" % (OUTPUT_LIMIT + 1, redirect))
        self.usable()

    def test_a_command_with_endless_output_is_killed(self):
        mark = self.mark()
        self.refuses("OUTPUT_TOO_LARGE", None, "setsid sleep 1000 & yes", env={"MARK": mark})
        self.dead(mark)
        self.usable()

    def test_many_endless_commands_at_once_are_each_refused(self):
        for answer in together([lambda: self.client.exec(self.lease.id, "yes")] * 4):
            self.fails(answer, "OUTPUT_TOO_LARGE")


@over("http")
class OutputText(WithLease):
    def test_invalid_utf8_becomes_replacement_characters(self):
        # As every decoder does that follows the WHATWG encoding standard: one U+FFFD for each maximal subpart.
        for octal, expected in ((r"\377", "\ufffd"), (r"\303\050", "\ufffd("), (r"a\303", "a\ufffd"), (r"\342\202", "\ufffd"),
                                (r"\360\237\230", "\ufffd"), (r"\355\240\200", "\ufffd" * 3), (r"\300\200", "\ufffd" * 2),
                                (r"\364\220\200\200", "\ufffd" * 4), (r"\200\200", "\ufffd" * 2), (r"ok\303\251", "ok\u00e9"),
                                (r"\000x", "\0x"), (r"\001\037\177", "\x01\x1f\x7f"), (r"\360\237\230\200", "\U0001F600"),
                                (r"\357\273\277x", "\ufeffx"), (r"\357\277\276", "\ufffe")):
            with self.subTest(octal=octal):
                self.assertEqual(self.command("printf '%s'" % octal).stdout, expected)
                self.assertEqual(self.command("printf '%s' >&2" % octal).stderr, expected)

    def test_a_character_split_over_two_writes_is_one_character(self):
        self.assertEqual(self.command(r"printf '\360\237'; sleep 0.2; printf '\230\200'").stdout, "\U0001F600")

    def test_ten_mib_of_invalid_bytes_are_delivered(self):
        done = self.command("head -c %d /dev/zero | tr '\\0' '\\377'" % OUTPUT_LIMIT)
        self.assertTrue(done.stdout == "\ufffd" * OUTPUT_LIMIT, len(done.stdout))


@over("http", "grpc")
class Vanishing(WithLease):
    def begin(self, command, mark):
        """Starts a command and returns once it runs: a function that makes the client vanish, given whether by a reset."""
        self.output(self.lease, "mkfifo gate")
        script, env = "echo >gate; " + command, {"MARK": mark}
        if self.protocol == "http":
            body = json.dumps({"command": script, "env": env}).encode("utf-8")
            connection = http_client.connect(self.platform.address)
            connection.sendall(http_client.head("POST", self.client.path(self.lease.id, "/exec"), self.client.headers(body)) + body)
            vanish = connection.close
        else:
            call = self.client.stub.Exec.future(lease_pb2.ExecRequest(
                lease_id=self.lease.id, command=self.client.command(script, env=env)), metadata=self.client.metadata())
            connection, vanish = None, call.cancel
        self.output(self.lease, "read line <gate; rm gate")
        self.alive(mark)
        return connection, vanish

    def test_the_command_and_all_its_descendants_are_dead_within_a_second(self):
        for command in ("sleep 1001", "setsid sleep 1002 & setsid sleep 1003 & sleep 1004", "trap '' HUP INT TERM PIPE; sleep 1005",
                        "sh -c 'while :; do :; done'", "(setsid sh -c 'while :; do setsid sleep 0.01 & wait; done' &) ; sleep 1006"):
            with self.subTest(command=command):
                mark = self.mark()
                _, vanish = self.begin(command, mark)
                vanish()
                time.sleep(1 * cases.PATIENCE)  # forkers make new ones meanwhile: what counts is who lives after a second
                self.assertEqual(self.marked(mark), [])
        self.usable()

    @only("http")
    def test_a_client_that_resets_its_connection_counts_as_gone(self):
        mark = self.mark()
        connection, vanish = self.begin("sleep 1000", mark)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        vanish()
        self.dead(mark)


@over("grpc")
class Request(WithLease):
    def test_a_command_has_at_most_one_mib(self):
        answer = self.client.exec(self.lease.id, "x" * 1048577)
        self.assertEqual(answer.reason, "INVALID_REQUEST", answer)
        self.usable()

    def test_a_command_is_required(self):
        answer, _ = self.client.call(self.client.stub.Exec, lease_pb2.ExecRequest(lease_id=self.lease.id))
        self.fails(answer, "INVALID_REQUEST", COMMAND_MESSAGE)

    def test_bytes_pass_through_unchanged(self):
        _, reply = self.client.call(self.client.stub.Exec, lease_pb2.ExecRequest(
            lease_id=self.lease.id, command=self.client.command(r"printf '\000\377\200\303'; printf '\376' >&2")))
        self.assertEqual((reply.stdout, reply.stderr), (b"\x00\xff\x80\xc3", b"\xfe"))

    def test_how_it_ended_is_told(self):
        for command, ended_by in (("exit 137", lease_pb2.ENDED_BY_EXITED), ("kill -9 $$", lease_pb2.ENDED_BY_SIGNALLED)):
            _, reply = self.client.call(self.client.stub.Exec, lease_pb2.ExecRequest(
                lease_id=self.lease.id, command=self.client.command(command)))
            self.assertEqual((reply.ended_by, reply.exit_code), (ended_by, 137))

    def test_a_deadline_aborts_the_command(self):
        mark = self.mark()
        answer = cases.settled(lambda: self.client.exec(self.lease.id, "sleep 1000", timeout=0.5, env={"MARK": mark}))
        if answer is not None:
            self.fails(answer, "ABORTED")
        self.dead(mark)


if __name__ == "__main__":
    cases.main()
