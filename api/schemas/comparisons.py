"""Schemas of the comparison of two simulations."""

from marshmallow import fields, validate

from api.schemas.fields import Choice, Open, Strict, Text
from api.schemas.results import SIMULATION_ID, STATUSES
from api.schemas.verdicts import DESIGN, DESIGNS, METHOD, METHODS, FlipsSchema, GroupVerdictSchema, VerdictSchema


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
    margin = fields.Float(
        validate=validate.Range(min=0),
        metadata={
            "description": "Difference within which the two are equivalent, in the metric's unit, below `bound`; if"
            " left out, 2 % of the range that the dataset declares."
        },
    )
    design = Choice(*DESIGNS, metadata={"description": f"{DESIGN} `population` if left out."})
    method = Choice(*METHODS, metadata={"description": f"{METHOD} `joined` if left out."})
    error_rate = fields.Float(
        validate=validate.Range(0.0001, 0.5),
        metadata={"description": "Error rate of the verdict, a probability from 0 to 1: 0.05 if left out."},
    )


class PairedMetricSchema(Open):
    """Paired differences of one metric over the scenarios that both simulations have."""

    count = fields.Integer(required=True, metadata={"description": "Number of scenarios with a value on both sides."})
    tasks = fields.Integer(
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
    better = fields.String(
        allow_none=True,
        metadata={"description": "Better direction of the metric, `higher` or `lower`; null if none is declared."},
    )
    only_ours = fields.Integer(
        metadata={
            "description": (
                "Of a rate: number of scenarios with a higher share in the first simulation; absent for other metrics."
            )
        }
    )
    only_theirs = fields.Integer(
        metadata={
            "description": (
                "Of a rate: number of scenarios with a higher share in the other simulation; absent for other metrics."
            )
        }
    )
    never = fields.Integer(
        metadata={
            "description": "Number of tasks of the first simulation whose value stands for `never`, and that are left"
            " out; absent for a metric without such values."
        }
    )
    to_never = fields.Integer(metadata={"description": "Number of such tasks of the other simulation."})
    p = fields.Float(
        metadata={"description": "Of a rate: p-value of McNemar's exact test, from 0 to 1; absent for other metrics."}
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
        VerdictSchema,
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
        metadata={"description": "By grouping of the dataset: the 200 groups with the most scenarios, by name."},
    )
    flips = fields.Nested(
        FlipsSchema, required=True, metadata={"description": "Scenarios that broke, and that were fixed."}
    )
    scenarios = fields.Nested(
        ScenarioDifferencesSchema, required=True, metadata={"description": "The scenarios that differ most."}
    )
