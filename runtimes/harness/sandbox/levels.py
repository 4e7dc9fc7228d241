"""The levels of confinement, and which of them this machine really has: found out by trying the recipe on a child."""

import json
import os
import select
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import recipe
from .recipe import Confinement, Report

#: How long a child may take to try one level; it needs milliseconds.
PATIENCE = 5.0

#: More than any caller has in use already, so that the trial fails of nothing but the sandbox.
ROOMY = 1 << 46


class Unconfined(RuntimeError):
    """This machine cannot confine what it was asked to confine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """3 is the whole recipe, 2 is Landlock and seccomp with no writable path, 1 is anything less."""

    number: int
    layers: Mapping[str, str | None]
    missing: tuple[str, ...]

    @property
    def refusal(self) -> str | None:
        """What to tell who brings an untrusted model, or None where it can be run."""
        if self.number > 1:
            return None
        return (
            f"This machine cannot confine a model it does not trust: {'; '.join(self.missing)}. "
            "Set WINDTUNNEL_SANDBOX=none to run models all the same, with the rights of this user."
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """How one level went: the layers that came into force, or the error in words."""

    layers: Mapping[str, str | None] | None = None
    error: str | None = None


def level() -> Level:
    """Find the best level here by trying, in children; call it at start-up, before there are threads."""
    third = attempt(3)
    if third.layers is not None:
        return judge(third, Trial())
    return judge(third, attempt(2))


def judge(third: Trial, second: Trial) -> Level:
    """Decide what two trials amount to."""
    each = {"limits": "addresses, tasks, descriptors, file size, as each process is given"}
    if third.layers is not None:
        return Level(number=3, layers={**third.layers, **each}, missing=())
    above = f"namespaces and a root of its own ({third.error})"
    if second.layers is not None:
        return Level(number=2, layers={**second.layers, **each}, missing=(above,))
    below = f"Landlock with seccomp ({second.error})"
    return Level(number=1, layers=dict.fromkeys(recipe.LAYERS), missing=(above, below))


def confine(confinement: Confinement) -> Report:
    """Confine this process, which has one thread and has just begun, and return in the confined one.

    At level 3 that is a grandchild: the caller's process waits for it and ends with its code, or with 128 and its
    signal, and whoever kills it kills everything inside. Any exception means: end this process.
    """
    number = confinement.level
    if number is None:
        best = level()
        if best.refusal:
            raise Unconfined(best.refusal)
        number = best.number
    return recipe.follow(confinement, number)


def attempt(number: int) -> Trial:
    """Follow the recipe at this level in a child that does nothing else."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        _try_and_end(number, writing)
    os.close(writing)
    try:
        said = _listen(reading)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if said is None:
        return Trial(error=f"no answer in {PATIENCE:.0f} s")
    return Trial(layers=said.get("layers"), error=said.get("error"))


def _try_and_end(number: int, writing: int) -> None:
    """Report over the pipe, from whichever process of the trial succeeds or fails first."""
    said: dict[str, Any]
    try:
        wanted = replace(Confinement(), memory=ROOMY, keep=(writing,), files=max(64, writing + 1), nice=0)
        said = {"layers": dict(recipe.follow(wanted, number).layers)}
    except BaseException as error:
        said = {"error": str(error) or type(error).__name__}
    os.write(writing, json.dumps(said).encode())
    os._exit(0)


def _listen(reading: int) -> dict[str, Any] | None:
    """Read the one answer, or None if it did not come."""
    answered = select.poll()
    answered.register(reading, select.POLLIN)
    if not answered.poll(PATIENCE * 1000):
        return None
    answer: dict[str, Any] = json.loads(os.read(reading, 1 << 16) or b'{"error": "the trial died"}')
    return answer
