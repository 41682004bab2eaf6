"""Contract §7: streamed files."""
import base64
import hashlib
import os
import random
import time

from tests.support import cases, http_client, processes
from tests.support.cases import Cases, over, settled, together
from tests.support.held import Held
from tests.support.stubs import lease_pb2

LIMIT = 67108864
MIB = 1048576
PATH_MESSAGE = "'path' must be a non-empty string"


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


class WithLease(Cases):
    def setUp(self):
        super().setUp()
        self.lease = self.acquire()

    def upload(self, path, content, **options):
        return self.client.upload(self.lease.id, path, content, **options)

    def download(self, path):
        return self.client.download(self.lease.id, path)

    def only_file(self, name, content):
        """Nothing but this file is in the workspace."""
        self.assertEqual(self.output(self.lease, "find . -mindepth 1"), "./%s\n" % name)
        self.assertTrue(self.succeeds(self.download(name)).content == content)


@over("http", "grpc")
class Transfer(WithLease):
    def test_what_was_uploaded_is_downloaded(self):
        noise = random.Random(1).randbytes(3 * MIB + 17)
        for content in (b"", b"x", bytes(range(256)) * 1024, noise, noise[:131071], noise[:131072], noise[:131073]):
            self.succeeds(self.upload("file", content))
            self.assertTrue(self.succeeds(self.download("file")).content == content)
            self.assertEqual(self.output(self.lease, "sha256sum <file").split()[0], hashlib.sha256(content).hexdigest())

    def test_sixty_four_mib_go_both_ways(self):
        content = random.Random(2).randbytes(MIB) * 64
        self.succeeds(self.upload("file", content))
        self.assertTrue(self.succeeds(self.download("file")).content == content)

    def test_one_byte_more_is_too_large(self):
        answer = self.upload("file", b"", size=LIMIT + 1)
        self.fails(answer, "TRANSFER_TOO_LARGE")
        self.output(self.lease, "truncate -s %d big" % (LIMIT + 1))
        self.fails(self.download("big"), "TRANSFER_TOO_LARGE")
        self.assertEqual(self.output(self.lease, "ls"), "big\n")

    def test_a_blank_path_is_refused(self):
        for path in ("", " ", "\t"):
            self.fails(self.upload(path, b"x"), "INVALID_REQUEST", PATH_MESSAGE)
            self.fails(self.download(path), "INVALID_REQUEST", PATH_MESSAGE)

    def test_names_may_be_any_text(self):
        for path in ("plain", "/workspace/absolute", "with space", "-dash", "'quote", "new\nline", "\u00e9", "\U0001F600", "%2F", "a+b",
                     "a&b=c", "?query", "#hash", "x" * 255, ".//dotted"):
            with self.subTest(path=path):
                self.succeeds(self.upload(path, path.encode("utf-8")))
                self.assertEqual(self.succeeds(self.download(path)).content, path.encode("utf-8"))

    def test_escapes_symlinks_and_special_files_are_invalid_paths(self):
        self.output(self.lease, "mkdir dir; mkfifo fifo; echo x >file; ln -s file near; ln -s /etc/passwd far; ln -s dir toDir; "
                                "ln -s / up; ln -s loop loop; echo x >dir/inner; ln -s nowhere dangling")
        for path in ("..", "../x", "/etc/passwd", "/workspace/../etc/passwd", "/", "/workspace", "/workspace/", ".", "dir", "dir/", "fifo",
                     "near", "far", "toDir/inner", "up/etc/passwd", "loop", "loop/x", "dangling", "file/below"):
            with self.subTest(path=path):
                self.fails(self.download(path), "INVALID_PATH")
                self.fails(self.upload(path, b"changed"), "INVALID_PATH")
        self.assertEqual(self.output(self.lease, "cat file dir/inner; test -p fifo && test -L near && test -L dangling"), "x\nx\n")

    def test_a_unix_socket_is_an_invalid_path(self):
        done = self.run_command(self.lease, "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/workspace/sock')\" "
                                            "|| perl -MSocket -e 'socket(S,PF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un(\"/workspace/sock\")) or die'")
        if done.code != 0:
            self.skipTest("nothing in this image can make a socket")
        self.fails(self.download("sock"), "INVALID_PATH")
        self.fails(self.upload("sock", b"x"), "INVALID_PATH")

    def test_a_missing_file_is_not_found(self):
        self.fails(self.download("nothing"), "FILE_NOT_FOUND")
        self.fails(self.download("nowhere/nothing"), "FILE_NOT_FOUND")

    def test_parent_directories_must_exist(self):
        self.fails(self.upload("nowhere/file", b"x"), "INVALID_PATH")
        self.output(self.lease, "mkdir here")
        self.succeeds(self.upload("here/file", b"x"))

    def test_a_wrong_digest_leaves_the_old_file(self):
        self.succeeds(self.upload("file", b"old"))
        self.fails(self.upload("file", b"new", digest=hashlib.sha256(b"other").digest()), "CONTENT_DIGEST_MISMATCH")
        self.fails(self.upload("file", b"n" * 2 * MIB, digest=hashlib.sha256(b"other").digest()), "CONTENT_DIGEST_MISMATCH")
        self.only_file("file", b"old")

    def test_a_short_body_leaves_the_old_file(self):
        self.succeeds(self.upload("file", b"old"))
        for content, size in ((b"new", 4), (b"", 1), (b"x" * MIB, MIB + 1), (b"x", LIMIT)):
            answer = settled(lambda content=content, size=size: self.upload("file", content, size=size))
            if answer is not None or self.protocol == "grpc":
                self.fails(answer, "CONTENT_LENGTH_MISMATCH")
        self.only_file("file", b"old")

    def test_the_mode_of_a_new_file_lets_commands_use_it(self):
        self.succeeds(self.upload("script", b"#!/bin/sh\necho ran\n"))
        self.assertEqual(self.output(self.lease, "chmod +x script && ./script; rm script"), "ran\n")

    def test_a_download_is_of_one_snapshot(self):
        self.succeeds(self.upload("file", b"a" * 4 * MIB))

        def change():
            self.output(self.lease, "for i in 1 2 3 4 5 6 7 8 9; do for c in a b; do head -c 4194304 /dev/zero | tr '\\0' $c >next; "
                                    "mv next file; done; done")

        def read():
            for _ in range(12):
                answer = settled(lambda: self.download("file"))
                if answer is not None and answer.reason is None:
                    self.assertIn(answer.content, (b"a" * 4 * MIB, b"b" * 4 * MIB))
        together([change, read])

    def test_a_file_that_changes_under_a_download_is_never_delivered_mixed(self):
        self.succeeds(self.upload("file", b"a" * 8 * MIB))
        writer = self.running_command(self.lease, "while [ ! -e stop ]; do head -c 65536 /dev/urandom | "
                                                  "dd of=file bs=65536 seek=$((i % 128)) conv=notrunc status=none; i=$((i+1)); done")
        for _ in range(10):
            answer = settled(lambda: self.download("file"))  # whole and equal to its digest, or failed, or cut
            if answer is not None and answer.reason is not None:
                self.assertIn(answer.reason, ("FILE_TRANSFER_FAILED",))
        self.output(self.lease, "touch stop")
        self.succeeds(writer.result(30))

    def test_a_growing_file_cannot_fill_a_download(self):
        writer = self.running_command(self.lease, "while [ ! -e stop ]; do head -c 100000 /dev/zero >>file; "
                                                  "[ $(wc -c <file) -lt 30000000 ] || : >file; done")
        for _ in range(10):
            settled(lambda: self.download("file"))
        self.output(self.lease, "touch stop")
        self.succeeds(writer.result(30))

    def test_uploads_to_one_path_at_once_leave_one_of_them_whole(self):
        versions = [bytes([letter]) * 2 * MIB for letter in b"ab"]
        together([lambda content=content: self.upload("file", content) for content in versions])
        self.assertIn(self.succeeds(self.download("file")).content, versions)
        self.assertEqual(self.output(self.lease, "ls -A"), "file\n")


@over("http", "grpc")
class TransferLimits(WithLease):
    def hold_download(self, lease=None, path="big"):
        held = Held(self, self.client, lease or self.lease).download(path)
        self.addCleanup(held.vanish)
        return held

    def big(self, lease=None):
        self.output(lease or self.lease, "head -c %d /dev/zero >big" % LIMIT)

    def test_two_for_each_lease(self):
        self.big()
        held = [self.hold_download(), self.hold_download()]
        self.fails(self.download("big"), "TRANSFER_LIMIT_REACHED")
        self.fails(self.upload("file", b"x"), "TRANSFER_LIMIT_REACHED")
        other = self.acquire()
        self.succeeds(self.client.upload(other.id, "file", b"x"))
        self.succeeds(self.write_small())
        held[0].vanish()
        self.until_succeeds(lambda: self.upload("file", b"x"))

    def write_small(self):
        return self.client.write(self.lease.id, "small", b"small files are not counted")

    def until_succeeds(self, call):
        """The platform learns of a vanished client when the kernel tells it: within a second."""
        deadline = time.monotonic() + 1 * cases.PATIENCE
        answer = call()
        while answer.reason == "TRANSFER_LIMIT_REACHED" and time.monotonic() < deadline:
            time.sleep(0.02)
            answer = call()
        self.succeeds(answer)

    def test_eight_in_all(self):
        leases = [self.lease] + [self.acquire() for _ in range(4)]
        together([lambda lease=lease: self.big(lease) for lease in leases[:4]])
        for lease in leases[:4]:
            self.hold_download(lease)
            self.hold_download(lease)
        self.fails(self.client.upload(leases[4].id, "file", b"x"), "TRANSFER_LIMIT_REACHED")
        stranger = self.client_of("beta", self.subject)
        theirs = self.succeeds(stranger.acquire(cases.POOL, "key")).lease
        self.fails(stranger.upload(theirs.id, "file", b"x"), "TRANSFER_LIMIT_REACHED")

    def test_release_aborts_transfers(self):
        self.big()
        download = self.hold_download()
        upload = Held(self, self.client, self.lease).upload()
        self.output(self.lease, "true")
        self.succeeds(self.client.release(self.lease.id))
        self.assertTrue(download.cut())
        answer = upload.answer()
        if answer is not None:
            self.assertIn(answer.reason, ("ABORTED", "LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE"))

    def test_expiry_aborts_transfers(self):
        lease = self.acquire(ttl=2)
        self.big(lease)
        download = self.hold_download(lease)
        upload = Held(self, self.client, lease).upload()
        self.wait_expiry(lease)
        self.assertTrue(download.cut())
        answer = upload.answer()
        if answer is not None:
            self.assertIn(answer.reason, ("ABORTED", "LEASE_NOT_FOUND", "LEASE_NOT_ACTIVE"))

    def test_a_client_that_vanishes_mid_upload_leaves_the_old_file_and_no_other(self):
        self.succeeds(self.upload("held", b"old"))
        for sent in (b"", b"x", b"x" * 300000, b"x" * (MIB - 1)):
            for _ in range(3):
                Held(self, self.client, self.lease).upload(sent=sent).vanish()
        self.until_succeeds(lambda: self.upload("last", b"x"))
        self.assertEqual(self.output(self.lease, "rm last; find . -mindepth 1; cat held"), "./held\nold")

    def test_an_upload_is_not_visible_before_it_is_whole(self):
        # gVisor has no files without a name: docs/sandboxd.md.
        names = "ls -A" if cases.VISIBLE else "ls -A | grep -v '^[.]sandboxd-[0-9a-f]*$'"
        for old in (b"", b"old"):
            if old:
                self.succeeds(self.upload("held", old))
            held = Held(self, self.client, self.lease).upload(size=48 * MIB, sent=b"x" * (48 * MIB - 1))
            self.addCleanup(held.vanish)
            self.assertEqual(self.output(self.lease, names + "; cat held 2>/dev/null || true"), "held\nold" if old else "")
            held.vanish()
            self.until_succeeds(lambda: self.upload("other", b"x"))
            self.output(self.lease, "rm other")

    def test_clients_that_vanish_mid_download_give_their_turn_back(self):
        self.big()
        for _ in range(6):
            for held in [self.hold_download(), self.hold_download()]:
                held.vanish()
            self.until_succeeds(lambda: self.upload("file", b"x"))


@over("http")
class UploadRequest(WithLease):
    def put(self, changes=(), body=b"x", query="path=file", drop=()):
        """One PUT with good headers, changed."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(len(body)),
                   "Content-Digest": http_client.digest_header(body)}
        headers.update(changes)
        listed = self.client.headers(None, [(name, value) for name, value in headers.items() if name not in drop])
        target = self.client.path(self.lease.id, "/files/content") + ("?" + query if query is not None else "")
        response = http_client.send_raw(self.client.address, http_client.head("PUT", target, listed) + body, method="PUT")
        return self.client.settle(response)[0]

    def test_faults_are_reported_in_the_contracts_order(self):
        bad_type, bad_digest = {"Content-Type": "text/plain"}, {"Content-Digest": "x"}
        self.fails(self.put({**bad_type, **bad_digest}, drop=("Content-Length",)), "UNSUPPORTED_MEDIA_TYPE")
        self.fails(self.put(bad_digest, drop=("Content-Length",), body=b""), "LENGTH_REQUIRED")
        self.fails(self.put({**bad_digest, "Content-Length": str(LIMIT + 1)}, body=b""), "TRANSFER_TOO_LARGE")
        self.fails(self.put(bad_digest), "INVALID_CONTENT_DIGEST")

    def test_the_content_type_must_be_octet_stream(self):
        for value in ("", "text/plain", "application/json", "application/octet", "application/octet-stream-x", "octet-stream"):
            with self.subTest(value=value):
                self.fails(self.put({"Content-Type": value}), "UNSUPPORTED_MEDIA_TYPE")
        self.fails(self.put(drop=("Content-Type",)), "UNSUPPORTED_MEDIA_TYPE")
        self.assertIsNone(self.put({"Content-Type": "application/octet-stream"}).reason)

    def test_chunked_uploads_need_a_length(self):
        self.fails(self.put({"Transfer-Encoding": "chunked"}, body=b"1\r\nx\r\n0\r\n\r\n", drop=("Content-Length",)), "LENGTH_REQUIRED")

    def test_the_digest_must_be_one_canonical_sha256(self):
        good = http_client.digest_header(b"x")
        raw = good[len("sha-256=:"):-1]
        other_bits = raw[:-2] + chr(ord(raw[-2]) + 1) + "="
        for value in ("", raw, "sha-256=" + raw, "sha-256=:" + raw, "sha-256=:%s:," % raw, good + ", " + good, "sha-512=:%s:" % raw,
                      "SHA-256=:%s:" % raw, "sha-256=:%s:" % raw[:-1], "sha-256=:%s=:" % raw, "sha-256=: %s:" % raw,
                      "sha-256=:%s:" % other_bits, "sha-256=:%s:" % raw.replace("/", "_").replace("+", "-").rstrip("=") + "x",
                      "sha-256=::", "sha-256=:%s:;q=1" % raw, "sha-256=:%s:" % base64.b64encode(b"short").decode("ascii"),
                      "sha-256=:%s:" % base64.b64encode(b"x" * 33).decode("ascii"), "md5=:x:, " + good):
            with self.subTest(value=value):
                self.fails(self.put({"Content-Digest": value}), "INVALID_CONTENT_DIGEST")
        self.fails(self.put(drop=("Content-Digest",)), "INVALID_CONTENT_DIGEST")

    def test_path_must_be_given_once(self):
        for query in (None, "", "path=", "path=%20", "path=a&path=a", "path=a&path=b", "PATH=a", "p=a", "path", "path=%09"):
            with self.subTest(query=query):
                self.fails(self.put(query=query), "INVALID_REQUEST", PATH_MESSAGE)
                target = self.client.path(self.lease.id, "/files/content") + ("?" + query if query is not None else "")
                self.fails(self.client.call("GET", target)[0], "INVALID_REQUEST", PATH_MESSAGE)

    def test_plus_and_percent_20_are_both_a_space(self):
        self.assertIsNone(self.put(query="path=a+b").reason)
        self.assertEqual(self.output(self.lease, "ls"), "a b\n")
        self.assertIsNone(self.put(query="path=a%20b", body=b"second").reason)
        self.assertEqual(self.output(self.lease, "ls; cat 'a b'"), "a b\nsecond")
        self.assertIsNone(self.put(query="path=a%2Bb").reason)
        self.assertEqual(self.output(self.lease, "ls"), "a b\na+b\n")

    def test_bad_percent_encoding_and_bytes_are_refused(self):
        for query in ("path=%", "path=%4", "path=%zz", "path=a%00b", "path=%ff", "path=%c3%28"):
            with self.subTest(query=query):
                self.assertIn(self.put(query=query).reason, ("INVALID_REQUEST", "INVALID_PATH"))
        self.assertEqual(self.output(self.lease, "ls"), "")

    def test_a_refused_upload_is_answered_before_its_body_is_sent(self):
        headers = self.client.headers(None, [("Content-Type", "text/plain"), ("Content-Length", str(LIMIT)),
                                             ("Content-Digest", http_client.digest_header(b""))])
        target = self.client.content_path(self.lease.id, "file")
        with http_client.connect(self.client.address, 10 * cases.PATIENCE) as connection:
            connection.sendall(http_client.head("PUT", target, headers))
            self.fails(self.client.settle(http_client.read_response(connection, "PUT"))[0], "UNSUPPORTED_MEDIA_TYPE")

    def test_expect_100_continue_is_served(self):
        headers = self.client.headers(None, [("Content-Type", "application/octet-stream"), ("Content-Length", "1"),
                                             ("Content-Digest", http_client.digest_header(b"x")), ("Expect", "100-continue")])
        with http_client.connect(self.client.address, 10 * cases.PATIENCE) as connection:
            connection.sendall(http_client.head("PUT", self.client.content_path(self.lease.id, "file"), headers))
            first = connection.recv(100)
            self.assertTrue(first.startswith(b"HTTP/1.1 100 "), first)
            connection.sendall(b"x")
            self.assertIsNone(self.client.settle(http_client.read_response(connection, "PUT"))[0].reason)

    def test_nobody_holds_a_whole_file(self):
        """Peaks count, not what is left. What is needed: buffers of HTTP/2 flow control and a few messages on each hop,
        and what malloc keeps of them; measured, 13 MiB in the gateway and 8 MiB in the server."""
        parts = {"gateway": self.platform.gateway.process.pid, "server": self.platform.server.process.pid}
        content = os.urandom(MIB) * 64
        before = {name: processes.resident_kib(pid) for name, pid in parts.items()}
        for pid in parts.values():
            processes.peak_restart(pid)
        for _ in range(3):
            self.succeeds(self.upload("file", content))
            self.succeeds(self.download("file"))
        for name, pid in parts.items():
            grown = processes.peak_kib(pid) - before[name]
            self.assertLess(grown, 24 * 1024 * cases.PATIENCE, "KiB of growth of the " + name)


@over("grpc")
class UploadMessages(WithLease):
    def send(self, requests):
        return self.client.call(self.client.stub.UploadFile, iter(requests))[0]

    def data(self, content):
        return lease_pb2.UploadFileRequest(data=content)

    def info(self, size, digest):
        return self.client.upload_info(self.lease.id, "file", size, digest)

    def test_more_data_than_announced_is_refused(self):
        digest = hashlib.sha256(b"ab").digest()
        self.fails(self.send([self.info(2, digest), self.data(b"abc")]), "CONTENT_LENGTH_MISMATCH")
        self.fails(self.send([self.info(0, hashlib.sha256(b"").digest()), self.data(b"x")]), "CONTENT_LENGTH_MISMATCH")
        self.assertEqual(self.output(self.lease, "ls -A"), "")

    def test_the_first_message_must_be_info(self):
        for requests in ([], [self.data(b"x")], [lease_pb2.UploadFileRequest()]):
            self.assertEqual(self.send(requests).reason, "INVALID_REQUEST")

    def test_a_second_info_is_refused(self):
        info = self.info(1, hashlib.sha256(b"x").digest())
        self.assertEqual(self.send([info, info]).reason, "INVALID_REQUEST")
        self.assertEqual(self.output(self.lease, "ls -A"), "")

    def test_a_digest_has_32_bytes(self):
        for digest in (b"", b"x" * 31, b"x" * 33):
            self.fails(self.send([self.info(1, digest), self.data(b"x")]), "INVALID_CONTENT_DIGEST")

    def test_a_negative_size_is_refused(self):
        self.assertIn(self.send([self.info(-1, b"x" * 32)]).reason, ("INVALID_REQUEST", "CONTENT_LENGTH_MISMATCH"))

    def test_file_is_required(self):
        request = lease_pb2.UploadFileRequest(info=lease_pb2.UploadFileInfo(lease_id=self.lease.id, path="file"))
        self.assertIn(self.send([request]).reason, ("INVALID_REQUEST", "INVALID_CONTENT_DIGEST"))

    def test_chunks_of_any_size_are_taken(self):
        for size in (1, 7, 131072, MIB):
            content = random.Random(size).randbytes(min(300 * size, 3 * MIB))
            chunks = [self.data(content[start:start + size]) for start in range(0, len(content), size)]
            self.succeeds(self.send([self.info(len(content), hashlib.sha256(content).digest())] + chunks))
            self.assertTrue(self.succeeds(self.download("file")).content == content)


if __name__ == "__main__":
    cases.main()
