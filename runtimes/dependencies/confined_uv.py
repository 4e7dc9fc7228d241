"""Confined uv: a run of the package installer in a sandbox of its own, and the limits that are watched meanwhile.

uv reaches the folders that it fills, its cache, and through a proxy the hosts of the operator's package indexes.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uv

from runtimes import confined_program
from runtimes.dependencies.index_proxy import Address, IndexProxy
from runtimes.dependencies.untrusted_folders import DEPTH, usage_of
from runtimes.environments import Progress

#: User id of uv where root starts it; the same at each run, so that its cache stays its own.
USER = 0x6FFFFFF0
#: Seconds between two looks at what was written.
WATCH = 0.25
#: Address space in bytes, descriptors and tasks of uv with its children.
MEMORY, FILES, TASKS = 32 << 30, 4096, 256
#: The most lines of output that are kept, from the end, and the most bytes of a line.
LINES, LINE = 200, 4096
#: The most lines that progress gets: each is an event of a simulation.
REPORTED = 500
#: Files and folders that may be written to one folder at most.
ENTRIES = 200_000
#: What the cache may take, as a multiple of the limits of one folder: it has the packages of other runs too.
CACHED = 4

#: The interpreter that models run on.
PYTHON = os.path.realpath(sys.executable)


@dataclass(frozen=True, kw_only=True, slots=True)
class UvOptions:
    """What uv may reach. ``largest``: bytes that it may receive, and write to one folder.

    ``environ``: of uv, with indexes and certificates; ``readonly``: further files that it reads; ``allowed``: the
    addresses of the indexes; ``upstream``: of a proxy on the way to them. ``sandbox``: whether uv is confined.
    """

    cache: Path
    environ: Mapping[str, str]
    readonly: Sequence[str]
    allowed: frozenset[Address]
    upstream: Address | None
    largest: int
    sandbox: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class UvResult:
    """The end of a run: exit code, output, and the limit that ended it, if one did.

    ``refused``: hosts that files were to come from and that are not allowed.
    """

    code: int
    output: str
    limit: str = ""
    refused: tuple[str, ...] = ()


def run(
    arguments: Sequence[str], options: UvOptions, folders: Sequence[Path], seconds: float, progress: Progress
) -> UvResult:
    """Run uv with these arguments until it ends or exceeds a limit. It may write to ``folders``, and to its cache.

    From the main thread: uv ends with the thread that started it. Progress gets uv's lines.
    """
    folders = (*folders, options.cache)
    as_root = options.sandbox and os.geteuid() == 0
    if as_root:
        confined_program.give(USER, folders[:-1], contents=True)
        confined_program.give(USER, [options.cache], contents=False)
    local, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with remote:
        process = _start(arguments, options, folders, remote.fileno(), USER if as_root else None)
    proxy = _proxy(local, options)
    watch = _Watch(process, folders, options.largest, seconds)
    lines: list[str] = []
    try:
        assert process.stderr is not None
        reported = 0
        while raw := process.stderr.readline(LINE):
            if line := raw.decode(errors="replace").strip():
                lines = [*lines[-LINES:], line]
                reported += 1
                if reported <= REPORTED:
                    progress(line[:200], None)
    except BaseException:
        watch.end()
        raise
    finally:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        watch.end()  # children that it left, which could still write
        code = process.wait()
        process.stderr.close()  # type: ignore[union-attr]
        watch.join()
        if proxy is not None:
            proxy.close()
    limit = (
        watch.limit or watch.exceeded() or (_too_large(options.largest) if proxy is not None and proxy.exceeded else "")
    )
    refused = tuple(sorted({host for host, _ in proxy.refused})) if proxy is not None else ()
    return UvResult(code=code, output="\n".join(lines), limit=limit, refused=refused)


def _start(
    arguments: Sequence[str], options: UvOptions, folders: Sequence[Path], listener: int, user: int | None
) -> "subprocess.Popen[bytes]":
    binary = uv.find_uv_bin()
    readonly = {binary, PYTHON, *options.readonly}
    confinement: dict[str, Any] = {
        "readonly": sorted(path for path in readonly if os.path.exists(path)),
        "writable": [str(folder) for folder in folders],
        "listener": listener,
        "memory": MEMORY,
        "files": FILES,
        "processes": TASKS,
        "largest_file": options.largest,
        "uid": user,
        "level": None if options.sandbox else 1,
        "oom_score": 500,
    }
    return confined_program.start([binary, *arguments], options.environ, confinement, keep=[listener])


def _proxy(local: socket.socket, options: UvOptions) -> IndexProxy | None:
    """Receive the listener from the sandbox and start the proxy on it; None if the sandbox failed before."""
    with local:
        data, descriptors, _, _ = socket.recv_fds(local, 16, 1)
    if not data or not descriptors:
        return None
    listener = socket.socket(fileno=descriptors[0])
    return IndexProxy(listener, options.allowed, largest=options.largest, upstream=options.upstream)


class _Watch:
    """A thread that ends uv when it takes too long, or has written too much to one of its folders."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", folders: Sequence[Path], largest: int, seconds: float
    ) -> None:
        self.limit = ""
        self._process = process
        self._limits = [(folder, 1) for folder in folders[:-1]] + [(folders[-1], CACHED)]
        self._largest = largest
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="uv-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End uv and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def join(self) -> None:
        """Stop watching, after the end of uv."""
        self._ended.set()
        self._thread.join()

    def exceeded(self) -> str:
        """Return the limit that what was written exceeds, or nothing."""
        for folder, times in self._limits:
            usage = usage_of(folder, most=times * ENTRIES)
            if usage.bytes > times * self._largest:
                return _too_large(self._largest)
            if usage.entries > times * ENTRIES:
                return f"The packages have more than {ENTRIES:,} files and folders."
            if usage.depth > DEPTH:
                return f"The packages have more than {DEPTH} folders within each other."
        return ""

    def _watch(self) -> None:
        now = time.monotonic()
        until, pause = now + self._seconds, WATCH
        while not self._ended.wait(min(pause, max(0.0, until - now))):
            started = time.monotonic()
            self.limit = self.exceeded()
            now = time.monotonic()
            pause = max(WATCH, 4 * (now - started))
            if now > until:
                self.limit = self.limit or f"It took more than {self._seconds:.0f} s."
            if self.limit:
                self.end()
                return


def _too_large(largest: int) -> str:
    return f"The packages take more than {largest:,} bytes (WINDTUNNEL_MAX_ENVIRONMENT)."
