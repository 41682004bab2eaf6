"""Contract §3, §4, §6: acquiring, reading, releasing and deleting Leases, their idempotency and their end."""
import threading
import time

from tests.support import cases
from tests.support.cases import OTHER_POOL, POOL, Cases, only, over, settled, together

KEY_MESSAGE = "'idempotency-key' header is required"
POOL_MESSAGE = "'pool' must be a non-empty string"
NANOSECONDS = 1000000000
UNKNOWN = "lease-" + "0123456789abcdef" * 2


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


@over("http", "grpc")
class Acquire(Cases):
    def test_it_gives_a_new_active_lease(self):
        before = time.time_ns()
        answer = self.succeeds(self.client.acquire(POOL, "key"))
        after = time.time_ns()
        lease = answer.lease
        self.assertFalse(answer.value["replayed"])
        self.assertEqual((lease.pool, lease.status), (POOL, "active"))
        self.assertTrue(before <= lease.created <= after, (before, lease.created, after))
        self.assertEqual(lease.last_used, lease.created)
        self.assertEqual(self.succeeds(self.client.get(lease.id)).lease, lease)

    def test_the_default_ttl_is_900_seconds(self):
        lease = self.acquire()
        self.assertEqual(lease.expires - lease.created, 900 * NANOSECONDS)

    def test_ttl_goes_from_1_to_3600_seconds(self):
        for ttl in (1, 2, 3599, 3600):
            with self.subTest(ttl=ttl):
                lease = self.acquire(ttl=ttl)
                self.assertEqual(lease.expires - lease.created, ttl * NANOSECONDS)
                self.client.delete(lease.id)
        for ttl in (0, -1, 3601, 2 ** 31, 2 ** 32 + 1, -2 ** 53, 2 ** 53):
            with self.subTest(ttl=ttl):
                self.fails(self.client.acquire(POOL, self.fresh_key(), ttl), "INVALID_LEASE_TTL")
        self.assertEqual(self.client.list().value["leases"], [])

    def test_a_blank_pool_is_refused(self):
        for pool in ("", " ", "\t\n", "\u3000"):
            with self.subTest(pool=pool):
                self.fails(self.client.acquire(pool, "key"), "INVALID_REQUEST", POOL_MESSAGE)

    def test_an_unknown_pool_is_refused(self):
        for pool in ("nowhere", POOL.upper(), POOL + " ", " " + POOL, "x" * 5000, "\u00e9", "../" + POOL, POOL + "/"):
            with self.subTest(pool=pool):
                self.fails(self.client.acquire(pool, "key"), "UNKNOWN_POOL")

    def test_a_missing_or_blank_key_is_refused(self):
        for key in (None, "", " ", "\t"):
            with self.subTest(key=key):
                self.fails(self.client.acquire(POOL, key), "INVALID_REQUEST", KEY_MESSAGE)

    def test_a_key_has_at_most_200_bytes(self):
        lease = self.succeeds(self.client.acquire(POOL, "k" * 200)).lease
        self.assertEqual(self.succeeds(self.client.acquire(POOL, "k" * 200)).lease, lease)
        self.fails(self.client.acquire(POOL, "k" * 201), "INVALID_REQUEST", KEY_MESSAGE)

    @only("grpc")
    def test_a_key_of_200_bytes_may_be_any_text(self):
        key = "\U0001F511" * 50
        lease = self.succeeds(self.client.acquire(POOL, key)).lease
        self.assertEqual(self.succeeds(self.client.acquire(POOL, key)).lease, lease)
        self.fails(self.client.acquire(POOL, key + "x"), "INVALID_REQUEST", KEY_MESSAGE)

    def test_faults_are_reported_in_the_contracts_order(self):
        # Each line has its own fault and all that are checked later.
        self.fails(self.client.acquire(" ", None, 0), "INVALID_REQUEST", POOL_MESSAGE)
        self.fails(self.client.acquire("nowhere", None, 0), "INVALID_REQUEST", KEY_MESSAGE)
        self.fails(self.client.acquire("nowhere", "key", 0), "UNKNOWN_POOL")
        self.fails(self.client.acquire(POOL, "key", 0), "INVALID_LEASE_TTL")

    def test_the_same_key_answers_with_the_same_lease(self):
        first = self.succeeds(self.client.acquire(POOL, "key", 100))
        second = self.succeeds(self.client.acquire(POOL, "key", 100))
        third = self.succeeds(self.client.acquire(POOL, "key", 200))
        fourth = self.succeeds(self.client.acquire(POOL, "key"))
        self.assertEqual([answer.value["replayed"] for answer in (first, second, third, fourth)], [False, True, True, True])
        self.assertEqual({answer.lease for answer in (first, second, third, fourth)}, {first.lease})
        self.assertEqual({answer.raw for answer in (second, third, fourth)}, {second.raw}, "replays are byte-identical")
        self.assertEqual(self.client.list().value["leases"], [first.lease])

    def test_the_same_key_for_another_pool_is_a_conflict(self):
        lease = self.succeeds(self.client.acquire(POOL, "key")).lease
        self.fails(self.client.acquire(OTHER_POOL, "key"), "IDEMPOTENCY_CONFLICT")
        self.assertEqual(self.succeeds(self.client.acquire(POOL, "key")).lease, lease)

    def test_keys_that_differ_in_anything_are_different_keys(self):
        leases = {self.succeeds(self.client.acquire(POOL, key)).lease.id for key in ("key", "KEY", "key2", "ke")}
        self.assertEqual(len(leases), 4)

    def test_keys_belong_to_one_subject_of_one_consumer(self):
        mine = self.succeeds(self.client.acquire(POOL, "key"))
        for consumer, subject in (("alpha", self.subject + "-other"), ("beta", self.subject)):
            theirs = self.succeeds(self.client_of(consumer, subject).acquire(POOL, "key"))
            self.assertFalse(theirs.value["replayed"])
            self.assertNotEqual(theirs.lease.id, mine.lease.id)

    def test_after_release_the_key_gives_a_new_lease(self):
        seen = set()
        for end in (self.client.release, self.client.delete, self.client.release):
            answer = self.succeeds(self.client.acquire(POOL, "key"))
            self.assertFalse(answer.value["replayed"])
            self.assertNotIn(answer.lease.id, seen)
            seen.add(answer.lease.id)
            self.succeeds(end(answer.lease.id))

    def test_after_expiry_the_key_gives_a_new_lease(self):
        first = self.succeeds(self.client.acquire(POOL, "key", 1)).lease
        self.wait_expiry(first)
        second = self.succeeds(self.client.acquire(POOL, "key", 100))
        self.assertFalse(second.value["replayed"])
        self.assertNotEqual(second.lease.id, first.id)

    def test_of_many_acquires_of_one_key_at_once_one_makes_the_lease(self):
        answers = together([lambda: self.client.acquire(POOL, "key")] * 40)
        leases = {self.succeeds(answer).lease for answer in answers}
        self.assertEqual(len(leases), 1)
        self.assertEqual(sorted(answer.value["replayed"] for answer in answers), [False] + [True] * 39)
        self.assertEqual(self.client.list().value["leases"], list(leases))

    def test_of_many_acquires_of_one_key_for_two_pools_one_pool_wins(self):
        answers = together([lambda pool=pool: self.client.acquire(pool, "key") for pool in (POOL, OTHER_POOL) * 8])
        won = [answer for answer in answers if answer.reason is None]
        self.assertEqual(len({answer.lease.id for answer in won}), 1)
        self.assertEqual(sum(not answer.value["replayed"] for answer in won), 1)
        for answer in answers:
            if answer.reason is not None:
                self.fails(answer, "IDEMPOTENCY_CONFLICT")
        self.assertEqual(len(self.client.list().value["leases"]), 1)

    def test_acquires_of_different_keys_at_once_give_different_leases(self):
        answers = together([lambda key=key: self.client.acquire(POOL, "key-%d" % key) for key in range(12)])
        self.assertEqual(len({self.succeeds(answer).lease.id for answer in answers}), 12)
        self.assertFalse(any(answer.value["replayed"] for answer in answers))

    def test_acquire_and_release_of_one_key_at_once_never_give_a_dead_lease(self):
        stop = threading.Event()

        def acquire():
            seen = []
            while not stop.is_set():
                seen.append(self.succeeds(self.client.acquire(POOL, "key")))
            return seen

        def release():
            fresh = self.platform.client(self.protocol, "alpha", self.subject)
            ended = set()
            for _ in range(20):
                for lease in self.succeeds(fresh.list()).value["leases"]:
                    answer = fresh.release(lease.id)
                    if answer.reason is None:
                        self.assertNotIn(lease.id, ended)
                        ended.add(lease.id)
                    else:
                        self.gone(answer)
            stop.set()
            return ended

        acquired, ended = together([acquire, release])
        made = [answer.lease.id for answer in acquired if not answer.value["replayed"]]
        self.assertEqual(len(made), len(set(made)), "an id was given twice as new")
        self.assertLessEqual(ended, set(made))
        left = {lease.id for lease in self.client.list().value["leases"]}
        self.assertEqual(left, set(made) - ended)


@over("http", "grpc")
class OneLease(Cases):
    def test_an_unknown_id_is_not_found(self):
        for wrong in (UNKNOWN, "lease-", "lease-" + "0" * 31, "lease-" + "0" * 33, UNKNOWN.upper(), "x", "..", " ",
                      "\u00e9", "\U0001F600" * 100, "lease-%2F", "a/b", "%", "x" * 5000, "lease-" + "g" * 32):
            with self.subTest(wrong=wrong):
                for call in (self.client.get, self.client.release, self.client.delete):
                    self.fails(call(wrong), "LEASE_NOT_FOUND")

    def test_get_answers_the_same_bytes_each_time(self):
        lease = self.acquire()
        self.assertEqual(self.succeeds(self.client.get(lease.id)).raw, self.succeeds(self.client.get(lease.id)).raw)

    def test_last_used_moves_with_use(self):
        lease = self.acquire()
        uses = (lambda: self.client.exec(lease.id, "true"), lambda: self.client.write(lease.id, "f", b"x"),
                lambda: self.client.read(lease.id, "f"), lambda: self.client.upload(lease.id, "g", b"x"),
                lambda: self.client.download(lease.id, "g"))
        former = lease.last_used
        for use in uses:
            self.succeeds(use())
            now = self.succeeds(self.client.get(lease.id)).lease
            self.assertGreater(now.last_used, former)
            self.assertEqual(now._replace(last_used=0), lease._replace(last_used=0))
            former = now.last_used

    def test_release_answers_with_the_released_lease(self):
        lease = self.acquire()
        answer = self.succeeds(self.client.release(lease.id))
        self.assertEqual(answer.lease, lease._replace(status="released"))

    def test_a_lease_ends_once(self):
        for end in (self.client.release, self.client.delete):
            for again in (self.client.release, self.client.delete):
                lease = self.acquire()
                self.succeeds(end(lease.id))
                self.gone(again(lease.id))

    def test_releases_at_once_all_tell_of_the_one_end(self):
        lease = self.acquire()
        answers = together([lambda: self.client.release(lease.id), lambda: self.client.delete(lease.id)] * 8)
        self.assertTrue(any(answer.reason is None for answer in answers))
        for answer in answers:
            if answer.reason is not None:
                self.gone(answer)
            elif answer.value:
                self.assertEqual(answer.lease, lease._replace(status="released"))
        self.gone(self.client.release(lease.id))

    def use_everything(self, lease_id):
        """Every call on a Lease, as (name, answer)."""
        yield "exec", self.client.exec(lease_id, "true")
        yield "read", self.client.read(lease_id, "f")
        yield "write", self.client.write(lease_id, "f", b"x")
        yield "download", self.client.download(lease_id, "f")
        yield "upload", self.client.upload(lease_id, "f", b"x")
        yield "release", self.client.release(lease_id)
        yield "delete", self.client.delete(lease_id)

    def ended(self, lease, status):
        for name, answer in self.use_everything(lease.id):
            with self.subTest(call=name):
                self.gone(answer)
        answer = self.client.get(lease.id)
        if answer.reason is None:
            self.assertEqual(answer.lease.status, status)
        else:
            self.gone(answer)
        self.assertEqual(self.succeeds(self.client.list()).value["leases"], [])

    def test_a_released_lease_can_no_longer_be_used(self):
        lease = self.acquire()
        self.succeeds(self.client.release(lease.id))
        self.ended(lease, "released")

    def test_a_deleted_lease_can_no_longer_be_used(self):
        lease = self.acquire()
        self.succeeds(self.client.delete(lease.id))
        self.ended(lease, "released")

    def test_an_expired_lease_can_no_longer_be_used(self):
        lease = self.acquire(ttl=1)
        self.succeeds(self.client.exec(lease.id, "true"))
        self.wait_expiry(lease)
        self.ended(lease, "expired")

    def test_release_and_delete_end_running_commands(self):
        for end in (self.client.release, self.client.delete):
            lease = self.acquire()
            command = self.running_command(lease, "sleep 1000")
            self.succeeds(end(lease.id))
            self.fails(command.result(5 * cases.PATIENCE), "ABORTED")

    def test_expiry_ends_running_commands(self):
        lease = self.acquire(ttl=2)
        command = self.running_command(lease, "sleep 1000")
        self.fails(command.result(5 * cases.PATIENCE), "ABORTED")
        self.assertGreaterEqual(time.time_ns(), lease.expires)

    def test_nothing_of_a_released_lease_runs_on(self):
        for end in (self.client.release, self.client.delete):
            lease, mark = self.acquire(), self.mark()
            self.output(lease, "setsid sleep 1000 >/dev/null 2>&1 & setsid setsid sleep 1000 >/dev/null 2>&1 & true", env={"MARK": mark})
            self.alive(mark)
            self.succeeds(end(lease.id))
            self.dead(mark, 0)

    def test_two_leases_of_one_subject_share_nothing(self):
        one, two = self.acquire(), self.acquire()
        self.succeeds(self.client.write(one.id, "secret", b"of one"))
        self.fails(self.client.read(two.id, "secret"), "FILE_READ_FAILED")
        self.assertEqual(self.output(two, "ls -A"), "")

    def test_a_new_lease_finds_nothing_of_a_former_one(self):
        lease = self.acquire()
        self.output(lease, "echo x >/workspace/left; echo x >/tmp/left; echo x >/dev/shm/left || true")
        self.succeeds(self.client.release(lease.id))
        for _ in range(4):
            following = self.acquire()
            self.assertEqual(self.output(following, "find /workspace /tmp /dev/shm -name left"), "")
            self.succeeds(self.client.release(following.id))


@over("http", "grpc")
class Abandoned(Cases):
    def test_an_acquire_that_nobody_waits_for_leaves_no_more_than_the_list_shows(self):
        impatient = self.platform.client(self.protocol, "alpha", self.subject)
        for attempt in range(20):
            try:
                settled(lambda attempt=attempt: impatient.acquire(OTHER_POOL, "abandoned-%d" % attempt,
                                                                  timeout=0.002 * attempt + 0.001))
            except OSError:
                pass  # the client's own time limit
        # Whatever was made and is listed can be used and released; the module's end proves that nothing else is left.
        for lease in self.succeeds(self.client.list(limit=100)).value["leases"]:
            self.assertEqual(self.output(lease, "echo alive"), "alive\n")
            self.succeeds(self.client.release(lease.id))


if __name__ == "__main__":
    cases.main()
