"""Schemas of the comparison of two simulations."""

from marshmallow import fields, validate

from api.schemas.fields import Choice, Open, Strict, Text
from api.schemas.members import array, dictionary, document, documents, integer, real, string
from api.schemas.results import SIMULATION_ID, STATUSES
from api.schemas.verdicts import (
    DESIGN,
    DESIGNS,
    METHOD,
    METHODS,
    NOTICE,
    FlipsSchema,
    GroupVerdictSchema,
    VerdictSchema,
)


class ComparisonQuery(Strict):
    """The simulation to compare with, and the metric of the verdict."""

    to = Text(SIMULATION_ID, longest=26, required=True, description="Id of the other simulation.")
    metric = Text(description="Metric of the verdict; the dataset's score by default.")
    bound = real(
        "Largest difference of the metric that counts, in its unit: larger ones are clipped to it.",
        required=False,
        validate=validate.Range(min=0, min_inclusive=False),
    )
    margin = real(
        "Difference within which the two are equivalent, in the metric's unit, below `bound`; if left out, 2 % of"
        " the range that the dataset declares.",
        required=False,
        validate=validate.Range(min=0),
    )
    design = Choice(*DESIGNS, description=f"{DESIGN} `population` if left out.")
    method = Choice(*METHODS, description=f"{METHOD} `joined` if left out.")
    error_rate = real(
        "Error rate of the verdict, a probability from 0 to 1: 0.05 if left out.",
        required=False,
        validate=validate.Range(0.0001, 0.5),
    )


class PairedMetricSchema(Open):
    """Paired differences of one metric over the scenarios that both simulations have."""

    count = integer("Number of scenarios with a value on both sides.")
    tasks = integer("Number of pairs of tasks with a value on both sides.")
    mean = real("Mean of the first simulation, in the unit of the metric.")
    to = real("Mean of the other simulation, in the unit of the metric.")
    difference = real("Mean of the first minus that of the other, in the unit of the metric.")
    low = real(
        "Lower end of the 95 % interval of the mean difference, in the unit of the metric; null for a single pair.",
        allow_none=True,
    )
    high = real(
        "Upper end of the 95 % interval of the mean difference, in the unit of the metric; null for a single pair.",
        allow_none=True,
    )
    better = string(
        "Better direction of the metric, `higher` or `lower`; null if none is declared.",
        required=False,
        allow_none=True,
    )
    only_ours = integer(
        "Of a rate: number of scenarios with a higher share in the first simulation; absent for other metrics.",
        required=False,
    )
    only_theirs = integer(
        "Of a rate: number of scenarios with a higher share in the other simulation; absent for other metrics.",
        required=False,
    )
    never = integer(
        "Number of tasks of the first simulation whose value stands for `never`, and that are left out; absent for"
        " a metric without such values.",
        required=False,
    )
    to_never = integer("Number of such tasks of the other simulation.", required=False)
    p = real("Of a rate: p-value of McNemar's exact test, from 0 to 1; absent for other metrics.", required=False)


class ScenarioDifferenceSchema(Open):
    """A scenario with the tasks of both simulations, and the values that they count."""

    name = string("Name of the scenario; null if the dataset gives its scenarios no names.", allow_none=True)
    index = integer("Number of the scenario in the dataset, from 0.")
    repeat = integer("Repetition of the scenario, from 0.")
    params = dictionary("Swept parameters; absent without a sweep.", required=False)
    task = integer("Number of its task in the first simulation, from 0.")
    to_task = integer("Number of its task in the other simulation, from 0.")
    status = string("Outcome of the task in the first simulation.", enum=list(STATUSES))
    to_status = string("Outcome of the task in the other simulation.", enum=list(STATUSES))
    first = real(
        "Value of the first simulation, in the unit of the metric; of a task that is not `ok` the worst value, null"
        " if the dataset declares none.",
        allow_none=True,
    )
    second = real(
        "Value of the other simulation, in the unit of the metric; of a task that is not `ok` the worst value, null"
        " if the dataset declares none.",
        allow_none=True,
    )
    difference = real(
        "Difference in the unit of the metric, not clipped, positive if the first is better; null if one of the"
        " values is.",
        allow_none=True,
    )


class ScenarioDifferencesSchema(Open):
    """The scenarios that differ most, up to 20 of each direction, the largest difference first."""

    better = documents(ScenarioDifferenceSchema, "Scenarios in which the first simulation is better.")
    worse = documents(ScenarioDifferenceSchema, "Scenarios in which the first simulation is worse.")


class UnpairedSchema(Open):
    """Results without a counterpart, which are left out."""

    here = integer("Number of results of the first simulation.")
    to = integer("Number of results of the other simulation.")


class ComparisonSchema(Open):
    """Paired differences between two simulations by metric, and the verdict on one metric."""

    simulation = string("Id of the first simulation.")
    to = string("Id of the other simulation.")
    dataset = string("Name of the dataset that both have played.")
    models = array(fields.String(), "Names: this one's, the other's.")
    trusted = array(fields.Boolean(), "Whether each model ran in the evaluator's process: this one's, the other's.")
    notice = string(NOTICE, allow_none=True)
    metrics = dictionary("Paired differences, by name of the metric.", fields.Nested(PairedMetricSchema))
    unpaired = document(UnpairedSchema, "Results without a counterpart.")
    verdict = document(
        VerdictSchema,
        "Verdict of a sequential test on one metric; null without `metric` for a dataset without a score that has a"
        " better direction.",
        allow_none=True,
    )
    groups = dictionary(
        "By grouping of the dataset: the 200 groups with the most scenarios, by name.",
        fields.List(fields.Nested(GroupVerdictSchema)),
    )
    flips = document(FlipsSchema, "Scenarios that broke, and that were fixed.")
    scenarios = document(ScenarioDifferencesSchema, "The scenarios that differ most.")
