"""Schemas of the sensitivity of failures and metrics to parameters."""

from marshmallow import fields, validate

from api.schemas.distributions import KIND, CoverageSchema
from api.schemas.fields import Open, Strict, Text
from api.schemas.members import array, dictionary, document, documents, integer, real, string


class SensitivityQuery(Strict):
    """A metric."""

    metric = Text(
        load_default="failed", description="Name of a metric with numbers, or `failed`: whether a task failed."
    )


class EffectSchema(Open):
    """How strongly a parameter goes with the metric, with the 95 % interval; null for what is not finite."""

    name = string(
        "`rank_biserial`: of a number and failure, from -1 to 1, positive if larger values fail more often."
        " `rate_difference`: failure rate of the category `level` minus that of all others. `spearman`: rank"
        " correlation of a number and a metric. `epsilon_squared`: share of a metric's variance by category.",
        validate=validate.OneOf(("rank_biserial", "rate_difference", "spearman", "epsilon_squared")),
    )
    value = real("The effect, as `name` says, from -1 to 1; null if it is not finite.", allow_none=True)
    low = real("Lower end of the 95 % interval of the effect, from -1 to 1; null if it is not finite.", allow_none=True)
    high = real(
        "Upper end of the 95 % interval of the effect, from -1 to 1; null if it is not finite.", allow_none=True
    )


class PlotBinSchema(Open):
    """The results with a category, or with a number in one bin."""

    label = string("The category, or the bin in words.")
    least = real(
        "Least number of the bin, in the unit of the parameter; absent for a category.", required=False, data_key="from"
    )
    largest = real(
        "Greatest number of the bin, in the unit of the parameter; absent for a category.",
        required=False,
        data_key="to",
    )
    count = integer("Number of results in the bin.")
    value = real(
        "Failure rate from 0 to 1, or mean in the unit of the metric; null if it is not finite.", allow_none=True
    )
    low = real(
        "Lower end of the 95 % interval of `value`, in the same unit; null if it is not finite.", allow_none=True
    )
    high = real(
        "Upper end of the 95 % interval of `value`, in the same unit; null if it is not finite.", allow_none=True
    )


class ParameterSensitivitySchema(Open):
    """How a parameter goes with the metric."""

    parameter = string("Name of the parameter.")
    aliases = array(
        fields.String(),
        "Parameters that tell the same results apart, such as another name of the same value; they are not listed"
        " by themselves.",
    )
    source = string(
        "Whether the scenarios of the dataset or the sweep of the submission set it. A swept parameter is compared"
        " within scenarios, of which each has all its values.",
        validate=validate.OneOf(("scenario", "sweep")),
    )
    kind = string("Whether its values are numbers (`number`) or categories (`category`).", validate=KIND)
    association = real(
        "Strength from 0 to 1, on one scale for numbers and categories: Cramér's V of the bins with failure, or the"
        " root of epsilon squared with a metric; null if it is not finite.",
        allow_none=True,
    )
    effect = document(EffectSchema, "How strongly, and in which direction, the parameter goes with the metric.")
    level = string(
        "Category with the largest difference of failure rates; null for other effects than `rate_difference`.",
        allow_none=True,
    )
    picked_from = integer(
        "Number of categories that `level` was picked from; the interval of the effect holds for all of them at"
        " once. Null for other effects than `rate_difference`.",
        allow_none=True,
    )
    missing = integer("Number of results without a value of the parameter.")
    plot = documents(PlotBinSchema, "At most 8 bins of the parameter.")


class CombinationSchema(Open):
    """Values of one or two parameters, and the failures among the results that have them."""

    values = dictionary("Category, or bin of a number, by parameter.", fields.String())
    count = integer("Number of results.")
    failures = integer("Number of results that failed.")
    rate = real("Failure rate, from 0 to 1.")
    low = real("Lower end of the 95 % interval of the failure rate, from 0 to 1.")
    high = real("Upper end of the 95 % interval of the failure rate, from 0 to 1.")


class SensitivitySchema(CoverageSchema):
    """Which parameters go with failure, or with a metric."""

    metric = string("Name of the metric, or `failed`.")
    failed = integer("Number of results that failed, of `sampled`.")
    parameters = documents(
        ParameterSensitivitySchema, "By association, the strongest first; without those that have a single value."
    )
    fewest = integer(
        "Smallest number of scenarios that a combination has: those with fewer are left out, however many failed."
    )
    combinations = documents(
        CombinationSchema,
        "Up to 20 combinations with at least `fewest` results and a failure, whatever the metric: those whose"
        " failure rate has the highest lower end of its interval. The intervals of all `candidates` hold at once"
        " with a probability of 95 %.",
    )
    candidates = integer("Number of combinations that `combinations` were picked from.")
