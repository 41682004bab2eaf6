"""What the platform needs on a cluster before its programs run: namespace, rights, runtime classes, warm pools."""

from lib import api
from lib.cluster import kubectl
from lib.paths import KUBERNETES
from lib.say import say

NAMESPACE = "platform"
POOLS = {"coding": 4, "gvisor": 1}  # name → warm sandboxes, as in manifests/pools.yaml
WARM_POOLS = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/sandboxwarmpools"
MANIFESTS = ("runtime-classes.yaml", "platform.yaml", "pools.yaml")


def up(cluster):
    """Applies everything and waits until every pool is full."""
    for name in MANIFESTS:
        kubectl(cluster, "apply", "--server-side", f"--filename={KUBERNETES}/manifests/{name}")
    for pool, count in POOLS.items():
        api.wait_for(
            cluster,
            WARM_POOLS,
            pool,
            lambda found, count=count: found.get("status", {}).get("readyReplicas") == count,
            seconds=180,
        )
        say(f"Pool {pool} has {count} warm")


def down(cluster):
    """Removes everything again and waits until it is gone, Pods included."""
    for name in reversed(MANIFESTS):
        kubectl(cluster, "delete", "--ignore-not-found", f"--filename={KUBERNETES}/manifests/{name}", "--timeout=180s")
