"""containerd's store with all images in it: filled once, kept, and lent to every new cluster.

To unpack images takes longer than to start everything else. A cluster's store has links to the files of the kept one,
none of which is ever changed in place, and copies of its databases.
"""

import hashlib
import shutil
import signal
import subprocess

from lib import images, parts
from lib.build import RECIPES, build_key, check, make_once
from lib.folder import prepare
from lib.paths import CACHE
from lib.say import Failure, say
from lib.state import Cluster

# The cluster in which stores are filled.
SCRATCH = "images"
NAMESPACE = "k8s.io"
# The label that the kubelet's interface of containerd knows its images by.
MANAGED = "io.cri-containerd.image=managed"


def _ctr(cluster, *arguments):
    """Runs containerd's own client."""
    command = [cluster.folder / "bin/ctr", "--address", cluster.folder / "containerd.sock", "--namespace", NAMESPACE]
    done = subprocess.run(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise Failure(f"ctr {' '.join(map(str, arguments))} failed: {done.stdout.strip()}")
    return done.stdout


def load(cluster, archive):
    """Imports an image archive into a cluster that runs."""
    _ctr(cluster, "images", "import", "--local", archive)


def _make(folder):
    """Fills a store, with the containerd of a cluster in which nothing else runs."""
    say("Unpacking the images")
    cluster = Cluster(SCRATCH)
    with cluster.locked():
        cluster.destroy()  # what is left of an attempt that was killed
        try:
            cluster.create(images.pause_program())
            prepare(cluster)
            parts.Starting(cluster, "containerd").wait()
            for name, archive in images.all_images().items():
                load(cluster, archive)
                _ctr(cluster, "images", "label", images.reference_of(name), MANAGED)
            parts.stop(cluster, "containerd", signal.SIGTERM)
            check(["cp", "-a", cluster.folder / "containerd", folder / "containerd"])
        finally:
            cluster.destroy()
            cluster.lock.unlink(missing_ok=True)


def filled():
    """The kept store, filled if it is not there."""
    archives = [str(archive) for archive in images.all_images().values()]
    key = hashlib.sha256(repr([archives, build_key("containerd", RECIPES["containerd"])]).encode()).hexdigest()[:16]
    return make_once(CACHE / "images" / f"store-{key}", _make) / "containerd"


def fill(cluster):
    """Gives a new cluster its store."""
    kept, own = filled(), cluster.folder / "containerd"
    together = kept.stat().st_dev == cluster.folder.stat().st_dev
    check(["cp", "-a", *(["--link"] if together else []), kept, own])
    for database in own.rglob("*.db"):
        database.unlink()
        shutil.copy2(kept / database.relative_to(own), database)
