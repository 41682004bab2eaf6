"""Restarts and shutdown: Leases outlive the programs, running calls get their time, and nothing is answered wrongly."""
import signal
import time

from tests.support import cases, platform
from tests.support.cases import OTHER_POOL, POOL, Cases, over, settled
from tests.support.stubs import health_pb2, health_pb2_grpc


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


@over("http", "grpc")
class Restart(Cases):
    def restarts(self):
        """Every way of going away and coming back, as (name, function)."""
        return (("server killed", lambda: self.platform.restart_server(kill=True)),
                ("server stopped", lambda: self.platform.restart_server(kill=False)),
                ("gateway killed", lambda: self.platform.restart_gateway(kill=True)),
                ("gateway stopped", lambda: self.platform.restart_gateway(kill=False)))

    def test_leases_and_their_files_and_processes_outlive_it(self):
        lease = self.acquire()
        self.output(lease, "(while :; do sleep 1000; done) >/dev/null 2>&1 & echo $! >pid; echo kept >file")
        for name, restart in self.restarts():
            with self.subTest(restart=name):
                restart()
                found = self.succeeds(self.client.get(lease.id)).lease
                self.assertEqual(found._replace(last_used=0), lease._replace(last_used=0))
                self.assertEqual(self.output(lease, "kill -0 $(cat pid) && cat file"), "kept\n")
                self.assertEqual([one.id for one in self.succeeds(self.client.list()).value["leases"]], [lease.id])

    def test_an_idempotency_key_is_remembered_across_it(self):
        first = self.succeeds(self.client.acquire(POOL, "key", 500))
        for name, restart in self.restarts():
            with self.subTest(restart=name):
                restart()
                answer = self.succeeds(self.client.acquire(POOL, "key", 500))
                self.assertEqual((answer.lease, answer.value["replayed"]), (first.lease, True))
                self.fails(self.client.acquire(OTHER_POOL, "key"), "IDEMPOTENCY_CONFLICT")

    def test_strangers_are_still_strangers_after_it(self):
        lease = self.acquire()
        self.platform.restart_server(kill=True)
        self.fails(self.client_of("beta", self.subject).get(lease.id), "LEASE_NOT_FOUND")
        self.fails(self.client_of("alpha", self.subject + "-other").exec(lease.id, "true"), "LEASE_NOT_FOUND")

    def test_a_released_lease_does_not_come_back(self):
        lease = self.acquire()
        self.succeeds(self.client.release(lease.id))
        self.platform.restart_server(kill=True)
        self.gone(self.client.exec(lease.id, "true"))
        self.assertEqual(self.succeeds(self.client.list()).value["leases"], [])

    def test_a_lease_expires_while_the_server_is_dead(self):
        lease, mark = self.acquire(ttl=2), self.mark()
        self.output(lease, "setsid sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 >/dev/null 2>&1 & true", env={"MARK": mark})
        self.alive(mark)
        self.platform.server.kill()
        try:
            self.wait_expiry(lease)
            self.dead(mark, 2)
        finally:
            self.platform.start_server()
        self.gone(self.client.exec(lease.id, "true"))
        self.assertEqual(self.succeeds(self.client.list()).value["leases"], [])

    def test_while_the_server_is_away_the_gateway_says_so(self):
        if self.protocol == "grpc":
            self.skipTest("there is nobody to answer")
        lease = self.acquire()
        self.platform.server.kill()
        try:
            nobody = self.platform.client_with("http", None)
            self.assertEqual(nobody.send("GET", "/health").json(), {"status": "ok"})
            ready = nobody.send("GET", "/ready")
            self.assertEqual((ready.status, ready.json()), (503, {"status": "not_ready"}))
            self.fails(self.client.get(lease.id), "SERVER_UNAVAILABLE")
            self.fails(self.client.acquire(POOL, "key"), "SERVER_UNAVAILABLE")
        finally:
            self.platform.start_server()
        deadline = time.monotonic() + 3 * cases.PATIENCE  # the gateway connects again by itself
        while nobody.send("GET", "/ready").status != 200:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.assertEqual(self.succeeds(self.client.get(lease.id)).lease.id, lease.id)

    def test_a_call_that_was_running_breaks_and_the_lease_goes_on(self):
        lease = self.acquire()
        running = self.running_command(lease, "sleep 1000")
        self.platform.restart_server(kill=True)
        answer = settled(lambda: running.result(30 * cases.PATIENCE))
        if answer is not None:
            self.assertIn(answer.reason, ("SERVER_UNAVAILABLE", "ABORTED"), answer)
        self.assertEqual(self.output(lease, "echo alive"), "alive\n")


@over("http", "grpc")
class Shutdown(Cases):
    """Each case stops the server and starts it again."""

    def stopping(self, part):
        """Sends SIGTERM; the part goes on until its calls have ended."""
        part.process.send_signal(signal.SIGTERM)

    def tearDown(self):
        for part, start in ((self.platform.server, self.platform.start_server), (self.platform.gateway, self.platform.start_gateway)):
            if not part.alive():
                start()

    def test_a_running_command_gets_its_time_to_end(self):
        lease = self.acquire()
        for part in (self.platform.server, self.platform.gateway):
            with self.subTest(part=part.name):
                running = self.running_command(lease, "sleep 1.5; echo done")
                self.stopping(part)
                self.assertEqual(self.succeeds(running.result(15 * cases.PATIENCE)).execution.stdout, "done\n")
                self.assertEqual(part.process.wait(15 * cases.PATIENCE), 0)
                self.tearDown()

    def test_after_ten_seconds_a_command_is_aborted(self):
        lease = self.acquire()
        running = self.running_command(lease, "sleep 1000")
        started = time.monotonic()
        self.stopping(self.platform.server)
        self.fails(running.result(20 * cases.PATIENCE), "ABORTED")
        self.assertEqual(self.platform.server.process.wait(5 * cases.PATIENCE), 0)
        self.assertTrue(9 < time.monotonic() - started < 13 * cases.PATIENCE, time.monotonic() - started)

    def test_an_idle_platform_stops_at_once(self):
        for part in (self.platform.server, self.platform.gateway):
            started = time.monotonic()
            self.assertEqual(part.terminate(), 0)
            self.assertLess(time.monotonic() - started, 4 * cases.PATIENCE)
            self.tearDown()

    def test_health_says_that_it_is_stopping(self):
        if self.protocol == "http":
            self.skipTest("health of the gRPC server")
        lease = self.acquire()
        watch = health_pb2_grpc.HealthStub(self.client.channel).Watch(health_pb2.HealthCheckRequest(), timeout=30)
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
        running = self.running_command(lease, "sleep 1.5")
        self.stopping(self.platform.server)
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.NOT_SERVING)
        self.succeeds(running.result(15 * cases.PATIENCE))
        self.platform.server.process.wait(15 * cases.PATIENCE)
        watch.cancel()

    def test_a_second_signal_ends_it_at_once(self):
        lease = self.acquire()
        running = self.running_command(lease, "sleep 1000")
        started = time.monotonic()
        self.stopping(self.platform.server)
        self.platform.server.log.wait("stopping", 10)
        self.stopping(self.platform.server)
        self.assertIn(self.platform.server.process.wait(5 * cases.PATIENCE), (143,))
        self.assertLess(time.monotonic() - started, 5 * cases.PATIENCE)
        settled(lambda: running.result(10 * cases.PATIENCE))


@over("http")
class Start(Cases):
    """A bad setting stops the start with one line that names it, and shows no secret."""

    def refused(self, name, value, program="server"):
        bad = platform.Platform(**{program: {name: value}})
        part = bad.server if program == "server" else bad.gateway
        try:
            part.spawn()
            code = part.process.wait(20 * cases.PATIENCE)
            part.log.join(5)
            text = part.log.text()
            self.assertNotEqual(code, 0)
            self.assertEqual(len(part.log.lines), 1, text)
            self.assertIn(name, text)
            self.assertNotIn("secret-", text)
            if value and "secret" in name.lower():
                self.assertNotIn(value, text)
        finally:
            bad.abandon()

    def test_missing_and_bad_settings_of_the_server(self):
        for name, value in (("SANDBOX_METADATA_SECRET", None), ("SANDBOX_METADATA_SECRET", ""), ("SANDBOX_CONSUMER_SECRETS", None),
                            ("SANDBOX_CONSUMER_SECRETS", "no json"), ("SANDBOX_CONSUMER_SECRETS", "{}"), ("SANDBOX_CONSUMER_SECRETS", '{"a":""}'),
                            ("SANDBOX_CONSUMER_SECRETS", '{"a":1,"b":"hidden-value"}'), ("SANDBOX_BACKEND", None), ("SANDBOX_BACKEND", "nothing"),
                            ("SANDBOX_GRPC_ADDRESS", "nonsense"), ("SANDBOX_DEFAULT_TTL_SECONDS", "0"), ("SANDBOX_DEFAULT_TTL_SECONDS", "x"),
                            ("SANDBOX_MAX_TTL_SECONDS", "3601"), ("SANDBOX_SWEEP_INTERVAL", "1"), ("SANDBOX_SWEEP_INTERVAL", "-1s"),
                            ("SANDBOX_FILE_TRANSFER_MAX_CONCURRENT", "0"), ("SANDBOX_FILE_TRANSFER_MAX_PER_LEASE", "1.5"),
                            ("SANDBOX_FILE_TRANSFER_TIMEOUT", "soon")):
            with self.subTest(name=name, value=value):
                self.refused(name, value)

    def test_bad_settings_of_the_gateway(self):
        for name, value in (("SANDBOX_ADDRESS", "nonsense"), ("SANDBOX_ADDRESS", "127.0.0.1:70000"), ("SANDBOX_GRPC_ADDRESS", "")):
            with self.subTest(name=name, value=value):
                self.refused(name, value, "gateway")

    def test_an_address_in_use_is_named(self):
        other = platform.Platform(gateway={"SANDBOX_ADDRESS": self.platform.address})
        try:
            other.gateway.spawn()
            self.assertNotEqual(other.gateway.process.wait(20 * cases.PATIENCE), 0)
            other.gateway.log.join(5)
            self.assertIn(self.platform.address, other.gateway.log.text())
        finally:
            other.abandon()

    def test_a_second_server_does_not_take_the_socket_of_the_first(self):
        lease = self.acquire()
        second = platform.Platform(server={"SANDBOX_GRPC_ADDRESS": self.platform.socket})
        try:
            second.server.spawn()
            self.assertNotEqual(second.server.process.wait(20 * cases.PATIENCE), 0)
        finally:
            second.abandon()
        self.assertEqual(self.output(lease, "echo alive"), "alive\n")


if __name__ == "__main__":
    cases.main()
