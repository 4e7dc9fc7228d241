"""Submission: a simulation as it is requested, whose names are not resolved yet.

Each member is declared here and nowhere else; docs/contributing/submission-field.md says how another one is added.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from common.patterns import CONNECTION, MODEL_REFERENCE_LENGTH, NAME, REFERENCE
from core.domain.submissions.declared_members import (
    CommandOption,
    FormField,
    Member,
    ValueLimits,
    WholeOrAuto,
    declared_members,
)
from core.domain.submissions.declared_outputs import MOST_OUTPUTS
from core.domain.submissions.selection import LARGEST

#: The largest integer that every reader of JSON and every database here can hold.
LARGEST_INTEGER = 2**53 - 1
#: Tasks whose traces are stored.
RECORDS = ("none", "failures", "all")
#: The most scenarios that a worker plays side by side (runtimes/harness/task_page.py).
MOST_WORLDS = 64
_Parameter = Annotated[str, ValueLimits(longest=100)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """A submission as parsed; the service resolves its names to digests.

    The order is that of the stored JSON. A caller sends the members that have a `Member`.
    """

    dataset: Annotated[str, Member("A name, `name@version` or `name@tag`.", compared=True, pattern=REFERENCE)]
    runtime: Annotated[
        str | None,
        Member("Runtime of the model; chosen by the model's format if left out or null.", pattern=NAME, longest=100),
        CommandOption("Runtime; by the model's format if left out."),
    ] = None
    model: Annotated[
        str | None,
        Member(
            "A name, `name@version`, `name@tag`, id, digest or `name@digest` (this content, under this name if it has"
            " that); the runtime's baseline model if left out or null.",
            pattern=REFERENCE,
        ),
    ] = None
    scenarios: Annotated[
        Mapping[str, object] | None,
        Member("Selection of scenarios; all scenarios if left out or null.", compared=True),
    ] = None
    params: Annotated[
        Mapping[_Parameter, object],
        Member("Parameters of the dataset, by name.", compared=True),
        CommandOption("Parameter of the dataset.", "NAME=VALUE", name="param"),
    ] = field(default_factory=dict)
    sweep: Annotated[
        Mapping[_Parameter, Annotated[list[object], ValueLimits(shortest=1, longest=100_000)]],
        Member("Parameters with several values each: every combination is simulated.", compared=True, longest=20),
        CommandOption("Every combination of these values.", "NAME=A,B,C"),
    ] = field(default_factory=dict)
    repeat: Annotated[
        int,
        Member("Number of times that each scenario is simulated; 1 if left out.", compared=True, low=1, high=LARGEST),
        CommandOption("Each scenario N times, with different seeds.", "N"),
        FormField("Repetitions of each", "1"),
    ] = 1
    workers: Annotated[
        int | None,
        Member(
            "Number of workers, at most those of the executor; a worker is one evaluator with its model server. As many"
            " as there are, if left out or null.",
            compared=True,
            low=1,
            high=4096,
        ),
        CommandOption("Number of workers; by the platform if left out.", "N"),
        FormField("Workers", "as many as there are"),
    ] = None
    seed: Annotated[
        int,
        Member(
            "Seed from which each task's seed is derived; 0 if left out.", compared=True, low=0, high=LARGEST_INTEGER
        ),
        CommandOption("Seed from which every task's seed is derived."),
        FormField("Seed", "0"),
    ] = 0
    record: Annotated[
        str | None,
        Member("Tasks whose traces are stored.", null=False, compared=True, choices=RECORDS),
        CommandOption("Tasks whose traces are stored."),
        FormField("Traces for replays", "the default"),
    ] = None
    labels: Annotated[
        Mapping[Annotated[str, ValueLimits(pattern=NAME, longest=63)], Annotated[str, ValueLimits(shortest=0)]],
        Member("Your labels, for filtering the list.", compared=True, longest=32),
        CommandOption("Label, to find the simulation by.", "NAME=VALUE", name="label"),
        FormField("Labels", "branch=main team=planning"),
    ] = field(default_factory=dict)
    timeout: Annotated[
        float | None,
        Member(
            "Time limit in seconds, from the first lease: the simulation fails after it. No limit if left out or null.",
            low=0.1,
            high=31_536_000.0,
        ),
        CommandOption("Time limit, from the first task on.", "SECONDS"),
        FormField("Time limit, in seconds", "none"),
    ] = None
    max_failures: Annotated[
        int | None,
        Member(
            "Number of tasks that may fail: the simulation fails when there are more. No limit if left out or null.",
            low=0,
            high=LARGEST_INTEGER,
        ),
        CommandOption("Stop when more than N tasks have failed.", "N"),
        FormField("Failures permitted", "any"),
    ] = None
    dry_run: bool = False
    placement: Annotated[  # launches.Placement
        Mapping[str, object], Member("Executor and resources.", compared=True)
    ] = field(default_factory=dict)
    gang: Annotated[  # launches.Gang
        Mapping[str, object] | None,
        Member(
            "Run a program as a gang: replicas that start together and run it together, once per task. Null: as if left"
            " out."
        ),
    ] = None
    model_reference: Annotated[  # model_references.Reference
        str | None,
        Member(
            "A model where it is: an object of a connection, a model of an MLflow server, or a file at an address that"
            " the operator allows. It is read once; the simulation waits for that. Excludes `model` and `upload`. Null:"
            " as if left out.",
            longest=MODEL_REFERENCE_LENGTH,
        ),
    ] = None
    connection: Annotated[
        str | None,
        Member(
            "Connection of the operator by which the `model_reference` is read; it may be left out, or null, where only"
            " one is possible.",
            pattern=CONNECTION,
            longest=63,
        ),
        CommandOption("Connection that reads a referenced model, where several could.", "NAME", agents=False),
    ] = None
    format: Annotated[  # stored for a model_reference only
        str | None,
        Member(
            "Format of a model that is sent with the submission, as a file or as an `upload`, or named by a"
            " `model_reference`; detected from the bytes if left out or null.",
            pattern=NAME,
            longest=100,
        ),
        CommandOption("Format of a model file; detected from its bytes if left out.", agents=False),
    ] = None
    log_to_run: Annotated[
        bool,
        Member(
            "At its end, log its metrics, state and address to the MLflow run of its model; where the operator allows"
            " that."
        ),
        CommandOption("Log the results to the MLflow run of the model.", agents=False),
    ] = False
    model_seeds: Literal["scenario"] | None = None  # of comparisons whose models' seeds follow from scenarios
    worlds: Annotated[
        WholeOrAuto,
        Member(
            "Most scenarios that a worker plays side by side, or `auto`, as if left out: the platform decides. The"
            " results do not depend on it. It has no effect where a model server serves one scenario at a time: with"
            " `batch` above 1, and with simulators, formats and deadlines that do not permit more.",
            compared=True,
            low=1,
            high=MOST_WORLDS,
        ),
        CommandOption("Most scenarios that a worker plays side by side, or auto.", "N", agents=False),
        FormField("Scenarios side by side", "auto"),
    ] = "auto"
    trusted: Annotated[
        bool,
        Member(
            "Run the model in the evaluator's process, where the operator allows that: faster, for models of your own."
            " The results are the same, but nothing keeps the model from its score any more. No leaderboard and no gate"
            " takes them unless it is asked to.",
            compared=True,
        ),
        CommandOption("Run your own model in the evaluator's process: faster; it can change its score.", agents=False),
    ] = False
    outputs: Annotated[  # declared_outputs.DeclaredOutput, by name
        Mapping[str, Mapping[str, object]],
        Member(
            "Files that the program leaves in `$WINDTUNNEL_OUTPUT` and that become models or datasets at its end, by"
            " a name of yours. Of gangs only.",
            longest=MOST_OUTPUTS,
        ),
    ] = field(default_factory=dict)


#: The members that a caller may send.
MEMBERS = tuple(declared_members(Submission))
