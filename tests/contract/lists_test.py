"""Contract §5: lists, pages and cursors."""
import base64
import random

from tests.support import cases, platform
from tests.support.cases import OTHER_POOL, POOL, Cases, only, over

LIMIT_MESSAGE = "limit must be an integer between 1 and 100"


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


@over("http", "grpc")
class List(Cases):
    def acquire_many(self, count, pool=POOL):
        return [self.acquire(pool) for _ in range(count)]

    def pages(self, client=None, **options):
        """The Leases of every page, walked to the end."""
        found, cursor = [], None
        while True:
            answer = self.succeeds((client or self.client).list(cursor=cursor, **options))
            found.append(answer.value["leases"])
            cursor = answer.value["cursor"]
            if cursor is None:
                return found

    def test_an_empty_scope_lists_nothing(self):
        answer = self.succeeds(self.client.list())
        self.assertEqual((answer.value["leases"], answer.value["cursor"]), ([], None))

    def test_active_leases_are_listed_oldest_first(self):
        leases = self.acquire_many(4)
        self.assertEqual(self.succeeds(self.client.list()).value["leases"], leases)
        self.succeeds(self.client.release(leases[1].id))
        self.assertEqual(self.succeeds(self.client.list()).value["leases"], leases[:1] + leases[2:])

    def test_expired_leases_are_not_listed(self):
        short, long = self.acquire(ttl=1), self.acquire(ttl=100)
        self.wait_expiry(short)
        self.assertEqual(self.succeeds(self.client.list()).value["leases"], [long])

    def test_a_pool_filters(self):
        first, second = self.acquire(POOL), self.acquire(OTHER_POOL)
        self.assertEqual(self.succeeds(self.client.list(pool=POOL)).value["leases"], [first])
        self.assertEqual(self.succeeds(self.client.list(pool=OTHER_POOL)).value["leases"], [second])
        self.fails(self.client.list(pool="nowhere"), "UNKNOWN_POOL")
        self.fails(self.client.list(pool=POOL + " "), "UNKNOWN_POOL")

    def test_pages_have_the_size_asked_for_and_give_each_lease_once(self):
        leases = self.acquire_many(5)
        for limit in (1, 2, 3, 4, 5, 6, 100):
            with self.subTest(limit=limit):
                found = self.pages(limit=limit)
                self.assertEqual(sum(found, []), leases)
                self.assertTrue(all(len(page) == limit for page in found[:-1]))
                self.assertLessEqual(len(found), 5 // limit + 1)

    def test_a_page_has_50_leases_unless_another_size_is_asked_for(self):
        leases = self.acquire_many(51)
        answer = self.succeeds(self.client.list())
        self.assertEqual(answer.value["leases"], leases[:50])
        self.assertEqual(self.succeeds(self.client.list(cursor=answer.value["cursor"])).value["leases"], leases[50:])

    def test_limit_goes_from_1_to_100(self):
        for limit in (1, 100):
            self.succeeds(self.client.list(limit=limit))
        for limit in (0, -1, 101, 2 ** 31, 2 ** 53):
            with self.subTest(limit=limit):
                self.fails(self.client.list(limit=limit), "INVALID_REQUEST", LIMIT_MESSAGE)

    @only("http")
    def test_limit_is_canonical_decimal(self):
        for limit in ("01", "+1", " 1", "1 ", "1.0", "1e1", "0x1", "abc", "-0", "\u0661", "1" * 30):
            with self.subTest(limit=limit):
                self.fails(self.client.list(limit=limit), "INVALID_REQUEST", LIMIT_MESSAGE)

    def test_blank_parameters_are_refused(self):
        for options in ({"pool": ""}, {"pool": " "}, {"cursor": ""}):
            with self.subTest(options=options):
                self.assertIn(self.client.list(**options).reason, ("INVALID_REQUEST",))

    @only("http")
    def test_repeated_and_unknown_parameters_are_refused(self):
        for query in ("limit=1&limit=1", "limit=1&limit=2", "pool=%s&pool=%s" % (POOL, POOL), "cursor=a&cursor=a",
                      "limt=1", "LIMIT=1", "limit", "limit=", "pool=", "cursor=", "x", "=", "=1", "limit=1&x=",
                      "limit%00=1"):
            with self.subTest(query=query):
                answer, _ = self.client.call("GET", "/v1/leases?" + query)
                self.assertEqual(answer.reason, "INVALID_REQUEST", answer)

    @only("http")
    def test_an_empty_query_is_no_query(self):
        self.assertIsNone(self.client.call("GET", "/v1/leases?")[0].reason)

    def first_page(self, **options):
        """A first page of one Lease of two or more; returns its cursor."""
        answer = self.succeeds(self.client.list(limit=1, **options))
        self.assertIsNotNone(answer.value["cursor"])
        return answer.value["cursor"]

    def test_a_cursor_is_base64url_and_tells_nothing(self):
        lease, _ = self.acquire_many(2)
        cursor = self.first_page()
        self.assertRegex(cursor, r"\A[A-Za-z0-9_-]{1,8192}\Z")
        sealed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        for known in (lease.id, lease.id[6:], self.subject, "alpha", POOL):
            self.assertNotIn(known.encode("utf-8"), sealed)
        self.assertNotEqual(self.first_page(), cursor, "a fresh nonce for each cursor")

    def test_a_cursor_may_be_used_again(self):
        leases = self.acquire_many(3)
        cursor = self.first_page()
        for _ in range(3):
            self.assertEqual(self.succeeds(self.client.list(limit=1, cursor=cursor)).value["leases"], leases[1:2])

    def test_a_cursor_changed_anywhere_is_refused(self):
        self.acquire_many(2)
        cursor = self.first_page()
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        changed = [cursor[:place] + alphabet[alphabet.index(letter) ^ 1] + cursor[place + 1:]
                   for place, letter in enumerate(cursor)]
        changed += [cursor[:length] for length in range(1, len(cursor))]
        changed += [cursor + "A", cursor + "=", "A" + cursor, cursor * 2, "x", "A" * 8192, "A" * 8193, "A" * 20000, "\u00e9",
                    cursor.replace("_", "/").replace("-", "+") + "/", " " + cursor, cursor + " ",
                    base64.urlsafe_b64encode(random.Random(7).randbytes(100)).decode("ascii").rstrip("=")]
        for wrong in changed:
            answer = self.client.list(limit=1, cursor=wrong)
            self.assertEqual((answer.reason, answer.message), ("INVALID_CURSOR", "Invalid list cursor"), wrong)

    def test_a_cursor_is_good_for_its_own_scope_filter_and_limit_alone(self):
        self.acquire_many(2)
        plain, filtered = self.first_page(), self.first_page(pool=POOL)
        self.fails(self.client.list(limit=2, cursor=plain), "INVALID_CURSOR")
        self.fails(self.client.list(cursor=plain), "INVALID_CURSOR")
        self.fails(self.client.list(limit=1, pool=POOL, cursor=plain), "INVALID_CURSOR")
        self.fails(self.client.list(limit=1, cursor=filtered), "INVALID_CURSOR")
        self.fails(self.client.list(limit=1, pool=OTHER_POOL, cursor=filtered), "INVALID_CURSOR")
        self.succeeds(self.client.list(limit=1, pool=POOL, cursor=filtered))
        for consumer, subject in (("alpha", self.subject + "-other"), ("beta", self.subject)):
            self.fails(self.client_of(consumer, subject).list(limit=1, cursor=plain), "INVALID_CURSOR")

    def test_a_cursor_of_one_protocol_is_good_for_the_other(self):
        leases = self.acquire_many(2)
        other = self.platform.client("grpc" if self.protocol == "http" else "http", "alpha", self.subject)
        self.assertEqual(self.succeeds(other.list(limit=1, cursor=self.first_page())).value["leases"], leases[1:])

    def test_a_cursor_survives_the_end_of_its_lease(self):
        leases = self.acquire_many(3)
        cursor = self.first_page()
        self.succeeds(self.client.release(leases[0].id))
        answer = self.client.list(limit=1, cursor=cursor)
        if answer.reason is None:
            self.assertEqual(answer.value["leases"], leases[1:2])
        else:
            self.fails(answer, "CURSOR_EXPIRED")

    def test_later_pages_leave_out_what_has_ended(self):
        leases = self.acquire_many(4)
        cursor = self.first_page()
        self.succeeds(self.client.release(leases[1].id))
        self.assertEqual(self.succeeds(self.client.list(limit=1, cursor=cursor)).value["leases"], leases[2:3])

    def test_leases_acquired_meanwhile_never_make_a_page_repeat_or_miss_one(self):
        leases = self.acquire_many(3)
        cursor, found = self.first_page(), []
        while cursor is not None:
            leases.append(self.acquire()) if len(leases) < 6 else None
            answer = self.succeeds(self.client.list(limit=1, cursor=cursor))
            found += answer.value["leases"]
            cursor = answer.value["cursor"]
        self.assertEqual(found[:2], leases[1:3])
        self.assertEqual(len(found), len(set(found)))

    def test_a_cursor_is_good_after_a_restart_and_at_another_gateway(self):
        leases = self.acquire_many(3)
        cursor = self.first_page()
        self.platform.restart_server(kill=True)
        self.platform.restart_gateway(kill=True)
        self.assertEqual(self.succeeds(self.client.list(limit=1, cursor=cursor)).value["leases"], leases[1:2])

    def test_a_cursor_of_another_metadata_secret_is_refused(self):
        self.acquire_many(2)
        cursor = self.first_page()
        stranger = platform.Platform(server={"SANDBOX_METADATA_SECRET": "another-secret-c4ca4238a0b923820dcc509a6f75849b"})
        try:
            stranger.start()
            self.fails(stranger.client(self.protocol, "alpha", self.subject).list(limit=1, cursor=cursor), "INVALID_CURSOR")
        finally:
            stranger.stop()


if __name__ == "__main__":
    cases.main()
