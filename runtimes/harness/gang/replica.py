"""Replica: the process of a gang's pod, which runs its part of each task in a sandbox as the gang's runner says.

``python -m runtimes.harness.gang.replica`` connects to the runner, in a pod of its own, whose address and key are in
the environment, as is the pod's position. It gets the model, packages and checkpoints from there, because pods share no
folder, and shows them read-only to the ranks. A pod has no namespaces to give away: its ranks have the pod's own /tmp
and /dev/shm, which are emptied after each task, and the pod's network.
"""

# isort: off
from ..runner import stop_signal  # noqa: F401 - first: until then the kernel drops a container's SIGTERM

# isort: on
import argparse
import contextlib
import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ..python_process import ENVIRON
from ..sandbox import level
from .gang_joining import ALONE, PATIENCE, STOPPED, join
from .gang_node import GangNode
from .gang_transport import ReplicaLost, adopt_orphans, sweep
from .sent_files import PlacedFiles

#: The folder of a pod's files, that of the image's packages, and those that its ranks may write to.
FILES, SITE, SCRATCH, SHARED_MEMORY = "/run/windtunnel/files", "/opt/windtunnel/site", "/tmp", "/dev/shm"
PR_SET_DUMPABLE = 4


def main(arguments: Sequence[str]) -> int:
    """Serve the runner of a gang until it says that it is over; return the exit code."""
    parser = argparse.ArgumentParser(prog="replica", description="The process of a gang's pod.")
    parser.add_argument("--files", type=Path, default=Path(FILES), help="for the files that the runner sends")
    parser.add_argument("--site", default=SITE, help="packages of this image, which ranks have")
    options = parser.parse_args(arguments)
    best = level()
    # Ranks have the same user: they must not read the key from this process's environment or memory.
    key = os.environ.pop("WINDTUNNEL_GANG_KEY")
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    adopt_orphans()
    name, _, port = os.environ["WINDTUNNEL_GANG_LEADER"].rpartition(":")
    place = (int(os.environ["WINDTUNNEL_GANG_SLICE"]), int(os.environ["WINDTUNNEL_GANG_INDEX"]))
    runner, messages = join((name, int(port)), key, place, PATIENCE)
    environ = {name: value for name, value in os.environ.items() if name not in ENVIRON and not _is_ours(name)}
    runner.send(
        python=os.path.realpath(sys.executable),
        harness=str(Path(__file__).parents[1]),
        files=str(options.files),
        site=options.site,
        scratch=SCRATCH,
        level=best.number,
        missing=", ".join(best.missing),
        environ=environ,
        libraries=[path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path],
    )
    return GangNode(runner, PlacedFiles(options.files), tidy).work(messages)


def _is_ours(name: str) -> bool:
    """Whether a variable is of the image or of this process, and not of the pod's devices."""
    return name.startswith(("PYTHON", "WINDTUNNEL_")) or name in ("LD_LIBRARY_PATH", "HOSTNAME")


def tidy() -> None:
    """Remove what a task has left: its processes, and its files in the folders that a pod's tasks share."""
    sweep()
    for folder in (SCRATCH, SHARED_MEMORY):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def stop(*_: object) -> NoReturn:
    """Signal handler: exit with ``STOPPED``."""
    raise SystemExit(STOPPED)


if __name__ == "__main__":
    # The first process of a container ignores SIGTERM without a handler; an exception ends the sandboxes first.
    signal.signal(signal.SIGTERM, stop)
    try:
        sys.exit(main(sys.argv[1:]))
    except ReplicaLost as error:
        print(error, file=sys.stderr)
        sys.exit(ALONE)
