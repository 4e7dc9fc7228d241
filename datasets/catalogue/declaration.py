"""Declaration: the members of a dataset's definition that decide what can be submitted, and which files there are.

Members for evaluators are in runtimes/harness/dataset_definition.py; metrics are read where they are summed up.
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class DeclaredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a built-in dataset."""

    path: str
    digest: str


class DatasetProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The program that a dataset of gangs brings: its file among the dataset's, and the gang that runs it.

    ``gang``: as a submission has it; a submission may change its ``size``.
    """

    file: str
    gang: Mapping[str, object]


class DatasetRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks that compute a dataset's simulations beside each evaluator, where an executor has them.

    ``count``: how many; ``module``: their program, a module of the simulator's folder.
    """

    count: int
    module: str


class DatasetDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """Members of a definition. A member that it does not have is absent, and has the default here.

    ``tasks``: None if the submission determines it, up to ``max_tasks``. ``seeds``: digest of the version whose seeds
    the tasks have, if that is another. ``scenarios``: their file, of a registered dataset as an evaluator sees it;
    ``runtime``: of a submission that names neither a runtime nor a model.
    ``listed``: as its files have it. ``extends``: of a registered dataset. ``template``: only others extend it.
    """

    simulator: str
    tasks: int | None
    deadline: int | float
    max_tasks: int | None = None
    seeds: str | None = None
    scenarios: str | None = None
    listed: str | None = None
    extends: str | None = None
    files: tuple[DeclaredFile, ...] = ()
    params: Mapping[str, Mapping[str, Any]] = {}
    group_by: tuple[str, ...] = ()
    isolation: str | None = None
    record: bool = False
    gang: bool = False
    runtime: str | None = None
    program: DatasetProgram | None = None
    template: bool = False
    starts_processes: bool = False
    ranks: DatasetRanks | None = None
