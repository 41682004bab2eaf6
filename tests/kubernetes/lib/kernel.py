"""The few system calls that Python 3.11 has no name for, and what /proc says of processes."""

import ctypes
import os
from pathlib import Path

MOUNT = 0x00020000
HOSTNAME = 0x04000000
IPC = 0x08000000
PROCESSES = 0x20000000
NETWORK = 0x40000000
ALL = MOUNT | HOSTNAME | IPC | PROCESSES | NETWORK

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, call):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(namespaces):
    """Gives the calling process new namespaces; a new one of processes is for its children."""
    _check(_libc.unshare(ctypes.c_int(namespaces)), "unshare")


def join(process, namespaces):
    """Moves the calling process into namespaces of the process behind a pidfd, all or none."""
    _check(_libc.setns(ctypes.c_int(process), ctypes.c_int(namespaces)), "setns")


def die_with_parent(signal):
    """The calling process gets this signal when its parent ends, however that ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal), 0, 0, 0), "prctl")


def process_start(pid):
    """When a process was started, in clock ticks since boot; with its pid it names one process for good. None: gone."""
    fields = process_fields(pid)
    return int(fields[19]) if fields else None


def process_fields(pid):
    """The fields of /proc/PID/stat behind the process's name, from its state on; None if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields


def processes():
    """The pids of all processes."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
