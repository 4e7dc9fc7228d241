"""Schemas of distributions of metrics, of parameters, and of the dependence of metrics on parameters."""

from marshmallow import fields, validate

from api.schemas.fields import Open, Strict, Text, Whole
from api.schemas.members import array, boolean, count_of_each, dictionary, document, documents, integer, real, string

KIND = validate.OneOf(("number", "category"))


class CoverageSchema(Open):
    """Which results an answer covers."""

    read = integer("Number of results that had arrived.")
    sampled = integer(
        "Number of results that the figures are of: fewer than `read` if there are more than 1,000,000, or if their"
        " metrics take more than 128 MiB."
    )
    complete = boolean("Whether the simulation has ended, so that no result will follow.")


class MetricNotOkSchema(Open):
    """Tasks that are not `ok`, for a metric with a declared worst value."""

    value = real("The value that each of them counts, in the unit of the metric.")
    statuses = count_of_each("Number of tasks by status.")


class DistributionSchema(Open):
    """Distribution of one metric over the tasks that are `ok`."""

    kind = string("Whether the values of the metric are numbers or texts (`category`).", validate=KIND)
    count = integer("Number of tasks with a value.")
    missing = integer("Number of tasks that are `ok` without a value, or with none that is finite.")
    never = integer(
        "Number of tasks whose value stands for `never`, such as the least time to collision of a drive that closes"
        " in on nobody; absent for a metric without such a value.",
        required=False,
    )
    edges = array(
        fields.Float(),
        "Edges of the bins, in the unit of the metric, ascending; a bin includes its lower edge, the last bin both.",
        required=False,
    )
    counts = array(fields.Integer(), "Number of tasks in each bin.", required=False)
    mean = real("Mean, in the unit of the metric; null without values.", required=False, allow_none=True)
    min = real("Least value, in the unit of the metric; null without values.", required=False, allow_none=True)
    max = real("Greatest value, in the unit of the metric; null without values.", required=False, allow_none=True)
    values = count_of_each("Number of tasks by text; `(others)` after 1,000 different texts.", required=False)
    not_ok = document(
        MetricNotOkSchema,
        "The tasks that are not `ok`; absent if the dataset declares no worst value of the metric.",
        required=False,
    )


class DistributionsSchema(CoverageSchema):
    """Distributions of all metrics of a simulation."""

    tasks = count_of_each("Number of tasks: `total`, `done`, `failed` (not `ok`).")
    statuses = count_of_each("Number of tasks by status, failures first.")
    metrics = dictionary(
        "By metric. `failed` is 1 for a task that is not `ok` or has an outcome that the dataset counts as a failure.",
        fields.Nested(DistributionSchema),
    )


class ParameterSchema(Open):
    """A parameter of the tasks of a simulation."""

    name = string("Name: a field of the scenarios (`street`, `start.speed`), or `params.NAME` of a sweep.")
    source = string(
        "Whether the scenarios of the dataset or the sweep of the submission set it.",
        validate=validate.OneOf(("scenario", "sweep")),
    )
    kind = string("Whether its values are numbers (`number`) or categories (`category`).", validate=KIND)
    distinct = integer("Number of different values.")
    values = array(fields.Raw(), "The different values, if they are at most 100.", required=False)
    low = real(
        "Least value of a parameter with numbers, in the unit of the parameter; absent for texts.", required=False
    )
    high = real(
        "Greatest value of a parameter with numbers, in the unit of the parameter; absent for texts.", required=False
    )


class ParametersSchema(Open):
    """Parameters of the tasks of a simulation."""

    parameters = documents(ParameterSchema, "The parameters.")


class DependenceQuery(Strict):
    """A metric, and one or two parameters."""

    metric = Text(required=True, description="Name of a metric, or `failed`: the share of tasks that failed.")
    parameter = array(Text(longest=300), "Name of a parameter; two for a heat map.", validate=validate.Length(1, 2))


class AxisSchema(Open):
    """A parameter with its groups."""

    name = string("Name of the parameter.")
    source = string(
        "Whether the scenarios of the dataset or the sweep of the submission set it.",
        validate=validate.OneOf(("scenario", "sweep")),
    )
    kind = string("Whether its values are numbers (`number`) or categories (`category`).", validate=KIND)
    values = array(fields.Raw(), "The values, each a group; absent if there are bins.", required=False)
    edges = array(
        fields.Float(),
        "Edges of the bins of a number, in the unit of the parameter, ascending; absent if there are no bins.",
        required=False,
    )


class GroupSchema(Open):
    """The tasks with one value of a parameter, or with a number in one bin."""

    value = fields.Raw(metadata={"description": "The value; absent for a bin."})
    lower_edge = real(
        "Lower edge of the bin, included, in the unit of the parameter; absent for a single value.",
        required=False,
        data_key="from",
    )
    upper_edge = real(
        "Upper edge of the bin, in the unit of the parameter; absent for a single value.", required=False, data_key="to"
    )
    count = integer("Number of tasks with a value of the metric.")
    mean = real("Mean of the metric, in its unit; null without tasks.", required=False, allow_none=True)
    low = real(
        "Lower end of the 95 % interval of the mean, in the unit of the metric; null without tasks and for the mean"
        " of a single task.",
        required=False,
        allow_none=True,
    )
    high = real(
        "Upper end of the 95 % interval of the mean, in the unit of the metric; null without tasks and for the mean"
        " of a single task.",
        required=False,
        allow_none=True,
    )
    min = real("Least value, in the unit of the metric; null without tasks.", required=False, allow_none=True)
    p25 = real("Lower quartile, in the unit of the metric; null without tasks.", required=False, allow_none=True)
    p50 = real("Median, in the unit of the metric; null without tasks.", required=False, allow_none=True)
    p75 = real("Upper quartile, in the unit of the metric; null without tasks.", required=False, allow_none=True)
    max = real("Greatest value, in the unit of the metric; null without tasks.", required=False, allow_none=True)
    values = count_of_each("Of a metric with texts: number of tasks by text.", required=False)


class PointsSchema(Open):
    """A sample of up to 2,000 tasks, in task order; the lists are equally long."""

    tasks = array(fields.Integer(), "Numbers of the tasks, from 0.")
    x = array(fields.Float(), "Values of the parameter, in its unit.")
    y = array(fields.Float(), "Values of the metric, in its unit.")
    statuses = array(fields.String(), "Statuses of the tasks.")


class DependenceSchema(CoverageSchema):
    """Dependence of a metric on one parameter, or on two."""

    metric = string("Name of the metric, or `failed`.")
    kind = string("Whether the values of the metric are numbers or texts (`category`).", validate=KIND)
    parameters = documents(AxisSchema, "The parameters that were asked for, one or two, each with its values or bins.")
    groups = documents(GroupSchema, "Of one parameter: its values or bins, in order.", required=False)
    points = document(
        PointsSchema,
        "A sample of single tasks; only for one parameter with numbers and a metric with numbers.",
        required=False,
    )
    counts = array(
        fields.List(fields.Integer()),
        "Of two parameters: number of tasks in each cell; a row for each group of the first.",
        required=False,
    )
    means = array(
        fields.List(fields.Float(allow_none=True)),
        "Of two parameters: mean of each cell, in the unit of the metric; null without tasks.",
        required=False,
    )


class WorstQuery(Strict):
    """Selection of the worst tasks."""

    limit = Whole(1, 200, text=True, load_default=50, description="Most tasks that are listed.")
    group = array(
        Text(r"^[^=\x00-\x1f\x7f]+=[^\x00-\x1f\x7f]*$", longest=300),
        "Only tasks with this value of a parameter, `NAME=VALUE`; may be repeated.",
        required=False,
        validate=validate.Length(1, 10),
    )


class WorstTaskSchema(Open):
    """A task, as `worst` of a summary has it, with its metrics."""

    task = integer("Number of the task, from 0.")
    status = string("Outcome of the task: `ok`, `failed`, `crashed`, `timed_out` or `invalid`.")
    score = real(
        "Value of the dataset's score, in its unit; null without a score and for tasks that have none.", allow_none=True
    )
    error = string("Error message; null for `ok`.", allow_none=True)
    scenario = dictionary("The task's scenario, with its index and parameters.")
    metrics = dictionary("Values of the dataset's metrics, by name, in the units that the dataset declares.")


class WorstSchema(CoverageSchema):
    """The worst tasks of a simulation so far."""

    items = documents(WorstTaskSchema, "Tasks that are not `ok` in task order, then those with the worst scores.")
