"""The control groups of a cluster: a folder of its own in every hierarchy; its kubelet makes the Pods' below that.

Version 1 of control groups has a hierarchy for each controller; version 2 has one. Which of the two a machine has is
found in its mount table.
"""

import os
from pathlib import Path


def _hierarchies():
    """Mount points of every hierarchy that takes part: (folder, controllers)."""
    found, unified = [], None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        folder = Path(left.split(" ")[4])
        if kind == "cgroup":
            found.append((folder, set(options.split(","))))
        elif kind == "cgroup2":
            unified = folder
    # Beside version 1 the unified hierarchy has no controllers and nobody looks at it.
    return found or ([(unified, {"unified"})] if unified else [])


def _fill_cpuset(folder):
    """In version 1 a new cpuset is empty, and nothing can run in it."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        (folder / file).write_text((folder.parent / file).read_text())


def _delegate(folder):
    """In version 2 a folder's children have only the controllers that it hands down."""
    for controller in (folder / "cgroup.controllers").read_text().split():
        try:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            pass  # a controller that cannot be handed down here is one the kubelet will not see


def create(name):
    """Makes the folders of a cluster; its own processes live in `node`, its Pods beside that."""
    for root, controllers in _hierarchies():
        if "unified" in controllers:
            _delegate(root)
        top = root / name
        for folder in (top, top / "node"):
            folder.mkdir(exist_ok=True)
            if "cpuset" in controllers:
                _fill_cpuset(folder)
            if "unified" in controllers and folder == top:
                _delegate(folder)


def enter(name):
    """Puts the calling process among the cluster's own."""
    for root, _ in _hierarchies():
        (root / name / "node" / "cgroup.procs").write_text(str(os.getpid()))


def processes(name):
    """The pids of all processes of a cluster."""
    found = set()
    for root, _ in _hierarchies():
        for folder, _, _ in os.walk(root / name):
            try:
                found.update(map(int, Path(folder, "cgroup.procs").read_text().split()))
            except FileNotFoundError:
                pass
    return sorted(found)


def remove(name):
    """Removes the folders of a cluster, all of whose processes have ended. Answers those that would not go."""
    left = []
    for root, _ in _hierarchies():
        for folder, _, _ in os.walk(root / name, topdown=False):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                left.append(folder)
    return left


def exist(name):
    """The folders of a cluster that there are."""
    return [root / name for root, _ in _hierarchies() if (root / name).is_dir()]
