"""Schemas of the comparison of two simulations."""

from marshmallow import fields, validate

from api.schemas.fields import Open, Strict, Text
from api.schemas.results import SIMULATION_ID, STATUSES

_DECISION = validate.OneOf(("better", "worse", "undecided"))
_LOW = {"description": "Lower end of the interval of the mean difference, at the error rate of the verdict."}
_HIGH = {"description": "Upper end of it."}


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

    count = fields.Integer(required=True, metadata={"description": "Pairs."})
    mean = fields.Float(required=True, metadata={"description": "Mean of the first simulation."})
    to = fields.Float(required=True, metadata={"description": "Mean of the other simulation."})
    difference = fields.Float(required=True, metadata={"description": "Mean of first minus other."})
    low = fields.Float(
        required=True,
        allow_none=True,
        metadata={"description": "Lower end of the 95 % interval of the mean difference; null for a single pair."},
    )
    high = fields.Float(required=True, allow_none=True, metadata=_HIGH)
    only_ours = fields.Integer(metadata={"description": "Of a rate: pairs with 1 in the first alone."})
    only_theirs = fields.Integer(metadata={"description": "Of a rate: pairs with 1 in the other alone."})
    p = fields.Float(metadata={"description": "Of a rate: p-value of McNemar's exact test."})


class MetricScaleSchema(Open):
    """How two values became a bounded difference."""

    kind = fields.String(
        required=True,
        validate=validate.OneOf(("declared", "clipped", "sign")),
        metadata={
            "description": "By the declared range; clipped to `bound`; or only which of the two is better, as 1, 0, -1."
        },
    )
    bound = fields.Float(required=True, metadata={"description": "Largest difference that there can be."})
    unit = fields.String(required=True, metadata={"description": "Unit of the differences."})


class SavingSchema(Open):
    """Pairs that the sequential test needed, beside a test of a fixed number of pairs."""

    played = fields.Integer(required=True, metadata={"description": "Pairs up to the decision; else all tested."})
    pairs = fields.Integer(required=True, metadata={"description": "All pairs."})
    share = fields.Float(required=True, metadata={"description": "Share of the pairs that need not be played."})
    needed = fields.Integer(
        required=True,
        allow_none=True,
        metadata={"description": "Pairs that the fixed test needs for the observed difference; null for none."},
    )
    fixed_power = fields.Float(
        required=True, metadata={"description": "Power of the fixed test of all pairs for the observed difference."}
    )


class FixedTestSchema(Open):
    """A paired test of a number of pairs that was fixed before, on the same pairs."""

    decision = fields.String(required=True, validate=_DECISION)
    low = fields.Float(required=True, metadata=_LOW)
    high = fields.Float(required=True, metadata=_HIGH)
    saving = fields.Nested(SavingSchema, required=True)


class MeanDifferenceSchema(Open):
    """Mean of paired differences; positive where the first simulation is better."""

    sentence = fields.String(required=True, metadata={"description": "The verdict in words."})
    count = fields.Integer(required=True, metadata={"description": "Pairs that were tested."})
    mean = fields.Float(
        required=True,
        allow_none=True,
        metadata={"description": "Mean difference, in the scale's unit: positive is better. Null without pairs."},
    )
    low = fields.Float(required=True, metadata=_LOW)
    high = fields.Float(required=True, metadata=_HIGH)
    smallest = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": "Smallest true difference that would have been shown with 80 % power; null if none would."
        },
    )


class ModelVerdictSchema(MeanDifferenceSchema):
    """Verdict on the first simulation's model, beside the other's."""

    metric = fields.String(required=True)
    design = fields.String(
        required=True,
        validate=validate.OneOf(("population",)),
        metadata={"description": "The scenarios are a sample of all that there could be."},
    )
    decision = fields.String(required=True, validate=_DECISION, metadata={"description": "At an error rate of 5 %."})
    claim = fields.String(required=True, metadata={"description": "Subject of the verdict, in words."})
    message = fields.String(required=True, allow_none=True, metadata={"description": "Note on the scale, if any."})
    pairs = fields.Integer(required=True, metadata={"description": "Pairs with a value on both sides."})
    without_value = fields.Integer(
        required=True, metadata={"description": "Pairs that are left out: one side is `ok` but has no number."}
    )
    decided_at = fields.Integer(
        required=True, allow_none=True, metadata={"description": "Pairs, in random order, that decided it."}
    )
    scale = fields.Nested(MetricScaleSchema, required=True)
    fixed = fields.Nested(
        FixedTestSchema, required=True, allow_none=True, metadata={"description": "Null below two pairs."}
    )


class GroupVerdictSchema(MeanDifferenceSchema):
    """Verdict on one group of scenarios, corrected for the number of groups of its grouping."""

    group = fields.String(required=True)
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

    name = fields.String(required=True, allow_none=True)
    index = fields.Integer(required=True, metadata={"description": "Number of the scenario in the dataset."})
    repeat = fields.Integer(required=True, metadata={"description": "Repetition of the scenario, from 0."})
    params = fields.Dict(metadata={"description": "Swept parameters; absent without a sweep."})
    task = fields.Integer(required=True, metadata={"description": "Its task in the first simulation."})
    to_task = fields.Integer(required=True, metadata={"description": "Its task in the other simulation."})
    status = fields.String(required=True, metadata={"enum": list(STATUSES)})
    to_status = fields.String(required=True, metadata={"enum": list(STATUSES)})
    first = fields.Float(
        required=True,
        allow_none=True,
        metadata={"description": "Value; of a task that is not `ok` the worst, null if the dataset declares none."},
    )
    second = fields.Float(required=True, allow_none=True, metadata={"description": "The other simulation's value."})
    difference = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": "Positive if the first is better; in the metric's unit, not clipped; null beyond measure."
        },
    )


class ScenarioDifferencesSchema(Open):
    """The scenarios that differ most, up to 20 of each direction, the largest difference first."""

    better = fields.List(fields.Nested(ScenarioDifferenceSchema), required=True)
    worse = fields.List(fields.Nested(ScenarioDifferenceSchema), required=True)


class UnpairedSchema(Open):
    """Results without a counterpart, which are left out."""

    here = fields.Integer(required=True, metadata={"description": "Of the first simulation."})
    to = fields.Integer(required=True, metadata={"description": "Of the other simulation."})


class ComparisonSchema(Open):
    """Paired differences between two simulations by metric, and the verdict on one metric."""

    simulation = fields.String(required=True)
    to = fields.String(required=True)
    dataset = fields.String(required=True)
    models = fields.List(fields.String(), required=True, metadata={"description": "Names: this one's, the other's."})
    metrics = fields.Dict(keys=fields.String(), values=fields.Nested(PairedMetricSchema), required=True)
    unpaired = fields.Nested(UnpairedSchema, required=True)
    verdict = fields.Nested(
        ModelVerdictSchema,
        required=True,
        allow_none=True,
        metadata={"description": "Null without `metric` for a dataset without a score that has a better direction."},
    )
    groups = fields.Dict(
        keys=fields.String(),
        values=fields.List(fields.Nested(GroupVerdictSchema)),
        required=True,
        metadata={"description": "By grouping of the dataset: the 200 groups with the most pairs, by name."},
    )
    scenarios = fields.Nested(ScenarioDifferencesSchema, required=True)
