"""What the first process of a cluster does inside its new namespaces: mounts and network.

/run is empty, /var keeps what is written to it in the cluster's own folder, and /run/cluster is that folder: files have
the same short paths in every cluster, and leftovers are never the machine's. No link leads out of the network: the node
is a bridge without ports that carries the node's address and that of the API server. The latter is the address of the
service `kubernetes`, so Pods reach the API server with no proxy in between.
"""

import os
import socket
import subprocess
from pathlib import Path

from lib.say import Failure

NODE_NAME = "node1"
NODE_ADDRESS = "10.97.255.1"
API_ADDRESS = "10.97.0.1"
API_URL = f"https://{API_ADDRESS}:443"
SERVICE_RANGE = "10.97.0.0/24"
INSIDE = Path("/run/cluster")  # the cluster's folder, as seen inside


def _run(*command):
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise Failure(f"{' '.join(map(str, command))}: {done.stdout.strip()}")


def set_up_mounts(folder):
    """Mounts of a new cluster; to be called in a mount namespace of its own."""
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "proc", "proc", "/proc")
    for part in ("upper", "work"):
        (folder / "var" / part).mkdir(parents=True)
    var = f"lowerdir=/var,upperdir={folder}/var/upper,workdir={folder}/var/work"
    _run("mount", "-t", "overlay", "-o", var, "overlay", "/var")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    INSIDE.mkdir()
    _run("mount", "--bind", folder, INSIDE)
    _run("mount", "--make-rshared", "/")


def set_up_network():
    """Addresses and routes of a new cluster; to be called in a network namespace of its own."""
    socket.sethostname(NODE_NAME)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "node0", "type", "bridge")
    for address in (NODE_ADDRESS, API_ADDRESS):
        _run("ip", "address", "add", f"{address}/32", "dev", "node0")
    _run("ip", "link", "set", "node0", "up")
    _run("ip", "route", "add", "default", "dev", "node0", "src", NODE_ADDRESS)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def become_holder(folder, program, name):
    """Sets everything up and turns into the program that holds the namespaces; comes back only by an exception."""
    set_up_mounts(folder)
    set_up_network()
    os.chdir("/")
    os.execv(program, [f"cluster {name}"])
