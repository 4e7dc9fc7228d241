"""Runs attacks: in a model, or in an unconfined process beside it."""

import contextlib
import json
import os
import signal
from typing import Any

from registry import ATTACKS

#: In a model server these mean something else (it has a socket to the evaluator), or kill the process.
APART = ("inherited_descriptors", "calls_of_another_kind")


def run_all(stage: dict[str, Any], *, bombs: bool = True) -> None:
    """Run attacks, and print a line with the outcome of each.

    Without ``bombs`` in an unconfined process: they would exhaust the container's memory.
    """
    signal.signal(signal.SIGWINCH, signal.SIG_IGN)
    for name, attack in ATTACKS.items():
        if name in APART or (attack.__module__ == "on_resources" and not bombs):
            continue
        before = descriptors()
        result, how = outcome(name, stage)
        words = json.dumps([name, result, how[:100], attack.__doc__])
        os.write(1, f"attack {words}\n".encode())
        for descriptor in descriptors() - before:
            os.close(descriptor)
    os.write(1, b"that was all\n")


def outcome(name: str, stage: dict[str, Any]) -> tuple[str, str]:
    """Run an attack once; a true value that it returns is what it achieved."""
    try:
        achieved = ATTACKS[name](stage)
    except Exception as error:
        return "contained", f"{type(error).__name__}: {error}"
    return ("escaped", str(achieved)) if achieved else ("contained", "nothing came of it")


def descriptors() -> set[int]:
    """Return the open descriptors, without /proc."""
    found = set()
    for descriptor in range(256):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            found.add(descriptor)
    return found
