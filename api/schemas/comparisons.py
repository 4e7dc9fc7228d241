"""Schemas of the comparison of two simulations."""

from marshmallow import fields, validate

from api.schemas.fields import Open, Strict, Text
from api.schemas.results import SIMULATION_ID, STATUSES

_DECISION = validate.OneOf(("better", "worse", "undecided"))
_INTERVAL = "of the 95 % interval of the mean difference (at another error rate r: 100 % - r), in the scale's unit."
_LOW = {"description": f"Lower end {_INTERVAL}"}
_HIGH = {"description": f"Upper end {_INTERVAL}"}


class ComparisonQuery(Strict):
    """The simulation to compare with, and the metric of the verdict."""

    to = Text(SIMULATION_ID, longest=26, required=True, metadata={"description": "Id of the other simulation."})
    metric = Text(metadata={"description": "Metric of the verdict; the dataset's score by default."})
    bound = fields.Float(
        validate=validate.Range(min=0, min_inclusive=False),
        metadata={
            "description": "Largest difference of the metric that counts, in its unit: larger ones are clipped to it."
        },
    )


class PairedMetricSchema(Open):
    """Paired differences of one metric over the scenarios that both simulations have."""

    count = fields.Integer(
        required=True, metadata={"description": "Number of pairs of tasks with a value on both sides."}
    )
    mean = fields.Float(
        required=True, metadata={"description": "Mean of the first simulation, in the unit of the metric."}
    )
    to = fields.Float(
        required=True, metadata={"description": "Mean of the other simulation, in the unit of the metric."}
    )
    difference = fields.Float(
        required=True, metadata={"description": "Mean of the first minus that of the other, in the unit of the metric."}
    )
    low = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Lower end of the 95 % interval of the mean difference, in the unit of the metric; "
                "null for a single pair."
            )
        },
    )
    high = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Upper end of the 95 % interval of the mean difference, in the unit of the metric; "
                "null for a single pair."
            )
        },
    )
    only_ours = fields.Integer(
        metadata={
            "description": (
                "Of a rate: number of pairs with 1 in the first simulation alone; absent for other metrics."
            )
        }
    )
    only_theirs = fields.Integer(
        metadata={
            "description": (
                "Of a rate: number of pairs with 1 in the other simulation alone; absent for other metrics."
            )
        }
    )
    p = fields.Float(
        metadata={"description": "Of a rate: p-value of McNemar's exact test, from 0 to 1; absent for other metrics."}
    )


class MetricScaleSchema(Open):
    """How two values became a bounded difference."""

    kind = fields.String(
        required=True,
        validate=validate.OneOf(("declared", "clipped", "sign")),
        metadata={
            "description": "By the declared range; clipped to `bound`; or only which of the two is better, as 1, 0, -1."
        },
    )
    bound = fields.Float(required=True, metadata={"description": "Largest difference that there can be, in `unit`."})
    unit = fields.String(
        required=True,
        metadata={"description": "Unit of the differences, such as `m/s`; empty for a number without a unit."},
    )


class SavingSchema(Open):
    """Pairs that the sequential test needed, beside a test of a fixed number of pairs."""

    played = fields.Integer(
        required=True,
        metadata={"description": "Number of pairs up to the decision; without one, of all that were tested."},
    )
    pairs = fields.Integer(required=True, metadata={"description": "Number of all pairs."})
    share = fields.Float(
        required=True, metadata={"description": "Share of the pairs that need not be played, from 0 to 1."}
    )
    needed = fields.Integer(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Number of pairs that the fixed test needs for the observed difference; null if there is no difference."
            )
        },
    )
    fixed_power = fields.Float(
        required=True,
        metadata={
            "description": (
                "Power of the fixed test of all pairs for the observed difference: a probability from 0 to 1."
            )
        },
    )


class FixedTestSchema(Open):
    """A paired test of a number of pairs that was fixed before, on the same pairs."""

    decision = fields.String(
        required=True, validate=_DECISION, metadata={"description": "Decision of the fixed test on the first model."}
    )
    low = fields.Float(required=True, metadata=_LOW)
    high = fields.Float(required=True, metadata=_HIGH)
    saving = fields.Nested(
        SavingSchema, required=True, metadata={"description": "What the sequential test saved beside it."}
    )


class MeanDifferenceSchema(Open):
    """Mean of paired differences; positive where the first simulation is better."""

    sentence = fields.String(required=True, metadata={"description": "The verdict in words."})
    count = fields.Integer(required=True, metadata={"description": "Number of pairs that were tested."})
    mean = fields.Float(
        required=True,
        allow_none=True,
        metadata={"description": "Mean difference, in the scale's unit: positive is better; null without pairs."},
    )
    low = fields.Float(required=True, metadata=_LOW)
    high = fields.Float(required=True, metadata=_HIGH)
    smallest = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Smallest true difference, in the scale's unit, that would have been shown with 80 % "
                "power; null if none would."
            )
        },
    )


class ModelVerdictSchema(MeanDifferenceSchema):
    """Verdict on the first simulation's model, beside the other's."""

    metric = fields.String(required=True, metadata={"description": "Name of the metric that the verdict is on."})
    design = fields.String(
        required=True,
        validate=validate.OneOf(("population",)),
        metadata={"description": "The scenarios are a sample of all that there could be."},
    )
    decision = fields.String(required=True, validate=_DECISION, metadata={"description": "At an error rate of 5 %."})
    claim = fields.String(required=True, metadata={"description": "Subject of the verdict, in words."})
    message = fields.String(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Note on the scale: that differences are clipped, or that only which model is better "
                "counts; null if the values are compared as they are."
            )
        },
    )
    pairs = fields.Integer(required=True, metadata={"description": "Number of pairs with a value on both sides."})
    without_value = fields.Integer(
        required=True,
        metadata={"description": "Number of pairs that are left out: one side is `ok` but has no number."},
    )
    decided_at = fields.Integer(
        required=True,
        allow_none=True,
        metadata={"description": "Number of pairs, in random order, that decided it; null if it is undecided."},
    )
    scale = fields.Nested(
        MetricScaleSchema, required=True, metadata={"description": "How two values became a bounded difference."}
    )
    fixed = fields.Nested(
        FixedTestSchema,
        required=True,
        allow_none=True,
        metadata={"description": "Result of a test of a number of pairs that was fixed before; null below two pairs."},
    )


class GroupVerdictSchema(MeanDifferenceSchema):
    """Verdict on one group of scenarios, corrected for the number of groups of its grouping."""

    group = fields.String(
        required=True, metadata={"description": "Value that the scenarios of the group have in common."}
    )
    verdict = fields.String(
        required=True,
        validate=validate.OneOf(("regressed", "suspect", "improved", "held")),
        metadata={
            "description": "`suspect`: probably worse, but not enough among so many groups. `held`: no difference was"
            " shown; if `smallest` is null, none could have been, and it does not say that the two are as good."
        },
    )


class ScenarioDifferenceSchema(Open):
    """A scenario with the tasks of both simulations, and the values that they count."""

    name = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Name of the scenario; null if the dataset gives its scenarios no names."},
    )
    index = fields.Integer(required=True, metadata={"description": "Number of the scenario in the dataset, from 0."})
    repeat = fields.Integer(required=True, metadata={"description": "Repetition of the scenario, from 0."})
    params = fields.Dict(metadata={"description": "Swept parameters; absent without a sweep."})
    task = fields.Integer(
        required=True, metadata={"description": "Number of its task in the first simulation, from 0."}
    )
    to_task = fields.Integer(
        required=True, metadata={"description": "Number of its task in the other simulation, from 0."}
    )
    status = fields.String(
        required=True, metadata={"enum": list(STATUSES), "description": "Outcome of the task in the first simulation."}
    )
    to_status = fields.String(
        required=True, metadata={"enum": list(STATUSES), "description": "Outcome of the task in the other simulation."}
    )
    first = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Value of the first simulation, in the unit of the metric; of a task that is not `ok` "
                "the worst value, null if the dataset declares none."
            )
        },
    )
    second = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Value of the other simulation, in the unit of the metric; of a task that is not `ok` "
                "the worst value, null if the dataset declares none."
            )
        },
    )
    difference = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Difference in the unit of the metric, not clipped, positive if the first is better; "
                "null if one of the values is."
            )
        },
    )


class ScenarioDifferencesSchema(Open):
    """The scenarios that differ most, up to 20 of each direction, the largest difference first."""

    better = fields.List(
        fields.Nested(ScenarioDifferenceSchema),
        required=True,
        metadata={"description": "Scenarios in which the first simulation is better."},
    )
    worse = fields.List(
        fields.Nested(ScenarioDifferenceSchema),
        required=True,
        metadata={"description": "Scenarios in which the first simulation is worse."},
    )


class UnpairedSchema(Open):
    """Results without a counterpart, which are left out."""

    here = fields.Integer(required=True, metadata={"description": "Number of results of the first simulation."})
    to = fields.Integer(required=True, metadata={"description": "Number of results of the other simulation."})


class ComparisonSchema(Open):
    """Paired differences between two simulations by metric, and the verdict on one metric."""

    simulation = fields.String(required=True, metadata={"description": "Id of the first simulation."})
    to = fields.String(required=True, metadata={"description": "Id of the other simulation."})
    dataset = fields.String(required=True, metadata={"description": "Name of the dataset that both have played."})
    models = fields.List(fields.String(), required=True, metadata={"description": "Names: this one's, the other's."})
    metrics = fields.Dict(
        keys=fields.String(),
        values=fields.Nested(PairedMetricSchema),
        required=True,
        metadata={"description": "Paired differences, by name of the metric."},
    )
    unpaired = fields.Nested(UnpairedSchema, required=True, metadata={"description": "Results without a counterpart."})
    verdict = fields.Nested(
        ModelVerdictSchema,
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Verdict of a sequential test on one metric; null without `metric` for a dataset "
                "without a score that has a better direction."
            )
        },
    )
    groups = fields.Dict(
        keys=fields.String(),
        values=fields.List(fields.Nested(GroupVerdictSchema)),
        required=True,
        metadata={"description": "By grouping of the dataset: the 200 groups with the most pairs, by name."},
    )
    scenarios = fields.Nested(
        ScenarioDifferencesSchema, required=True, metadata={"description": "The scenarios that differ most."}
    )
