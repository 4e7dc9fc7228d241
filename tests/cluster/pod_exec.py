"""Programs executed in pods: models that attack, and the same attacks in unconfined processes of the same container."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.client import Client
from tests.cluster.cluster import Cluster
from tests.cluster.machines import ENVIRON
from tests.cluster.platform_release import NAMESPACE, RELEASE, PlatformRelease

PROGRAMS = Path(__file__).parent / "pod_programs"
SANDBOX_PROGRAMS = Path(__file__).parents[1] / "sandbox" / "inside"
#: Modules in the order of their imports.
MODULES = (
    *(SANDBOX_PROGRAMS / f"{name}.py" for name in ("registry", "runner_stub")),
    *(SANDBOX_PROGRAMS / f"on_{name}.py" for name in ("resources", "files", "network", "kernel", "processes")),
    *(PROGRAMS / f"{name}.py" for name in ("on_pod", "attack_runner", "victim", "secret_search")),
)
PRELUDE = """import sys, types
for _name, _source in {sources!r}.items():
    sys.modules[_name] = _module = types.ModuleType(_name)
    exec(compile(_source, _name, "exec"), _module.__dict__)
"""
#: Reads a program from standard input and executes it; the rest of standard input is the program's input.
LOADER = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())).decode(), {'__name__': 'program'})"
#: Address of a cloud's metadata service.
METADATA = "169.254.169.254"


@contextmanager
def metadata_service(cluster: Cluster) -> Iterator[None]:
    """Serve the address of a cloud's metadata service on the first node."""
    node = cluster.node(0)
    node.call("ip", "address", "add", f"{METADATA}/32", "dev", "lo")
    node.run("metadata", sys.executable, "-m", "http.server", "80", "--bind", METADATA, "--directory", "/proc/self/ns")
    try:
        yield
    finally:
        node.end("metadata")
        node.call("ip", "address", "del", f"{METADATA}/32", "dev", "lo")


def target_addresses(platform: PlatformRelease, cluster: Cluster) -> dict[str, str]:
    """Return the addresses of the servers that a pod's attacks try, by the keys that attacks use."""

    def service(component: str) -> str:
        spec = cluster.get(f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}-{component}")["spec"]
        return f"{spec['clusterIP']}:{spec['ports'][0]['port']}"

    api = platform.pods("app.kubernetes.io/component=api", NAMESPACE)[0]
    return {
        "api_server": f"{cluster.network.first_service}:443",
        "kubelet": f"{cluster.node(0).address}:10250",
        "dns": cluster.network.dns,
        "pod": f"{api['status']['podIP']}:5000",
        "runner_api": service("runner-api"),
        "cache": service("scs"),
        "database_server": service("postgresql"),
        "redis": service("valkey"),
        "store": service("minio"),
        "launch": "unknown",
    }


def bundle(code: str, stage: Mapping[str, Any]) -> str:
    """Return a single source of code that imports the attacks, and its stage from ``attack_stage``."""
    sources = {path.stem: path.read_text() for path in MODULES} | {"attack_stage": f"STAGE = {dict(stage)!r}\n"}
    return PRELUDE.format(sources=sources) + code


def model_source(name: str, stage: Mapping[str, Any]) -> bytes:
    """Return the source of a model, with the attacks that it imports."""
    return bundle((PROGRAMS / f"{name}.py").read_text(), stage).encode()


class Container:
    """A running container of a pod, in which an administrator executes programs."""

    def __init__(self, cluster: Client, namespace: str, pod: str, name: str) -> None:
        self._cluster, self._namespace, self._pod, self._name = cluster, namespace, pod, name

    def python(self, source: str, *, stdin: str = "", timeout: float = 60.0) -> str:
        """Run a Python program to its end and return its output."""
        return self._cluster.kubectl(*self._exec_arguments(), stdin=_framed(source) + stdin, timeout=timeout)

    def start(self, source: str) -> "subprocess.Popen[bytes]":
        """Start a Python program whose standard input stays open; return once it has printed `ready`."""
        cluster = self._cluster
        kubectl = [str(cluster.program), f"--kubeconfig={cluster.kubeconfig}", *self._exec_arguments()]
        pipe = subprocess.PIPE
        environment = ENVIRON | {"HOME": str(cluster.folder)}
        process = subprocess.Popen(kubectl, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, env=environment)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(_framed(source).encode())
        process.stdin.flush()
        if (line := process.stdout.readline()) != b"ready\n":
            process.kill()
            raise AssertionError(line + process.communicate()[0])
        return process

    def _exec_arguments(self) -> list[str]:
        container = ["exec", "-i", "-n", self._namespace, self._pod, "-c", self._name, "--"]
        return [*container, "python", "-I", "-S", "-B", "-c", LOADER]


def _framed(source: str) -> str:
    return f"{len(source.encode())}\n{source}"


def outcomes(text: str) -> dict[str, tuple[str, str, str]]:
    """Parse the outcomes of attacks by name: result, details, and description."""
    outcomes_by_name = {}
    for line in text.splitlines():
        _, marker, fields = line.partition("attack [")
        if marker:
            name, result, details, description = json.loads(f"[{fields}")
            outcomes_by_name[name] = (result, details, description)
    return outcomes_by_name
