"""Simulations on the wire: what is asked for, and how it stands."""

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, validate, validates_schema

from api.schemas.fields import NAME, REFERENCE, Binary, Choice, Flag, Headers, Object, Open, Real, Strict, Text, Whole
from api.schemas.pages import PageQuery, PageSchema
from core.domain.states import State

MOST_TASKS = 10_000_000
#: How long a request may wait for an end, in seconds; longer ones are cut to this.
LONGEST_WAIT = 600


class ScenariosSchema(Strict):
    """Which scenarios are played: a range, a list or a sample. All of them, when left out."""

    range = fields.List(
        Whole(0, MOST_TASKS),
        validate=validate.Length(2, 2),
        metadata={"description": "From the first, up to and not including the second.", "example": [0, 10]},
    )
    tasks = fields.List(Whole(0, MOST_TASKS), validate=validate.Length(1, 100_000), metadata={"description": "These."})
    sample = Whole(1, MOST_TASKS, metadata={"description": "So many, drawn by `seed`."})
    seed = Whole(metadata={"description": "Of the sample; 0 when left out."})

    @validates_schema
    def one_of_three(self, given: dict[str, Any], **_: Any) -> None:
        """Take one way of choosing, not two."""
        if len(given.keys() - {"seed"}) != 1 or ("seed" in given and "sample" not in given):
            raise ValidationError('One of {"range": [a, b]}, {"tasks": [...]} and {"sample": k, "seed": s}.')


class PlacementSchema(Strict):
    """What a simulation asks of the place it runs in. A place that knows nothing of a value leaves it alone."""

    executor = Text(NAME, longest=63, metadata={"description": "One of `GET /v1/executors`; any when left out."})
    cpu = Real(0.01, 1024.0, metadata={"description": "Cores of one pair of evaluator and model server."})
    memory = Whole(64 << 20, 1 << 44, metadata={"description": "Bytes of one pair of evaluator and model server."})
    resources = Object(
        most=16,
        keys=Text(r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$", longest=253),
        values=Text(r"^[0-9]{1,9}$", longest=9),
        metadata={"description": "Devices, by the name the cluster gives them.", "example": {"nvidia.com/gpu": "1"}},
    )
    networks = fields.List(
        Text(r"^[a-z0-9]([a-z0-9./@-]*[a-z0-9])?$", longest=253),
        validate=validate.Length(max=8),
        metadata={"description": "Secondary networks, by name."},
    )
    claims = Object(
        most=8,
        keys=Text(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", longest=63),
        values=Text(r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", longest=253),
        metadata={"description": "Claims of devices: a name, and the template it is made from.", "example": {}},
    )
    annotations = Object(
        most=32,
        keys=Text(r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$", longest=253),
        values=Text(longest=1000, shortest=0),
        metadata={"description": "Put on the pods as they are.", "example": {}},
    )
    node_selector = Object(
        most=16,
        keys=Text(r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$", longest=253),
        values=Text(r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$", longest=63, shortest=0),
        metadata={"description": "Labels that a node must have.", "example": {}},
    )
    exclusive = Text(
        r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$",
        longest=253,
        metadata={"description": "A key of the topology: no two launches in one of its domains."},
    )
    queue = Text(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", longest=63, metadata={"description": "A queue of the cluster's own."}
    )
    priority = Text(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", longest=253, metadata={"description": "A class of the cluster's own."}
    )


class GangSchema(Strict):
    """Replicas that run one program together, once for each task; `dataset` is then `program`."""

    size = Whole(1, 4096, required=True, metadata={"description": "Replicas, in each slice."})
    command = fields.List(
        Text(longest=4000, shortest=0),
        required=True,
        validate=validate.Length(1, 200),
        metadata={"description": "What each replica runs.", "example": ["python", "model.py"]},
    )
    communication = Choice(
        "none", "mpi", "torch", "tensorflow", "jax", "tpu", metadata={"description": "What replicas are told."}
    )
    slots = Whole(1, 1024, metadata={"description": "Processes in a replica; 1 when left out."})
    slices = Whole(1, 512, metadata={"description": "Groups of `size` replicas; 1 when left out."})
    restarts = Whole(0, 100, metadata={"description": "How often it begins again when a pod is lost."})
    operator = Choice("", "trainer", "mpi-operator", metadata={"description": "A TrainJob or an MPIJob instead."})
    image = Text(r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$", longest=500, metadata={"description": "An image of one's own."})
    implementation = Choice("openmpi", "mpich", "intel", metadata={"description": "Whose MPI an MPIJob's image has."})
    runtime_ref = Text(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", longest=253, metadata={"description": "A ClusterTrainingRuntime."}
    )


class SubmissionSchema(Strict):
    """What is to be simulated: a model, on a dataset, with a runtime. Only the dataset must be named."""

    dataset = Text(
        REFERENCE, required=True, metadata={"description": "A name, or `name@version`.", "example": "car_street"}
    )
    runtime = Text(
        NAME,
        longest=100,
        allow_none=True,
        metadata={"description": "Told from the model's format when left out.", "example": "python"},
    )
    model = Text(
        REFERENCE,
        allow_none=True,
        metadata={
            "description": "A name, `name@version`, id or digest; the runtime's baseline when left out.",
            "example": "idm",
        },
    )
    scenarios = fields.Nested(ScenariosSchema, allow_none=True)
    params = Object(
        keys=Text(longest=100),
        values=fields.Raw(allow_none=True),
        metadata={
            "description": "Parameters of the dataset, by name.",
            "example": {},
        },
    )
    sweep = Object(
        most=20,
        keys=Text(longest=100),
        values=fields.List(fields.Raw(allow_none=True), validate=validate.Length(1, 100_000)),
        metadata={"description": "Parameters with several values each: every combination is played.", "example": {}},
    )
    repeat = Whole(1, MOST_TASKS, metadata={"description": "How often each scenario is played; 1 when left out."})
    workers = Whole(
        1, 4096, allow_none=True, metadata={"description": "Pairs of evaluator and model server at work at once."}
    )
    seed = Whole(metadata={"description": "Every task's seed comes from this one; 0 when left out."})
    record = Choice("none", "failures", "all", metadata={"description": "Whose traces are kept."})
    labels = Object(
        most=32,
        keys=Text(NAME, longest=63),
        values=Text(longest=200, shortest=0),
        metadata={"description": "Words of your own, to find it by.", "example": {"branch": "main"}},
    )
    timeout = Real(0.1, 31_536_000.0, allow_none=True, metadata={"description": "Seconds from the first lease."})
    max_failures = Whole(allow_none=True, metadata={"description": "It fails as soon as more tasks than this did."})
    dry_run = Flag(metadata={"description": "Only check that the model loads and fits, by one real step."})
    placement = fields.Nested(PlacementSchema, metadata={"description": "What it asks of the place it runs in."})
    gang = fields.Nested(
        GangSchema, allow_none=True, metadata={"description": "Replicas that run a program together (docs/gangs.md)."}
    )


class SubmissionOfUpload(SubmissionSchema):
    """The same, with a model that was sent before as an upload."""

    upload = Text(longest=2000, required=True, metadata={"description": "A finished upload: its id or its address."})

    class Meta(SubmissionSchema.Meta):
        exclude = ("model",)


class SubmissionForm(SubmissionSchema):
    """The same as a multipart form, with the binary in it. Fields that are no strings hold JSON."""

    model = Binary(
        metadata={
            "description": "The model itself as a file; or, as a plain field, a name, `name@version`, id or digest."
        }
    )


class WorkersSchema(Strict):
    """What can be changed of a simulation that has not ended."""

    workers = Whole(
        1, 4096, required=True, metadata={"description": "Pairs of evaluator and model server at work at once."}
    )


class RerunSchema(Open):
    """The `simulation.json` of an archive: the same again, pinned to the same digests."""

    spec = fields.Dict(required=True)
    provenance = fields.Dict(required=True)


class SubmissionHeaders(Headers):
    """How a submission is to be answered."""

    idempotency_key = Text(
        r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$",
        longest=255,
        data_key="Idempotency-Key",
        metadata={"description": "The same key and body again gives the first answer again, for a day."},
    )
    prefer = fields.String(
        data_key="Prefer",
        metadata={
            "description": f"`wait=N` (RFC 7240): answer at its end, or after N seconds (at most {LONGEST_WAIT})."
        },
    )


class ModelRefSchema(Open):
    """The model of a simulation."""

    name = fields.String(required=True)
    digest = fields.String(required=True)
    version = fields.Integer(required=True, allow_none=True)
    format = fields.String(required=True, allow_none=True)


class RuntimeRefSchema(Open):
    """The runtime of a simulation."""

    name = fields.String(required=True)


class DatasetRefSchema(Open):
    """The dataset of a simulation."""

    name = fields.String(required=True)
    version = fields.String(required=True)
    digest = fields.String(required=True, allow_none=True)


class TasksSchema(Open):
    """How many tasks there are, have a result, and have one that is not `ok`."""

    total = fields.Integer(required=True)
    done = fields.Integer(required=True)
    failed = fields.Integer(required=True)


class Link(fields.String):
    """The address of a part of a simulation, made of its id."""

    def __init__(self, part: str = "", **kwargs: Any) -> None:
        super().__init__(required=True, **kwargs)
        self._part = part

    def serialize(self, attr: str, obj: Any, accessor: Any = None, **kwargs: Any) -> str:
        return f"/v1/simulations/{obj.id}{self._part}"


class LinksSchema(Open):
    """Where the rest is."""

    self = Link()
    events = Link("/events")
    results = Link("/results")
    summary = Link("/summary")
    artifacts = Link("/artifacts")
    archive = Link("/archive")
    logs = Link("/logs")


class Links(fields.Nested):
    """Made of the simulation itself, which has no such member."""

    def serialize(self, attr: str, obj: Any, accessor: Any = None, **kwargs: Any) -> Any:
        return self._serialize(obj, attr, obj, **kwargs)  # type: ignore[no-untyped-call]


class SimulationSchema(Open):
    """A simulation, and how far it has come."""

    id = fields.String(required=True)
    state = fields.String(required=True, metadata={"enum": [state.value for state in State]})
    attempt = fields.Integer(required=True)
    model = fields.Nested(ModelRefSchema, required=True)
    runtime = fields.Nested(RuntimeRefSchema, required=True)
    dataset = fields.Nested(DatasetRefSchema, required=True)
    tasks = fields.Nested(TasksSchema, required=True)
    metrics = fields.Dict(
        required=True,
        metadata={
            "description": "By name: count, mean, std, min, p50, p90, p99, max, and further ones at the end.",
        },
    )
    approximate = fields.Boolean(required=True, metadata={"description": "Whether the metrics may still change."})
    reason = fields.String(required=True, allow_none=True, metadata={"description": "Why it waits, or ended so."})
    position = fields.Integer(required=True, allow_none=True, metadata={"description": "In the queue, from 1."})
    eta = fields.Float(required=True, allow_none=True, metadata={"description": "Seconds still to go."})
    created_at = fields.AwareDateTime(required=True, format="iso")
    started_at = fields.AwareDateTime(required=True, allow_none=True, format="iso")
    ended_at = fields.AwareDateTime(required=True, allow_none=True, format="iso")
    labels = fields.Dict(required=True, keys=fields.String(), values=fields.String())
    workers = fields.Integer(required=True)
    executor = fields.String(required=True, allow_none=True, metadata={"description": "Where it runs, or ran last."})
    retry_of = fields.String(required=True, allow_none=True)
    spec = fields.Dict(required=True, metadata={"description": "What was asked for."})
    provenance = fields.Dict(
        required=True, metadata={"description": "What it was resolved to: all that results depend on."}
    )
    links = Links(LinksSchema, required=True)


class SimulationPageSchema(PageSchema):
    """Simulations, newest first."""

    items = fields.List(fields.Nested(SimulationSchema), required=True)


class StateName(Choice):
    """A state by its name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(*(state.value for state in State), **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Any:
        name = super()._deserialize(value, attr, data, **kwargs)
        return State(name) if name in set(State) else name


class SimulationQuery(PageQuery):
    """Which simulations are listed."""

    state = StateName(metadata={"description": "Only those in this state."})
    dataset = Text(NAME, longest=100, metadata={"description": "Only those on this dataset."})
    runtime = Text(NAME, longest=100, metadata={"description": "Only those with this runtime."})
    model = Text(NAME, longest=100, metadata={"description": "Only those of models of this name."})
    label = fields.List(
        Text(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}=[^\x00-\x1f\x7f]*$", longest=264),
        validate=validate.Length(max=32),
        metadata={"description": "Only those with this label, `name=value`; may be given several times."},
    )


class DryRunSchema(Open):
    """Whether the model loads and fits the dataset, tried by one real step."""

    fits = fields.Boolean(required=True)
    reason = fields.String(required=True, allow_none=True, metadata={"description": "What is wrong, in words."})


class RetrySchema(Strict):
    """What is to be run again."""

    only_failed = Flag(load_default=True, metadata={"description": "Only tasks that did not succeed, or all of them."})
