"""Schemas of runtimes, simulators and executors."""

from marshmallow import fields

from api.schemas.fields import Open, Strict, Text
from api.schemas.members import array, boolean, dictionary, document, documents, integer, moment, real, string

#: Most characters of the reason of a drain, which stands in the reason of each simulation that waits for it.
LONGEST_DRAIN_REASON = 200


class DependencyRulesSchema(Open):
    """Rules for the packages that a model of a format may declare."""

    files = array(fields.String(), "Files that declare packages; the first one counts.")
    indexes = array(fields.String(), "Package indexes, in the order of their precedence.")
    allowed = array(fields.String(), "Patterns of the names that are allowed.")
    largest = integer("Most bytes of the environment that is installed for a model.")
    python = string("Version of Python that models run on.")


def _bytes(description: str) -> fields.Integer:
    return integer(f"Bytes: {description}")


class LimitsSchema(Open):
    """Limits of a model: what its process may use, how long it may take, how large it may be."""

    memory = _bytes("memory of the model's process, its libraries included; in a pod at most the container's.")
    tasks = integer("Number of processes and threads together, at most.")
    open_files = integer("Number of open file descriptors, at most.")
    scratch = _bytes(
        "the writable folder /tmp, whose files are in memory; where the sandbox has level 2 there is none."
    )
    scratch_files = integer("Number of files and folders in /tmp, at most.")
    largest_file = _bytes("the largest file that the model may write.")
    start_time = real("Seconds to import the format's libraries.")
    load_time = real("Seconds to load the model.")
    reset_time = real("Seconds to reset the model; the deadline of `act` if that is longer.")
    act_deadline = string("Where the deadline of each action comes from.")
    largest_model = integer("Bytes: the model's file; null: no limit.", allow_none=True)
    largest_unpacked = integer(
        "Bytes: the files of the model's archive together; null: it is not unpacked.", allow_none=True
    )


class FormatSchema(Open):
    """A model format that a runtime supports."""

    name = string("Name of the format, such as `onnx`.")
    title = string("Title, such as `TensorFlow Lite`.")
    description = string("What a model of this format has to have.")
    suffixes = array(fields.String(), "Suffixes of file names that tell the format, such as `.onnx`.")
    accepted_suffixes = array(
        fields.String(), "All suffixes that its files may have, such as `.onnx` and `.zip`; empty: any."
    )
    max_size = integer("Most bytes of a model that is one file; null: no limit but the server's.", allow_none=True)
    environment = string("Python environment that the model runs in.")
    ready = boolean("Whether the environment is installed on this machine.")
    packages = dictionary(
        "Python packages of the environment with their versions: there without asking.", fields.String()
    )
    requirements = array(
        fields.String(),
        "Packages that models of this format get besides: the first simulation of each model resolves them with the"
        " platform's package indexes and installs them.",
    )
    dependencies = document(
        DependencyRulesSchema,
        "Rules for the packages that a model may declare; null: it may declare none.",
        allow_none=True,
    )
    limits = document(LimitsSchema, "Limits of models of this format.")


class RuntimeSchema(Open):
    """Runtime: loads models of its formats and calls them."""

    name = string("Name of the runtime, such as `onnx`.")
    title = string("Name for people: the titles of its formats.")
    description = string("What models of its formats have to be.")
    formats = documents(FormatSchema, "Model formats that it supports.")
    limits = document(LimitsSchema, "The least of the limits of its formats, of each kind.")


class RuntimeListSchema(Open):
    """All runtimes."""

    items = documents(RuntimeSchema, "The runtimes, by name.")


class SimulatorSchema(Open):
    """Simulator: runs the scenarios of its datasets."""

    name = string("Name of the simulator, such as `sumo`.")
    ready = boolean("Whether its environment is installed on this machine.")
    datasets = array(fields.String(), "Names of the datasets that it simulates.")


class SimulatorListSchema(Open):
    """All simulators."""

    items = documents(SimulatorSchema, "The simulators, by name.")


class DrainedSchema(Open):
    """An executor's drain."""

    since = moment("When it was drained.")
    reason = string("Why; null: not said.", allow_none=True)
    by = string("The caller; null: not recorded.", allow_none=True)


class ExecutorSchema(Open):
    """Executor: a machine or cluster that simulations run on."""

    name = string("Name of the executor, for `placement.executor`.")
    kind = string("Kind of executor, such as `kubernetes`.")
    workers = integer("Most workers at the same time; a worker is one evaluator with its model server.")
    in_use = integer(
        "Number of workers in use now. For moments it is above `workers`, while workers of an ended simulation end."
    )
    allowed = dictionary(
        "Patterns of the names that a submission may give, by option of `placement` and `gang`. Options that are"
        " not listed are refused, or ignored by this kind of executor.",
        fields.List(fields.String()),
    )
    healthy = boolean("Whether it answers; null before it has been polled once.", allow_none=True)
    reason = string("Last error; null while it is healthy.", allow_none=True)
    since = moment("When `healthy` last changed; null before it has been polled once.", allow_none=True)
    drain = document(
        DrainedSchema, "Since when it is given no simulations, and why; null: it is not drained.", allow_none=True
    )


class DrainSchema(Strict):
    """Drain of an executor."""

    reason = Text(
        longest=LONGEST_DRAIN_REASON,
        description="Why, for those whose simulations wait, such as `maintenance until 14:00`.",
    )


class ExecutorListSchema(Open):
    """All executors."""

    items = documents(ExecutorSchema, "The executors, as configured.")
