"""Schemas of distributions of metrics, of parameters, and of the dependence of metrics on parameters."""

from marshmallow import fields, validate

from api.schemas.fields import Open, Strict, Text, Whole

KIND = validate.OneOf(("number", "category"))


class CoverageSchema(Open):
    """Which results an answer covers."""

    read = fields.Integer(required=True, metadata={"description": "Number of results that had arrived."})
    sampled = fields.Integer(
        required=True,
        metadata={
            "description": (
                "Number of results that the figures are of: fewer than `read` if there are more than "
                "1,000,000, or if their metrics take more than 128 MiB."
            )
        },
    )
    complete = fields.Boolean(
        required=True, metadata={"description": "Whether the simulation has ended, so that no result will follow."}
    )


class MetricNotOkSchema(Open):
    """Tasks that are not `ok`, for a metric with a declared worst value."""

    value = fields.Float(
        required=True, metadata={"description": "The value that each of them counts, in the unit of the metric."}
    )
    statuses = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        required=True,
        metadata={"description": "Number of tasks by status."},
    )


class DistributionSchema(Open):
    """Distribution of one metric over the tasks that are `ok`."""

    kind = fields.String(
        required=True,
        validate=KIND,
        metadata={"description": "Whether the values of the metric are numbers or texts (`category`)."},
    )
    count = fields.Integer(required=True, metadata={"description": "Number of tasks with a value."})
    missing = fields.Integer(
        required=True,
        metadata={"description": "Number of tasks that are `ok` without a value, or with none that is finite."},
    )
    never = fields.Integer(
        metadata={
            "description": "Number of tasks whose value stands for `never`, such as the least time to collision of"
            " a drive that closes in on nobody; absent for a metric without such a value."
        },
    )
    edges = fields.List(
        fields.Float(),
        metadata={
            "description": (
                "Edges of the bins, in the unit of the metric, ascending; a bin includes its lower "
                "edge, the last bin both."
            )
        },
    )
    counts = fields.List(fields.Integer(), metadata={"description": "Number of tasks in each bin."})
    mean = fields.Float(
        allow_none=True, metadata={"description": "Mean, in the unit of the metric; null without values."}
    )
    min = fields.Float(
        allow_none=True, metadata={"description": "Least value, in the unit of the metric; null without values."}
    )
    max = fields.Float(
        allow_none=True, metadata={"description": "Greatest value, in the unit of the metric; null without values."}
    )
    values = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        metadata={"description": "Number of tasks by text; `(others)` after 1,000 different texts."},
    )
    not_ok = fields.Nested(
        MetricNotOkSchema,
        metadata={
            "description": ("The tasks that are not `ok`; absent if the dataset declares no worst value of the metric.")
        },
    )


class DistributionsSchema(CoverageSchema):
    """Distributions of all metrics of a simulation."""

    tasks = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        required=True,
        metadata={"description": "Number of tasks: `total`, `done`, `failed` (not `ok`)."},
    )
    statuses = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        required=True,
        metadata={"description": "Number of tasks by status, failures first."},
    )
    metrics = fields.Dict(
        keys=fields.String(),
        values=fields.Nested(DistributionSchema),
        required=True,
        metadata={
            "description": "By metric. `failed` is 1 for a task that is not `ok` or has an outcome that the dataset"
            " counts as a failure."
        },
    )


class ParameterSchema(Open):
    """A parameter of the tasks of a simulation."""

    name = fields.String(
        required=True,
        metadata={
            "description": "Name: a field of the scenarios (`street`, `start.speed`), or `params.NAME` of a sweep."
        },
    )
    source = fields.String(
        required=True,
        validate=validate.OneOf(("scenario", "sweep")),
        metadata={"description": "Whether the scenarios of the dataset or the sweep of the submission set it."},
    )
    kind = fields.String(
        required=True,
        validate=KIND,
        metadata={"description": "Whether its values are numbers (`number`) or categories (`category`)."},
    )
    distinct = fields.Integer(required=True, metadata={"description": "Number of different values."})
    values = fields.List(fields.Raw(), metadata={"description": "The different values, if they are at most 100."})
    low = fields.Float(
        metadata={
            "description": ("Least value of a parameter with numbers, in the unit of the parameter; absent for texts.")
        }
    )
    high = fields.Float(
        metadata={
            "description": (
                "Greatest value of a parameter with numbers, in the unit of the parameter; absent for texts."
            )
        }
    )


class ParametersSchema(Open):
    """Parameters of the tasks of a simulation."""

    parameters = fields.List(
        fields.Nested(ParameterSchema),
        required=True,
        metadata={"description": "The parameters."},
    )


class DependenceQuery(Strict):
    """A metric, and one or two parameters."""

    metric = Text(
        required=True, metadata={"description": "Name of a metric, or `failed`: the share of tasks that failed."}
    )
    parameter = fields.List(
        Text(longest=300),
        required=True,
        validate=validate.Length(1, 2),
        metadata={"description": "Name of a parameter; two for a heat map."},
    )


class AxisSchema(Open):
    """A parameter with its groups."""

    name = fields.String(required=True, metadata={"description": "Name of the parameter."})
    source = fields.String(
        required=True,
        validate=validate.OneOf(("scenario", "sweep")),
        metadata={"description": "Whether the scenarios of the dataset or the sweep of the submission set it."},
    )
    kind = fields.String(
        required=True,
        validate=KIND,
        metadata={"description": "Whether its values are numbers (`number`) or categories (`category`)."},
    )
    values = fields.List(fields.Raw(), metadata={"description": "The values, each a group; absent if there are bins."})
    edges = fields.List(
        fields.Float(),
        metadata={
            "description": (
                "Edges of the bins of a number, in the unit of the parameter, ascending; absent if there are no bins."
            )
        },
    )


class GroupSchema(Open):
    """The tasks with one value of a parameter, or with a number in one bin."""

    value = fields.Raw(metadata={"description": "The value; absent for a bin."})
    lower_edge = fields.Float(
        data_key="from",
        metadata={
            "description": ("Lower edge of the bin, included, in the unit of the parameter; absent for a single value.")
        },
    )
    upper_edge = fields.Float(
        data_key="to",
        metadata={"description": "Upper edge of the bin, in the unit of the parameter; absent for a single value."},
    )
    count = fields.Integer(required=True, metadata={"description": "Number of tasks with a value of the metric."})
    mean = fields.Float(
        allow_none=True, metadata={"description": "Mean of the metric, in its unit; null without tasks."}
    )
    low = fields.Float(
        allow_none=True,
        metadata={
            "description": (
                "Lower end of the 95 % interval of the mean, in the unit of the metric; null without "
                "tasks and for the mean of a single task."
            )
        },
    )
    high = fields.Float(
        allow_none=True,
        metadata={
            "description": (
                "Upper end of the 95 % interval of the mean, in the unit of the metric; null without "
                "tasks and for the mean of a single task."
            )
        },
    )
    min = fields.Float(
        allow_none=True, metadata={"description": "Least value, in the unit of the metric; null without tasks."}
    )
    p25 = fields.Float(
        allow_none=True, metadata={"description": "Lower quartile, in the unit of the metric; null without tasks."}
    )
    p50 = fields.Float(
        allow_none=True, metadata={"description": "Median, in the unit of the metric; null without tasks."}
    )
    p75 = fields.Float(
        allow_none=True, metadata={"description": "Upper quartile, in the unit of the metric; null without tasks."}
    )
    max = fields.Float(
        allow_none=True, metadata={"description": "Greatest value, in the unit of the metric; null without tasks."}
    )
    values = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        metadata={"description": "Of a metric with texts: number of tasks by text."},
    )


class PointsSchema(Open):
    """A sample of up to 2,000 tasks, in task order; the lists are equally long."""

    tasks = fields.List(fields.Integer(), required=True, metadata={"description": "Numbers of the tasks, from 0."})
    x = fields.List(fields.Float(), required=True, metadata={"description": "Values of the parameter, in its unit."})
    y = fields.List(fields.Float(), required=True, metadata={"description": "Values of the metric, in its unit."})
    statuses = fields.List(fields.String(), required=True, metadata={"description": "Statuses of the tasks."})


class DependenceSchema(CoverageSchema):
    """Dependence of a metric on one parameter, or on two."""

    metric = fields.String(required=True, metadata={"description": "Name of the metric, or `failed`."})
    kind = fields.String(
        required=True,
        validate=KIND,
        metadata={"description": "Whether the values of the metric are numbers or texts (`category`)."},
    )
    parameters = fields.List(
        fields.Nested(AxisSchema),
        required=True,
        metadata={"description": "The parameters that were asked for, one or two, each with its values or bins."},
    )
    groups = fields.List(
        fields.Nested(GroupSchema), metadata={"description": "Of one parameter: its values or bins, in order."}
    )
    points = fields.Nested(
        PointsSchema,
        metadata={
            "description": ("A sample of single tasks; only for one parameter with numbers and a metric with numbers.")
        },
    )
    counts = fields.List(
        fields.List(fields.Integer()),
        metadata={"description": "Of two parameters: number of tasks in each cell; a row for each group of the first."},
    )
    means = fields.List(
        fields.List(fields.Float(allow_none=True)),
        metadata={
            "description": "Of two parameters: mean of each cell, in the unit of the metric; null without tasks."
        },
    )


class WorstQuery(Strict):
    """Selection of the worst tasks."""

    limit = Whole(1, 200, text=True, load_default=50, metadata={"description": "Most tasks that are listed."})
    group = fields.List(
        Text(r"^[^=\x00-\x1f\x7f]+=[^\x00-\x1f\x7f]*$", longest=300),
        validate=validate.Length(1, 10),
        metadata={"description": "Only tasks with this value of a parameter, `NAME=VALUE`; may be repeated."},
    )


class WorstTaskSchema(Open):
    """A task, as `worst` of a summary has it, with its metrics."""

    task = fields.Integer(required=True, metadata={"description": "Number of the task, from 0."})
    status = fields.String(
        required=True,
        metadata={"description": "Outcome of the task: `ok`, `failed`, `crashed`, `timed_out` or `invalid`."},
    )
    score = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Value of the dataset's score, in its unit; null without a score and for tasks that have none."
            )
        },
    )
    error = fields.String(required=True, allow_none=True, metadata={"description": "Error message; null for `ok`."})
    scenario = fields.Dict(
        required=True, metadata={"description": "The task's scenario, with its index and parameters."}
    )
    metrics = fields.Dict(
        required=True,
        metadata={"description": "Values of the dataset's metrics, by name, in the units that the dataset declares."},
    )


class WorstSchema(CoverageSchema):
    """The worst tasks of a simulation so far."""

    items = fields.List(
        fields.Nested(WorstTaskSchema),
        required=True,
        metadata={"description": "Tasks that are not `ok` in task order, then those with the worst scores."},
    )
