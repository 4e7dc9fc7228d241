"""The platform on a cluster as its users have it: its chart installed, its API reached, its simulations followed."""

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from runtimes.images import build, names
from tests.chart.rendering import CHART, tool
from tests.cluster import stores
from tests.cluster.client import Client
from tests.cluster.machines import ENVIRON
from tests.ports import free_ports

ROOT = Path(__file__).parents[2]
IMAGES = ("server", "noop", "python", "sumo", "litert")
RELEASE, NAMESPACE, PROJECT = "windtunnel", "windtunnel", "windtunnel-default"
FINAL = frozenset({"succeeded", "failed", "errored", "cancelled"})
#: Seconds that `kubectl port-forward` may take until it listens.
LISTENS = 20.0
#: Small shares: a node of the tests is this whole machine to each of the pods on it.
SHARE = {"cpu": "20m", "memory": "1Gi"}


def values(server: str, **changes: Any) -> dict[str, Any]:
    """Return what the chart is told: a trial, open to whoever reaches it, with little of everything."""
    little = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    repository, _, tag = server.rpartition(":")
    told: dict[str, Any] = {
        "trial": True,
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "settings": {"anonymous": True, "names": ["karrozzeria"], "leaseTtl": 5},
        "bundled": {name: part | {"resources": little} for name, part in stores.values().items()},
        "api": {"replicas": 2, "resources": little, "service": {"port": 5000}},
        "drivers": {"replicas": 1, "resources": little},
        "dispatch": {"replicas": 2, "resources": little},
        "jobs": {"resources": little},
        "scs": {"resources": little, "envoy": {"enabled": False}},
        "executors": {
            "cluster": {
                "cores": 2,
                "grace": 20,
                "options": {"courier": SHARE | {"memory": "256Mi"}, "player": SHARE, "host": SHARE, "patience": 20},
            }
        },
    }
    return told | changes


class Installed:
    """A release of the chart, reached by `kubectl port-forward`, which is started again when its pod goes."""

    def __init__(self, cluster: Client, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder  # on the file system that images lie on
        self.port = free_ports(1)[0]
        self._forward: subprocess.Popen[bytes] | None = None
        self._values: dict[str, Any] = {}
        self.images: dict[str, str] = {}  # references by name, of those that were brought

    # -- life

    def bring_images(self) -> str:
        """Give the nodes all images a simulation of these tests needs; return the server's."""
        for name in IMAGES:
            made = build.build(names.images()[name], ROOT / "var" / "images")
            self.images[name] = made.reference
            # Nodes that join later get the same, though somebody has made a newer one in the meantime.
            kept = self.folder / made.archive.name
            kept.hardlink_to(made.archive)
            self.cluster.import_image(kept)
        self.cluster.import_image(stores.image(self.folder))
        return self.images["server"]

    def helm(self, *arguments: str, given: Mapping[str, Any] | None = None) -> str:
        """Run helm as the administrator."""
        command = [tool("helm"), f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={NAMESPACE}", *arguments]
        done = subprocess.run(
            command,
            input=json.dumps(given or {}),
            capture_output=True,
            text=True,
            timeout=300,
            env=ENVIRON | {"HOME": str(self.folder)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, **changes: Any) -> None:
        """Install it and wait until it can be asked."""
        server = self.bring_images()
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": restricted}}
        self.cluster.apply(space)
        self._values = values(server, **changes)
        with self.only("node-0"):  # a trial's stores go with their node, and tests cut the others' power
            self.upgrade()
            self._settle()
        self.until(lambda: self.ready, "the API answers")

    def _settle(self) -> None:
        for deployment in ("api", "drivers", "dispatch", "jobs"):
            self.cluster.rolled_out(NAMESPACE, f"{RELEASE}-{deployment}")

    @contextlib.contextmanager
    def only(self, name: str) -> Iterator[None]:
        """Let new pods go to one node alone for a while."""
        others = [one for one in self.nodes() if one != name]
        for other in others:
            self.cluster.kubectl("cordon", other)
        try:
            yield
        finally:
            for other in others:
                self.cluster.kubectl("uncordon", other)

    def nodes(self) -> list[str]:
        """Return the names of the nodes."""
        return [one.removeprefix("node/") for one in self.cluster.kubectl("get", "nodes", "-o", "name").split()]

    def upgrade(self) -> None:
        """Bring the release to what it was told, also where somebody has taken some of it away."""
        self.helm("upgrade", "--install", RELEASE, str(CHART), "--values", "-", given=self._values)

    def option(self, **options: Any) -> None:
        """Change options of its executor, and wait until the roles have heard."""
        executors = self._values["executors"]
        cluster = executors["cluster"]
        changed = cluster | {"options": cluster["options"] | options}
        self._values = self._values | {"executors": executors | {"cluster": changed}}
        self.upgrade()
        self._settle()
        self.until(lambda: self.ready, "the API answers")

    def waiting(self) -> list[str]:
        """Return the launches that wait for a simulation and whose pods are ready."""
        selector = ["-n", PROJECT, "-l", "windtunnel/warm", "-o", "json"]
        found = json.loads(self.cluster.kubectl("get", "jobsets", *selector))["items"]
        return [
            one["metadata"]["labels"]["windtunnel/launch"]
            for one in found
            if any(group.get("ready") for group in one.get("status", {}).get("replicatedJobsStatus", []))
        ]

    def uninstall(self) -> None:
        """Take it away, and everything it had made."""
        if self._forward is not None:
            self._forward.kill()
            self._forward.wait()
        self.helm("uninstall", RELEASE)
        for namespace in (PROJECT, NAMESPACE):
            self.cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")

    def settle(self) -> None:
        """See to it that JobSet is there: whatever stopped the API server has stopped it, and it comes back slowly."""
        path = "/apis/apps/v1/namespaces/jobset-system/deployments/jobset-controller-manager"
        if not (self.cluster.get(path) or {}).get("status", {}).get("availableReplicas"):
            self.cluster.kubectl("delete", "pods", "-n", "jobset-system", "--all", "--force", "--grace-period=0")
        self.cluster.rolled_out("jobset-system", "jobset-controller-manager")

    # -- what a user does

    @property
    def url(self) -> str:
        """Where the API is reached."""
        if self._forward is None or self._forward.poll() is not None:
            command = ["port-forward", "-n", NAMESPACE, f"service/{RELEASE}-api", f"{self.port}:5000"]
            kubectl = [str(self.cluster._kubectl), f"--kubeconfig={self.cluster.kubeconfig}", *command]
            null = subprocess.DEVNULL
            environ = ENVIRON | {"HOME": str(self.folder)}
            self._forward = subprocess.Popen(kubectl, stdin=null, stdout=null, stderr=null, env=environ)
            self._listened()
        return f"http://127.0.0.1:{self.port}"

    def _listened(self) -> None:
        """Wait until the forward listens, or has given up: whoever asks sooner would take it for one that is gone."""
        ends = time.monotonic() + LISTENS
        while self._forward is not None and self._forward.poll() is None and time.monotonic() < ends:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                return
            time.sleep(0.05)

    @property
    def ready(self) -> bool:
        """Whether it can be asked."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5.0).status_code == 200
        except httpx.HTTPError:
            self._hang_up()
            return False

    def _hang_up(self) -> None:
        """Drop a forward whose pod may be gone: kubectl keeps to the pod it chose."""
        if self._forward is not None:
            self._forward.kill()
            self._forward.wait()

    def get(self, path: str) -> Any:
        """Ask, again if the way there has just been cut."""
        for _ in range(100):
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(self.url + path, timeout=30.0)
                if answer.status_code < 500:
                    answer.raise_for_status()
                    return answer.json()
            self._hang_up()
            time.sleep(0.2)
        raise AssertionError(f"{path} is not answered\n{self.cluster.state()}")

    def submit(self, **asked: Any) -> str:
        """Submit a simulation and return its id."""
        self.until(lambda: self.ready, "the API answers")
        answer = httpx.post(f"{self.url}/v1/simulations", json=asked, timeout=60.0)
        assert answer.status_code == 201, answer.text
        id: str = answer.json()["id"]
        return id

    def cancel(self, id: str) -> None:
        """End a simulation before its time."""
        self.until(lambda: self.ready, "the API answers")
        httpx.post(f"{self.url}/v1/simulations/{id}/cancel", timeout=60.0)

    def ended(self, id: str, patience: float = 180.0) -> Any:
        """Wait for the end of a simulation and return it."""
        ends = time.monotonic() + patience
        while (found := self.get(f"/v1/simulations/{id}"))["state"] not in FINAL:
            assert time.monotonic() < ends, f"{found}\n{self.messages(id)}\n{self.cluster.state()}"
            time.sleep(0.2)
        return found

    def results(self, id: str) -> list[Any]:
        """Return all results, in the order of their tasks."""
        for _ in range(20):
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(f"{self.url}/v1/simulations/{id}/results", timeout=60.0)
                found = [json.loads(line) for line in answer.text.splitlines()]
                return sorted(found, key=lambda one: one["task"])
            self._hang_up()
            time.sleep(0.5)
        raise AssertionError("no results")

    def messages(self, id: str) -> list[str]:
        """Return what was said of the launches in the simulation's own events."""
        with (
            contextlib.suppress(httpx.TransportError),
            httpx.stream("GET", f"{self.url}/v1/simulations/{id}/events", timeout=10.0) as answer,
        ):
            return list(_messages(answer.iter_lines()))
        return []

    # -- what an operator sees

    def pods(self, selector: str, namespace: str = PROJECT) -> list[Any]:
        """Return pods by their labels."""
        found: list[Any] = json.loads(
            self.cluster.kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "json")
        )["items"]
        return found

    def left(self, namespace: str = PROJECT) -> list[str]:
        """Return what launches have left behind in a namespace."""
        kinds = "jobsets,jobs,pods,secrets,services,networkpolicies"
        found = self.cluster.kubectl("get", kinds, "-n", namespace, "-l", "windtunnel/launch", "-o", "name")
        return found.split()

    def until(self, so: Callable[[], object], what: str, patience: float = 180.0) -> None:
        """Wait until it is so."""
        self.cluster.until(lambda: bool(so()), what, patience)


def _messages(lines: Iterator[str]) -> Iterator[str]:
    """Yield the messages of launch events, up to the last event there is."""
    kind = ""
    for line in lines:
        if line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("data:") and kind == "launch":
            yield json.loads(line[5:])["message"]
        elif line.startswith(":"):
            return


def untimed(results: Sequence[Any]) -> list[Any]:
    """Return results without what may differ between two runs."""
    return [{key: value for key, value in one.items() if key != "timing"} for one in results]
