"""Making a replay: an evaluator plays a scenario again from its trace, with no model and no network."""

import selectors
from collections.abc import Mapping
from typing import Any

from runtimes.harness.runner.framed_socket import PeerClosed, Ready, ReplayDone
from runtimes.harness.runner.processes import EvaluatorProcess, WorkerSpec, spawn_evaluator

#: Seconds an evaluator may take to be set up, and to play one scenario again.
SETUP, PLAY = 120.0, 120.0


class CannotReplay(Exception):
    """The scenario cannot be played again."""


class NothingToShow(CannotReplay):
    """The simulator says so itself; it would say it again."""


def make(kit: WorkerSpec, play: Mapping[str, Any], task: int, trace: bytes) -> dict[str, Any]:
    """Play a task again and return what a picture of it needs. Call it from the main thread only."""
    evaluator = spawn_evaluator(kit, "replay")
    try:
        return _played(evaluator, play, task, trace)
    except (PeerClosed, TimeoutError) as error:
        raise CannotReplay(
            f"the simulator did not play it: {error or 'it took too long'}\n{_said(evaluator)}"
        ) from None
    finally:
        evaluator.dismiss()
        evaluator.process.reap()


def _played(evaluator: EvaluatorProcess, play: Mapping[str, Any], task: int, trace: bytes) -> dict[str, Any]:
    evaluator.channel.send({"type": "setup", "play": play})
    if not isinstance(said := evaluator.channel.receive(SETUP), Ready):
        raise CannotReplay(f"the simulator cannot be set up: {getattr(said, 'reason', said)}")
    evaluator.channel.send({"type": "replay", "task": task, "trace": trace})
    said = evaluator.channel.receive(PLAY)
    if not isinstance(said, ReplayDone):
        raise PeerClosed("it spoke out of turn")
    if said.replay is None:
        raise NothingToShow(said.error or "the simulator gave no reason")
    return said.replay


def _said(evaluator: EvaluatorProcess) -> str:
    """Return the end of what the evaluator printed."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(evaluator.process.output, selectors.EVENT_READ)
        if not waiting.select(0.2):
            return ""
    with open(evaluator.process.output, "rb", closefd=False, buffering=0) as file:
        return (file.read(1 << 16) or b"")[-2000:].decode(errors="replace")
