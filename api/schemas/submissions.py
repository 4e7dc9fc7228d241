"""Schemas of submissions: what a simulation is requested with, and the result of a check before it."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_origin

from marshmallow import ValidationError, fields, post_load, validates, validates_schema

from api.schemas.declared_fields import SchemaField, field_of, field_options
from api.schemas.fields import (
    NAME,
    RESOURCE_NAME,
    Binary,
    Choice,
    Flag,
    Headers,
    ListField,
    ObjectField,
    Open,
    Real,
    Strict,
    Text,
    Whole,
    field_keywords,
)
from api.schemas.members import boolean, dictionary, integer, real, string
from common.errors import Invalid
from core.domain.scheduling.communications import COMMUNICATIONS
from core.domain.scheduling.launches import STARTS
from core.domain.submissions import scenario_text
from core.domain.submissions.declared_members import WholeOrAuto
from core.domain.submissions.declared_outputs import MOST_OUTPUTS
from core.domain.submissions.selection import LARGEST as MOST_TASKS
from core.domain.submissions.submission import MEMBERS

#: Most seconds that a request waits for a simulation's end; a longer `Prefer: wait` is reduced to this.
LONGEST_WAIT = 600


class ScenariosSchema(Strict):
    """Selection of scenarios: a range, a list or a sample. All scenarios if left out."""

    range = ListField(
        Whole(0, MOST_TASKS),
        shortest=2,
        longest=2,
        description="First scenario, from 0, and the scenario after the last.",
    )
    tasks = ListField(Whole(0, MOST_TASKS), shortest=1, longest=100_000, description="Numbers of scenarios, from 0.")
    sample = Whole(1, MOST_TASKS, description="Number of scenarios to draw at random, by `seed`.")
    seed = Whole(description="Seed of the sample; 0 if left out.")

    @validates_schema
    def exactly_one_selection(self, data: dict[str, Any], **_: Any) -> None:
        """Require exactly one of `range`, `tasks` and `sample`."""
        if len(data.keys() - {"seed"}) != 1 or ("seed" in data and "sample" not in data):
            raise ValidationError(
                'Exactly one of {"range": [a, b]}, {"tasks": [...]} and {"sample": k, "seed": s} is required.'
            )


class ScenarioSelection(fields.Nested):
    """Selection of scenarios: an object, or a text as people write it."""

    #: What the text is, besides the object; both are the alternatives of a schema of the class's name.
    TEXT: Mapping[str, Any] = {
        "type": "string",
        "maxLength": scenario_text.LONGEST,
        "pattern": scenario_text.PATTERN,
        "description": "Numbers and ranges with their last number, such as `0-99` or `3,5,20-29`.",
    }

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(ScenariosSchema, **kwargs)

    def _deserialize(self, value: Any, *arguments: Any, **kwargs: Any) -> Any:
        if isinstance(value, str):
            try:
                return scenario_text.selection_of(value)
            except Invalid as error:
                raise ValidationError(str(error)) from None
        if not isinstance(value, dict):
            raise ValidationError('Write numbers and ranges, such as "0-99", or an object such as {"range": [0, 100]}.')
        return super()._deserialize(value, *arguments, **kwargs)


class PlacementSchema(Strict):
    """Executor and resources that a simulation needs. An executor ignores values that it does not support.

    Names of the cluster's objects are refused unless its operator allows them: `allowed` in `GET /v1/executors`.
    """

    executor = Text(NAME, longest=63, description="Name from `GET /v1/executors`; any if left out.")
    cpu = Real(0.01, 1024.0, description="Number of CPU cores per worker.")
    memory = Whole(64 << 20, 1 << 44, description="Memory per worker, in bytes.")
    resources = ObjectField(
        most=16,
        keys=Text(RESOURCE_NAME, longest=253),
        values=Text(r"^[0-9]{1,9}$", longest=9),
        description="Extended resources per worker, by the cluster's name for them.",
    )
    networks = ListField(
        Text(r"^[a-z0-9]([a-z0-9./@-]*[a-z0-9])?$", longest=253), longest=8, description="Names of secondary networks."
    )
    claims = ObjectField(
        most=8,
        keys=Text(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", longest=63),
        values=Text(r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", longest=253),
        description="Resource claims: name, and name of the ResourceClaimTemplate.",
    )
    annotations = ObjectField(
        most=32,
        keys=Text(r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$", longest=253),
        values=Text(longest=1000, shortest=0),
        description="Annotations for the pods.",
    )
    node_selector = ObjectField(
        most=16,
        keys=Text(r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$", longest=253),
        values=Text(r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$", longest=63, shortest=0),
        description="Labels that the node must have.",
    )
    exclusive = Text(
        r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$",
        longest=253,
        description="Topology key: at most one launch per topology domain.",
    )
    queue = Text(r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", longest=63, description="Name of a queue of the cluster.")
    priority = Text(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", longest=253, description="Name of a priority class of the cluster."
    )


class GangSchema(Strict):
    """Gang: replicas that run one program together, once per task; `dataset` is `program`, or brings its own."""

    size = Whole(1, 4096, required=True, description="Number of replicas per slice.")
    command = ListField(
        Text(longest=4000, shortest=0),
        shortest=1,
        longest=200,
        description="Command of each replica; a packaged case, or a dataset's program, has its own.",
    )
    build = ListField(
        Text(longest=4000, shortest=0),
        longest=200,
        description="Command that compiles the program in the folder of the model, once for each model on a machine.",
    )
    communication = Choice(*COMMUNICATIONS, description="How replicas find each other.")
    start = Choice(
        *STARTS,
        description="Whether the program is started for each `task`, or once for a `launch`, whose tasks it then takes"
        " one after the other. Left out: `task`.",
    )
    slots = Whole(1, 1024, description="Number of processes per replica; 1 if left out.")
    slices = Whole(1, 512, description="Number of groups of `size` replicas; 1 if left out.")
    restarts = Whole(0, 100, description="Most restarts after a pod is lost; no restart if left out.")
    operator = Choice("", "trainer", "mpi-operator", description="Run it as a TrainJob or an MPIJob.")
    image = Text(r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$", longest=500, description="Container image of the replicas.")
    implementation = Choice("openmpi", "mpich", "intel", description="MPI implementation in an MPIJob's image.")
    runtime_ref = Text(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", longest=253, description="Name of a ClusterTrainingRuntime."
    )


class OutputSchema(Strict):
    """A file of the program's, and what it becomes at the end of the simulation; or all results, as a dataset."""

    file = Text(
        longest=1000,
        description="Path of the file in `$WINDTUNNEL_OUTPUT`. Left out: all results and artifacts, of a dataset.",
    )
    kind = Choice("model", "dataset", data_key="as", required=True, description="What it becomes.")
    name = Text(
        NAME,
        longest=100,
        description="Name of the model, or of the dataset. Left out: of a model that of the file, else of the output.",
    )
    task = Whole(
        description="Number of the task whose file it is. Left out: any, if all that leave it leave the same bytes."
    )
    format = Text(NAME, longest=100, description="Format of a model; detected from its bytes if left out.")
    runtime = Text(NAME, longest=100, description="Runtime that a model is meant for.")
    tags = ListField(Text(NAME, longest=100), longest=20, description="Tags to set on the new version.")

    @post_load
    def as_declared(self, data: Mapping[str, object], **_: object) -> dict[str, object]:
        """Return the members under the names of the document, in which they are stored."""
        return {"as" if name == "kind" else name: value for name, value in data.items()}


#: Fields of the members whose values have schemas of their own.
NESTED_FIELDS: Mapping[str, Callable[..., SchemaField]] = {
    "scenarios": ScenarioSelection,
    "placement": partial(fields.Nested, PlacementSchema),
    "gang": partial(fields.Nested, GangSchema),
    "outputs": partial(
        ObjectField, most=MOST_OUTPUTS, keys=Text(NAME, longest=100), values=fields.Nested(OutputSchema)
    ),
}
#: Names in the order of the document; others come after them, as they are declared.
ORDER = ("dataset", "runtime", "model", "upload", "model_reference", "connection", "format", "log_to_run")


def _declared_fields() -> dict[str, SchemaField]:
    """Return the fields of the members that a submission declares, and of an upload."""
    upload = "Id or address of a finished upload whose bytes are the model; excludes `model`."
    declared: dict[str, SchemaField] = {"upload": Text(longest=2000, description=upload)}
    for member in MEMBERS:
        options = field_options(member)
        if (nested := NESTED_FIELDS.get(member.name)) is not None:
            declared[member.name] = nested(**field_keywords(options))
        else:
            declared[member.name] = field_of(member.type, member.facts, **options)
    names = [name for name in declared if name not in ORDER]
    return {name: declared[name] for name in (*ORDER, *names)}


class _DeclaredMembers(Strict):
    """Members that core/domain/submissions/submission.py declares."""

    class Meta(Strict.Meta):
        include = _declared_fields()

    @validates("sweep")
    def no_value_twice(self, sweep: Mapping[str, list[object]] | None, **_: object) -> None:
        """Refuse a sweep that has a value twice: equal tasks would count as if they were independent."""
        for name, values in (sweep or {}).items():
            ((value, count),) = Counter(map(repr, values)).most_common(1)
            if count > 1:
                message = f"The value {value[:80]} is there {count} times; `repeat` plays one with other seeds."
                raise ValidationError({name: [message]})

    @post_load
    def without_nulls(self, data: Mapping[str, object], **_: object) -> Mapping[str, object]:
        """Leave out members that are null: that is what null means."""
        return {name: value for name, value in data.items() if value is not None}


class SubmissionSchema(_DeclaredMembers):
    """Submission of a simulation: a model, on a dataset, with a runtime. Only the dataset is required."""

    class Meta(Strict.Meta):
        pass


class AcceptedSubmission(SubmissionSchema):
    """Submission as it is parsed: with `dry_run`, which `POST /v1/checks` has replaced, for earlier clients.

    The document does not have it: the response of a dry run is of another kind, and clients that are generated from
    the document decode one kind of response per operation.
    """

    dry_run = Flag(description="Only check whether the model loads and fits the dataset.")


def json_text(description: str) -> fields.String:
    """Return a field of a form that contains JSON, documented as text.

    Generated clients encode objects in forms in different ways, and text in one.
    """
    return string(description, required=False, allow_none=True)


def _form_fields() -> dict[str, SchemaField]:
    """Return the fields of a form for members whose values generated clients would encode in different ways.

    Objects are documented as text, and a number or `auto`, which means the same as nothing, as a number.
    """
    texts = {
        member.name: json_text(f"{member.facts.description.removesuffix('.')}, as JSON. Null: as if left out.")
        for member in MEMBERS
        if get_origin(member.type) is Mapping
    }
    numbers = {
        member.name: field_of(int, member.facts, **field_options(member))
        for member in MEMBERS
        if member.type == WholeOrAuto
    }
    return texts | numbers


class _FormFields(SubmissionSchema):
    class Meta(SubmissionSchema.Meta):
        include = _form_fields()


class SubmissionForm(_FormFields):
    """Submission as a multipart form, with the model binary in it."""

    model = Binary(
        description="The model binary as a file; or, as a plain field, a name, `name@version`, `name@tag`, id or"
        " digest."
    )
    scenarios = json_text('`0-9,20`, or a `Scenarios` as JSON, such as `{"range": [0, 10]}`; all if left out or null.')
    sweep = json_text("Lists of values by parameter, as JSON: every combination is simulated. Null: as if left out.")
    labels = json_text(
        'Your labels, for filtering the list, as JSON, such as `{"branch": "main"}`. Null: as if left out.'
    )
    placement = json_text("A `Placement` as JSON. Null: as if left out.")
    gang = json_text("A `Gang` as JSON. Null: as if left out.")

    class Meta(SubmissionSchema.Meta):
        exclude = ("upload",)


class RerunSchema(Open):
    """The `simulation.json` of an archive: repeats the simulation with the same digests."""

    spec = dictionary("`spec` of the earlier simulation.")
    provenance = dictionary("`provenance` of the earlier simulation.")


class IdempotencyHeaders(Headers):
    """Header of a request that creates something once, however often it is sent."""

    idempotency_key = Text(
        r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$",
        longest=255,
        data_key="Idempotency-Key",
        description="A request with the same key and body gets the first answer again, for a day.",
    )


class SubmissionHeaders(IdempotencyHeaders):
    """Headers of a submission."""

    prefer = string(
        f"`wait=N` (RFC 7240): answer at its end, or after N seconds (at most {LONGEST_WAIT}).",
        required=False,
        data_key="Prefer",
    )


def _measured(description: str) -> fields.Float:
    return real(f"{description}; null if it was not measured.", allow_none=True)


class DryRunSchema(Open):
    """Result of a dry run of a few real steps. What was not measured is null."""

    fits = boolean("Whether the model loads and fits the dataset.")
    reason = string("Why it does not; null if it does.", allow_none=True)
    dataset = string("Name of the dataset.")
    runtime = string("Runtime that ran the model; null if none did.", allow_none=True)
    format = string("Format of the model.")
    model = dictionary(
        "How the loaded model describes itself: its inputs, outputs, state, library; null if it was not loaded.",
        allow_none=True,
    )
    load_seconds = _measured("Seconds in which the model's process loaded the model")
    act_seconds = _measured("Median of the seconds of an action")
    slowest_act_seconds = _measured("Seconds of the slowest action, mostly the first")
    memory = integer(
        "Most bytes that the model's process had in memory, with its libraries; null if it was not measured.",
        allow_none=True,
    )
