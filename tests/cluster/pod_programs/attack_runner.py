"""Runs all attacks, in a model or in an unconfined process of the same container."""

import contextlib
import json
import os
import signal
from typing import Any

from registry import ATTACKS

#: Attacks that mean something else in a model server, which has a socket to the evaluator, or that kill the process.
EXCLUDED = ("inherited_descriptors", "calls_of_another_kind")


def run_all(stage: dict[str, Any], *, bombs: bool = True) -> None:
    """Run attacks, and print a line with the outcome of each.

    Without ``bombs`` in an unconfined process: they would exhaust the container's memory.
    """
    signal.signal(signal.SIGWINCH, signal.SIG_IGN)
    for name, attack in ATTACKS.items():
        if name in EXCLUDED or (attack.__module__ == "on_resources" and not bombs):
            continue
        before = descriptors()
        result, details = outcome(name, stage)
        fields = json.dumps([name, result, details[:100], attack.__doc__])
        os.write(1, f"attack {fields}\n".encode())
        for descriptor in descriptors() - before:
            os.close(descriptor)
    os.write(1, b"all attacks have run\n")


def outcome(name: str, stage: dict[str, Any]) -> tuple[str, str]:
    """Run an attack once; a true return value says what the attack achieved."""
    try:
        achieved = ATTACKS[name](stage)
    except Exception as error:
        return "contained", f"{type(error).__name__}: {error}"
    return ("escaped", str(achieved)) if achieved else ("contained", "no effect")


def descriptors() -> set[int]:
    """Return the open descriptors, without /proc."""
    open_descriptors = set()
    for descriptor in range(256):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            open_descriptors.add(descriptor)
    return open_descriptors
