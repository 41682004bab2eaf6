"""Brings a cluster up, in the order in which its parts need each other, and takes it down."""

import hashlib
import os
import re
import subprocess

from lib import api, images, parts, store
from lib.build import build_all, build_module
from lib.folder import prepare
from lib.network import NODE_NAME
from lib.paths import KUBERNETES, TREE
from lib.say import Failure, say
from lib.state import Cluster

# Debian's packages for building and running a cluster.
PACKAGES = [
    "build-essential",
    "busybox-static",
    "iproute2",
    "libseccomp-dev",
    "mmdebstrap",
    "mount",
    "pkg-config",
    "python3",
    "python3-cryptography",
    "python3-pip",
]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SANDBOX_KINDS = [
    "sandboxes.agents.x-k8s.io",
    *(f"{kind}.extensions.agents.x-k8s.io" for kind in ("sandboxclaims", "sandboxtemplates", "sandboxwarmpools")),
]
# What the API server makes last of the roles that it begins with: namespace → name.
LAST_ROLE_BINDINGS = {
    "kube-public": "system:controller:bootstrap-signer",
    "kube-system": "system::extension-apiserver-authentication-reader",
}


def default_name():
    """A name for the cluster of this checkout: its folder's name and a hash of where that is."""
    readable = re.sub(r"[^a-z0-9]+", "-", TREE.name.lower()).strip("-")[:20].strip("-") or "tree"
    return f"{readable}-{hashlib.sha256(str(TREE).encode()).hexdigest()[:6]}"


def named(name):
    """The cluster that a user means."""
    if name == store.SCRATCH:
        raise Failure(f"{name} is the name of the cluster in which images are unpacked; choose another")
    return Cluster(name)


def need_machine():
    """Fails with a clear word where no cluster can run; installs missing packages."""
    if os.geteuid() != 0:
        raise Failure("A cluster needs root: it makes namespaces, mounts and control groups.")
    script = 'set -euo pipefail; source "$1"; shift; need_packages "$@" >&2'
    if subprocess.run(["bash", "-c", script, "need", TREE / "tools/lib", *PACKAGES], check=False).returncode:
        raise Failure("Without these packages there is no cluster.")


def start_kubectl(cluster, *arguments, **options):
    """Starts kubectl in the cluster's network."""
    command = [cluster.folder / "bin/kubectl", f"--kubeconfig={cluster.kubeconfig}", *arguments]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=cluster.join_network,
        **options,
    )


def finish_kubectl(process):
    """Waits for the end of kubectl; a failure of its own is one of ours."""
    _, errors = process.communicate()
    if process.returncode:
        raise Failure(f"kubectl {' '.join(map(str, process.args[2:]))} failed: {errors.strip()}")


def kubectl(cluster, *arguments):
    """Runs kubectl in the cluster's network."""
    finish_kubectl(start_kubectl(cluster, *arguments))


def controller_manifests():
    """What Agent Sandbox installs, without its Deployment: its controller runs on the node itself, not in a Pod."""
    folder = build_module("kubernetes") / "agent-sandbox"
    texts = [path.read_text() for path in sorted((folder / "crds").glob("*.yaml"))]
    for name in ("rbac.generated.yaml", "extensions-rbac.generated.yaml", "controller.yaml", "extensions.yaml"):
        texts.append((folder / name).read_text())
    texts.append((KUBERNETES / "manifests/agent-sandbox-webhook.yaml").read_text())
    documents = re.split(r"^---.*$", "\n---\n".join(texts), flags=re.MULTILINE)
    kept = [d for d in documents if d.strip() and not re.search(r"^kind: Deployment$", d, re.MULTILINE)]
    return "\n---\n".join(kept)


def build():
    """Builds programs and images, so that the next `up` need not."""
    need_machine()
    build_all()
    store.filled()
    return 0


def up(cluster):
    """Starts what does not run, and waits until the node is Ready."""
    build()
    holder_program = images.pause_program()
    with cluster.locked():
        if cluster.holder() is not None and cluster.complete():
            return start_missing(cluster)
        if cluster.exists():
            why = "was ended from outside" if cluster.complete() else "was not brought up to the end"
            say(f"Cluster {cluster.name} {why}; clearing away what is left of it")
            cluster.destroy()
        say(f"Starting cluster {cluster.name}")
        try:
            cluster.create(holder_program)
            prepare(cluster)
            store.fill(cluster)
        except BaseException:
            cluster.destroy()
            raise
        start_all(cluster)
        cluster.set_complete()
    say(f"Cluster {cluster.name} is up")
    return 0


def has_webhook(definition):
    """Satisfied by a definition whose conversion webhook can be called."""
    client = definition["spec"].get("conversion", {}).get("webhook", {}).get("clientConfig", {})
    return bool(client.get("caBundle"))


def start_all(cluster):
    """Starts every part of a new cluster."""
    first = [parts.Starting(cluster, name) for name in ("etcd", "containerd", "kube-apiserver")]
    for starting in first:
        starting.wait()
    say("The API server serves")
    manifests = cluster.folder / "config/agent-sandbox.yaml"
    manifests.write_text(controller_manifests())
    applying = start_kubectl(cluster, "apply", "--server-side", f"--filename={manifests}")
    # Roles are made some time after the API server is ready, and parts without rights give up.
    for namespace, name in LAST_ROLE_BINDINGS.items():
        bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
        api.wait_for(cluster, bindings, name, api.exists)
    rest = [parts.Starting(cluster, name) for name in ("kube-controller-manager", "kube-scheduler", "kubelet")]
    finish_kubectl(applying)
    api.wait_for_all(cluster, DEFINITIONS, SANDBOX_KINDS, api.condition("Established"))
    rest.append(parts.Starting(cluster, "agent-sandbox-controller"))
    for starting in rest:
        starting.wait()
    api.wait_for(cluster, "/api/v1/nodes", NODE_NAME, api.condition("Ready"))
    api.wait_for(cluster, "/api/v1/namespaces/default/serviceaccounts", "default", api.exists)
    # The controller hands the authority of its webhook to the definitions when it serves.
    api.wait_for_all(cluster, DEFINITIONS, SANDBOX_KINDS, has_webhook)


def start_missing(cluster):
    """Starts again the parts of a running cluster that have ended."""
    running = parts.find_all(cluster)
    missing = [name for name in parts.PARTS if name not in running]
    for name in missing:
        parts.Starting(cluster, name).wait()
    api.wait_for(cluster, "/api/v1/nodes", NODE_NAME, api.condition("Ready"), seconds=120)
    say(f"Cluster {cluster.name} is up" + (f"; started again: {', '.join(missing)}" if missing else " already"))
    return 0


def down(cluster):
    """Ends the cluster and removes everything of it."""
    with cluster.locked():
        existed = cluster.exists()
        if existed:
            cluster.destroy()
        cluster.lock.unlink(missing_ok=True)
    say(f"Cluster {cluster.name} is gone" if existed else f"There is no cluster {cluster.name}")
    return 0
