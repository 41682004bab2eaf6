"""What a test cluster promises, shown on real clusters."""

import json
import os
import select
import signal
import subprocess
import time
import unittest
from pathlib import Path

import exec_client
from lib import archive, build, cgroups, images, kernel, parts
from lib.paths import KUBERNETES
from lib.state import Cluster

NAME = f"test-{os.getpid()}"


def call(program, *arguments, name=NAME, code=0, **options):
    """Runs `cluster` or `platform` and answers its output; fails unless it exits with `code`."""
    done = subprocess.run(
        [KUBERNETES / program, "--name", name, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        **options,
    )
    if done.returncode != code:
        raise AssertionError(
            f"{program} {' '.join(arguments)}: exit code {done.returncode}, not {code}: {done.stdout}{done.stderr}"
        )
    return done.stdout if code == 0 else done.stderr


def kubectl(*arguments, **options):
    """Runs kubectl on the cluster of the tests."""
    return call("cluster", "kubectl", *arguments, **options)


def get(*arguments, **options):
    """An object of the cluster, as a document."""
    return json.loads(kubectl("get", "-o", "json", *arguments, **options))


def apply(document, **options):
    """Creates or changes an object."""
    kubectl("apply", "--server-side", "-f", "-", input=json.dumps(document), **options)


def run_pod(name, runtime=None, command=("sleep", "3600"), image="localhost/busybox:test"):
    """Starts a Pod and waits until it is Ready."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": list(command),
        "resources": {"limits": {"memory": "512Mi"}},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if runtime:
        spec["runtimeClassName"] = runtime
    apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
    kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def on_pod(name, *command):
    """What a command in a Pod prints."""
    return kubectl("exec", name, "--", *command)


def traces():
    """What of a cluster could stay behind on this machine and has no name of its own: mounts, links, files."""
    found = {
        "mounts": {line.split(" ", 5)[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "links": set(os.listdir("/sys/class/net")),
        "files": set(),
    }
    for folder in ("/run", "/var/lib", "/var/log", "/var/run", "/opt", "/etc", "/run/containerd", "/var/lib/cni"):
        if os.path.isdir(folder):
            found["files"] |= {f"{folder}/{name}" for name in os.listdir(folder)}
    return found


def ours(name):
    """Processes that belong to a cluster: by their control groups and by their command lines."""
    cluster = Cluster(name)
    found = set(cgroups.processes(cluster.cgroup))
    for pid in kernel.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0")
        except OSError:
            continue
        if command == f"cluster {name}":
            found.add(pid)
    return found


def setUpModule():
    """One cluster for all cases that leave it whole."""
    call("cluster", "build")
    started = time.monotonic()
    call("cluster", "up")
    print(f"up in {time.monotonic() - started:.1f} s", flush=True)
    kubectl("apply", "--server-side", "-f", str(KUBERNETES / "manifests/runtime-classes.yaml"))


def tearDownModule():
    call("cluster", "down")


class Nodes(unittest.TestCase):
    """The cluster is what it says."""

    def test_node_is_ready_with_the_stamped_versions(self):
        node = get("node", "node1")
        conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
        self.assertEqual(conditions["Ready"], "True")
        info = node["status"]["nodeInfo"]
        self.assertEqual(info["kubeletVersion"], build.module_version("kubernetes", "k8s.io/kubernetes"))
        runtime = build.module_version("containerd", "github.com/containerd/containerd/v2").lstrip("v")
        self.assertEqual(info["containerRuntimeVersion"], f"containerd://{runtime}")
        server = json.loads(kubectl("version", "-o", "json"))["serverVersion"]
        self.assertEqual(server["gitVersion"], info["kubeletVersion"])

    def test_programs_tell_their_versions(self):
        for module, program, option in (
            ("runc", "github.com/opencontainers/runc", "--version"),
            ("gvisor", "gvisor.dev/gvisor", "--version"),
            ("etcd", "go.etcd.io/etcd/server/v3", "--version"),
        ):
            name = "runsc" if module == "gvisor" else module
            self.assertIn(
                build.module_version(module, program).lstrip("v"), call("cluster", "exec", "--", name, option)
            )

    def test_status_names_every_part(self):
        lines = call("cluster", "status").splitlines()
        self.assertEqual([line.split()[0] for line in lines], list(parts.PARTS))
        self.assertTrue(all(" pid " in line for line in lines))

    def test_old_versions_of_the_api_are_converted(self):
        self.assertEqual(get("sandboxclaims.v1alpha1.extensions.agents.x-k8s.io", "-A")["items"], [])


class Pods(unittest.TestCase):
    """Pods run under both runtimes."""

    @classmethod
    def setUpClass(cls):
        run_pod("plain")
        run_pod("guarded", runtime="gvisor")

    @classmethod
    def tearDownClass(cls):
        kubectl("delete", "pod", "plain", "guarded", "--now")

    def test_runc_has_the_kernel_of_the_machine(self):
        self.assertEqual(on_pod("plain", "uname", "-r").strip(), os.uname().release)

    def test_gvisor_has_a_kernel_of_its_own(self):
        self.assertIn("gVisor", on_pod("guarded", "dmesg"))

    def test_pods_reach_the_api_server_by_its_service(self):
        for pod in ("plain", "guarded"):
            script = 'nc -w 5 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT" </dev/null && echo reached'
            self.assertEqual(on_pod(pod, "sh", "-c", script).strip(), "reached")

    def test_pods_reach_each_other_and_the_node_reaches_them(self):
        address = get("pod", "plain")["status"]["podIP"]
        on_pod("plain", "sh", "-c", "echo hello >/tmp/index.html; httpd -p 8080 -h /tmp")
        self.assertEqual(on_pod("guarded", "wget", "-q", "-O", "-", f"http://{address}:8080/index.html"), "hello\n")
        self.assertEqual(
            call("cluster", "exec", "--", "busybox", "wget", "-q", "-O", "-", f"http://{address}:8080/index.html"),
            "hello\n",
        )

    def test_pods_do_not_reach_the_machine(self):
        done = subprocess.run(
            [KUBERNETES / "cluster", "--name", NAME, "exec", "--", "ip", "-o", "link"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        names = {line.split(": ")[1].split("@")[0] for line in done.stdout.splitlines()}
        self.assertEqual({n for n in names if not n.startswith("veth")}, {"lo", "node0", "pods0"})

    def test_exec_by_websocket(self):
        content = os.urandom(1 << 20)
        for pod in ("plain", "guarded"):
            with self.subTest(pod=pod):
                session = exec_client.Session(
                    Cluster(NAME), "default", pod, ["sh", "-c", "echo oops >&2; cat; exit 3"]
                )
                for start in range(0, len(content), 32768):
                    session.send(exec_client.STDIN, content[start : start + 32768])
                session.end_stdin()
                output, errors, status = session.finish()
                self.assertEqual(errors, b"oops\n")
                self.assertEqual(len(output), len(content))
                self.assertEqual(output, content)
                self.assertEqual(status["details"]["causes"], [{"reason": "ExitCode", "message": "3"}])

    def test_exec_by_websocket_of_what_is_not_there(self):
        with self.assertRaisesRegex(OSError, "404"):
            exec_client.Session(Cluster(NAME), "default", "nobody", ["true"])


class Images(unittest.TestCase):
    """The images hold what they say."""

    def test_coding_image(self):
        run_pod("coding", image="localhost/coding:test")
        self.addCleanup(kubectl, "delete", "pod", "coding", "--now")
        script = """
            id -u; pwd; echo $HOME
            touch /workspace/x && git --version && python3 -c 'print(6 * 7)' && bash -c 'echo $BASH'
        """
        lines = on_pod("coding", "sh", "-c", script).splitlines()
        self.assertEqual(lines[:3], ["10001", "/workspace", "/home/sandbox"])
        self.assertRegex(lines[3], r"^git version \d")
        self.assertEqual(lines[4:], ["42", "/usr/bin/bash"])

    def test_load_takes_an_archive(self):
        target = Path(call("cluster", "folder").strip(), "extra.tar")
        layer = archive.layer_of([("pause", 0o755, images.pause_program().read_bytes())])
        archive.write_image(target, "localhost/extra:test", layer, {"Entrypoint": ["/pause"]})
        call("cluster", "load", str(target))
        spec = {"containers": [{"name": "main", "image": "localhost/extra:test", "imagePullPolicy": "Never"}]}
        apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "extra", "namespace": "default"}, "spec": spec})
        self.addCleanup(kubectl, "delete", "pod", "extra", "--now")
        kubectl("wait", "--for=condition=Ready", "pod/extra", "--timeout=60s")


class Pools(unittest.TestCase):
    """The pools of the platform, and Claims on them."""

    @classmethod
    def setUpClass(cls):
        call("platform", "up")

    def test_a_claim_takes_a_warm_sandbox(self):
        for pool, runtime in (("coding", "runc"), ("gvisor", "gvisor")):
            with self.subTest(pool=pool):
                warm = {item["metadata"]["name"] for item in get("sandboxes", "-n", "platform")["items"]}
                apply(
                    {
                        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
                        "kind": "SandboxClaim",
                        "metadata": {"name": f"claim-{pool}", "namespace": "platform"},
                        "spec": {"warmPoolRef": {"name": pool}},
                    }
                )
                kubectl(
                    "-n", "platform", "wait", "--for=condition=Ready", f"sandboxclaim/claim-{pool}", "--timeout=60s"
                )
                sandbox = get("-n", "platform", "sandboxclaim", f"claim-{pool}")["status"]["sandbox"]["name"]
                self.assertIn(sandbox, warm)
                pod = get("-n", "platform", "sandbox", sandbox)["metadata"]["annotations"].get(
                    "agents.x-k8s.io/pod-name", sandbox
                )
                self.assertEqual(get("-n", "platform", "pod", pod)["spec"]["runtimeClassName"], runtime)
                self.assertEqual(kubectl("-n", "platform", "exec", pod, "--", "id", "-u").strip(), "10001")
                kubectl("-n", "platform", "delete", f"sandboxclaim/claim-{pool}", "--timeout=60s")

    def test_floor_measures(self):
        measured = json.loads(call("floor", "--count", "3"))
        self.assertEqual((measured["pool"], measured["count"]), ("coding", 3))
        self.assertLess(0, measured["create"]["p50"])
        self.assertLessEqual(measured["create"]["p50"], measured["ready"]["p50"])
        kubectl("-n", "platform", "wait", "--for=delete", "sandboxclaims", "--all", "--timeout=60s")

    def test_the_lease_server_may_do_what_it_needs_and_no_more(self):
        account = "--as=system:serviceaccount:platform:lease-server"
        for verb, resource, namespace, allowed in (
            ("create", "sandboxclaims.extensions.agents.x-k8s.io", "platform", True),
            ("watch", "pods", "platform", True),
            ("get", "pods/exec", "platform", True),
            ("create", "pods", "platform", False),
            ("list", "secrets", "platform", False),
            ("list", "pods", "default", False),
        ):
            with self.subTest(verb=verb, resource=resource):
                resource, _, inner = resource.partition("/")
                more = [f"--subresource={inner}"] if inner else []
                said = subprocess.run(
                    [
                        KUBERNETES / "cluster",
                        "--name",
                        NAME,
                        "kubectl",
                        "auth",
                        "can-i",
                        verb,
                        resource,
                        "-n",
                        namespace,
                        account,
                        *more,
                    ],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    check=False,
                )
                self.assertEqual(said.stdout.strip(), "yes" if allowed else "no")

    @classmethod
    def tearDownClass(cls):
        call("platform", "down")
        namespaces = {item["metadata"]["name"] for item in get("namespaces")["items"]}
        assert "platform" not in namespaces, namespaces


class Faults(unittest.TestCase):
    """Parts that are killed come back, and so does the whole cluster."""

    def test_every_part_killed_and_started_again(self):
        run_pod("survivor")
        self.addCleanup(kubectl, "delete", "pod", "survivor", "--now")
        started = get("pod", "survivor")["status"]["containerStatuses"][0]["containerID"]
        for name in parts.PARTS:
            call("cluster", "part", "kill", name)
            self.assertNotIn(name, parts.find_all(Cluster(NAME)))
        call("cluster", "status", code=1)
        call("cluster", "up")
        self.assertEqual(sorted(parts.find_all(Cluster(NAME))), sorted(parts.PARTS))
        self.assertEqual(on_pod("survivor", "echo", "here"), "here\n")
        self.assertEqual(get("pod", "survivor")["status"]["containerStatuses"][0]["containerID"], started)
        run_pod("later")
        kubectl("delete", "pod", "later", "--now")

    def test_a_part_stopped_paused_and_started(self):
        call("cluster", "part", "stop", "kube-scheduler")
        self.assertIn("does not run", call("cluster", "part", "pause", "kube-scheduler", code=1))
        call("cluster", "part", "start", "kube-scheduler")
        self.assertIn("runs already", call("cluster", "part", "start", "kube-scheduler", code=1))
        call("cluster", "part", "pause", "etcd")
        self.assertRegex(call("cluster", "status"), r"etcd .*, paused")
        call("cluster", "part", "resume", "etcd")
        self.assertEqual(get("node", "node1")["metadata"]["name"], "node1")


class SideBySide(unittest.TestCase):
    """Clusters do not know of each other, and leave nothing."""

    def test_second_cluster_beside_the_first(self):
        name = f"{NAME}-b"
        before = traces()
        call("cluster", "up", name=name)
        try:
            run_pod("first")
            self.addCleanup(kubectl, "delete", "pod", "first", "--now")
            uid = get("namespace", "kube-system")["metadata"]["uid"]
            other = get("namespace", "kube-system", name=name)["metadata"]["uid"]
            self.assertNotEqual(uid, other)
            self.assertEqual(get("pods", name=name)["items"], [])
            # Killed from outside, it is made anew.
            os.kill(Cluster(name).holder(), signal.SIGKILL)
            call("cluster", "up", name=name)
            self.assertNotEqual(get("namespace", "kube-system", name=name)["metadata"]["uid"], other)
        finally:
            folder = Path(call("cluster", "folder", name=name).strip())
            call("cluster", "down", name=name)
        self.assertEqual(ours(name), set())
        self.assertEqual(cgroups.exist(Cluster(name).cgroup), [])
        self.assertFalse(folder.exists())
        self.assertEqual(traces(), before)
        self.assertEqual(on_pod("first", "echo", "here"), "here\n")
        call("cluster", "down", name=name)  # once more is no mistake


class CutOff(unittest.TestCase):
    """A program that is killed in the middle leaves nothing that the next one cannot deal with."""

    def test_up_killed_in_the_middle(self):
        name = f"{NAME}-c"
        self.addCleanup(call, "cluster", "down", name=name)
        for line in ("Starting cluster", "The API server serves"):
            up = subprocess.Popen([KUBERNETES / "cluster", "--name", name, "up"], stderr=subprocess.PIPE, text=True)
            for said in up.stderr:
                if line in said:
                    break
            up.kill()
            up.wait()
            up.stderr.close()
        call("cluster", "up", name=name)
        self.assertEqual(sorted(parts.find_all(Cluster(name))), sorted(parts.PARTS))
        call("cluster", "down", name=name)
        self.assertEqual(ours(name), set())

    def test_two_at_once(self):
        name = f"{NAME}-d"
        self.addCleanup(call, "cluster", "down", name=name)
        command = [KUBERNETES / "cluster", "--name", name, "up"]
        both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        said = sorted(process.communicate()[1].splitlines()[-1].partition("] ")[2] for process in both)
        self.assertEqual([process.returncode for process in both], [0, 0])
        self.assertEqual(said, [f"Cluster {name} is up", f"Cluster {name} is up already"])


class Commands(unittest.TestCase):
    """The command line."""

    def test_exec_passes_streams_exit_code_and_folder(self):
        self.assertEqual(call("cluster", "exec", "--", "cat", input="in\n"), "in\n")
        call("cluster", "exec", "--", "sh", "-c", "exit 7", code=7)
        call("cluster", "exec", "--", "sh", "-c", "kill -9 $$", code=137)
        call("cluster", "exec", "--", "no-such-program", code=127)
        self.assertEqual(call("cluster", "exec", "--", "pwd", cwd="/usr/share").strip(), "/usr/share")
        self.assertEqual(call("cluster", "exec", "--", "kubectl", "get", "node", "-o", "name").strip(), "node/node1")

    def test_exec_ends_its_command_when_it_is_killed(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            process = subprocess.Popen(
                [KUBERNETES / "cluster", "--name", NAME, "exec", "--", "sh", "-c", "echo $$; exec sleep 1000"],
                stdout=subprocess.PIPE,
                text=True,
            )
            process.stdout.readline()
            inner = [
                pid for pid in kernel.processes() if int((kernel.process_fields(pid) or [0, -1])[1]) == process.pid
            ]
            self.assertEqual(len(inner), 1)
            descriptor = os.pidfd_open(inner[0])
            process.send_signal(number)
            process.wait()
            self.assertTrue(select.select([descriptor], [], [], 10)[0])
            os.close(descriptor)
            process.stdout.close()

    def test_messages(self):
        self.assertIn("A cluster's name has 1 to 40 characters", call("cluster", "up", name="Bad_Name", code=1))
        self.assertIn("does not run. Start it:", call("cluster", "kubectl", "get", "nodes", name="nobody", code=1))
        self.assertIn("does not run. Start it:", call("platform", "up", name="nobody", code=1))
        self.assertIn("choose another", call("cluster", "up", name="images", code=1))
        self.assertIn("usage: cluster exec", call("cluster", "exec", code=1))
        self.assertIn(
            "There is no cluster nobody",
            subprocess.run(
                [KUBERNETES / "cluster", "--name", "nobody", "down"], stderr=subprocess.PIPE, text=True, check=True
            ).stderr,
        )
