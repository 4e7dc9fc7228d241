"""Components of a test cluster: programs built from source, and images of them; built once per machine."""

import fcntl
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import cached
from tests.cached import BUILDING, TOOLS
from tests.cluster.oci import write_image
from tests.cluster.settings import PAUSE

COREDNS = "windtunnel.local/coredns:v1.13.1"
JOBSET = "windtunnel.local/jobset:v0.11.1"
TRAINER = "windtunnel.local/trainer:v2.2.0"
MPI_OPERATOR = "windtunnel.local/mpi-operator:v0.7.0"
KUEUE = "windtunnel.local/kueue:v0.16.2"
#: A shell, and a program that serves, sends requests and resolves names, for tests of the cluster itself.
PROBE = "windtunnel.local/probe:1"


def tool(name: str, *arguments: str) -> Path:
    """Return the path that a script of scripts/tools prints."""
    return Path(cached.tool(name, *arguments))


def install() -> None:
    """Ensure that this machine has the packages that nodes need."""
    subprocess.run([TOOLS / "node"], check=True, timeout=BUILDING)


def pause_image() -> Path:
    """Return an archive of the pause image."""
    return image("pause", PAUSE, tool("probe"), {"pause": tool("probe")}, entry=["/pause"])


def probe_image() -> Path:
    """Return an archive of the tests' own image."""
    return image("test", PROBE, tool("probe"), {"bin/probe": tool("probe")}, entry=[], sh=True)


def coredns_image() -> Path:
    """Return an archive of CoreDNS."""
    return image("image", COREDNS, tool("coredns"), {"coredns": tool("coredns")}, entry=["/coredns"])


def jobset_image() -> Path:
    """Return an archive of JobSet's controller."""
    return image("image", JOBSET, tool("jobset"), {"manager": tool("jobset")}, entry=["/manager"], user="65532:65532")


def trainer_image() -> Path:
    """Return an archive of Trainer's controller."""
    programs = {"manager": tool("trainer")}
    return image("image", TRAINER, tool("trainer"), programs, entry=["/manager"], user="65532:65532")


def mpi_operator_image() -> Path:
    """Return an archive of the MPI operator."""
    built = tool("mpi-operator")
    return image("image", MPI_OPERATOR, built, {"manager": built}, entry=["/manager"], user="65532:65532")


def kueue_image() -> Path:
    """Return an archive of Kueue's controller."""
    return image("image", KUEUE, tool("kueue"), {"manager": tool("kueue")}, entry=["/manager"], user="65532:65532")


def image(
    kind: str,
    name: str,
    beside: Path,
    programs: Mapping[str, Path],
    *,
    entry: Sequence[str],
    user: str = "",
    sh: bool = False,
) -> Path:
    """Write a program's image beside it, unless it exists; the program's name contains its digest."""
    target = beside.with_name(f"{beside.name}.{kind}.tar")
    if not target.exists():
        with open(beside, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                write_image(target, name, programs, entry=entry, user=user, sh=sh)
    return target
