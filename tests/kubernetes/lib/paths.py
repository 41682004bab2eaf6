"""Where things are: in the tree, in the cache, and of one cluster."""

import os
from pathlib import Path

KUBERNETES = Path(__file__).resolve().parent.parent
TREE = KUBERNETES.parent.parent
MODULES = KUBERNETES / "modules"


def _base(variable, default):
    return Path(os.environ.get(variable) or Path.home() / default) / "agent-sandbox-platform"


# What can be made again: toolchains, builds and images, shared by all clusters and checkouts.
CACHE = _base("XDG_CACHE_HOME", ".cache")
# One folder for each cluster that exists.
CLUSTERS = _base("XDG_STATE_HOME", ".local/state") / "clusters"
