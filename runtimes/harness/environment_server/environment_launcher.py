"""Environment launcher: a bare interpreter beside the evaluator, from which a process for each environment is forked.

It is started before the evaluator's seal, when it is not known yet which environment is to run, and has none of the
evaluator's packages: an environment has its own.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from typing import Any

from . import environment_zygote

#: The most bytes of an order.
ORDER = 1 << 16


def main() -> None:
    """Fork the process of the environment that an order names; it replaces the one before. End with the evaluator."""
    options = json.loads(sys.argv[1])
    if options["sealed"]:
        from ..sandbox import seal

        seal(may_fork=True)
        if not options["scratch"]:
            tempfile.tempdir = "/tmp"  # which cannot be written: packages read the name when they are imported
    control = socket.socket(fileno=options["control"])
    current: int | None = None
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, ORDER, 1)
        if current is not None:
            os.kill(current, signal.SIGKILL)
            os.waitpid(current, 0)
        if not data:
            os._exit(0)
        current = _fork(json.loads(data), descriptors[0], control, options)


def _fork(order: dict[str, Any], descriptor: int, control: socket.socket, options: dict[str, Any]) -> int:
    """Fork the process of an environment; return its id."""
    launcher = os.getpid()
    if pid := os.fork():
        os.close(descriptor)
        return pid
    try:
        control.close()
        environment_zygote.run(
            order,
            socket.socket(fileno=descriptor),
            parent=launcher,
            sealed=options["sealed"],
            scratch=options["scratch"],
        )
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)
