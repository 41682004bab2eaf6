"""A whole platform for one test: lease-server and lease-gateway from the build, on their own addresses, with a state
folder of their own; started, killed, restarted and stopped part by part; and at the end proof that nothing is left.

Everything waits on events: a line in a log, the end of a process. Other backends: SANDBOX_TEST_SERVER_ENVIRONMENT is a
JSON object of settings that replaces those of the local backend; SANDBOX_TEST_POOL and SANDBOX_TEST_OTHER_POOL name two
Pools of it. SANDBOX_TEST_RUNTIME=gvisor has the local backend run gVisor; SANDBOX_TEST_USER=uid has
lease-server run as that user and not as root. SANDBOX_TEST_PATIENCE multiplies every waiting time (sanitizers, slow
machines).
"""
import json
import os
import shutil
import signal
import subprocess
import tempfile

from tests.support import grpc_client, http_client, logs, paths, processes, tokens

PATIENCE = float(os.environ.get("SANDBOX_TEST_PATIENCE", "1"))
POOL = os.environ.get("SANDBOX_TEST_POOL", "coding")
RUNTIME = os.environ.get("SANDBOX_TEST_RUNTIME", "bubblewrap")
USER = int(os.environ.get("SANDBOX_TEST_USER", "0")) if os.geteuid() == 0 else 0
OTHER_POOL = os.environ.get("SANDBOX_TEST_OTHER_POOL", "other")

# Long, so that finding one in a log means something.
SECRETS = {
    "alpha": "alpha-secret-0a1b2c3d4e5f60718293a4b5c6d7e8f9",
    "beta": "beta-secret-f9e8d7c6b5a4938271605f4e3d2c1b0a",
    "rotating": ["rotating-secret-of-yesterday-5d41402abc4b2a76", "rotating-secret-of-today-7d793037a0760186"],
    "\U0001F600" * 200: "smiling-secret-d3b07384d113edec49eaa6238ad5ff00",
}
METADATA_SECRET = "metadata-secret-9e107d9d372bb6826bd81d3542a419d6"


class StartFailed(AssertionError):
    """A part did not become ready; the text has its log."""


class Part:
    """One program."""

    def __init__(self, name, program, environment, ready_event, wrap=()):
        self.name = name
        self.argv = list(wrap) + [paths.built(program)]
        self.environment = environment
        self.ready_event = ready_event
        self.process = None
        self.log = None
        self.former_logs = []

    def spawn(self):
        if self.log:
            self.former_logs.append(self.log)
        self.process = subprocess.Popen(self.argv, env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        self.log = logs.Log(self.name, self.process.stderr)

    def wait_ready(self):
        """Returns the log's entry that says so."""
        entry = self.log.wait(self.ready_event, 60 * PATIENCE)
        if entry is None:
            raise StartFailed("%s did not become ready:\n%s" % (self.name, self.log.text()))
        return entry

    def start(self):
        self.spawn()
        return self.wait_ready()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """SIGKILL, and waits for the end."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def terminate(self, seconds=30):
        """SIGTERM; returns the exit code."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds * PATIENCE)

    def logged(self):
        return [log for log in self.former_logs + [self.log] if log]


class Platform:
    """The parts, and clients for them. A second one may run beside the first: it then answers only for the processes
    below its own programs, and the first one's end shows the rest."""

    first = None

    def __init__(self, server=None, gateway=None, wrap_server=()):
        """server, gateway: settings on top of the usual ones (None as a value removes one)."""
        if Platform.first is None:
            Platform.first = self
        processes.adopt_orphans()
        self.folder = tempfile.mkdtemp(prefix="asp-")
        self.cgroup = "/" + os.path.basename(self.folder)  # of its own: other platforms on this machine come and go
        self.state = os.path.join(self.folder, "state")
        self.socket = "unix:" + os.path.join(self.folder, "server.sock")
        self.address = None
        self.open_channel = None
        self.scopes = 0
        self.server = Part("lease-server", "server/lease-server", self.server_environment(server), "started",
                           wrap_server)
        self.gateway = Part("lease-gateway", "gateway/lease-gateway", self.gateway_environment(gateway),
                            "gateway_listening")
        if USER:
            self.give_server_to(USER)

    def give_server_to(self, uid):
        """Programs are copied: a user who is not root may not be able to see those of the build."""
        programs = os.path.join(self.folder, "bin")
        os.mkdir(programs)
        for program in ("server/lease-server", "backend/local/sandbox-launcher", "backend/sandboxd/sandboxd"):
            shutil.copy(paths.built(program), programs)
        for folder in (programs, self.folder):
            os.chmod(folder, 0o755)
            os.chown(folder, uid, uid)
        self.server.argv[-1] = os.path.join(programs, "lease-server")
        self.server.argv[:0] = ["/usr/bin/setpriv", "--reuid=%d" % uid, "--regid=%d" % uid, "--clear-groups"]

    # --- settings ---

    @staticmethod
    def _environment(settings, extra):
        found = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                found[name] = os.environ[name]
        found.update(settings)
        found.update(extra or {})
        return {name: value for name, value in found.items() if value is not None}

    def server_environment(self, extra):
        settings = {"SANDBOX_GRPC_ADDRESS": self.socket, "SANDBOX_METADATA_SECRET": METADATA_SECRET,
                    "SANDBOX_CONSUMER_SECRETS": json.dumps(SECRETS)}
        given = os.environ.get("SANDBOX_TEST_SERVER_ENVIRONMENT")
        settings.update(json.loads(given) if given else self.local_backend())
        return self._environment(settings, extra)

    def local_backend(self, pools=None):
        return {
            "SANDBOX_BACKEND": "local",
            "SANDBOX_LOCAL_STATE_DIR": self.state,
            "SANDBOX_LOCAL_CGROUP": self.cgroup,
            "SANDBOX_LOCAL_POOLS": json.dumps(pools or {
                POOL: {"runtime": RUNTIME, "warm": 2}, OTHER_POOL: {"runtime": RUNTIME, "warm": 1}}),
        }

    def gateway_environment(self, extra):
        return self._environment({"SANDBOX_ADDRESS": "127.0.0.1:0", "SANDBOX_GRPC_ADDRESS": self.socket}, extra)

    # --- life ---

    def start(self):
        try:
            self.start_server()
            self.start_gateway()
        except BaseException:
            self.abandon()
            raise
        return self

    def start_server(self):
        self.close_channel()
        self.server.start()
        self.close_channel()  # one that was opened meanwhile would wait before it tries again

    def start_gateway(self):
        """The first time on any free port, later on the same one."""
        entry = self.gateway.start()
        self.address = entry["address"]
        self.gateway.environment["SANDBOX_ADDRESS"] = self.address

    def restart_server(self, kill=True):
        self.server.kill() if kill else self.server.terminate()
        self.start_server()

    def restart_gateway(self, kill=True):
        self.gateway.kill() if kill else self.gateway.terminate()
        self.start_gateway()

    def abandon(self):
        """Ends whatever runs, by force."""
        for _ in range(8):
            left = self.sandbox_processes()
            for part in (self.gateway, self.server):
                part.kill()
            if not left:
                break
            for pid in left:
                processes.kill(pid)
            processes.wait_gone(left, 5)
        others = (Platform.first.gateway, Platform.first.server) if Platform.first else ()
        processes.reap_orphans(keep={part.process.pid for part in others if part.process})
        processes.remove_cgroups(self.cgroup)
        shutil.rmtree(self.folder, ignore_errors=True)
        if Platform.first is self:
            Platform.first = None

    # --- clients ---

    def authorization(self, consumer, subject):
        secret = SECRETS[consumer]
        secret = secret[-1] if isinstance(secret, list) else secret
        return "Bearer " + tokens.mint(consumer, subject, secret)

    def client(self, protocol, consumer="alpha", subject="subject"):
        """A client for one scope; its token is minted afresh for each call."""
        return self.client_with(protocol, lambda: self.authorization(consumer, subject))

    def client_with(self, protocol, authorization):
        if protocol == "http":
            return http_client.HttpClient(self.address, authorization, timeout=60 * PATIENCE)
        return grpc_client.GrpcClient(self.channel, authorization, timeout=60 * PATIENCE)

    def channel(self):
        """A channel to the server that runs now: a former server's connections are not used again."""
        if self.open_channel is None:
            self.open_channel = grpc_client.channel(self.socket)
        return self.open_channel

    def close_channel(self):
        if self.open_channel is not None:
            self.open_channel.close()
        self.open_channel = None

    def fresh_subject(self):
        self.scopes += 1
        return "subject-%d" % self.scopes

    # --- what runs ---

    def marked(self, mark):
        """The processes that commands with MARK=<mark> in their environment have started, wherever they hide."""
        return processes.with_variable(self.sandbox_processes(), "MARK=" + mark)

    def sandbox_processes(self):
        """Every process of ours that is neither server nor gateway: sandboxes and what is in them. A killed server's are
        found too, for the test is then their parent."""
        own = [part.process.pid for part in (self.server, self.gateway) if part.process]
        roots = [os.getpid()] if Platform.first is self else own
        return [pid for root in roots for pid in processes.descendants(root) if pid not in own]

    # --- the end ---

    def stop(self):
        """Stops everything and returns a list of what is wrong: what was left behind, what stands in the logs."""
        problems = []
        self.close_channel()
        try:
            for part in (self.gateway, self.server):
                if part.alive():
                    code = part.terminate()
                    if code != 0:
                        problems.append("%s ended with %d on SIGTERM" % (part.name, code))
                elif part.process:
                    problems.append("%s had ended by itself with %d" % (part.name, part.process.returncode))
            problems += self.leftovers()
            problems += self.log_problems()
            return problems
        finally:
            self.abandon()

    def leftovers(self):
        left = processes.wait_gone(self.sandbox_processes(), 10 * PATIENCE)
        problems = ["left running: " + processes.describe(pid) for pid in left]
        # The launcher names its mounts so, if ever one should come to light here.
        problems += ["left mounted: " + point for point in processes.mounts_of(self.folder, " tmpfs sandbox-")]
        problems += ["left cgroup: " + group for group in processes.cgroups(self.cgroup)]
        problems += ["left file: " + path for path in self.state_leftovers()]
        return problems

    def state_leftovers(self):
        """What the state folder still has for a sandbox, once every Lease has been released and the server stopped."""
        found = []
        for folder, folders, files in os.walk(self.state):
            if folder == self.state and "etc" in folders:
                folders.remove("etc")  # the same for every sandbox, past and future
            found += [os.path.join(folder, name) for name in files if name != "lock"]
        return found

    def log_problems(self):
        """A log holds JSON lines, no secret and no token."""
        problems = []
        secrets = [METADATA_SECRET] + [one for value in SECRETS.values()
                                       for one in (value if isinstance(value, list) else [value])]
        for part in (self.server, self.gateway):
            for log in part.logged():
                log.join(5)
                problems += ["%s wrote: %s" % (part.name, line) for line in log.faults[:20]]
                text = log.text()
                problems += ["%s logged a secret" % part.name for secret in secrets if secret in text]
                if "v1.eyJ" in text:
                    problems.append("%s logged a token" % part.name)
        return problems
