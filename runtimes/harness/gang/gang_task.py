"""Gang task: what the shared sandbox of a gang on this machine is told, and what it tells of its end.

Both cross a process boundary as JSON; this module imports nothing but the standard library.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .rank_ends import RankEnd


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchedProgram:
    """A program that a sandbox starts: ``launcher`` before the gang's command, and environment variables of its own."""

    launcher: Sequence[str]
    environ: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalGangSpec:
    """A launch's gang on this machine.

    ``python``: the interpreter; ``harness``: the folder of this package; ``packages``: folders of the program's
    packages, the first one first; ``hosts``: names that are this machine; ``ranks``: how many processes the programs
    start in all; ``memory``: bytes of all of them; ``name``: of a model that is one file; ``level``: of the sandbox,
    None: there is none; ``times``: the library that measures how ranks communicate (compiled/mpi_times.c), if any.
    """

    python: str
    harness: str
    packages: Sequence[str]
    programs: Sequence[LaunchedProgram]
    command: Sequence[str]
    hosts: Sequence[str]
    ranks: int
    memory: int
    name: str
    level: int | None
    times: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GangTask:
    """One task for a sandbox. ``confinement``: of `Confinement`; None for no sandbox. ``model``: path of its files.

    ``folder``: of the task's own files, to be made. ``socket``: the descriptor on which the end is told.
    """

    gang: LocalGangSpec
    confinement: Mapping[str, Any] | None
    model: str
    scenario: Mapping[str, object]
    folder: str
    socket: int = -1

    @classmethod
    def of(cls, text: str) -> "GangTask":
        """Return what a JSON document describes."""

        def spec(programs: Sequence[Mapping[str, object]], **others: object) -> LocalGangSpec:
            return LocalGangSpec(programs=[LaunchedProgram(**program) for program in programs], **others)  # type: ignore[arg-type]

        def task(gang: Mapping[str, object], **others: object) -> "GangTask":
            return cls(gang=spec(**gang), **others)  # type: ignore[arg-type]

        return task(**json.loads(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class GangEnd:
    """The end of a task. ``status``: of what the sandbox started; ``problem``: what else went wrong.

    ``result``: the text that the program wrote to its file, None: it wrote none.
    """

    status: int
    problem: str | None
    result: str | None
    ranks: Sequence[RankEnd]

    @classmethod
    def of(cls, text: bytes) -> "GangEnd":
        """Return what a sandbox has told. Raises ValueError if it is something else."""

        def gang_end(status: object, problem: object, result: object, ranks: Sequence[object]) -> "GangEnd":
            if not isinstance(status, int):
                raise ValueError("the status of a gang's end is not a number")
            if not isinstance(problem, str | None) or not isinstance(result, str | None):
                raise ValueError("a text of a gang's end is not a text")
            return cls(status=status, problem=problem, result=result, ranks=[RankEnd.of(rank) for rank in ranks])

        try:
            return gang_end(**json.loads(text))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None

    def text(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(asdict(self)).encode()
