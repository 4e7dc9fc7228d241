"""Environments: folders of packages, installed by uv from a lock file with hashes, shared and content-addressed.

An environment is a plain folder that a launch puts on its path, not a venv, so it can be bound read-only anywhere.
Installing runs no code of the packages (`--no-build`), and downloads are checked against the lock's hashes.
"""

import fcntl
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import uv

from runtimes.compiled_code import CannotCompile, CompiledCode, Refused, find_compiler
from runtimes.confined_program import killed
from runtimes.equal_files import link_equal_files

_log = logging.getLogger(__name__)

#: Callback while an environment is prepared: a message, and the fraction done from 0 to 1 (None: unknown).
Progress = Callable[[str, float | None], None]

#: An environment does not change after it is prepared, so imports do not compare bytecode with sources.
COMPILED = {"PYC_INVALIDATION_MODE": "UNCHECKED_HASH"}
#: Environments included in the image, beside the code; read-only.
IMAGE_ENVIRONMENTS = Path(__file__).parents[2] / "environments"


class CannotPrepare(Exception):
    """The packages could not be downloaded, or do not match the lock's hashes."""


class IndexUnavailable(CannotPrepare):
    """The package index did not answer, or answered with a server error; a later attempt may succeed."""


class ProgramKilled(CannotPrepare):
    """A program was killed from outside, which says nothing of what it worked on; a later attempt may succeed."""


class OutOfSpace(CannotPrepare):
    """The disk is full; a later attempt may succeed."""


#: What uv (0.9) writes about an index that it cannot reach.
_OUTAGE = re.compile(
    r"error sending request|error trying to connect|dns error|connection (refused|reset|closed)|timed? ?out"
    r"|network (is unreachable|connectivity is disabled)|network was disabled|server error \(5\d\d|client error \(429",
    re.IGNORECASE,
)


_NO_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)


def preparation_error(output: str) -> CannotPrepare:
    """Return the error for uv's output."""
    if _NO_SPACE.search(output):
        return OutOfSpace(output[:1000])
    return (IndexUnavailable if _OUTAGE.search(output) else CannotPrepare)(output[:1000])


def target() -> str:
    """Return what an environment is for: interpreter version and machine architecture."""
    return f"{sys.implementation.cache_tag} {platform.machine()}"


@dataclass(frozen=True, slots=True)
class Environment:
    """The packages of a runtime's format or of a simulator. ``lock`` is the text of a requirements file with hashes.

    ``compiled``: code that is built against the packages where there is a compiler; None if there is no such code.
    """

    name: str
    lock: str
    compiled: CompiledCode | None = None

    @property
    def digest(self) -> str:
        """Content address: SHA-256 of the interpreter version, the machine architecture, the lock and the sources.

        Not of whether the sources are built: results do not depend on that.
        """
        return _digest_of(target(), self.lock, "" if self.compiled is None else f"\n{self.compiled.digest}")

    @property
    def packages(self) -> int:
        """Number of packages in the lock."""
        return len(re.findall(r"^[A-Za-z0-9]", self.lock, re.MULTILINE))


@lru_cache(256)  # asked for at each launch, for each kind that is kept warm
def _digest_of(target: str, lock: str, sources: str) -> str:
    return hashlib.sha256(f"{target}\n{lock}{sources}".encode()).hexdigest()


def ready(environment: Environment, root: Path, included: Path = IMAGE_ENVIRONMENTS) -> Path | None:
    """Return the folder of an environment's packages if it is prepared under ``root`` or included in this image."""
    sites = (folder / environment.digest / "site" for folder in (root, included))
    return next((site for site in sites if site.is_dir()), None)


def prepare(environment: Environment, root: Path, progress: Progress) -> Path:
    """Prepare an environment unless it exists; return the folder of its packages. Concurrent calls share a download.

    If it is killed, the next call removes its draft. Raises CannotPrepare with uv's output.
    """
    if (site := ready(environment, root)) is not None and not _can_compile(environment, site, root):
        return site
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f".{environment.digest}.lock", "w") as lock:
        _wait_for(lock.fileno(), environment.name, progress)
        if (site := ready(environment, root)) is not None:
            if _can_compile(environment, site, root):
                _compile(environment, site, progress)
            return site
        draft = root / f".{environment.digest}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        (draft / "lock.txt").write_text(environment.lock)
        _install(environment, draft, lock.fileno(), progress)
        _compile(environment, draft / "site", progress)
        freeze(draft)
        link_equal_files(draft / "site", root.glob("[!.]*/site"))
        draft.rename(root / environment.digest)
    progress("ready", 1.0)
    return root / environment.digest / "site"


def _can_compile(environment: Environment, site: Path, root: Path) -> bool:
    """Whether an environment lacks its compiled code although it can be built now: a compiler was installed later.

    A compiler that has refused the sources is not asked again: each launch would wait for it.
    """
    code = environment.compiled
    if code is None or code.is_built(site) or root not in site.parents:
        return False
    return find_compiler() is not None and not code.is_refused(site)


def _compile(environment: Environment, site: Path, progress: Progress) -> None:
    """Build the environment's compiled code. Without it the environment works too."""
    if environment.compiled is None:
        return
    progress(f"compiling {environment.compiled.output}", None)
    try:
        environment.compiled.build(site)
    except CannotCompile as error:
        if isinstance(error, Refused):
            environment.compiled.note_refusal(site)
        without = environment.compiled.without
        _log.warning("environment %s: its compiled code is not built, so %s: %s", environment.name, without, error)
        progress(f"without compiled code, so {without}: {error}", None)


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
    # Hooks of packages may run in uv's process, so it gets no WINDTUNNEL_ settings, which may hold store keys.
    environ = {key: value for key, value in os.environ.items() if not key.startswith("WINDTUNNEL_")} | COMPILED
    output = []
    # uv inherits the lock: if this process is killed, no other process touches the draft until uv has exited.
    # What uv keeps in its cache, other programs of this user link to: it gets the usual modes, not this process's.
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[lock], env=environ, umask=0o022
    ) as process:
        assert process.stderr is not None
        for line in _lines(process.stderr.fileno()):
            output.append(line)
            progress(line, None)
    if (how := killed(process.returncode)) is not None:
        raise ProgramKilled(f"the installer, uv, was {how}; it is tried again")
    if process.returncode:
        lines = [line for line in output if not line.startswith("sha256:")]  # a mismatch lists every accepted hash
        raise preparation_error(" ".join(lines[-8:]))


def _lines(descriptor: int) -> Iterator[str]:
    rest = b""
    while piece := os.read(descriptor, 4096):
        *whole, rest = re.split(rb"[\r\n]+", rest + piece)
        yield from (text for line in whole if (text := line.decode(errors="replace").strip()))
    if text := rest.decode(errors="replace").strip():
        yield text


def freeze(draft: Path, *, user: int | None = None) -> None:
    """Remove all write permissions; let all users read, as the sandbox has its own.

    ``user``: the owner to give everything to, if another user wrote it.
    """
    (draft / "site" / ".lock").unlink(missing_ok=True)  # of uv
    for folder, _, files in os.walk(draft):
        if user is not None:
            os.chown(folder, user, -1)
        os.chmod(folder, 0o755)
        for name in files:
            path = os.path.join(folder, name)
            if user is not None:
                os.chown(path, user, -1, follow_symlinks=False)
            if not os.path.islink(path):
                os.chmod(path, 0o555 if os.stat(path).st_mode & 0o100 else 0o444)
