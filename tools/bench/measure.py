"""What tools/bench measures: each function starts what it needs, measures, and returns rows and latency series."""
import base64
import hashlib
import http.client
import json
import os
import statistics
import subprocess
import threading
import time

from tests.support import paths
from tests.support.platform import Platform
from tests.support.stubs import lease_pb2, lease_pb2_grpc

PERCENTILES = (50, 90, 99, 99.9)
FOLDER = os.path.dirname(os.path.abspath(__file__))
TRANSFER_BYTES = 32 * 1024 * 1024
OUTPUT_BYTES = 100 * 1024 * 1024


class Row:
    """One line of the table. goal: text, or None for a figure that is only shown; met: whether it was reached."""

    def __init__(self, what, value, goal=None, met=None, detail=""):
        self.what, self.value, self.goal, self.met, self.detail = what, value, goal, met, detail


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]


def series(values):
    """Percentile points in milliseconds, from seconds."""
    steps = [i / 10 for i in range(1, 1000)]
    return [(share, percentile(values, share) * 1000) for share in steps if len(values) >= 1 / (1 - share / 100)]


def spread(values):
    """p50/p90/p99/p99.9 as text; a percentile that so few values cannot tell is left out."""
    return " / ".join("%.2f" % (percentile(values, share) * 1000) for share in PERCENTILES
                      if len(values) >= 1 / (1 - share / 100))


class Load:
    """One run of wrk."""

    def __init__(self, url, connections, seconds, method="GET", authorization=None, body=None):
        environment = dict(os.environ, LOAD_METHOD=method)
        if authorization:
            environment["LOAD_AUTHORIZATION"] = authorization
        if body is not None:
            environment["LOAD_BODY"] = body
        done = subprocess.run(["wrk", "-t1", "-c%d" % connections, "-d%ds" % seconds, "--timeout", "10s",
                               "-s", os.path.join(FOLDER, "load.lua"), url],
                              env=environment, check=True, stdout=subprocess.PIPE, text=True)
        report = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("JSON "))[5:])
        if report["errors"] or not report["requests"]:
            raise RuntimeError("load on %s: %d errors, %d answers" % (url, report["errors"], report["requests"]))
        self.rate = report["requests"] / report["seconds"]
        self.points = [(share, microseconds / 1000) for share, microseconds in report["latency"]]

    def at(self, share):
        return next(value for at, value in self.points if at == share)

    def spread(self):
        return " / ".join("%.2f" % self.at(share) for share in PERCENTILES)


class Api:
    """The /v1 API over one kept connection, as little as measuring needs."""

    def __init__(self, platform, subject="bench"):
        self.platform, self.subject = platform, subject
        self.connection = http.client.HTTPConnection(platform.address, timeout=60)
        self.keys = 0
        self.used = time.monotonic()

    def authorization(self):
        return self.platform.authorization("alpha", self.subject)

    def call(self, method, path, body=None, headers=None, expected=200):
        headers = dict(headers or {}, Authorization=self.authorization())
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        # The gateway closes a connection that was not used for a minute; a closed one is opened again.
        if time.monotonic() - self.used > 30:
            self.connection.close()
        self.used = time.monotonic()
        self.connection.request(method, path, body=body, headers=headers)
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != expected:
            raise RuntimeError("%s %s: %d %.200r" % (method, path, answer.status, content))
        return content

    def acquire(self, pool):
        self.keys += 1
        content = self.call("POST", "/v1/leases", {"pool": pool, "ttlSeconds": 3600},
                            {"Idempotency-Key": "%s-%d" % (self.subject, self.keys)}, 201)
        return json.loads(content)["lease"]["id"]

    def release(self, lease):
        self.call("POST", "/v1/leases/%s/release" % lease)

    def run(self, lease, command):
        return json.loads(self.call("POST", "/v1/leases/%s/exec" % lease, {"command": command}))

    def upload(self, lease, path, content):
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        self.call("PUT", "/v1/leases/%s/files/content?path=%s" % (lease, path), content,
                  {"Content-Type": "application/octet-stream", "Content-Digest": "sha-256=:%s:" % digest}, 204)


def timed(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def memory(pid):
    """Resident bytes of one process."""
    with open("/proc/%d/status" % pid, encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def wait_warm(platform, count):
    """Until so many agents run: the Pool has been filled."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        agents = [pid for pid in platform.sandbox_processes() if command_name(pid) == "sandboxd"]
        if len(agents) >= count:
            return
        time.sleep(0.05)
    raise RuntimeError("the Pool did not fill")


def command_name(pid):
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


# --- what is measured ---

def get_lease(platform, seconds, rounds):
    """GetLease through the gateway against the skeleton, in turn; the median of the ratios counts."""
    api = Api(platform)
    lease = api.acquire("coding")
    socket = os.path.join(platform.folder, "skeleton.sock")
    port = 18700 + os.getpid() % 1000
    server = subprocess.Popen([paths.built("tools/bench/skeleton/skeleton-server"), "unix:" + socket], stderr=subprocess.PIPE)
    server.stderr.readline()
    gateway = subprocess.Popen([paths.built("tools/bench/skeleton/skeleton-gateway"), str(port), "unix:" + socket],
                               stderr=subprocess.PIPE)
    gateway.stderr.readline()
    try:
        floor_url = "http://127.0.0.1:%d/%s" % (port, lease)
        url = "http://%s/v1/leases/%s" % (platform.address, lease)
        authorization = api.authorization()
        Load(floor_url, 64, 1)
        Load(url, 64, 1, authorization=authorization)
        pairs = []
        for _ in range(rounds):
            pairs.append((Load(floor_url, 64, seconds), Load(url, 64, seconds, authorization=authorization)))
    finally:
        gateway.kill()
        server.kill()
        gateway.wait()
        server.wait()
    ratio = statistics.median(ours.rate / floor.rate for floor, ours in pairs)
    ours = sorted((ours for _, ours in pairs), key=lambda load: load.rate)[len(pairs) // 2]
    floor = statistics.median(floor.rate for floor, _ in pairs)
    single = Load(url, 1, seconds, authorization=api.authorization())
    listing = Load("http://%s/v1/leases" % platform.address, 1, seconds, authorization=api.authorization())
    api.release(lease)
    return [
        Row("GetLease through the gateway, 64 connections, against the bare skeleton", "%.2f ×" % ratio, "≥ 0.9 ×", ratio >= 0.9,
            "%.0f/s against %.0f/s; %s ms" % (ours.rate, floor, ours.spread())),
        Row("GetLease, one client, p50", "%.2f ms" % single.at(50), "≤ 1 ms", single.at(50) <= 1, single.spread() + " ms"),
        Row("ListLeases, one client, p50", "%.2f ms" % listing.at(50), "≤ 1 ms", listing.at(50) <= 1, listing.spread() + " ms"),
    ], [("GetLease, 64 connections", ours.points), ("GetLease, 1 connection", single.points)]


def spawn_cost(api, lease):
    """What starting `sh -lc true` costs inside the sandbox: seconds one by one, and starts a second from 8 at once."""
    with open(paths.built("tools/bench/spawn-probe"), "rb") as file:
        content = file.read()
    api.upload(lease, "spawn-probe", content)
    api.run(lease, "chmod +x spawn-probe")
    one = [int(line) / 1e9 for line in api.run(lease, "./spawn-probe one 500")["stdout"].split()]
    return one


def execution(platform, pool, seconds):
    api = Api(platform)
    lease = api.acquire(pool)
    one = spawn_cost(api, lease)
    url = "http://%s/v1/leases/%s/exec" % (platform.address, lease)
    body = json.dumps({"command": "true"})
    Load(url, 1, 1, "POST", api.authorization(), body)
    single = Load(url, 1, seconds, "POST", api.authorization(), body)
    one += [int(line) / 1e9 for line in api.run(lease, "./spawn-probe one 500")["stdout"].split()]
    overhead = single.at(50) - percentile(one, 50) * 1000
    ratios = []
    for _ in range(3):
        spawn_rate = float(api.run(lease, "./spawn-probe many 8 %d" % seconds)["stdout"])
        eight = Load(url, 8, seconds, "POST", api.authorization(), body)
        ratios.append((eight.rate / spawn_rate, eight, spawn_rate))
    ratio, eight, spawn_rate = sorted(ratios, key=lambda entry: entry[0])[1]
    api.release(lease)
    limit = 1 if pool == "coding" else 8
    return [
        Row("exec `true` over its spawn inside the sandbox, p50 (%s)" % pool, "%.2f ms" % overhead, "≤ %d ms" % limit,
            overhead <= limit, "exec %s ms; spawn %s ms" % (single.spread(), spread(one))),
        Row("exec rate, 8 clients, against the sandbox's own spawn rate (%s)" % pool, "%.2f ×" % ratio, "≥ 0.6 ×",
            ratio >= 0.6, "%.0f/s against %.0f/s; %s ms" % (eight.rate, spawn_rate, eight.spread())),
    ], [("exec true (%s)" % pool, single.points), ("exec true, 8 clients (%s)" % pool, eight.points)]


def acquire_warm(platform, warm, rounds):
    api = Api(platform)
    acquires, releases = [], []
    for _ in range(rounds):
        wait_warm(platform, warm)
        leases = []
        for _ in range(warm - 4):
            taken, lease = timed(api.acquire, "coding")
            acquires.append(taken)
            leases.append(lease)
        for lease in leases:
            releases.append(timed(api.release, lease)[0])
    wait_warm(platform, warm)
    four = at_once(platform, 4)
    one = percentile(acquires, 50)
    return [
        Row("acquire from a warm Pool, p50", "%.2f ms" % (one * 1000), "≤ 5 ms", one <= 0.005, spread(acquires) + " ms"),
        Row("4 acquires at once, against one", "%.2f ×" % (four / one), "≤ 2 ×", four <= 2 * one, "%.2f ms in all" % (four * 1000)),
        Row("release, p50", "%.2f ms" % (percentile(releases, 50) * 1000), None, None, spread(releases) + " ms"),
    ], [("acquire, warm", series(acquires)), ("release", series(releases))]


def at_once(platform, count):
    """Seconds until so many acquires, started together, have all succeeded; the median of five."""
    walls = []
    for turn in range(5):
        clients = [Api(platform, "bench-%d-%d" % (turn, i)) for i in range(count)]
        for client in clients:
            client.call("GET", "/v1/leases")
        barrier = threading.Barrier(count + 1)
        leases = [None] * count

        def work(index):
            barrier.wait()
            leases[index] = clients[index].acquire("coding")

        threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        barrier.wait()
        start = time.perf_counter()
        for thread in threads:
            thread.join()
        walls.append(time.perf_counter() - start)
        for client, lease in zip(clients, leases):
            client.release(lease)
        wait_warm(platform, count + 4)
    return statistics.median(walls)


def acquire_cold(platform, count):
    api = Api(platform)
    taken = []
    for _ in range(count):
        seconds, lease = timed(api.acquire, "cold")
        taken.append(seconds)
        api.release(lease)
    middle = percentile(taken, 50)
    return [Row("acquire from an empty Pool, p50", "%.1f ms" % (middle * 1000), "≤ 25 ms", middle <= 0.025,
                spread(taken) + " ms")], [("acquire, cold", series(taken))]


def transfer(platform, pool, rounds):
    """32 MiB through curl, both ways; the digest is checked outside the measured time."""
    api = Api(platform)
    lease = api.acquire(pool)
    content = os.urandom(TRANSFER_BYTES)
    source, target = (os.path.join(platform.folder, name) for name in ("up", "down"))
    with open(source, "wb") as file:
        file.write(content)
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    url = "http://%s/v1/leases/%s/files/content?path=bulk" % (platform.address, lease)
    common = ["curl", "-sS", "--fail", "-H", "Authorization: " + api.authorization(), "-w", "%{time_total} %{http_code}"]
    up, down = [], []
    for _ in range(rounds):
        done = subprocess.run(common + ["-o", "/dev/null", "-T", source, "-H", "Content-Type: application/octet-stream",
                                        "-H", "Expect:", "-H", "Content-Digest: sha-256=:%s:" % digest, url],
                              check=True, stdout=subprocess.PIPE, text=True)
        up.append(float(done.stdout.split()[0]))
        done = subprocess.run(common + ["-o", target, url], check=True, stdout=subprocess.PIPE, text=True)
        down.append(float(done.stdout.split()[0]))
        with open(target, "rb") as file:
            if file.read() != content:
                raise RuntimeError("the file came back changed")
    api.release(lease)
    rows = []
    for name, taken in (("up", up), ("down", down)):
        rate = TRANSFER_BYTES / 1048576 / statistics.median(taken)
        rows.append(Row("32 MiB %s (%s)" % (name, pool), "%.0f MiB/s" % rate, "≥ 300 MiB/s", rate >= 300,
                        "best %.0f, worst %.0f" % (32 / min(taken), 32 / max(taken))))
    return rows, []


def output(platform):
    """100 MiB of standard output through StreamExec: every byte, and what the server grew by."""
    api = Api(platform)
    lease = api.acquire("coding")
    api.run(lease, "true")
    server = platform.server.process.pid
    before, most = memory(server), [0]
    stop = threading.Event()

    def watch():
        while not stop.wait(0.005):
            most[0] = max(most[0], memory(server))

    thread = threading.Thread(target=watch)
    thread.start()
    command = "openssl enc -aes-128-ctr -K 00112233445566778899aabbccddeeff -iv 0 -in /dev/zero 2>/dev/null | head -c %d" % OUTPUT_BYTES
    request = lease_pb2.StreamExecRequest(start=lease_pb2.StreamExecStart(
        lease_id=lease, command=lease_pb2.Command(command=command)))
    digest, total, ended = hashlib.sha256(), 0, None
    start = time.perf_counter()
    stub = lease_pb2_grpc.LeaseServiceStub(platform.channel())
    for response in stub.StreamExec(iter([request]), metadata=(("authorization", api.authorization()),)):
        if response.HasField("output"):
            if response.output.offset != total:
                raise RuntimeError("output at %d instead of %d" % (response.output.offset, total))
            digest.update(response.output.data)
            total += len(response.output.data)
        elif response.HasField("ended"):
            ended = response.ended
    taken = time.perf_counter() - start
    stop.set()
    thread.join()
    here = subprocess.run(["sh", "-c", command], check=True, stdout=subprocess.PIPE).stdout
    if total != OUTPUT_BYTES or digest.digest() != hashlib.sha256(here).digest() or ended is None or ended.stdout_bytes != total:
        raise RuntimeError("the output is not whole: %d bytes" % total)
    api.release(lease)
    growth = (most[0] - before) / 1048576
    return [Row("100 MiB of stdout through StreamExec, every byte: growth of the server", "%.1f MiB" % growth, "≤ 8 MiB",
                growth <= 8, "%.0f MiB/s" % (100 / taken))], []


def idle_memory(platform):
    both = sum(memory(part.process.pid) for part in (platform.server, platform.gateway)) / 1048576
    return [Row("server and gateway, idle, resident together", "%.1f MiB" % both, "< 30 MiB", both < 30)], []


def leases_memory(platform, count):
    """What each open Lease, once used and then idle, adds to the server."""
    api = Api(platform)
    server = platform.server.process.pid
    warm_up = [api.acquire("cold") for _ in range(20)]
    for lease in warm_up:
        api.run(lease, "true")
    before = memory(server)
    leases = []
    for _ in range(count):
        lease = api.acquire("cold")
        api.run(lease, "true")
        leases.append(lease)
    each = (memory(server) - before) / 1024 / count
    for lease in leases + warm_up:
        api.release(lease)
    return [Row("each of %d open idle Leases adds to the server" % count, "%.1f KiB" % each, "≤ 64 KiB", each <= 64)], []


def platform_for(pools):
    platform = Platform()
    platform.server.environment["SANDBOX_LOCAL_POOLS"] = json.dumps(pools)
    return platform.start()
