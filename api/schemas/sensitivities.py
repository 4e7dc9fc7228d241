"""Schemas of the sensitivity of failures and metrics to parameters."""

from marshmallow import fields, validate

from api.schemas.distributions import KIND, CoverageSchema
from api.schemas.fields import Open, Strict, Text


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
    value = fields.Float(
        required=True,
        allow_none=True,
        metadata={"description": "The effect, as `name` says, from -1 to 1; null if it is not finite."},
    )
    low = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": ("Lower end of the 95 % interval of the effect, from -1 to 1; null if it is not finite.")
        },
    )
    high = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": ("Upper end of the 95 % interval of the effect, from -1 to 1; null if it is not finite.")
        },
    )


class PlotBinSchema(Open):
    """The results with a category, or with a number in one bin."""

    label = fields.String(required=True, metadata={"description": "The category, or the bin in words."})
    least = fields.Float(
        data_key="from",
        metadata={"description": "Least number of the bin, in the unit of the parameter; absent for a category."},
    )
    largest = fields.Float(
        data_key="to",
        metadata={"description": "Greatest number of the bin, in the unit of the parameter; absent for a category."},
    )
    count = fields.Integer(required=True, metadata={"description": "Number of results in the bin."})
    value = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": ("Failure rate from 0 to 1, or mean in the unit of the metric; null if it is not finite.")
        },
    )
    low = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": ("Lower end of the 95 % interval of `value`, in the same unit; null if it is not finite.")
        },
    )
    high = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": ("Upper end of the 95 % interval of `value`, in the same unit; null if it is not finite.")
        },
    )


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
    source = fields.String(
        required=True,
        validate=validate.OneOf(("scenario", "sweep")),
        metadata={
            "description": "Whether the scenarios of the dataset or the sweep of the submission set it. A swept"
            " parameter is compared within scenarios, of which each has all its values."
        },
    )
    kind = fields.String(
        required=True,
        validate=KIND,
        metadata={"description": "Whether its values are numbers (`number`) or categories (`category`)."},
    )
    association = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Strength from 0 to 1, on one scale for numbers and categories: Cramér's V of the "
                "bins with failure, or the root of epsilon squared with a metric; null if it is not "
                "finite."
            )
        },
    )
    effect = fields.Nested(
        EffectSchema,
        required=True,
        metadata={"description": "How strongly, and in which direction, the parameter goes with the metric."},
    )
    level = fields.String(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Category with the largest difference of failure rates; null for other effects than `rate_difference`."
            )
        },
    )
    picked_from = fields.Integer(
        required=True,
        allow_none=True,
        metadata={
            "description": "Number of categories that `level` was picked from; the interval of the effect holds for all"
            " of them at once. Null for other effects than `rate_difference`."
        },
    )
    missing = fields.Integer(
        required=True, metadata={"description": "Number of results without a value of the parameter."}
    )
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
    count = fields.Integer(required=True, metadata={"description": "Number of results."})
    failures = fields.Integer(required=True, metadata={"description": "Number of results that failed."})
    rate = fields.Float(required=True, metadata={"description": "Failure rate, from 0 to 1."})
    low = fields.Float(
        required=True,
        metadata={"description": "Lower end of the 95 % interval of the failure rate, from 0 to 1."},
    )
    high = fields.Float(
        required=True,
        metadata={"description": "Upper end of the 95 % interval of the failure rate, from 0 to 1."},
    )


class SensitivitySchema(CoverageSchema):
    """Which parameters go with failure, or with a metric."""

    metric = fields.String(required=True, metadata={"description": "Name of the metric, or `failed`."})
    failed = fields.Integer(required=True, metadata={"description": "Number of results that failed, of `sampled`."})
    parameters = fields.List(
        fields.Nested(ParameterSensitivitySchema),
        required=True,
        metadata={"description": "By association, the strongest first; without those that have a single value."},
    )
    fewest = fields.Integer(
        required=True,
        metadata={
            "description": (
                "Smallest number of scenarios that a combination has: those with fewer are left out, however many "
                "failed."
            )
        },
    )
    combinations = fields.List(
        fields.Nested(CombinationSchema),
        required=True,
        metadata={
            "description": "Up to 20 combinations with at least `fewest` results and a failure, whatever the metric:"
            " those whose failure rate has the highest lower end of its interval. The intervals of all `candidates`"
            " hold at once with a probability of 95 %."
        },
    )
    candidates = fields.Integer(
        required=True,
        metadata={"description": "Number of combinations that `combinations` were picked from."},
    )
