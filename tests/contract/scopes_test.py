"""Contract §2, §6: nobody reaches a Lease of another Subject or Consumer, and nobody can tell that it exists."""
from tests.support import cases
from tests.support.cases import POOL, Cases, over

UNKNOWN = "lease-" + "0123456789abcdef" * 2


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


@over("http", "grpc")
class Strangers(Cases):
    def setUp(self):
        super().setUp()
        self.lease = self.acquire()
        self.succeeds(self.client.write(self.lease.id, "mine", b"mine"))
        # The same Subject name at another Consumer; another Subject of the same Consumer; names that would collide if the
        # two were put together carelessly.
        self.strangers = [self.client_of(*scope) for scope in (
            ("alpha", self.subject + "-other"), ("beta", self.subject), ("beta", "alpha"), ("alpha", self.subject + " "),
            ("alpha", " " + self.subject), ("alpha", self.subject.upper()), ("alpha", self.subject + "\u200b"))]

    def refused(self, name, call):
        """`call` takes a client and an id."""
        for place, stranger in enumerate(self.strangers):
            with self.subTest(call=name, stranger=place):
                answer = self.fails(call(stranger, self.lease.id), "LEASE_NOT_FOUND")
                self.assertEqual(answer.raw, call(stranger, UNKNOWN).raw, "told apart from a Lease that does not exist")

    def unharmed(self):
        self.assertEqual(self.succeeds(self.client.read(self.lease.id, "mine")).content, b"mine")
        self.assertEqual(self.output(self.lease, "ls -A"), "mine\n")

    def test_they_cannot_get_it(self):
        self.refused("get", lambda client, lease_id: client.get(lease_id))

    def test_they_cannot_list_it(self):
        for stranger in self.strangers:
            self.assertEqual(self.succeeds(stranger.list()).value["leases"], [])
            self.assertEqual(self.succeeds(stranger.list(pool=POOL)).value["leases"], [])

    def test_they_cannot_release_it(self):
        self.refused("release", lambda client, lease_id: client.release(lease_id))
        self.unharmed()

    def test_they_cannot_delete_it(self):
        self.refused("delete", lambda client, lease_id: client.delete(lease_id))
        self.unharmed()

    def test_they_cannot_run_commands_in_it(self):
        self.refused("exec", lambda client, lease_id: client.exec(lease_id, "touch /workspace/theirs"))
        self.unharmed()

    def test_they_cannot_read_its_files(self):
        self.refused("read", lambda client, lease_id: client.read(lease_id, "mine"))
        self.refused("read of nothing", lambda client, lease_id: client.read(lease_id, "nothing"))

    def test_they_cannot_write_its_files(self):
        self.refused("write", lambda client, lease_id: client.write(lease_id, "mine", b"theirs"))
        self.unharmed()

    def test_they_cannot_download_its_files(self):
        self.refused("download", lambda client, lease_id: client.download(lease_id, "mine"))

    def test_they_cannot_upload_its_files(self):
        self.refused("upload", lambda client, lease_id: client.upload(lease_id, "mine", b"theirs"))
        self.unharmed()

    def test_its_idempotency_key_gives_them_leases_of_their_own(self):
        mine = self.succeeds(self.client.acquire(POOL, "shared-key"))
        for stranger in self.strangers:
            theirs = self.succeeds(stranger.acquire(POOL, "shared-key"))
            self.assertFalse(theirs.value["replayed"])
            self.assertNotEqual(theirs.lease.id, mine.lease.id)
            again = self.succeeds(stranger.acquire(POOL, "shared-key"))
            self.assertEqual((again.lease, again.value["replayed"]), (theirs.lease, True))
        self.assertEqual(self.succeeds(self.client.acquire(POOL, "shared-key")).lease, mine.lease)

    def test_bad_requests_about_it_tell_them_nothing(self):
        # A rule on the request itself is checked before the Lease is looked up, so both ids give the same.
        for name, call in (("blank command", lambda client, lease_id: client.exec(lease_id, " ")),
                           ("cwd outside", lambda client, lease_id: client.exec(lease_id, "true", cwd="/etc")),
                           ("path outside", lambda client, lease_id: client.read(lease_id, "/etc/passwd")),
                           ("blank path", lambda client, lease_id: client.write(lease_id, " ", b""))):
            for stranger in self.strangers[:2]:
                with self.subTest(call=name):
                    self.assertEqual(call(stranger, self.lease.id).raw, call(stranger, UNKNOWN).raw)

    def test_a_released_lease_looks_unknown_to_them(self):
        self.succeeds(self.client.release(self.lease.id))
        for name, call in (("get", lambda client, lease_id: client.get(lease_id)),
                           ("release", lambda client, lease_id: client.release(lease_id)),
                           ("exec", lambda client, lease_id: client.exec(lease_id, "true"))):
            self.refused(name, call)


if __name__ == "__main__":
    cases.main()
