"""Confinement levels: which of them this machine supports, detected by applying each to a child process."""

import json
import os
import select
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import recipe
from .recipe import Confinement, ConfinementReport

#: Seconds that a child may take to try a level; it needs milliseconds.
TRIAL_TIMEOUT = 5.0

#: Address space of a trial in bytes: more than any caller has mapped, so that only the sandbox can make a trial fail.
TRIAL_MEMORY = 1 << 46


class Unconfined(RuntimeError):
    """This machine cannot confine the process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """A confinement level: 3 is all steps, 2 is Landlock and seccomp with no writable path, 1 is anything less.

    ``layers`` describes each layer in force, or has None; ``missing`` says why higher levels are not available.
    """

    number: int
    layers: Mapping[str, str | None]
    missing: tuple[str, ...]

    @property
    def refusal(self) -> str | None:
        """The error text for an untrusted model, or None if this machine can run it."""
        if self.number > 1:
            return None
        return (
            f"This machine cannot confine an untrusted model: {'; '.join(self.missing)}. "
            "Set WINDTUNNEL_SANDBOX=none to run models unconfined, with the rights of this user."
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The result of trying a level: the layers in force, or the error text."""

    layers: Mapping[str, str | None] | None = None
    error: str | None = None


def level() -> Level:
    """Detect the highest level by trying in child processes; call it at start-up, before any thread is started."""
    third = try_level(3)
    if third.layers is not None:
        return level_from(third, Trial())
    return level_from(third, try_level(2))


def level_from(third: Trial, second: Trial) -> Level:
    """Return the level that the trials of level 3 and level 2 show."""
    per_process = {"limits": "memory, tasks, descriptors, file size, set per process"}
    if third.layers is not None:
        return Level(number=3, layers={**third.layers, **per_process}, missing=())
    namespaces = f"namespaces and a private root ({third.error})"
    if second.layers is not None:
        return Level(number=2, layers={**second.layers, **per_process}, missing=(namespaces,))
    filters = f"Landlock with seccomp ({second.error})"
    return Level(number=1, layers=dict.fromkeys(recipe.LAYERS), missing=(namespaces, filters))


def confine(confinement: Confinement) -> ConfinementReport:
    """Confine this process, which must have just started and have a single thread; return in the confined process.

    At level 3 the confined process is a grandchild: the caller's process waits for it and exits with its exit code,
    or with 128 plus its signal; killing the caller's process kills everything inside. After an exception the process
    is partly confined and must exit. Raises Unconfined if no level is named and this machine is at level 1.
    """
    number = confinement.level
    if number is None:
        best = level()
        if best.refusal:
            raise Unconfined(best.refusal)
        number = best.number
    return recipe.apply(confinement, number)


def try_level(number: int) -> Trial:
    """Apply the sandbox at this level in a child process that does nothing else."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        _run_trial(number, writing)
    os.close(writing)
    try:
        result = _read_result(reading)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if result is None:
        return Trial(error=f"no answer in {TRIAL_TIMEOUT:.0f} s")
    return Trial(layers=result.get("layers"), error=result.get("error"))


def _run_trial(number: int, writing: int) -> None:
    """Write the result to the pipe; at level 3 a grandchild writes it if the trial succeeds."""
    result: dict[str, Any]
    try:
        confinement = replace(Confinement(), memory=TRIAL_MEMORY, keep=(writing,), files=max(64, writing + 1), nice=0)
        result = {"layers": dict(recipe.apply(confinement, number).layers)}
    except BaseException as error:
        result = {"error": str(error) or type(error).__name__}
    os.write(writing, json.dumps(result).encode())
    os._exit(0)


def _read_result(reading: int) -> dict[str, Any] | None:
    """Read the trial's result, or return None if none arrives in time."""
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    if not poller.poll(TRIAL_TIMEOUT * 1000):
        return None
    result: dict[str, Any] = json.loads(os.read(reading, 1 << 16) or b'{"error": "the trial process was killed"}')
    return result
