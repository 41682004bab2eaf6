"""Contract §4, §7, §8: what an operator limits: Leases of a Subject and of a Consumer, TTL, transfers and their time."""
import time

from tests.support import cases
from tests.support.cases import POOL, Cases, over, together
from tests.support.held import Held


def setUpModule():
    cases.start_platform(server={
        "SANDBOX_MAX_LEASES_PER_SUBJECT": "3", "SANDBOX_MAX_LEASES_PER_CONSUMER": "5", "SANDBOX_MAX_TTL_SECONDS": "600",
        "SANDBOX_DEFAULT_TTL_SECONDS": "60", "SANDBOX_FILE_TRANSFER_MAX_CONCURRENT": "3",
        "SANDBOX_FILE_TRANSFER_MAX_PER_LEASE": "1", "SANDBOX_FILE_TRANSFER_TIMEOUT": "2s"})


def tearDownModule():
    cases.stop_platform()


@over("http", "grpc")
class Quota(Cases):
    def test_a_subject_has_so_many_leases_and_no_more(self):
        leases = [self.acquire() for _ in range(3)]
        self.fails(self.client.acquire(POOL, "fourth"), "LEASE_QUOTA_EXCEEDED")
        self.assertEqual(self.succeeds(self.client.list()).value["leases"], leases)

    def test_release_delete_and_expiry_give_the_place_back(self):
        self.acquire(), self.acquire()
        for ttl, end in ((100, self.client.release), (100, self.client.delete), (1, None)):
            lease = self.acquire(ttl=ttl)
            self.fails(self.client.acquire(POOL, "one more"), "LEASE_QUOTA_EXCEEDED")
            self.succeeds(end(lease.id)) if end else self.wait_expiry(lease)
        self.acquire()

    def test_a_replay_needs_no_place(self):
        first = self.succeeds(self.client.acquire(POOL, "key"))
        self.acquire(), self.acquire()
        self.fails(self.client.acquire(POOL, "other"), "LEASE_QUOTA_EXCEEDED")
        self.assertEqual(self.succeeds(self.client.acquire(POOL, "key")).lease, first.lease)

    def test_a_refused_acquire_can_be_asked_again_later(self):
        leases = [self.acquire() for _ in range(3)]
        self.fails(self.client.acquire(POOL, "key"), "LEASE_QUOTA_EXCEEDED")
        self.succeeds(self.client.release(leases[0].id))
        self.assertFalse(self.succeeds(self.client.acquire(POOL, "key")).value["replayed"])

    def test_of_many_acquires_at_once_as_many_succeed_as_there_are_places(self):
        for _ in range(3):
            answers = together([lambda key=key: self.client.acquire(POOL, "key-%d" % key) for key in range(12)])
            won = [answer for answer in answers if answer.reason is None]
            for answer in answers:
                if answer.reason is not None:
                    self.fails(answer, "LEASE_QUOTA_EXCEEDED")
            self.assertEqual(len(won), 3)
            together([lambda answer=answer: self.succeeds(self.client.release(answer.lease.id)) for answer in won])

    def test_all_subjects_of_a_consumer_share_its_quota(self):
        one, two = (self.client_of("beta", self.subject + name) for name in ("-1", "-2"))
        for client, count in ((one, 3), (two, 2)):
            for number in range(count):
                self.succeeds(client.acquire(POOL, "key-%d" % number))
        self.fails(two.acquire(POOL, "too many"), "LEASE_QUOTA_EXCEEDED")
        self.acquire()  # another Consumer has its own

    def test_the_quota_holds_across_a_restart(self):
        leases = [self.acquire() for _ in range(3)]
        self.platform.restart_server(kill=True)
        self.fails(self.client.acquire(POOL, "fourth"), "LEASE_QUOTA_EXCEEDED")
        self.succeeds(self.client.release(leases[0].id))
        self.acquire()


@over("http", "grpc")
class Ttl(Cases):
    def test_the_operator_sets_default_and_maximum(self):
        lease = self.acquire()
        self.assertEqual(lease.expires - lease.created, 60 * 10 ** 9)
        self.assertEqual(self.acquire(ttl=600).status, "active")
        self.fails(self.client.acquire(POOL, "key", 601), "INVALID_LEASE_TTL", "ttlSeconds must be an integer between 1 and 600")


@over("http", "grpc")
class TransferTime(Cases):
    def setUp(self):
        super().setUp()
        self.lease = self.acquire()

    def test_an_upload_out_of_time_is_aborted_and_leaves_the_old_file(self):
        self.succeeds(self.client.upload(self.lease.id, "held", b"old"))
        answer = Held(self, self.client, self.lease).upload().answer()
        self.fails(answer, "ABORTED")
        self.assertEqual(self.output(self.lease, "ls -A; cat held"), "held\nold")

    def test_a_download_out_of_time_is_cut(self):
        self.output(self.lease, "head -c 67108864 /dev/zero >big")
        held = Held(self, self.client, self.lease).download("big")
        time.sleep(2.2)  # the passing of its time is the event; nobody reads meanwhile
        self.assertTrue(held.cut())

    def test_the_operator_sets_how_many_at_once(self):
        self.output(self.lease, "head -c 67108864 /dev/zero >big")
        held = Held(self, self.client, self.lease).download("big")
        self.addCleanup(held.vanish)
        self.fails(self.client.upload(self.lease.id, "file", b"x"), "TRANSFER_LIMIT_REACHED")
        other = self.acquire()
        self.succeeds(self.client.upload(other.id, "file", b"x"))


if __name__ == "__main__":
    cases.main()
