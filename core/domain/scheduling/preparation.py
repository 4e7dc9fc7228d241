"""Preparation of a simulation: what it lacks before it can be launched, the job for it, sentences on its progress."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec


class Preparation(StrEnum):
    """How far a simulation is prepared; a row without a value has not been looked at."""

    WAITING = "waiting"  # queued, until a job may prepare it
    QUICK = "stage"  # the kind of job that prepares it: files that are here already
    LONG = "prepare"  # the kind of job that prepares it: packages, downloads, compilation
    DONE = "done"  # queued, until workers are free


#: The kinds of job that prepare simulations.
JOBS = (Preparation.QUICK, Preparation.LONG)


#: What a simulation waits for while no job that could prepare it is free.
PREPARATION_SLOT = "waits for a preparation slot"


@dataclass(frozen=True, slots=True)
class Missing:
    """What a simulation lacks before it can be launched, as a clause, and the kind of job that prepares it."""

    message: str
    job: Preparation = Preparation.QUICK


#: What follows a line of uv's output, which tells only what has been done.
FOLLOWS = {"Prepared": "installing them", "Installed": "compiling them to bytecode"}


class PreparationStep(msgspec.Struct, frozen=True):
    """The body of a `staging` or `launch` event; ``fraction``: of a download."""

    message: str | None = None
    name: str | None = None
    what: str = "files"
    fraction: float | None = None


def doing(step: PreparationStep) -> str | None:
    """Return what is going on, as a clause; None if an event does not say."""
    if step.message:
        return f"{step.name}: {step.message}" if step.name else step.message
    if step.fraction is not None:
        return f"downloading the {step.what}: {step.fraction:.0%}"
    return None


def staging(doing: str | None, *, claimed: bool) -> str | None:
    """Return what a staged simulation waits for; ``doing``: of its last event, ``claimed``: a job prepares it."""
    if claimed:
        return doing
    return f"{PREPARATION_SLOT}: {doing}" if doing else PREPARATION_SLOT


def following(message: str) -> str:
    """Return a line of uv's output with what is going on since."""
    follows = FOLLOWS.get(message.partition(" ")[0])
    return f"{message}; {follows}" if follows else message
