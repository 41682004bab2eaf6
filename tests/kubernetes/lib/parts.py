"""The programs that a cluster consists of: how each is started, when it is ready, how one is found, stopped and paused.

There are no pid files: a part is the child of the cluster's holder that runs the part's program. Most say themselves
when they are ready (the protocol of systemd's sd_notify), so nobody asks again and again.
"""

import os
import select
import signal
import socket
import time
from pathlib import Path

from lib import kernel
from lib.network import API_ADDRESS, INSIDE, NODE_ADDRESS, NODE_NAME, SERVICE_RANGE
from lib.say import Failure

PKI = INSIDE / "pki"
ETCD_URL = "http://127.0.0.1:2379"  # plain, as nobody but the node itself is in reach of it


class Part:
    """One program: its arguments, what it adds to the environment, and whether it says when it is ready."""

    def __init__(self, arguments, notifies=True, environment=None):
        self.arguments = arguments
        self.notifies = notifies
        self.environment = environment or {}


def _as(identity):
    """Arguments with which a control plane's part gets its identity and checks others'."""
    file = f"{INSIDE}/{identity}.kubeconfig"
    return [
        f"--kubeconfig={file}",
        f"--authentication-kubeconfig={file}",
        f"--authorization-kubeconfig={file}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
    ]


# In the order in which they are started.
PARTS = {
    "etcd": Part(
        [
            f"--data-dir={INSIDE}/etcd",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={ETCD_URL}",
            f"--advertise-client-urls={ETCD_URL}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--initial-advertise-peer-urls=http://127.0.0.1:2380",
            "--initial-cluster=default=http://127.0.0.1:2380",
        ]
    ),
    "containerd": Part(["--config", f"{INSIDE}/config/containerd.toml"]),
    "kube-apiserver": Part(
        [
            f"--etcd-servers={ETCD_URL}",
            f"--bind-address={API_ADDRESS}",
            "--secure-port=443",
            f"--advertise-address={API_ADDRESS}",
            "--endpoint-reconciler-type=none",
            "--enable-aggregator-routing",
            f"--tls-cert-file={PKI}/apiserver.crt",
            f"--tls-private-key-file={PKI}/apiserver.key",
            f"--client-ca-file={PKI}/ca.crt",
            f"--service-account-key-file={PKI}/accounts.pub",
            f"--service-account-signing-key-file={PKI}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={PKI}/apiserver-kubelet-client.crt",
            f"--kubelet-client-key={PKI}/apiserver-kubelet-client.key",
            f"--kubelet-certificate-authority={PKI}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
        ]
    ),
    "kube-controller-manager": Part(
        [
            *_as("controller-manager"),
            f"--service-account-private-key-file={PKI}/accounts.key",
            f"--root-ca-file={PKI}/ca.crt",
            "--use-service-account-credentials=true",
            "--controllers=*,-nodeipam,-route,-service-lb-controller,-cloud-node-lifecycle-controller",
        ],
        notifies=False,
    ),
    "kube-scheduler": Part(_as("scheduler"), notifies=False),
    "kubelet": Part(
        [
            f"--config={INSIDE}/config/kubelet.yaml",
            f"--kubeconfig={INSIDE}/kubelet.kubeconfig",
            f"--root-dir={INSIDE}/kubelet",
            f"--cert-dir={INSIDE}/pki/kubelet",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE_ADDRESS}",
        ]
    ),
    "agent-sandbox-controller": Part(
        [
            "--extensions",
            "--leader-elect=false",
            f"--webhook-cert-dir={INSIDE}/webhook",
        ],
        notifies=False,
        environment={"KUBECONFIG": f"{INSIDE}/agent-sandbox-controller.kubeconfig"},
    ),
}


def find_all(cluster):
    """Part → pid, of the parts that run."""
    holder = cluster.holder()
    found = {}
    for pid in kernel.processes() if holder else []:
        fields = kernel.process_fields(pid)
        if fields and int(fields[1]) == holder:
            try:
                program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            except OSError:
                continue
            if program in PARTS:
                found[program] = pid
    return found


class Starting:
    """A part that was started and is not known to be ready yet."""

    def __init__(self, cluster, name):
        self.name = name
        self.log = cluster.folder / "log" / name
        part = PARTS[name]
        self.socket = _notify_socket(cluster.folder / "notify", name) if part.notifies else None
        environment = {
            "PATH": f"{INSIDE}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(INSIDE / "home"),
            **part.environment,
        }
        if self.socket:
            environment["NOTIFY_SOCKET"] = f"{INSIDE}/notify/{name}"
        self.pid = cluster.spawn([str(INSIDE / "bin" / name), *part.arguments], environment, str(self.log))
        self.process = os.pidfd_open(self.pid)

    def wait(self, seconds=120):
        """Waits until the part says that it is ready; fails with the end of its log if it ends instead."""
        deadline = time.monotonic() + seconds
        while self.socket:
            ready = select.select([self.socket, self.process], [], [], max(0, deadline - time.monotonic()))[0]
            if self.socket in ready:
                if b"READY=1" in self.socket.recv(4096).split(b"\n"):
                    break
            elif self.process in ready:
                raise Failure(f"{self.name} ended while it started. {log_end(self.log)}")
            else:
                raise Failure(f"{self.name} was not ready within {seconds} s. {log_end(self.log)}")
        self.close()

    def close(self):
        """Lets go of the part, which runs on."""
        if self.socket:
            self.socket.close()
        os.close(self.process)


def _notify_socket(folder, name):
    """Where a part says that it is ready. A socket's address is short, so the folder is given by its descriptor."""
    folder.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    descriptor = os.open(folder, os.O_PATH)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(f"/proc/self/fd/{descriptor}/{name}")
    os.close(descriptor)
    return listener


def log_end(log, lines=15):
    """The last lines of a log, for a message."""
    try:
        end = Path(log).read_text(errors="replace").splitlines()[-lines:]
    except OSError as error:
        return f"Its log cannot be read: {error}"
    return "\n".join([f"The end of its log, {log}:", *end])


def need_running(cluster, name):
    """A pidfd of a part that runs."""
    pid = find_all(cluster).get(name)
    if pid is None:
        raise Failure(f"{name} of cluster {cluster.name} does not run")
    return os.pidfd_open(pid)


def stop(cluster, name, number, seconds=60):
    """Ends a part with a signal and waits until it has ended."""
    process = need_running(cluster, name)
    signal.pidfd_send_signal(process, number)
    if not select.select([process], [], [], seconds)[0]:
        raise Failure(f"{name} did not end within {seconds} s of {signal.Signals(number).name}")


def send(cluster, name, number):
    """Sends a signal to a part: SIGSTOP pauses it, SIGCONT lets it go on."""
    signal.pidfd_send_signal(need_running(cluster, name), number)


def describe(pid):
    """What a running part costs, in words."""
    fields = kernel.process_fields(pid) or ["?"] * 50
    if fields[0] == "?":
        return "has just ended"
    memory = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    paused = ", paused" if fields[0] == "T" else ""
    return f"pid {pid}, {memory:.0f} MiB, {seconds:.1f} s of CPU{paused}"
