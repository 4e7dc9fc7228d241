"""Replay job: an evaluator runs a scenario again from its action trace, without model and network."""

import selectors
from collections.abc import Mapping
from typing import Any

from runtimes.harness.runner.framed_socket import PeerClosed, Ready, ReplayDone
from runtimes.harness.runner.processes import EvaluatorProcess, WorkerSpec, spawn_evaluator

#: Seconds that an evaluator may take for its set-up, and for one scenario.
SETUP, PLAY = 120.0, 120.0


class CannotReplay(Exception):
    """The scenario cannot be run again."""


class NothingToShow(CannotReplay):
    """The simulator refuses to show the scenario; another attempt would be refused as well."""


class EvaluatorEnded(CannotReplay):
    """The evaluator ended, or did not answer in time, while it ran the scenario."""


def make(spec: WorkerSpec, play: Mapping[str, Any], task: int, trace: bytes) -> dict[str, Any]:
    """Run a task again and return the data of its replay. Call it from the main thread only."""
    evaluator = spawn_evaluator(spec, "replay")
    try:
        return _replay_of(evaluator, play, task, trace)
    except (PeerClosed, TimeoutError) as error:
        raise EvaluatorEnded(
            f"the evaluator did not run the scenario: {error or 'timeout'}\n{_output_of(evaluator)}"
        ) from None
    finally:
        evaluator.dismiss()
        evaluator.process.reap()


def _replay_of(evaluator: EvaluatorProcess, play: Mapping[str, Any], task: int, trace: bytes) -> dict[str, Any]:
    evaluator.channel.send({"type": "setup", "play": play})
    if not isinstance(message := evaluator.channel.receive(SETUP), Ready):
        raise CannotReplay(f"the simulator cannot be set up: {getattr(message, 'reason', message)}")
    evaluator.channel.send({"type": "replay", "task": task, "trace": trace})
    message = evaluator.channel.receive(PLAY)
    if not isinstance(message, ReplayDone):
        raise PeerClosed("unexpected message")
    if message.replay is None:
        raise NothingToShow(message.error or "the simulator gave no reason")
    return message.replay


def _output_of(evaluator: EvaluatorProcess) -> str:
    """Return the last 2000 bytes of the evaluator's output."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(evaluator.process.output, selectors.EVENT_READ)
        if not waiting.select(0.2):
            return ""
    with open(evaluator.process.output, "rb", closefd=False, buffering=0) as file:
        return (file.read(1 << 16) or b"")[-2000:].decode(errors="replace")
