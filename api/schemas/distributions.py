"""Schemas of distributions of metrics, of parameters, and of the dependence of metrics on parameters."""

from marshmallow import fields, validate

from api.schemas.fields import Open, Strict, Text, Whole

_KIND = validate.OneOf(("number", "category"))


class CoverageSchema(Open):
    """Which results an answer covers."""

    read = fields.Integer(required=True, metadata={"description": "Results that had arrived."})
    sampled = fields.Integer(
        required=True,
        metadata={
            "description": "Results that the figures are of: fewer than `read` if there are more than 1,000,000, or if"
            " their metrics take more than 128 MiB."
        },
    )
    complete = fields.Boolean(
        required=True, metadata={"description": "Whether the simulation has ended, so that no result will follow."}
    )


class MetricNotOkSchema(Open):
    """Tasks that are not `ok`, for a metric with a declared worst value."""

    value = fields.Float(required=True, metadata={"description": "The value that each of them counts."})
    statuses = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        required=True,
        metadata={"description": "Number of tasks by status."},
    )


class DistributionSchema(Open):
    """Distribution of one metric over the tasks that are `ok`."""

    kind = fields.String(required=True, validate=_KIND, metadata={"description": "`category` for texts."})
    count = fields.Integer(required=True, metadata={"description": "Tasks with a value."})
    missing = fields.Integer(
        required=True, metadata={"description": "Tasks that are `ok` without a value, or with none that is finite."}
    )
    edges = fields.List(
        fields.Float(),
        metadata={"description": "Edges of the bins, ascending; a bin includes its lower edge, the last bin both."},
    )
    counts = fields.List(fields.Integer(), metadata={"description": "Number of tasks in each bin."})
    mean = fields.Float(allow_none=True, metadata={"description": "Mean; null without values."})
    min = fields.Float(allow_none=True, metadata={"description": "Least value; null without values."})
    max = fields.Float(allow_none=True, metadata={"description": "Greatest value; null without values."})
    values = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        metadata={"description": "Number of tasks by text; `(others)` after 1,000 different texts."},
    )
    not_ok = fields.Nested(MetricNotOkSchema)


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
    source = fields.String(required=True, validate=validate.OneOf(("scenario", "sweep")))
    kind = fields.String(required=True, validate=_KIND)
    distinct = fields.Integer(required=True, metadata={"description": "Number of different values."})
    values = fields.List(fields.Raw(), metadata={"description": "The different values, if they are at most 100."})
    low = fields.Float(metadata={"description": "Least value of a number."})
    high = fields.Float(metadata={"description": "Greatest value of a number."})


class ParametersSchema(Open):
    """Parameters of the tasks of a simulation."""

    parameters = fields.List(fields.Nested(ParameterSchema), required=True)


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

    name = fields.String(required=True)
    source = fields.String(required=True, validate=validate.OneOf(("scenario", "sweep")))
    kind = fields.String(required=True, validate=_KIND)
    values = fields.List(fields.Raw(), metadata={"description": "The values, each a group; absent if there are bins."})
    edges = fields.List(fields.Float(), metadata={"description": "Edges of the bins of a number, ascending."})


class GroupSchema(Open):
    """The tasks with one value of a parameter, or with a number in one bin."""

    value = fields.Raw(metadata={"description": "The value; absent for a bin."})
    lower_edge = fields.Float(data_key="from", metadata={"description": "Lower edge of the bin, included."})
    upper_edge = fields.Float(data_key="to", metadata={"description": "Upper edge of the bin."})
    count = fields.Integer(required=True, metadata={"description": "Tasks with a value of the metric."})
    mean = fields.Float(allow_none=True, metadata={"description": "Mean; null without tasks."})
    low = fields.Float(
        allow_none=True,
        metadata={"description": "Lower end of the mean's 95 % interval; null for the mean of a single task."},
    )
    high = fields.Float(allow_none=True, metadata={"description": "Upper end of the mean's 95 % interval."})
    min = fields.Float(allow_none=True)
    p25 = fields.Float(allow_none=True, metadata={"description": "Lower quartile."})
    p50 = fields.Float(allow_none=True, metadata={"description": "Median."})
    p75 = fields.Float(allow_none=True, metadata={"description": "Upper quartile."})
    max = fields.Float(allow_none=True)
    values = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        metadata={"description": "Of a metric with texts: number of tasks by text."},
    )


class PointsSchema(Open):
    """A sample of up to 2,000 tasks, in task order; the lists are equally long."""

    tasks = fields.List(fields.Integer(), required=True, metadata={"description": "Numbers of the tasks."})
    x = fields.List(fields.Float(), required=True, metadata={"description": "Values of the parameter."})
    y = fields.List(fields.Float(), required=True, metadata={"description": "Values of the metric."})
    statuses = fields.List(fields.String(), required=True, metadata={"description": "Statuses of the tasks."})


class DependenceSchema(CoverageSchema):
    """Dependence of a metric on one parameter, or on two."""

    metric = fields.String(required=True)
    kind = fields.String(required=True, validate=_KIND, metadata={"description": "Whether the metric has numbers."})
    parameters = fields.List(fields.Nested(AxisSchema), required=True)
    groups = fields.List(
        fields.Nested(GroupSchema), metadata={"description": "Of one parameter: its values or bins, in order."}
    )
    points = fields.Nested(PointsSchema)
    counts = fields.List(
        fields.List(fields.Integer()),
        metadata={"description": "Of two parameters: tasks in each cell; a row for each group of the first."},
    )
    means = fields.List(
        fields.List(fields.Float(allow_none=True)),
        metadata={"description": "Of two parameters: mean of each cell; null without tasks."},
    )


class SensitivityQuery(Strict):
    """A metric."""

    metric = Text(
        load_default="failed",
        metadata={"description": "Name of a metric with numbers, or `failed`: whether a task failed."},
    )


class EffectSchema(Open):
    """How strongly a parameter goes with the metric, with the 95 % interval; null for what is not finite."""

    name = fields.String(
        required=True,
        validate=validate.OneOf(("rank_biserial", "rate_difference", "spearman", "epsilon_squared")),
        metadata={
            "description": "`rank_biserial`: of a number and failure, from -1 to 1, positive if larger values fail more"
            " often. `rate_difference`: failure rate of the category `level` minus that of all others. `spearman`: rank"
            " correlation of a number and a metric. `epsilon_squared`: share of a metric's variance by category."
        },
    )
    value = fields.Float(required=True, allow_none=True)
    low = fields.Float(required=True, allow_none=True)
    high = fields.Float(required=True, allow_none=True)


class PlotBinSchema(Open):
    """The results with a category, or with a number in one bin."""

    label = fields.String(required=True)
    least = fields.Float(data_key="from", metadata={"description": "Least number of the bin; absent for a category."})
    largest = fields.Float(data_key="to", metadata={"description": "Greatest number of the bin."})
    count = fields.Integer(required=True, metadata={"description": "Results."})
    value = fields.Float(
        required=True, allow_none=True, metadata={"description": "Failure rate, or mean of the metric."}
    )
    low = fields.Float(required=True, allow_none=True, metadata={"description": "Lower end of its 95 % interval."})
    high = fields.Float(required=True, allow_none=True, metadata={"description": "Upper end of its 95 % interval."})


class ParameterSensitivitySchema(Open):
    """How a parameter goes with the metric."""

    parameter = fields.String(required=True, metadata={"description": "Name of the parameter."})
    aliases = fields.List(
        fields.String(),
        required=True,
        metadata={
            "description": "Parameters that tell the same results apart, such as another name of the same value; they"
            " are not listed by themselves."
        },
    )
    source = fields.String(required=True, validate=validate.OneOf(("scenario", "sweep")))
    kind = fields.String(required=True, validate=_KIND)
    association = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": "From 0 to 1, on one scale for numbers and categories: Cramér's V of the bins with failure,"
            " or the root of epsilon squared with a metric."
        },
    )
    effect = fields.Nested(EffectSchema, required=True)
    level = fields.String(
        required=True, allow_none=True, metadata={"description": "Category of a rate difference: the largest of all."}
    )
    missing = fields.Integer(required=True, metadata={"description": "Results without a value of the parameter."})
    plot = fields.List(
        fields.Nested(PlotBinSchema), required=True, metadata={"description": "At most 8 bins of the parameter."}
    )


class CombinationSchema(Open):
    """Values of one or two parameters, and the failures among the results that have them."""

    values = fields.Dict(
        keys=fields.String(),
        values=fields.String(),
        required=True,
        metadata={"description": "Category, or bin of a number, by parameter."},
    )
    count = fields.Integer(required=True, metadata={"description": "Results."})
    failures = fields.Integer(required=True, metadata={"description": "Results that failed."})
    rate = fields.Float(required=True, metadata={"description": "Failure rate."})
    low = fields.Float(required=True, metadata={"description": "Lower end of its 95 % interval (Wilson)."})
    high = fields.Float(required=True, metadata={"description": "Upper end of it."})


class SensitivitySchema(CoverageSchema):
    """Which parameters go with failure, or with a metric."""

    metric = fields.String(required=True)
    failed = fields.Integer(required=True, metadata={"description": "Results that failed, of `sampled`."})
    parameters = fields.List(
        fields.Nested(ParameterSensitivitySchema),
        required=True,
        metadata={"description": "By association, the strongest first; without those that have a single value."},
    )
    fewest = fields.Integer(
        required=True,
        metadata={"description": "Least results of a combination: those with fewer are left out, however many failed."},
    )
    combinations = fields.List(
        fields.Nested(CombinationSchema),
        required=True,
        metadata={
            "description": "Up to 20 combinations with at least `fewest` results and a failure, whatever the metric:"
            " those whose failure rate has the highest lower end of its interval."
        },
    )


class WorstQuery(Strict):
    """Selection of the worst tasks."""

    limit = Whole(1, 200, text=True, load_default=50, metadata={"description": "Most tasks."})
    group = fields.List(
        Text(r"^[^=\x00-\x1f\x7f]+=[^\x00-\x1f\x7f]*$", longest=300),
        validate=validate.Length(1, 10),
        metadata={"description": "Only tasks with this value of a parameter, `NAME=VALUE`; may be repeated."},
    )


class WorstTaskSchema(Open):
    """A task, as `worst` of a summary has it, with its metrics."""

    task = fields.Integer(required=True, metadata={"description": "Number of the task."})
    status = fields.String(required=True)
    score = fields.Float(
        required=True, allow_none=True, metadata={"description": "Value of the dataset's score; null without one."}
    )
    error = fields.String(required=True, allow_none=True, metadata={"description": "Error message; null for `ok`."})
    scenario = fields.Dict(required=True)
    metrics = fields.Dict(required=True)


class WorstSchema(CoverageSchema):
    """The worst tasks of a simulation so far."""

    items = fields.List(
        fields.Nested(WorstTaskSchema),
        required=True,
        metadata={"description": "Tasks that are not `ok` in task order, then those with the worst scores."},
    )
