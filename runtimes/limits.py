"""Limits of models: what a model's process may use, how long it may take, and how large a model may be.

The numbers are those that the sandbox, the evaluator and the loaders apply; this module only puts them side by side.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from runtimes.harness.model_server import deadlines
from runtimes.harness.models.base import ModelFormat
from runtimes.harness.sandbox.allowances import SCRATCH_FILES
from runtimes.harness.sandbox.recipe import Confinement, largest_file

#: Where the deadline of `act` comes from.
ACT = "the dataset's `deadline`"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelLimits:
    """Limits of models of a format. Sizes are in bytes, times in seconds.

    ``memory``: of the process, with its libraries. ``tasks``: processes and threads together. ``scratch`` and
    ``scratch_files``: of /tmp, the only writable folder. ``act_deadline``: where the deadline of each action comes
    from. ``largest_model``: of a model's file, None for no limit. ``largest_unpacked``: of the files of its archive,
    None if the format has none.
    """

    memory: int
    tasks: int
    open_files: int
    scratch: int
    scratch_files: int
    largest_file: int
    start_time: float
    load_time: float
    reset_time: float
    act_deadline: str
    largest_model: int | None
    largest_unpacked: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerLimits:
    """Limits that a server sets for models of all formats: bytes of a model, and of an archive's files; None: none."""

    model: int | None = None
    unpacked: int | None = None


def limits_of(format: ModelFormat, server: ServerLimits) -> ModelLimits:
    """Return the limits of a format's models on a server."""
    confinement = Confinement()
    return ModelLimits(
        memory=confinement.memory,
        tasks=confinement.processes,
        open_files=confinement.files,
        scratch=confinement.writable_tmp_mb << 20,
        scratch_files=SCRATCH_FILES,
        largest_file=largest_file(confinement),
        start_time=deadlines.HELLO,
        load_time=deadlines.LOAD,
        reset_time=deadlines.RESET,
        act_deadline=ACT,
        largest_model=_least((server.model, format.max_size)),
        largest_unpacked=server.unpacked if format.unpacked else None,
    )


def limits_of_all(formats: Iterable[ModelFormat], server: ServerLimits) -> ModelLimits:
    """Return the limits that a model of any of these formats, at least one, keeps to: the least sizes of all."""
    limits = [limits_of(format, server) for format in formats]
    return replace(
        limits[0],
        largest_model=_least(each.largest_model for each in limits),
        largest_unpacked=_least(each.largest_unpacked for each in limits),
    )


def _least(sizes: Iterable[int | None]) -> int | None:
    return min((size for size in sizes if size is not None), default=None)
