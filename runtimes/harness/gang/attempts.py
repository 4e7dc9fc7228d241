"""Attempts: a command that is run again while its peer does not listen yet, as MPI's proxies say by their exit status.

``python attempts.py STATUS COMMAND...`` runs COMMAND until it ends with another status than STATUS, and ends likewise.
"""

import subprocess
import sys
import time
from collections.abc import Sequence

#: Exit status of MPI's proxy if its launcher does not listen yet.
NOT_LISTENING = 5
#: Attempts, and seconds before each.
TRIES, PAUSE = 600, 0.1


def main(again: int, command: Sequence[str]) -> int:
    """Return the command's exit status, after a signal as a shell does."""
    code = again
    for _ in range(TRIES):
        code = subprocess.call(command)
        if code != again:
            break
        time.sleep(PAUSE)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
