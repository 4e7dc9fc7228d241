"""Searches for a secret in all files and processes that a process of a container can read."""

import contextlib
import json
import os
from pathlib import Path

FOLDERS = ("/run", "/var", "/tmp", "/etc", "/dev", "/home", "/root", "/opt/windtunnel/src", "/sys/fs/cgroup")
#: Files of each process in /proc: its command line, environment and mounts, and the launch's token in its root folder.
PROCESS_FILES = ("environ", "cmdline", "mountinfo", "root/run/windtunnel/token/token")
LARGEST = 1 << 20


def main(secret: str) -> None:
    """Print the files and variables that contain the secret, and properties of this container, as JSON."""
    pattern = secret.encode()
    own = os.getpid()
    files = [Path(folder, name) for root in FOLDERS for folder, _, names in os.walk(root) for name in names]
    files += [Path("/proc", pid, name) for pid in processes() if pid != str(own) for name in PROCESS_FILES]
    report = {
        "found": sorted(str(path) for path in files if pattern in content(path)),
        "environment": sorted(name for name, value in os.environ.items() if secret in value),
        "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "processes": [content(Path("/proc", pid, "cmdline")).decode().replace("\0", " ")[:200] for pid in processes()],
        "status": status(),
        "addresses": [addresses(pid) for pid in processes() if pid != str(own)],
    }
    print(json.dumps(report))


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
    fields = ("Uid", "Groups", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
    return {name: value.strip() for name, _, value in lines if name in fields}


def addresses(pid: str) -> str:
    """Return a process's limit of its address space, from the kernel."""
    limits = content(Path("/proc", pid, "limits")).decode()
    return next((line.split()[3] for line in limits.splitlines() if line.startswith("Max address space")), "gone")
