"""Processes of the machine: who descends from this test, waiting for ends by pidfd, and what is left at the end.

The test makes itself the reaper of orphans, so that whatever a killed server leaves behind becomes a child of the test
and cannot hide.
"""
import ctypes
import os
import select
import signal
import time

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def status(pid):
    """The fields of /proc/PID/status, or {} if it is gone."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as lines:
            return dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
    except (FileNotFoundError, ProcessLookupError):
        return {}


def command_line(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as line:
            return line.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def describe(pid):
    """A line about a living process for a failure's text."""
    fields = status(pid)
    return "%d (parent %s, state %s) %.100s" % (pid, fields.get("PPid"), fields.get("State"), command_line(pid))


def descendants(pid):
    """Every living descendant of `pid`, zombies left out."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = status(int(name))
            if fields and not fields["State"].startswith(("Z", "X")):
                parents.setdefault(int(fields["PPid"]), []).append(int(name))
    found, heads = [], [pid]
    while heads:
        below = parents.get(heads.pop(), [])
        found += below
        heads += below
    return found


def reap_orphans(keep=()):
    """Collects dead children that nobody waits for, apart from `keep` (those of subprocess objects)."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in keep:
            fields = status(int(name))
            if fields and int(fields["PPid"]) == os.getpid() and fields["State"].startswith("Z"):
                try:
                    os.waitpid(int(name), os.WNOHANG)
                except ChildProcessError:
                    pass


def wait_gone(pids, seconds):
    """Waits until every process of `pids` has ended; returns those that have not. Zombies count as ended."""
    deadline = time.monotonic() + seconds
    left = {}
    for pid in pids:
        try:
            left[os.pidfd_open(pid)] = pid
        except ProcessLookupError:
            pass
    poll = select.poll()
    for descriptor in left:
        poll.register(descriptor, select.POLLIN)
    try:
        while left:
            events = poll.poll(max(0, (deadline - time.monotonic()) * 1000))
            if not events:
                return sorted(left.values())
            for descriptor, _ in events:
                poll.unregister(descriptor)
                os.close(descriptor)
                del left[descriptor]
        return []
    finally:
        for descriptor in left:
            os.close(descriptor)


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def with_variable(pids, assignment):
    """Those of `pids` that were started with "NAME=value" in their environment."""
    found = []
    for pid in pids:
        try:
            with open("/proc/%d/environ" % pid, "rb") as environment:
                if assignment.encode("utf-8") in environment.read().split(b"\0"):
                    found.append(pid)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    return found


def first_of_namespace(pid):
    """The process that is number 1 where `pid` runs: its last ancestor in the same PID namespace."""
    namespace = os.readlink("/proc/%d/ns/pid" % pid)
    while True:
        parent = int(status(pid)["PPid"])
        if os.readlink("/proc/%d/ns/pid" % parent) != namespace:
            return pid
        pid = parent


def resident_kib(pid):
    """Resident memory, shared pages included."""
    return int(status(pid)["VmRSS"].split()[0])


def peak_restart(pid):
    """Lets peak_kib begin anew."""
    with open("/proc/%d/clear_refs" % pid, "w", encoding="ascii") as file:
        file.write("5")


def peak_kib(pid):
    """The most resident memory since the start, or since peak_restart."""
    return int(status(pid)["VmHWM"].split()[0])


def mounts():
    """Mount points of this namespace."""
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:
        return {line.split()[4] for line in lines}


def mounts_of(*words):
    """The mount points whose line in the table of mounts has one of these words in it."""
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:
        return sorted(line.split()[4] for line in lines if any(word in line for word in words))


def cgroups(name):
    """The cgroup folders at and below the group `name` ("/..." from the top), in every hierarchy; the innermost first."""
    found = []
    for point in mounts():
        if point.startswith("/sys/fs/cgroup"):
            for folder, _, _ in os.walk(point + name, topdown=False):
                found.append(folder)
    return found


def remove_cgroups(name):
    """Removes what cgroups() finds and is empty."""
    for folder in cgroups(name):
        try:
            os.rmdir(folder)
        except OSError:
            pass
