"""Searches for a secret in all places that a process of a container can read."""

import contextlib
import json
import os
from pathlib import Path

PLACES = ("/run", "/var", "/tmp", "/etc", "/dev", "/home", "/root", "/opt/windtunnel/src", "/sys/fs/cgroup")
#: Per process: its command line and environment, and its mounts.
OF_PROCESSES = ("environ", "cmdline", "mountinfo", "root/run/windtunnel/token/token")
LARGEST = 1 << 20


def main(secret: str) -> None:
    """Print the places of the secret and properties of this container, as JSON."""
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
    """Return all visible processes."""
    return [name for name in os.listdir("/proc") if name.isdigit()]


def content(path: Path) -> bytes:
    """Return the readable content of a regular file."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(LARGEST)
    return b""


def status() -> dict[str, str]:
    """Return this process's status from the kernel."""
    lines = [line.partition(":") for line in Path("/proc/self/status").read_text().splitlines()]
    wanted = ("Uid", "Groups", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
    return {name: value.strip() for name, _, value in lines if name in wanted}


def addresses(pid: str) -> str:
    """Return a process's limit of address space, from the kernel."""
    limits = content(Path("/proc", pid, "limits")).decode()
    return next((line.split()[3] for line in limits.splitlines() if line.startswith("Max address space")), "gone")
