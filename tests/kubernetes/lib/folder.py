"""What the folder of a cluster holds before anything runs: programs, configuration, keys."""

from lib import certificates
from lib.build import build_all, check
from lib.paths import KUBERNETES


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
