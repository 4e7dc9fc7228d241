"""Schemas of simulations with their state, and of requests about an existing simulation."""

from collections.abc import Mapping
from typing import Any

from marshmallow import fields, validate

from api.schemas.fields import (
    DIGEST,
    NAME,
    REFERENCE,
    SHARED_NAME,
    Choice,
    Flag,
    Open,
    Strict,
    Text,
    Whole,
)
from api.schemas.members import (
    array,
    boolean,
    count_of_each,
    dictionary,
    document,
    documents,
    integer,
    moment,
    real,
    string,
)
from api.schemas.pages import PageQuery, PageSchema
from core.domain.results.score_series import PARTS
from core.domain.scheduling.states import State
from core.domain.submissions.listing import NO_COMPARISON


class ModelRefSchema(Open):
    """The model of a simulation."""

    name = string("Name of the model.")
    digest = string("`sha256:` and 64 hexadecimal digits; null until a `model_reference` is imported.", allow_none=True)
    version = integer("Version of the model, from 1; null until a `model_reference` is imported.", allow_none=True)
    format = string("Format of the model; null until a `model_reference` is imported.", allow_none=True)


class RuntimeRefSchema(Open):
    """The runtime of a simulation."""

    name = string(
        "Name of the runtime; null until a `model_reference` is imported, if none was named.", allow_none=True
    )


class DatasetRefSchema(Open):
    """The dataset of a simulation."""

    name = string("Name of the dataset.")
    version = string("Version of the dataset.")
    digest = string("Digest of the version; null if an earlier release has recorded none.", allow_none=True)


class TasksSchema(Open):
    """Counts of a simulation's tasks."""

    total = integer("Number of tasks.")
    done = integer("Number of tasks with a result.")
    failed = integer("Number of tasks whose result is not `ok`.")


class ScoreSchema(Open):
    """The score of a simulation's dataset, of the tasks that are `ok`."""

    metric = string("Name of the metric that is the score of the dataset.")
    mean = real("Mean over all these tasks, in the unit of the metric.")
    series = array(
        fields.Float(),
        "Means over consecutive parts of the tasks, in the unit of the metric: equal parts in order of task after the"
        " end, results in order of arrival while it runs.",
        validate=validate.Length(max=PARTS),
        example=[0.91, 0.87, 0.93],
    )


class AnswerScoreSchema(Open):
    """The score over all tasks so far: a task that is not `ok` counts with the worst value of the metric."""

    metric = string("Name of the metric that is the score of the dataset.")
    title = string("Title of the metric.")
    unit = string("Unit of the metric; empty for none.")
    better = string("`higher`, `lower`, or null where neither is better.", allow_none=True)
    mean = real("Mean over `tasks`, in the unit of the metric; null beyond every float.", allow_none=True)
    low = real(
        "Lower end of the 95 % interval of the mean, in the unit of the metric; null of few tasks, and while it"
        " runs if scenarios have several tasks.",
        allow_none=True,
    )
    high = real(
        "Upper end of the 95 % interval of the mean, in the unit of the metric; null where `low` is.", allow_none=True
    )
    tasks = integer("Number of tasks that the mean is over.")
    not_ok = integer("Number of these tasks that are not `ok`, each of which counts as `worst`.")
    left_out = integer(
        "Number of tasks with a result that are left out: without a value, and those that are not `ok` where the"
        " dataset declares no worst value."
    )
    worst = real("Worst value of the metric, in its unit; null if the dataset declares none.", allow_none=True)
    ok_mean = real("Mean over the tasks that are `ok`, in the unit of the metric; null without one.", allow_none=True)


class AnswerFailuresSchema(Open):
    """The failures so far: tasks that are not `ok`, and those with an outcome that the dataset counts as a failure."""

    count = integer("Number of failures.")
    tasks = integer("Number of tasks with a result.")
    share = real("`count` as a share of `tasks`, from 0 to 1.")
    not_ok = integer("Number of tasks that are not `ok`.")
    metric = string("Metric whose outcomes the dataset counts as failures; null if it names none.", allow_none=True)
    outcomes = count_of_each("Number of tasks that are `ok`, by outcome that is a failure, such as `collision`.")


class AnswerSchema(Open):
    """What a simulation says about its model: the same quantities while it runs and after its end."""

    score = document(
        AnswerScoreSchema,
        "The score over all tasks; null for a dataset without a score, and without a value.",
        allow_none=True,
    )
    failures = document(
        AnswerFailuresSchema,
        "The failures; null where a runner of an earlier version has not counted them.",
        allow_none=True,
    )


class LinkField(fields.String):
    """Address of a simulation's subresource, built from the simulation's id."""

    def __init__(self, part: str = "", **kwargs: Any) -> None:
        super().__init__(required=True, **kwargs)
        self._part = part

    def serialize(self, attr: str, obj: Any, accessor: Any = None, **kwargs: Any) -> str:
        return f"/v1/simulations/{obj.id}{self._part}"


class LinksSchema(Open):
    """Addresses of the simulation and its subresources."""

    self = LinkField(metadata={"description": "Address of the simulation."})
    events = LinkField("/events", metadata={"description": "Address of the stream of its events."})
    results = LinkField("/results", metadata={"description": "Address of its results."})
    summary = LinkField("/summary", metadata={"description": "Address of its summary, after its end."})
    artifacts = LinkField("/artifacts", metadata={"description": "Address of the list of its artifacts."})
    archive = LinkField("/archive", metadata={"description": "Address of everything as one zip, after its end."})
    logs = LinkField("/logs", metadata={"description": "Address of its logs."})


class LinksField(fields.Nested):
    """Nested field serialised from the simulation itself, which has no `links` attribute."""

    def serialize(self, attr: str, obj: Any, accessor: Any = None, **kwargs: Any) -> Any:
        return self._serialize(obj, attr, obj, **kwargs)  # type: ignore[no-untyped-call]


class RunningTaskSchema(Open):
    """Progress of a task while it runs, as its program tells it."""

    task = integer("Number of the task.")
    fraction = real("What is done of it, from 0 to 1.")


class SimulationSchema(Open):
    """A simulation, with its state and progress."""

    id = string("Id of the simulation.")
    state = string(
        "State. It waits while `queued`, is prepared while `staging` and `launching`, plays tasks while `running`,"
        " and ends as `succeeded`, `failed` (by the model or the simulator), `errored` (by the platform) or"
        " `cancelled`.",
        enum=[state.value for state in State],
    )
    attempt = integer("Number of the attempt, from 1.")
    model = document(ModelRefSchema, "The model, resolved to its digest.")
    runtime = document(RuntimeRefSchema, "The runtime that runs the model.")
    dataset = document(DatasetRefSchema, "The dataset, resolved to its version.")
    tasks = document(TasksSchema, "Numbers of tasks.")
    metrics = dictionary(
        "By name, in the unit of the metric: count, mean, std, min, p50, p90, p99, max of the tasks that are `ok`;"
        " more statistics after the end, among them `low` and `high`, the ends of the 95 % interval of the mean."
    )
    approximate = boolean("Whether the metrics may still change.")
    score = document(
        ScoreSchema,
        "Null without a score so far, and for simulations that an earlier version has ended.",
        allow_none=True,
    )
    answer = document(AnswerSchema, "What it says about its model so far. Null without a result.", allow_none=True)
    results_digest = string(
        "SHA-256 of the results without their timing, equal for equal simulations: `sha256:` and hexadecimal"
        " digits. Null until the end, and in lists of what an earlier version has ended.",
        allow_none=True,
    )
    reason = string(
        "Why it waits, what is done before it runs, or why it ended in this state; null if there is nothing to say.",
        allow_none=True,
    )
    position = integer(
        "Position in the queue, from 1, among those of its project; null unless it is queued.", allow_none=True
    )
    next_attempt_at = moment(
        "After a failed attempt: the earliest time of the next; null if none is due.", allow_none=True
    )
    eta = real("Estimated remaining seconds; null unless it runs, and before there is an estimate.", allow_none=True)
    running = document(
        RunningTaskSchema,
        "The task that a gang's program is at work on, and how far it is. Null where the program does not tell.",
        allow_none=True,
    )
    created_at = moment("When it was submitted.")
    started_at = moment("When its first task was leased; null before.", allow_none=True)
    ended_at = moment("When it ended; null before.", allow_none=True)
    labels = dictionary("Labels of the submission.", fields.String())
    workers = integer("Number of workers that it has, or will have.")
    executor = string("Executor that it runs on, or ran on last; null before it was admitted to one.", allow_none=True)
    retry_of = string("Id of the simulation that it retries; null if it retries none.", allow_none=True)
    submitted_by = string(
        "Address of the client that submitted it; of IPv6 the /64 network. Null if not recorded.", allow_none=True
    )
    trusted = boolean(
        "Whether its model runs in the evaluator's process, where nothing keeps it from its score; false: isolated."
    )
    outputs = dictionary(
        "What its declared outputs became at its end, by their names: `as`, `file`, `task` and `digest` of the file,"
        " `id`, `name` and `reference` of the model or dataset, or an `error`. Empty before, and without any."
    )
    spec = dictionary("The submission.")
    provenance = dictionary(
        "Resolved versions and digests: everything that results depend on.", attribute="provenance_document"
    )
    links = LinksField(
        LinksSchema, required=True, metadata={"description": "Addresses of the simulation and its subresources."}
    )


#: Members that are left out of lists unless they are asked for: nine tenths of a simulation's document.
LARGE = ("metrics", "provenance", "spec")


class ListedSimulationSchema(SimulationSchema):
    """A simulation in a list: without `metrics`, `provenance` and `spec`, unless `include` names them."""

    metrics = dictionary("With `include=metrics`: statistics of the metrics, by name.", required=False)
    spec = dictionary("With `include=spec`: the submission.", required=False)
    provenance = dictionary(
        "With `include=provenance`: resolved versions and digests.", required=False, attribute="provenance_document"
    )


class SimulationPageSchema(PageSchema):
    """A page of simulations, newest first."""

    items = documents(ListedSimulationSchema, "The simulations of the page, newest first.")


class StateName(Choice):
    """Name of a state."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(*(state.value for state in State), **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Any:
        name = super()._deserialize(value, attr, data, **kwargs)
        return State(name) if name in set(State) else name


class NamesQuery(Strict):
    """Filters of simulations and of comparisons, besides their state: each meets all of them."""

    q = Text(
        longest=200,
        description="Words, each of which is in the name of the model, the dataset or the runtime, in a label"
        " (`name=value`), or begins the id. Case is ignored.",
    )
    dataset = Text(SHARED_NAME, longest=141, description="Only on this dataset.")
    dataset_version = Text(REFERENCE, longest=100, description="Only on this version of their dataset.")
    dataset_digest = Text(DIGEST, longest=71, description="Only on the dataset version with this digest.")
    runtime = Text(NAME, longest=100, description="Only with this runtime.")
    model = Text(SHARED_NAME, longest=141, description="Only of models with this name.")
    model_digest = Text(DIGEST, longest=71, description="Only of the model with this digest.")
    submitted_by = Text(longest=50, description="Only what this address has submitted.")
    label = array(
        Text(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}=[^\x00-\x1f\x7f]*$", longest=264),
        "Only with this label, `name=value`; may be repeated.",
        required=False,
        validate=validate.Length(max=32),
    )


class ListingQuery(NamesQuery):
    """Filters of simulations, besides their state."""

    comparison = Text(
        rf"^({NO_COMPARISON}|[0-9a-z]{{26}})$",
        longest=26,
        description=f"Only batches of the comparison with this id; `{NO_COMPARISON}`: of no comparison.",
    )


class SimulationQuery(ListingQuery, PageQuery):
    """Filters of the list of simulations."""

    state = array(
        StateName(),
        "Only simulations in this state; may be repeated, for any of several states.",
        required=False,
        validate=validate.Length(max=len(State)),
    )
    include = array(
        Choice(*LARGE),
        "With this large member, which lists leave out; may be repeated.",
        required=False,
        validate=validate.Length(max=len(LARGE)),
    )


class CountsSchema(Open):
    """Numbers of simulations."""

    total = integer("Number of simulations that meet the filters.")
    states = count_of_each("Number in each state, also those without a simulation.", example={"queued": 3})


class WorkersSchema(Strict):
    """Changes to a simulation that has not ended."""

    workers = Whole(1, 4096, required=True, description="Number of workers that it shall have.")


class RetrySchema(Strict):
    """Options of a retry."""

    only_failed = Flag(load_default=True, description="Repeat only tasks that did not succeed; if false, all tasks.")
