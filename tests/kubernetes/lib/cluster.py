"""Brings a cluster up, in the order in which its parts need each other, and takes it down."""

import hashlib
import os
import re
import subprocess

from lib import api, certificates, images, parts
from lib.build import build_all, build_module, check
from lib.network import NODE_NAME
from lib.paths import KUBERNETES, TREE
from lib.say import Failure, say

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


def default_name():
    """A name for the cluster of this checkout: its folder's name and a hash of where that is."""
    readable = re.sub(r"[^a-z0-9]+", "-", TREE.name.lower()).strip("-")[:20].strip("-") or "tree"
    return f"{readable}-{hashlib.sha256(str(TREE).encode()).hexdigest()[:6]}"


def need_machine():
    """Fails with a clear word where no cluster can run; installs missing packages."""
    if os.geteuid() != 0:
        raise Failure("A cluster needs root: it makes namespaces, mounts and control groups.")
    script = 'set -euo pipefail; source "$1"; shift; need_packages "$@" >&2'
    if subprocess.run(["bash", "-c", script, "need", TREE / "tools/lib", *PACKAGES], check=False).returncode:
        raise Failure("Without these packages there is no cluster.")


def built_programs():
    """Every program of a cluster, built if need be: (name, path)."""
    programs = []
    for folder in build_all().values():
        programs += [(entry.name, entry) for entry in sorted(folder.iterdir()) if entry.name != "agent-sandbox"]
    return programs


def prepare(cluster):
    """Fills the folder of a new cluster: programs, configuration, keys."""
    folder = cluster.folder
    for name in ("bin", "log", "config", "home"):
        (folder / name).mkdir()
    for name, path in built_programs():
        (folder / "bin" / name).symlink_to(path)
    check(["cp", "-R", "--no-preserve=mode", f"{KUBERNETES}/config/.", folder / "config"])
    kubelet = folder / "config/kubelet.yaml"
    kubelet.write_text(kubelet.read_text().replace("@CGROUP@", cluster.cgroup))
    certificates.make(folder)


def kubectl(cluster, *arguments, **options):
    """Runs kubectl in the cluster's network; fails if it does. Answers its standard output."""
    command = [cluster.folder / "bin/kubectl", f"--kubeconfig={cluster.kubeconfig}", *arguments]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=cluster.join_network,
        check=False,
        **options,
    )
    if done.returncode:
        raise Failure(f"kubectl {' '.join(map(str, arguments))} failed: {done.stderr.strip()}")
    return done.stdout


def import_image(cluster, archive):
    """Starts the import of an image archive into containerd."""
    command = [
        cluster.folder / "bin/ctr",
        "--address",
        cluster.folder / "containerd.sock",
        "--namespace",
        "k8s.io",
        "images",
        "import",
        "--local",
        archive,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish_import(importing, archive):
    """Waits for the end of an import."""
    said = importing.communicate()[0]
    if importing.returncode:
        raise Failure(f"containerd did not take the image {archive}: {said.strip()}")


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
    images.all_images()
    return 0


def up(cluster):
    """Starts what does not run, and waits until the node is Ready and all images are there."""
    build()
    holder_program, archives = images.pause_program(), images.all_images()
    with cluster.locked():
        if cluster.exists() and cluster.holder() is None:
            say(f"Something ended cluster {cluster.name} from outside; clearing away what is left of it")
            cluster.destroy()
        if cluster.exists():
            return start_missing(cluster)
        say(f"Starting cluster {cluster.name}")
        try:
            cluster.create(holder_program)
            prepare(cluster)
        except BaseException:
            cluster.destroy()
            raise
        start_all(cluster, archives)
    say(f"Cluster {cluster.name} is up")
    return 0


def has_webhook(definition):
    """Satisfied by a definition whose conversion webhook can be called."""
    client = definition["spec"].get("conversion", {}).get("webhook", {}).get("clientConfig", {})
    return bool(client.get("caBundle"))


def start_all(cluster, archives):
    """Starts every part of a new cluster."""
    first = [parts.Starting(cluster, name) for name in ("etcd", "containerd", "kube-apiserver")]
    for starting in first[:2]:
        starting.wait()
    importing = [(import_image(cluster, archive), archive) for archive in archives.values()]
    first[2].wait()
    # Roles are made some time after the API server is ready, and parts without rights give up.
    for namespace, name in (
        ("kube-public", "system:controller:bootstrap-signer"),
        ("kube-system", "system::extension-apiserver-authentication-reader"),
    ):
        api.wait_for(
            cluster, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", name, api.exists
        )
    rest = [parts.Starting(cluster, name) for name in ("kube-controller-manager", "kube-scheduler", "kubelet")]
    kubectl(cluster, "apply", "--server-side", "--filename=-", input=controller_manifests())
    for kind in SANDBOX_KINDS:
        api.wait_for(cluster, DEFINITIONS, kind, api.condition("Established"))
    rest.append(parts.Starting(cluster, "agent-sandbox-controller"))
    for starting in rest:
        starting.wait()
    api.wait_for(cluster, "/api/v1/nodes", NODE_NAME, api.condition("Ready"))
    api.wait_for(cluster, "/api/v1/namespaces/default/serviceaccounts", "default", api.exists)
    # The controller hands the authority of its webhook to the definitions when it serves.
    for kind in SANDBOX_KINDS:
        api.wait_for(cluster, DEFINITIONS, kind, has_webhook)
    for process, archive in importing:
        finish_import(process, archive)


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
        if not cluster.exists():
            say(f"There is no cluster {cluster.name}")
            return 0
        cluster.destroy()
    say(f"Cluster {cluster.name} is gone")
    return 0
