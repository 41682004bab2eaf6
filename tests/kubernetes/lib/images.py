"""The images of the tests, made from Debian's packages and our own programs; nothing comes from an image registry.

pause    what holds a Pod's namespaces; without a shell, so it also stands for an image that can run no command
busybox  one static program and nothing else
coding   a small Debian to work in: sh, bash, coreutils, git, python3, curl, jq, ssh; user sandbox (10001)

An archive is kept under a name made from its recipe, so a changed recipe makes a new one.
"""

import hashlib
import inspect
import subprocess
from pathlib import Path

from lib import archive
from lib.build import check, make_once
from lib.paths import CACHE, KUBERNETES
from lib.say import Failure, say

SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SUITE = "bookworm"
CODING_PACKAGES = ["ca-certificates", "curl", "git", "jq", "openssh-client", "procps", "python3", "tini"]
USER = "sandbox:x:10001:10001:sandbox:/home/sandbox:/bin/bash"
SLEEP_LOOP = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"]


def build_pause(folder):
    """The pause program, static."""
    check(
        [
            "cc",
            "-Os",
            "-s",
            "-static",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            folder / "pause",
            KUBERNETES / "images/pause.c",
        ]
    )


def pause_program():
    """The path of the pause program, which also holds the namespaces of a cluster."""
    key = hashlib.sha256(
        (KUBERNETES / "images/pause.c").read_bytes() + inspect.getsource(build_pause).encode()
    ).hexdigest()[:16]
    return make_once(CACHE / "builds" / f"pause-{key}", build_pause) / "pause"


def _make_pause(reference, target):
    layer = archive.layer_of([("pause", 0o755, pause_program().read_bytes())])
    archive.write_image(target, reference, layer, {"Entrypoint": ["/pause"], "User": "65535:65535"})


def _make_busybox(reference, target):
    listed = check(["/bin/busybox", "--list"]).split()
    entries = [(folder, 0o755, None) for folder in ("bin", "etc", "root", "workspace")] + [("tmp", 0o1777, None)]
    entries += [
        ("bin/busybox", 0o755, Path("/bin/busybox").read_bytes()),
        ("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n"),
        ("etc/group", 0o644, b"root:x:0:\n"),
    ]
    entries += [(f"bin/{name}", None, "busybox") for name in listed if name != "busybox"]
    archive.write_image(
        target, reference, archive.layer_of(entries), {"Cmd": SLEEP_LOOP, "Env": [SEARCH_PATH], "WorkingDir": "/"}
    )


def _debian_sources():
    """The package sources of this machine that are Debian's own."""
    line = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    sources = check(["apt-get", "indextargets", "--format", line, "Created-By: Packages", "Origin: Debian"])
    if f" {SUITE} " not in sources:
        raise Failure(f"apt knows no source of Debian {SUITE}; run apt-get update")
    return sources


def _make_coding(reference, target):
    layer = target.with_name("layer.tar")
    hooks = [
        f"echo '{USER}' >> $1/etc/passwd; echo 'sandbox:x:10001:' >> $1/etc/group",
        "mkdir -p $1/home/sandbox $1/workspace; chown 10001:10001 $1/home/sandbox $1/workspace",
        "rm -rf $1/var/lib/apt/lists/* $1/var/cache/* $1/var/log/*",
    ]
    unused = [
        "exclude=/usr/share/man/*",
        "exclude=/usr/share/locale/*",
        "exclude=/usr/share/doc/*",
        "include=/usr/share/doc/*/copyright",
        "exclude=/usr/lib/*/perl/*/CORE/*",
        "exclude=/usr/share/info/*",
    ]
    command = [
        "mmdebstrap",
        "--quiet",
        "--variant=essential",
        f"--include={','.join(CODING_PACKAGES)}",
        "--skip=output/dev",
        *(f"--dpkgopt=path-{rule}" for rule in unused),
        *(f"--customize-hook={hook}" for hook in hooks),
        SUITE,
        str(layer),
        "-",
    ]
    done = subprocess.run(
        command, input=_debian_sources(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise Failure(f"The coding image could not be made:\n{done.stdout[-3000:]}")
    archive.write_image(
        target,
        reference,
        layer.read_bytes(),
        {
            "User": "10001:10001",
            "Env": [
                SEARCH_PATH,
                "HOME=/home/sandbox",
                "LANG=C.UTF-8",
                "PYTHONDONTWRITEBYTECODE=1",
                "PYTHONUNBUFFERED=1",
            ],
            "Entrypoint": ["/usr/bin/tini", "--"],
            "Cmd": SLEEP_LOOP,
            "WorkingDir": "/workspace",
        },
    )
    layer.unlink()


# In the order in which a cluster needs them.
IMAGES = {"pause": _make_pause, "busybox": _make_busybox, "coding": _make_coding}


def reference_of(name):
    """The name under which Pods ask for an image."""
    return f"localhost/{name}:test"


def _key(name):
    """A short name for everything that decides what an image holds, except for the versions of Debian's packages."""
    recipe = [inspect.getsource(IMAGES[name]), SLEEP_LOOP, SEARCH_PATH, inspect.getsource(archive), reference_of(name)]
    if name == "coding":
        recipe += [CODING_PACKAGES, USER, SUITE]
    if name == "pause":
        recipe.append(str(pause_program()))
    return hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]


def image(name):
    """The archive of one image, made if it is not there."""

    def make(folder):
        say(f"Making the image {name}")
        IMAGES[name](reference_of(name), folder / "image.tar")

    return make_once(CACHE / "images" / f"{name}-{_key(name)}", make) / "image.tar"


def all_images():
    """Makes what is missing; name → archive."""
    return {name: image(name) for name in IMAGES}
