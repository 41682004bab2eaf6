"""Where the programs and sources under test are: in the runfiles of a Bazel test, or in the checkout when run by hand.

By hand, from the root of the checkout: build first (`bazel build //...`), then
`PYTHONPATH=. python3 tests/contract/leases_test.py [-k NAME]`.
"""
import functools
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def in_runfiles():
    return os.path.sep + "bazel-out" + os.path.sep in os.path.abspath(__file__) or "TEST_SRCDIR" in os.environ


def source(path):
    """A file of the source tree."""
    return os.path.join(ROOT, path)


@functools.lru_cache(None)
def _bazel_bin():
    given = os.environ.get("SANDBOX_TEST_BIN")
    if given:
        return given
    if in_runfiles():
        return ROOT
    configuration = ["--config=" + os.environ["SANDBOX_TEST_CONFIG"]] if "SANDBOX_TEST_CONFIG" in os.environ else []
    return subprocess.run(["bazel", "info"] + configuration + ["bazel-bin"], cwd=ROOT, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()


def built(path):
    """A file that the build makes. SANDBOX_TEST_BIN names another folder of outputs."""
    found = os.path.join(_bazel_bin(), path)
    if not os.path.exists(found):
        raise FileNotFoundError("%s is not built; run: bazel build //%s" % (found, os.path.dirname(path) + "/..."))
    return found
