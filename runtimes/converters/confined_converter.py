"""Confined converter: a run of a program on files of users, in a sandbox of its own, without network.

The program reads its environment and writes to one folder. Memory, files, tasks and seconds are limited.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from runtimes import confined_program
from runtimes.dependencies.untrusted_folders import usage_of

#: User id of converters where root starts them.
USER = 0x6FFFFFF1
#: Bytes of memory, of address space for mapped libraries, and of one file that is written; descriptors, tasks, seconds.
MEMORY, LIBRARIES, LARGEST_FILE = 4 << 30, 4 << 30, 128 << 20
FILES, TASKS, SECONDS = 256, 32, 300.0
#: The most lines of output that are kept, from the end, and the most bytes of a line.
LINES, LINE = 500, 1000
#: Seconds between two reports of a program that still runs.
INTERVAL = 0.2
#: What the folder may take, as a multiple of the largest file, and files and folders in it.
FOLDER, ENTRIES = 3, 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class ConverterLimits:
    """Limits of a run: bytes of memory and of a file that it writes, seconds; ``sandbox``: whether it is confined."""

    memory: int = MEMORY
    largest_file: int = LARGEST_FILE
    seconds: float = SECONDS
    sandbox: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ConverterResult:
    """The end of a run: exit code (negative: signal, also as 128 + signal), lines of output, seconds.

    ``timed_out``: it was ended because it took too long; ``ended``: it was, or because it had written too much.
    """

    code: int
    lines: tuple[str, ...]
    seconds: float
    timed_out: bool = False
    ended: bool = False


def run(
    command: Sequence[str],
    *,
    folder: Path,
    readonly: Sequence[Path],
    environ: Mapping[str, str],
    limits: ConverterLimits,
    report: Callable[[], None],
) -> ConverterResult:
    """Run a program until it ends or takes too long. It may write to ``folder``, and reads ``readonly`` besides.

    If it is killed from outside, it is run again, a few times. ``report`` is called several times a second; if it
    raises, the program is ended. The program also ends with the thread that started it.
    """
    as_root = limits.sandbox and os.geteuid() == 0
    if as_root:
        confined_program.give(USER, [folder], contents=True)
    confinement: dict[str, Any] = {
        "readonly": [str(path) for path in readonly],
        "writable": [str(folder)],
        "memory": limits.memory,
        "libraries": LIBRARIES,
        "files": FILES,
        "processes": TASKS,
        "largest_file": limits.largest_file,
        "uid": USER if as_root else None,
        "level": None if limits.sandbox else 1,
    }
    for _ in range(confined_program.ATTEMPTS):
        started = time.monotonic()
        result = _watch(confined_program.start(command, environ, confinement), started, folder, limits, report)
        if result.ended or confined_program.killed(result.code) is None:
            break
    return result


def _watch(
    process: subprocess.Popen[bytes],
    started: float,
    folder: Path,
    limits: ConverterLimits,
    report: Callable[[], None],
) -> ConverterResult:
    assert process.stderr is not None
    lines: deque[str] = deque(maxlen=LINES)
    reader = threading.Thread(target=_read, args=(process.stderr, lines), name="converter-output", daemon=True)
    reader.start()
    timed_out = ended = False
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(INTERVAL)
                break
            if timed_out := time.monotonic() - started > limits.seconds:
                ended = True
                break
            usage = usage_of(folder, most=ENTRIES)
            if usage.entries > ENTRIES or usage.bytes > FOLDER * limits.largest_file:
                lines.append(f"Error: It wrote more than {FOLDER * limits.largest_file:,} bytes or {ENTRIES} files.")
                ended = True
                break
            report()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        reader.join()
        process.stderr.close()
    seconds = time.monotonic() - started
    return ConverterResult(code=code, lines=tuple(lines), seconds=seconds, timed_out=timed_out, ended=ended)


def _read(stream: IO[bytes], lines: deque[str]) -> None:
    """Keep the last lines of the output; it is read to its end, so that the program never waits."""
    while raw := stream.readline(LINE):
        if line := raw.decode(errors="replace").strip():
            lines.append(line)
