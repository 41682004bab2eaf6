"""Contract §6: small files, read and written whole."""
import base64
import os

from tests.support import cases
from tests.support.cases import Cases, over, together

LIMIT = 10485760
ENCODING_MESSAGE = "'encoding' must be 'utf8' or 'base64'"
ESCAPES = ("/etc/passwd", "..", "../x", "a/../../x", "/workspace/../etc/passwd", "/workspacex/f", "/tmp/f", "//etc/passwd", "/",
           "/proc/self/environ", "./../f")


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


class WithLease(Cases):
    def setUp(self):
        super().setUp()
        self.lease = self.acquire()

    def write(self, path, content):
        return self.client.write(self.lease.id, path, content)

    def read(self, path):
        return self.client.read(self.lease.id, path)

    def stored(self, path, content):
        """Writes, and reads back by both ways."""
        self.succeeds(self.write(path, content))
        self.assertTrue(self.succeeds(self.read(path)).content == content, path)


@over("http", "grpc")
class SmallFile(WithLease):
    def test_what_was_written_is_read(self):
        for content in (b"", b"x", b"text\n", bytes(range(256)), os.urandom(700000), b"\0" * 1000):
            self.stored("file", content)
        self.assertEqual(self.output(self.lease, "wc -c <file").strip(), "1000")

    def test_files_of_commands_are_read_and_written_files_are_seen_by_commands(self):
        self.output(self.lease, "printf 'from inside' >inside")
        self.assertEqual(self.succeeds(self.read("inside")).content, b"from inside")
        self.succeeds(self.write("outside", b"from outside"))
        self.assertEqual(self.output(self.lease, "cat outside"), "from outside")

    def test_commands_may_change_and_remove_written_files(self):
        self.succeeds(self.write("d/file", b"x"))
        self.assertEqual(self.output(self.lease, "echo y >>d/file; cat d/file; rm -r d; ls"), "xy\n")

    def test_parent_directories_are_made(self):
        self.stored("a/b/c/d/file", b"deep")
        self.assertEqual(self.output(self.lease, "find a a/b/c/d -prune -printf '%m\\n'"), "755\n755\n")

    def test_names_may_be_any_text(self):
        for path in ("plain", "/workspace/absolute", "with space", "-dash", "'quote", '"double', "$HOME", "`id`", "new\nline", "tab\t",
                     "back\\slash", "semi;colon", "\u00e9", "e\u0301", "\u4e16\u754c", "\U0001F600", "%2F", "%", "a+b", "?query",
                     "#hash", ".hidden", "...", "a..b", "..a", "\x7f", "\u202e", "x" * 255, "a/./b//c", "d/../e"):
            with self.subTest(path=path):
                self.stored(path, path.encode("utf-8"))

    def test_composed_and_decomposed_names_are_different_files(self):
        self.succeeds(self.write("\u00e9", b"composed"))
        self.succeeds(self.write("e\u0301", b"decomposed"))
        self.assertEqual(self.succeeds(self.read("\u00e9")).content, b"composed")

    def test_a_blank_path_is_refused(self):
        for path in ("", " ", "\t\n"):
            for call in (lambda path=path: self.read(path), lambda path=path: self.write(path, b"")):
                with self.subTest(path=path):
                    self.fails(call(), "INVALID_REQUEST", "'path' must be a non-empty string")

    def test_paths_outside_workspace_are_refused(self):
        for path in ESCAPES:
            with self.subTest(path=path):
                self.fails(self.read(path), "INVALID_PATH")
                self.fails(self.write(path, b"x"), "INVALID_PATH")

    def test_paths_have_at_most_4096_bytes(self):
        longest = "/workspace/" + "/".join(["d" * 200] * 20) + "/" + "f" * 65
        self.assertEqual(len(longest), 4096)
        self.stored(longest, b"far")
        self.assertIn(self.read(longest + "x").reason, ("INVALID_PATH",))
        self.assertIn(self.write(longest + "x", b"").reason, ("INVALID_PATH",))

    def test_a_name_of_more_than_255_bytes_fails(self):
        self.fails(self.read("x" * 256), "FILE_READ_FAILED")
        self.fails(self.write("x" * 256, b""), "FILE_WRITE_FAILED")

    def test_a_missing_file_cannot_be_read(self):
        self.fails(self.read("nothing"), "FILE_READ_FAILED")
        self.fails(self.read("nowhere/nothing"), "FILE_READ_FAILED")

    def special(self):
        self.output(self.lease, "mkdir dir; mkfifo fifo; ln -s /etc/passwd link; ln -s / up; ln -s file near; echo x >file; "
                                "ln -s loop loop; ln -s dir toDir; echo y >dir/inner")
        return ("dir", "fifo", "link", "up/etc/passwd", "near", "loop", "toDir/inner", ".", "/workspace")

    def test_what_is_no_regular_file_is_not_read(self):
        for path in self.special():
            with self.subTest(path=path):
                self.assertIn(self.read(path).reason, ("INVALID_PATH", "FILE_READ_FAILED"))

    def test_what_is_no_regular_file_is_not_written(self):
        for path in self.special():
            if path in ("near", "link", "loop", "fifo"):
                continue  # a rename may replace these themselves; it never goes through them: next case
            with self.subTest(path=path):
                self.assertIn(self.write(path, b"x").reason, ("INVALID_PATH", "FILE_WRITE_FAILED"))
        self.fails(self.write("file/below", b"x"), "FILE_WRITE_FAILED")
        self.assertEqual(self.output(self.lease, "cat file dir/inner"), "x\ny\n")

    def test_writing_never_goes_through_a_symlink(self):
        self.output(self.lease, "mkdir real; echo kept >real/kept; ln -s real/kept link; ln -s /tmp/planted out; ln -s real dirlink")
        for path in ("link", "out", "dirlink/kept"):
            answer = self.write(path, b"changed")
            if answer.reason is not None:
                self.assertIn(answer.reason, ("INVALID_PATH", "FILE_WRITE_FAILED"))
        self.assertEqual(self.output(self.lease, "cat real/kept; test ! -e /tmp/planted"), "kept\n")

    def test_a_file_without_permission_fails(self):
        self.output(self.lease, "mkdir closed; echo x >closed/file; echo x >secret; chmod 0 secret; chmod 500 closed")
        self.assertIn(self.read("secret").reason, ("FILE_READ_FAILED", None))
        self.assertIn(self.write("closed/new", b"x").reason, ("FILE_WRITE_FAILED", None))

    def test_replacement_is_atomic(self):
        versions = [bytes([letter]) * 300000 for letter in b"abcd"]
        self.succeeds(self.write("file", versions[0]))

        def write():
            for number in range(24):
                self.succeeds(self.write("file", versions[number % 4]))

        def read():
            for _ in range(24):
                self.assertIn(self.succeeds(self.read("file")).content, versions)
        together([write, read, read])
        self.assertEqual(self.output(self.lease, "ls -A"), "file\n")

    def seen(self, write):
        """Every name that a command saw in a folder while `write` was called again and again."""
        self.output(self.lease, "mkdir d")
        watcher = self.running_command(self.lease, "while [ ! -e /workspace/stop ]; do ls -A d; done | sort -u")
        for number in range(20):
            write(number)
        self.succeeds(self.write("stop", b""))
        return set(self.succeeds(watcher.result(30)).execution.stdout.split())

    def test_no_temporary_file_of_a_new_file_is_ever_visible(self):
        found = self.seen(lambda number: self.succeeds(self.write("d/file-%d" % number, b"x" * 100000)))
        self.assertLessEqual(found, {"file-%d" % number for number in range(20)})

    def test_no_temporary_file_is_left_behind_by_a_replacement(self):
        self.seen(lambda number: self.succeeds(self.write("d/file", b"%d" % number * 100000)))
        self.assertEqual(self.output(self.lease, "cd d && ls -A"), "file\n")


@over("grpc")
class SizeLimit(WithLease):
    def test_ten_mib_are_read_and_written(self):
        self.stored("file", b"\xff" * LIMIT)

    def test_one_byte_more_is_refused(self):
        self.assertEqual(self.write("file", b"x" * (LIMIT + 1)).reason, "INVALID_REQUEST")
        self.assertEqual(self.output(self.lease, "ls -A"), "")


@over("http", "grpc")
class ReadLimit(WithLease):
    def test_ten_mib_are_read(self):
        self.output(self.lease, "head -c %d /dev/zero >file" % LIMIT)
        self.assertTrue(self.succeeds(self.read("file")).content == b"\0" * LIMIT)

    def test_one_byte_more_is_too_large(self):
        self.output(self.lease, "head -c %d /dev/zero >file" % (LIMIT + 1))
        self.assertEqual(self.read("file").reason, "OUTPUT_TOO_LARGE")

    def test_a_sparse_file_of_a_terabyte_is_too_large(self):
        self.output(self.lease, "truncate -s 1T file || truncate -s 1G file")
        self.assertEqual(self.read("file").reason, "OUTPUT_TOO_LARGE")


@over("http")
class Encoding(WithLease):
    def call(self, rest, request):
        return self.client.call("POST", self.client.path(self.lease.id, "/files/" + rest), request)

    def test_utf8_is_the_default(self):
        answer, body = self.call("write", {"path": "f", "content": "\u00e9\0\n"})
        self.succeeds(answer)
        self.assertEqual(self.succeeds(self.read("f")).content, "\u00e9\0\n".encode("utf-8"))
        answer, body = self.call("read", {"path": "f"})
        self.assertEqual(body, {"path": "f", "content": "\u00e9\0\n", "encoding": "utf8"})
        answer, body = self.call("read", {"path": "f", "encoding": "utf8"})
        self.assertEqual(body, {"path": "f", "content": "\u00e9\0\n", "encoding": "utf8"})

    def test_the_path_comes_back_as_it_was_sent(self):
        for path in ("f", "/workspace/f", "./f", "x/../f", "//workspace//f"[1:]):
            self.assertEqual(self.call("write", {"path": path, "content": "x"})[1], {"path": path})
            self.assertEqual(self.call("read", {"path": path})[1]["path"], path)

    def test_invalid_utf8_reads_as_replacement_characters(self):
        self.succeeds(self.write("f", b"a\xff\xc3(\xf0\x9f\x98\x80"))
        self.assertEqual(self.call("read", {"path": "f"})[1]["content"], "a\ufffd\ufffd(\U0001F600")

    def test_other_encodings_are_refused(self):
        for encoding in ("utf-8", "UTF8", "Base64", "latin1", "", " utf8", "hex"):
            with self.subTest(encoding=encoding):
                self.fails(self.call("read", {"path": "f", "encoding": encoding})[0], "INVALID_REQUEST", ENCODING_MESSAGE)
                self.fails(self.call("write", {"path": "f", "content": "", "encoding": encoding})[0], "INVALID_REQUEST", ENCODING_MESSAGE)

    def test_invalid_base64_is_refused_and_the_old_file_stays(self):
        self.succeeds(self.write("f", b"old"))
        for content in ("=", "A", "AA", "AAA", "AA=A", "AAAA=", "AA==AA==", "A A=", "AA-_", "\u00e9", "AAAA\n", "AAA\0", "===="):
            with self.subTest(content=content):
                answer, _ = self.call("write", {"path": "f", "content": content, "encoding": "base64"})
                self.assertEqual(answer.reason, "INVALID_REQUEST", answer)
        self.assertEqual(self.succeeds(self.read("f")).content, b"old")

    def test_one_mib_of_body_is_written(self):
        frame = len('{"path": "f", "content": ""}')
        answer, _ = self.call("write", {"path": "f", "content": "x" * (1048576 - frame)})
        self.succeeds(answer)
        self.assertEqual(self.output(self.lease, "wc -c <f").strip(), str(1048576 - frame))
        answer, _ = self.call("write", {"path": "f", "content": "x" * (1048577 - frame)})
        self.fails(answer, "BODY_TOO_LARGE")

    def test_missing_fields_are_refused(self):
        for rest, request in (("read", {}), ("write", {"content": "x"}), ("read", {"path": None})):
            answer, _ = self.call(rest, request)
            self.fails(answer, "INVALID_REQUEST", "'path' must be a non-empty string")
        answer, _ = self.call("write", {"path": "f"})
        self.assertIn(answer.reason, ("INVALID_REQUEST", "INVALID_JSON"))

    def test_base64_is_canonical_on_the_way_out(self):
        for content in (b"", b"a", b"ab", b"abc", bytes(range(256))):
            self.succeeds(self.write("f", content))
            self.assertEqual(self.call("read", {"path": "f", "encoding": "base64"})[1]["content"],
                             base64.b64encode(content).decode("ascii"))


if __name__ == "__main__":
    cases.main()
