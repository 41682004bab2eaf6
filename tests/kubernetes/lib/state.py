"""One cluster as it exists: its folder, the process that holds its namespaces, and ways to run something inside.

The holder is the first process of the cluster's pid namespace. When it ends, for whatever reason, the kernel ends every
process of the cluster and takes down its mounts and network; what is left are files and control groups.
"""

import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import sys
from contextlib import contextmanager

from lib import cgroups, kernel, network
from lib.paths import CLUSTERS
from lib.say import Failure

CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of SCM_CREDENTIALS
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class Cluster:
    """A cluster of one name, whether it exists or not."""

    def __init__(self, name):
        if not NAME.fullmatch(name):
            raise Failure(
                f"A cluster's name has 1 to 40 characters of a-z, 0-9 and '-', with no '-' at its ends: not {name!r}"
            )
        self.name = name
        self.folder = CLUSTERS / name
        self.cgroup = f"agent-sandbox-{name}"
        self.lock = CLUSTERS / f".{name}.lock"
        self.kubeconfig = self.folder / "admin.kubeconfig"

    @contextmanager
    def locked(self):
        """Only one program at a time changes a cluster."""
        CLUSTERS.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            with open(self.lock, "w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                # The one who held it before may have removed the file, and a third made another.
                if self.lock.exists() and os.path.samestat(os.fstat(file.fileno()), self.lock.stat()):
                    yield
                    return

    def holder(self):
        """The pid of the holder, or None if it does not run."""
        try:
            record = json.loads((self.folder / "holder.json").read_text())
        except (OSError, ValueError):
            return None
        return record["pid"] if kernel.process_start(record["pid"]) == record["start"] else None

    def exists(self):
        """Whether anything of the cluster is there, working or not."""
        return self.folder.exists() or bool(cgroups.exist(self.cgroup))

    def complete(self):
        """Whether it was brought up to the end, and not cut off in the middle."""
        return (self.folder / "complete").exists()

    def set_complete(self):
        """Says that it was brought up to the end."""
        (self.folder / "complete").touch()

    def open_holder(self):
        """A pidfd of the holder."""
        pid = self.holder()
        if pid is None:
            raise Failure(
                f"Cluster {self.name} does not run. Start it: tests/kubernetes/cluster --name {self.name} up"
            )
        return os.pidfd_open(pid)

    def create(self, program):
        """Makes the folder, the control groups and the namespaces, held by `program`."""
        self.folder.mkdir(mode=0o700, parents=True)
        cgroups.create(self.cgroup)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _in_child(lambda: self._make_holder(writer, program))
        os.close(writer)
        with os.fdopen(reader) as file:
            answer = file.read()
        os.waitpid(child, 0)
        found = re.match(r"(\d+)\n", answer)
        if not found or len(answer) > found.end():
            raise Failure(
                f"The cluster's namespaces could not be made: {answer[found.end() if found else 0 :].strip()}"
            )
        pid = int(found.group(1))
        record = {"pid": pid, "start": kernel.process_start(pid)}
        (self.folder / "holder.json").write_text(json.dumps(record))

    def _make_holder(self, writer, program):
        """In a child: makes the namespaces and the holder, whose pid is written first, and errors behind it."""
        os.setsid()
        try:
            cgroups.enter(self.cgroup)
            kernel.unshare(kernel.ALL)
            pid = os.fork()
            if pid == 0:
                _detach(os.open("/dev/null", os.O_RDWR))
                network.become_holder(self.folder, program, self.name)
            os.write(writer, f"{pid}\n".encode())
        except (OSError, Failure) as error:
            os.write(writer, f"{error}\n".encode())
            os._exit(1)

    def destroy(self):
        """Ends everything of the cluster and removes what it leaves."""
        pid = self.holder()
        remaining = [pid] if pid is not None else cgroups.processes(self.cgroup)
        while remaining:
            _kill_and_wait(remaining)
            remaining = cgroups.processes(self.cgroup)  # also those of a cluster that was cut off while it was made
        left = cgroups.remove(self.cgroup)
        if left:
            raise Failure(f"These control groups could not be removed, as something runs in them: {' '.join(left)}")
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def join_network(self):
        """Moves the calling process into the cluster's network and nothing else: the API server can be reached."""
        kernel.join(self.open_holder(), kernel.NETWORK)

    def join_all(self):
        """Moves the calling process into the cluster; its children are among the cluster's processes."""
        holder = self.open_holder()
        cgroups.enter(self.cgroup)
        kernel.join(holder, kernel.ALL)
        os.close(holder)

    def spawn(self, arguments, environment, log):
        """Starts a program inside, as a child of the holder; answers its pid out here."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        child = os.fork()
        if child == 0:
            _in_child(lambda: self._spawn(theirs, arguments, environment, log))
        theirs.close()
        pid, problem = None, "its process ended early"
        with ours:
            # One message when it is about to execute the program, another only if something went wrong; then the end,
            # as executing closes the socket. The kernel says who sent it, by the pid that process has out here.
            while True:
                answer, credentials, _, _ = ours.recvmsg(4096, socket.CMSG_SPACE(CREDENTIALS.size))
                if not answer:
                    break
                if answer == b"started":
                    pid, problem = CREDENTIALS.unpack(credentials[0][2])[0], None
                else:
                    problem = answer.decode()
        os.waitpid(child, 0)
        if problem:
            raise Failure(f"{arguments[0]} could not be started: {problem}")
        return pid

    def _spawn(self, theirs, arguments, environment, log):
        """In a child. Forks twice: the holder takes over an orphan only if the orphan's parent was inside, too."""
        os.setsid()
        try:
            self.join_all()
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                return
            if os.fork():
                return
            os.chdir("/")
            _detach(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
            theirs.send(b"started")
            os.execve(arguments[0], arguments, environment)
        except (OSError, Failure) as error:
            theirs.send(str(error).encode())

    def run(self, arguments):
        """Runs a program inside on this program's terminal or pipes, and answers its exit code."""
        folder = os.getcwd()
        self.join_all()
        child = os.fork()
        if child == 0:
            kernel.die_with_parent(signal.SIGTERM)
            _default_signals()
            try:
                os.chdir(folder)
            except OSError:
                os.chdir("/")
            os.environ["KUBECONFIG"] = str(network.INSIDE / "admin.kubeconfig")
            os.environ["PATH"] = f"{network.INSIDE}/bin:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}"
            try:
                os.execvp(arguments[0], arguments)
            except OSError as error:
                print(f"{arguments[0]}: {error.strerror}", file=sys.stderr)
                os._exit(127)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda received, _: os.kill(child, received))
        for number in (signal.SIGINT, signal.SIGQUIT):  # a terminal sends these to both
            signal.signal(number, signal.SIG_IGN)
        status = os.waitpid(child, 0)[1]
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _kill_and_wait(pids):
    """Kills processes and waits until they have ended. The end of a holder comes after that of all its namespace."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            continue
        if not select.select([descriptor], [], [], 60)[0]:
            raise Failure(f"Process {pid} does not end, though it was killed: see /proc/{pid}/stack")
        os.close(descriptor)


def _in_child(work):
    """Runs work() in a forked child, which ends whatever happens."""
    try:
        work()
    finally:
        os._exit(0)


def _detach(output):
    """Standard input from nowhere, both outputs to the given descriptor, signals as a program expects them."""
    _default_signals()
    nowhere = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _default_signals():
    """Python ignores these two, and what it executes would inherit that."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
