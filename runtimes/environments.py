"""Environments: folders of packages, made by uv from a hashed lock, shared and named by content.

An environment is no venv but a plain folder that a launch puts on its path, so it can be bound read-only anywhere.
Building runs no code of the packages (`--no-build`), and what arrives is checked against the lock's hashes.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uv

#: Told while an environment is being made: what is going on, and which part of it is done (None: unknown).
Progress = Callable[[str, float | None], None]

#: Nothing changes in an environment any more, so its bytecode is not compared with its sources at every import.
COMPILED = {"PYC_INVALIDATION_MODE": "UNCHECKED_HASH"}
#: What an image brings along, beside our code; it is never added to.
BROUGHT = Path(__file__).parents[2] / "environments"


class CannotPrepare(Exception):
    """The packages could not be had, or are not the ones of the lock."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The packages of a runtime's format or of a simulator: ``lock`` is the text of a requirements file with hashes."""

    name: str
    lock: str

    @property
    def digest(self) -> str:
        """Name by content: equal packages for an equal interpreter on an equal machine."""
        target = f"{sys.implementation.cache_tag} {platform.machine()}\n"
        return hashlib.sha256((target + self.lock).encode()).hexdigest()

    @property
    def packages(self) -> int:
        """How many packages the lock names."""
        return len(re.findall(r"^[A-Za-z0-9]", self.lock, re.MULTILINE))


def ready(environment: Environment, root: Path, brought: Path = BROUGHT) -> Path | None:
    """Return the folder of an environment's packages if it lies prepared under ``root``, or came with this image."""
    sites = (folder / environment.digest / "site" for folder in (root, brought))
    return next((site for site in sites if site.is_dir()), None)


def prepare(environment: Environment, root: Path, progress: Progress) -> Path:
    """Make an environment unless it is there, and return the folder of its packages; one download however many ask.

    Killed at any moment, it leaves a draft that the next one removes. Raise CannotPrepare, with uv's own words.
    """
    if (found := ready(environment, root)) is not None:
        return found
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f".{environment.digest}.lock", "w") as lock:
        _wait_for(lock.fileno(), environment.name, progress)
        if (found := ready(environment, root)) is not None:
            return found
        draft = root / f".{environment.digest}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        (draft / "lock.txt").write_text(environment.lock)
        _install(environment, draft, lock.fileno(), progress)
        _freeze(draft)
        draft.rename(root / environment.digest)
    progress("ready", 1.0)
    return root / environment.digest / "site"


def _wait_for(lock: int, name: str, progress: Progress) -> None:
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"{name} is being prepared by another process", None)
            time.sleep(0.5)


def _install(environment: Environment, draft: Path, lock: int, progress: Progress) -> None:
    progress(f"downloading {environment.packages} packages", 0.0)
    command = [uv.find_uv_bin(), "pip", "install", "--python", sys.executable, "--target", str(draft / "site")]
    command += ["--require-hashes", "--no-build", "--no-deps", "--link-mode=copy", "--no-python-downloads"]
    command += ["--no-config", "--compile-bytecode", "-r", str(draft / "lock.txt")]
    # A package's own hooks may run in there: it is told nothing of ours, keys of stores least of all.
    environ = {key: value for key, value in os.environ.items() if not key.startswith("WINDTUNNEL_")} | COMPILED
    said = []
    # It holds the lock, too: should we be killed, nobody touches the draft until it has ended as well.
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[lock], env=environ
    ) as process:
        assert process.stderr is not None
        for line in _lines(process.stderr.fileno()):
            said.append(line)
            progress(line, None)
    if process.returncode:
        words = [line for line in said if not line.startswith("sha256:")]  # a mismatch lists all that would do
        raise CannotPrepare(" ".join(words[-8:])[:1000])


def _lines(descriptor: int) -> Iterator[str]:
    rest = b""
    while piece := os.read(descriptor, 4096):
        *whole, rest = re.split(rb"[\r\n]+", rest + piece)
        yield from (text for line in whole if (text := line.decode(errors="replace").strip()))
    if text := rest.decode(errors="replace").strip():
        yield text


def _freeze(draft: Path) -> None:
    """Take away what nobody needs there, and everybody's right to write."""
    shutil.rmtree(draft / "site" / "bin", ignore_errors=True)
    for folder, _, files in os.walk(draft):
        for name in files:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode & 0o555)
