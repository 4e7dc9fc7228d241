"""Looks for a secret wherever a process of a container can look."""

import contextlib
import json
import os
from pathlib import Path

PLACES = ("/run", "/var", "/tmp", "/etc", "/dev", "/home", "/root", "/opt/windtunnel/src", "/sys/fs/cgroup")
#: Of each process: what it was started with, and where a secret would be mounted.
OF_PROCESSES = ("environ", "cmdline", "mountinfo", "root/run/windtunnel/token/token")
LARGEST = 1 << 20


def main(secret: str) -> None:
    """Say where it is, and what else this container has, as JSON."""
    wanted = secret.encode()
    own = os.getpid()
    files = [Path(folder, name) for place in PLACES for folder, _, names in os.walk(place) for name in names]
    files += [Path("/proc", pid, name) for pid in processes() if pid != str(own) for name in OF_PROCESSES]
    said = {
        "found": sorted(str(path) for path in files if wanted in content(path)),
        "environment": sorted(name for name, value in os.environ.items() if secret in value),
        "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "processes": [content(Path("/proc", pid, "cmdline")).decode().replace("\0", " ")[:200] for pid in processes()],
        "status": status(),
        "addresses": [addresses(pid) for pid in processes() if pid != str(own)],
    }
    print(json.dumps(said))


def processes() -> list[str]:
    """Return all there are to be seen."""
    return [name for name in os.listdir("/proc") if name.isdigit()]


def content(path: Path) -> bytes:
    """Return what can be read of an ordinary file."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(LARGEST)
    return b""


def status() -> dict[str, str]:
    """Return what the kernel says of this process."""
    lines = [line.partition(":") for line in Path("/proc/self/status").read_text().splitlines()]
    wanted = ("Uid", "Groups", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
    return {name: value.strip() for name, _, value in lines if name in wanted}


def addresses(pid: str) -> str:
    """Return how many bytes of addresses a process may have, as the kernel says it."""
    limits = content(Path("/proc", pid, "limits")).decode()
    return next((line.split()[3] for line in limits.splitlines() if line.startswith("Max address space")), "gone")
