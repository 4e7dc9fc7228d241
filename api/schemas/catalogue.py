"""Schemas of runtimes, simulators and executors."""

from marshmallow import fields

from api.schemas.fields import Open, Strict, Text

#: Most characters of the reason of a drain, which stands in the reason of each simulation that waits for it.
LONGEST_DRAIN_REASON = 200


class DependencyRulesSchema(Open):
    """Rules for the packages that a model of a format may declare."""

    files = fields.List(
        fields.String(), required=True, metadata={"description": "Files that declare packages; the first one counts."}
    )
    indexes = fields.List(
        fields.String(), required=True, metadata={"description": "Package indexes, in the order of their precedence."}
    )
    allowed = fields.List(
        fields.String(), required=True, metadata={"description": "Patterns of the names that are allowed."}
    )
    largest = fields.Integer(
        required=True, metadata={"description": "Most bytes of the environment that is installed for a model."}
    )
    python = fields.String(required=True, metadata={"description": "Version of Python that models run on."})


def _bytes(description: str) -> fields.Integer:
    return fields.Integer(required=True, metadata={"description": f"Bytes: {description}"})


class LimitsSchema(Open):
    """Limits of a model: what its process may use, how long it may take, how large it may be."""

    memory = _bytes("memory of the model's process, its libraries included; in a pod at most the container's.")
    tasks = fields.Integer(
        required=True, metadata={"description": "Number of processes and threads together, at most."}
    )
    open_files = fields.Integer(required=True, metadata={"description": "Number of open file descriptors, at most."})
    scratch = _bytes(
        "the writable folder /tmp, whose files are in memory; where the sandbox has level 2 there is none."
    )
    scratch_files = fields.Integer(
        required=True, metadata={"description": "Number of files and folders in /tmp, at most."}
    )
    largest_file = _bytes("the largest file that the model may write.")
    start_time = fields.Float(required=True, metadata={"description": "Seconds to import the format's libraries."})
    load_time = fields.Float(required=True, metadata={"description": "Seconds to load the model."})
    reset_time = fields.Float(
        required=True,
        metadata={"description": "Seconds to reset the model; the deadline of `act` if that is longer."},
    )
    act_deadline = fields.String(
        required=True, metadata={"description": "Where the deadline of each action comes from."}
    )
    largest_model = fields.Integer(
        required=True, allow_none=True, metadata={"description": "Bytes: the model's file; null: no limit."}
    )
    largest_unpacked = fields.Integer(
        required=True,
        allow_none=True,
        metadata={"description": "Bytes: the files of the model's archive together; null: it is not unpacked."},
    )


class FormatSchema(Open):
    """A model format that a runtime supports."""

    name = fields.String(required=True, metadata={"description": "Name of the format, such as `onnx`."})
    title = fields.String(required=True, metadata={"description": "Title, such as `TensorFlow Lite`."})
    description = fields.String(required=True, metadata={"description": "What a model of this format has to have."})
    suffixes = fields.List(
        fields.String(),
        required=True,
        metadata={"description": "Suffixes of file names that tell the format, such as `.onnx`."},
    )
    accepted_suffixes = fields.List(
        fields.String(),
        required=True,
        metadata={"description": "All suffixes that its files may have, such as `.onnx` and `.zip`; empty: any."},
    )
    max_size = fields.Integer(
        required=True,
        allow_none=True,
        metadata={"description": "Most bytes of a model that is one file; null: no limit but the server's."},
    )
    environment = fields.String(required=True, metadata={"description": "Python environment that the model runs in."})
    ready = fields.Boolean(
        required=True, metadata={"description": "Whether the environment is installed on this machine."}
    )
    packages = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.String(),
        metadata={"description": "Python packages of the environment with their versions: there without asking."},
    )
    requirements = fields.List(
        fields.String(),
        required=True,
        metadata={
            "description": "Packages that models of this format get besides: the first simulation of each model "
            "resolves them with the platform's package indexes and installs them."
        },
    )
    dependencies = fields.Nested(
        DependencyRulesSchema,
        required=True,
        allow_none=True,
        metadata={"description": "Rules for the packages that a model may declare; null: it may declare none."},
    )
    limits = fields.Nested(LimitsSchema, required=True, metadata={"description": "Limits of models of this format."})


class RuntimeSchema(Open):
    """Runtime: loads models of its formats and calls them."""

    name = fields.String(required=True, metadata={"description": "Name of the runtime, such as `onnx`."})
    title = fields.String(required=True, metadata={"description": "Name for people: the titles of its formats."})
    description = fields.String(required=True, metadata={"description": "What models of its formats have to be."})
    formats = fields.List(
        fields.Nested(FormatSchema), required=True, metadata={"description": "Model formats that it supports."}
    )
    limits = fields.Nested(
        LimitsSchema, required=True, metadata={"description": "The least of the limits of its formats, of each kind."}
    )


class RuntimeListSchema(Open):
    """All runtimes."""

    items = fields.List(fields.Nested(RuntimeSchema), required=True, metadata={"description": "The runtimes, by name."})


class SimulatorSchema(Open):
    """Simulator: runs the scenarios of its datasets."""

    name = fields.String(required=True, metadata={"description": "Name of the simulator, such as `sumo`."})
    ready = fields.Boolean(
        required=True, metadata={"description": "Whether its environment is installed on this machine."}
    )
    datasets = fields.List(
        fields.String(), required=True, metadata={"description": "Names of the datasets that it simulates."}
    )


class SimulatorListSchema(Open):
    """All simulators."""

    items = fields.List(
        fields.Nested(SimulatorSchema), required=True, metadata={"description": "The simulators, by name."}
    )


class DrainedSchema(Open):
    """An executor's drain."""

    since = fields.AwareDateTime(required=True, format="iso", metadata={"description": "When it was drained."})
    reason = fields.String(required=True, allow_none=True, metadata={"description": "Why; null: not said."})
    by = fields.String(required=True, allow_none=True, metadata={"description": "The caller; null: not recorded."})


class ExecutorSchema(Open):
    """Executor: a machine or cluster that simulations run on."""

    name = fields.String(required=True, metadata={"description": "Name of the executor, for `placement.executor`."})
    kind = fields.String(required=True, metadata={"description": "Kind of executor, such as `kubernetes`."})
    workers = fields.Integer(
        required=True,
        metadata={"description": "Most workers at the same time; a worker is one evaluator with its model server."},
    )
    in_use = fields.Integer(
        required=True,
        metadata={
            "description": "Number of workers in use now. For moments it is above `workers`, while workers of an ended "
            "simulation end."
        },
    )
    allowed = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.List(fields.String()),
        metadata={
            "description": "Patterns of the names that a submission may give, by option of `placement` and `gang`. "
            "Options that are not listed are refused, or ignored by this kind of executor."
        },
    )
    healthy = fields.Boolean(
        required=True,
        allow_none=True,
        metadata={"description": "Whether it answers; null before it has been polled once."},
    )
    reason = fields.String(
        required=True, allow_none=True, metadata={"description": "Last error; null while it is healthy."}
    )
    since = fields.AwareDateTime(
        required=True,
        allow_none=True,
        format="iso",
        metadata={"description": "When `healthy` last changed; null before it has been polled once."},
    )
    drain = fields.Nested(
        DrainedSchema,
        required=True,
        allow_none=True,
        metadata={"description": "Since when it is given no simulations, and why; null: it is not drained."},
    )


class DrainSchema(Strict):
    """Drain of an executor."""

    reason = Text(
        longest=LONGEST_DRAIN_REASON,
        metadata={"description": "Why, for those whose simulations wait, such as `maintenance until 14:00`."},
    )


class ExecutorListSchema(Open):
    """All executors."""

    items = fields.List(
        fields.Nested(ExecutorSchema), required=True, metadata={"description": "The executors, as configured."}
    )
