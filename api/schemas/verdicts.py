"""Schemas of verdicts: claims, what was saved, groups, and scenarios that broke or were fixed."""

from marshmallow import fields, validate

from api.schemas.fields import Choice, Open, Text, Whole
from api.schemas.pages import NumberedPageQuery, NumberedPageSchema
from api.schemas.results import SIMULATION_ID
from core.domain.comparisons.claims import Claim, Decision, Design, Method

DECISIONS = [decision.value for decision in Decision]
DESIGNS = [design.value for design in Design]
METHODS = [method.value for method in Method]
DESIGN = (
    "`population`: the scenarios are a sample, and the claim is about all that there could be. `list`: the claim is"
    " about these scenarios, each with the difference that is expected over its seeds. `exact`: about these scenarios"
    " with these seeds."
)
METHOD = (
    "`joined`: a sequence that may be read at any time, and looks at the batches whose p-values know the range."
    " `anytime`: the sequence alone. `normal`: looks by a t-test, which is wrong more often if failures are rare."
)
_INTERVAL = "of the 95 % interval of the mean difference (at another error rate r: 100 % - r), in the scale's unit."
LOW = {"description": f"Lower end {_INTERVAL}"}
HIGH = {"description": f"Upper end {_INTERVAL}"}


class ClaimsSchema(Open):
    """Which claims hold. They overlap: a small improvement can be better and equivalent."""

    better = fields.Boolean(required=True, metadata={"description": "The difference is above 0."})
    worse = fields.Boolean(required=True, metadata={"description": "The difference is below 0."})
    not_worse = fields.Boolean(required=True, metadata={"description": "The difference is above minus the margin."})
    equivalent = fields.Boolean(required=True, metadata={"description": "The difference is within the margin."})


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
        metadata={
            "description": "Unit of the differences, such as `m/s`; `points` for percentages; empty without a unit."
        },
    )


class SavingSchema(Open):
    """Scenarios that were not played, beside a test of a fixed number of pairs."""

    played = fields.Integer(required=True, metadata={"description": "Number of scenarios that were played."})
    pairs = fields.Integer(required=True, metadata={"description": "Number of all scenarios."})
    share = fields.Float(
        required=True, metadata={"description": "Share of the scenarios that were not played, from 0 to 1."}
    )
    needed = fields.Integer(
        required=True,
        allow_none=True,
        metadata={
            "description": "Number of pairs that a fixed test needs for the largest difference within the interval;"
            " null if the interval has 0."
        },
    )
    needed_at_most = fields.Integer(
        required=True,
        allow_none=True,
        metadata={"description": "Number of pairs for the smallest difference within the interval; null if it has 0."},
    )
    sentence = fields.String(required=True, metadata={"description": "The saving in words."})


class MeanDifferenceSchema(Open):
    """Mean of paired differences; positive where the first model is better."""

    sentence = fields.String(required=True, metadata={"description": "The verdict in words."})
    count = fields.Integer(required=True, metadata={"description": "Number of scenarios that were tested."})
    mean = fields.Float(
        required=True,
        allow_none=True,
        metadata={"description": "Mean difference, in the scale's unit: positive is better; null without scenarios."},
    )
    low = fields.Float(required=True, metadata=LOW)
    high = fields.Float(required=True, metadata=HIGH)
    smallest = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Smallest true difference, in the scale's unit, that would have been shown with 80 % "
                "power; null if none would, or if it is not known."
            )
        },
    )


class VerdictSchema(MeanDifferenceSchema):
    """Verdict on a model beside the reference, or on the first of two simulations beside the other."""

    metric = fields.String(required=True, metadata={"description": "Name of the metric that the verdict is on."})
    design = fields.String(required=True, metadata={"enum": DESIGNS, "description": DESIGN})
    method = fields.String(required=True, metadata={"enum": METHODS, "description": METHOD})
    decision = fields.String(
        required=True,
        metadata={
            "enum": DECISIONS,
            "description": "The first claim that holds, of equivalent, better, worse and not worse.",
        },
    )
    claims = fields.Nested(ClaimsSchema, required=True, metadata={"description": "Which claims hold."})
    refuted = fields.Nested(
        ClaimsSchema, required=True, metadata={"description": "Which claims are shown to be false."}
    )
    claim = fields.String(required=True, metadata={"description": "Subject of the verdict, in words."})
    message = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Notes on the scale, the method, pairs without a result, and bias; null for none."},
    )
    error_rate = fields.Float(
        required=True, metadata={"description": "Probability of a wrong decision, at most, from 0 to 1."}
    )
    margin = fields.Float(
        required=True,
        metadata={"description": "Difference within which the two are equivalent, in the scale's unit; 0: none."},
    )
    p_better = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": "One-sided p-value against `not better`, of the test that decided, from 0 to 1; null without"
            " a decision."
        },
    )
    p_worse = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": "One-sided p-value against `not worse`, of the test that decided, from 0 to 1; null without"
            " a decision."
        },
    )
    pairs = fields.Integer(required=True, metadata={"description": "Number of scenarios that there are to be played."})
    tasks = fields.Integer(required=True, metadata={"description": "Number of pairs of tasks that were compared."})
    without_value = fields.Integer(
        required=True,
        metadata={
            "description": "Number of pairs of tasks that say nothing: an `ok` one has no number, or neither is `ok`."
            " They count as no difference for better and worse, and as the worst for equivalent and not worse."
        },
    )
    decided_at = fields.Integer(
        required=True,
        allow_none=True,
        metadata={"description": "Number of scenarios after which it was decided; null while it is undecided."},
    )
    decided_by = fields.String(
        required=True,
        allow_none=True,
        metadata={
            "description": "The test that decided: `anytime`, `looks`, or `certain` at the end of an exact list; null"
            " without a decision, and if an earlier release has decided."
        },
    )
    biased = fields.Boolean(
        required=True,
        metadata={"description": "Whether the difference is that of an early stop, which overestimates it on average."},
    )
    smallest_margin = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": "Smallest margin, in the scale's unit, at which equal models would end equivalent with 80 %"
            " power; null if none would, or if it is not known."
        },
    )
    pairs_for_margin = fields.Integer(
        required=True,
        allow_none=True,
        metadata={
            "description": "Number of scenarios with which equal models would end equivalent at the margin, with 80 %"
            " power; null without a margin, or if it is not known."
        },
    )
    scale = fields.Nested(
        MetricScaleSchema, required=True, metadata={"description": "How two values became a bounded difference."}
    )
    saving = fields.Nested(
        SavingSchema,
        required=True,
        allow_none=True,
        metadata={"description": "What was not played, once nothing more is; null before."},
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
            "description": "`regressed` and `improved`: by more than the margin. `suspect`: probably worse, but not"
            " enough among so many groups. `held`: no difference was shown; if `smallest` is null, none could have"
            " been, and it does not say that the two are as good."
        },
    )


class FlipSchema(Open):
    """A scenario in which one model failed, and the other did not."""

    index = fields.Integer(required=True, metadata={"description": "Number of the scenario in the dataset, from 0."})
    name = fields.String(
        required=True, allow_none=True, metadata={"description": "Name of the scenario; null if it has none."}
    )
    repeat = fields.Integer(required=True, metadata={"description": "Repetition that shows it, from 0."})
    params = fields.Dict(required=True, metadata={"description": "Swept parameters, by name."})
    outcome = fields.String(
        required=True,
        metadata={"description": "Outcome of the model's task: its status if that is not `ok`, else the dataset's."},
    )
    to_outcome = fields.String(required=True, metadata={"description": "Outcome of the reference's task."})
    simulation = fields.String(required=True, metadata={"description": "Simulation of the model."})
    task = fields.Integer(required=True, metadata={"description": "Number of its task, from 0."})
    to_simulation = fields.String(required=True, metadata={"description": "Simulation of the reference."})
    to_task = fields.Integer(required=True, metadata={"description": "Number of its task, from 0."})
    at = fields.Float(
        required=True,
        allow_none=True,
        metadata={"description": "Seconds of the task's own clock at which the failing side ended; null if unknown."},
    )
    failures = fields.Integer(required=True, metadata={"description": "Number of repetitions that the model failed."})
    to_failures = fields.Integer(
        required=True, metadata={"description": "Number of repetitions that the reference failed."}
    )
    played = fields.Integer(required=True, metadata={"description": "Number of repetitions."})
    p = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": "p-value of the exact test of the repetitions, from 0 to 1; null for a scenario played once."
        },
    )
    replay = fields.String(
        required=True, metadata={"description": "Address of the page that replays both sides, at that moment."}
    )


class FlipCountsSchema(Open):
    """Numbers of scenarios."""

    broke = fields.Integer(required=True, metadata={"description": "Number of scenarios that broke."})
    fixed = fields.Integer(required=True, metadata={"description": "Number of scenarios that were fixed."})


class FlipsSchema(Open):
    """Scenarios that broke, which only the model fails, and that were fixed: the first 50 of each."""

    broke = fields.List(fields.Nested(FlipSchema), required=True, metadata={"description": "The first 50 that broke."})
    fixed = fields.List(
        fields.Nested(FlipSchema), required=True, metadata={"description": "The first 50 that were fixed."}
    )
    counts = fields.Nested(FlipCountsSchema, required=True, metadata={"description": "How many there are."})
    p = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": "p-value of McNemar's test of broke against fixed, from 0 to 1; null with repetitions, each"
            " of which has a test of its own."
        },
    )
    sentence = fields.String(required=True, metadata={"description": "The flips in words."})


class FlipPageSchema(NumberedPageSchema):
    """A page of flips, by the order of their scenarios."""

    items = fields.List(fields.Nested(FlipSchema), required=True, metadata={"description": "The flips."})


class _FlipQuery(NumberedPageQuery):
    direction = Choice("broke", "fixed", load_default="broke", metadata={"description": "Which flips."})


class SimulationFlipsQuery(_FlipQuery):
    """Which flips of two simulations."""

    to = Text(SIMULATION_ID, longest=26, required=True, metadata={"description": "Id of the other simulation."})


class ComparisonFlipsQuery(_FlipQuery):
    """Which flips of a comparison."""

    model = Whole(
        0,
        text=True,
        load_default=0,
        metadata={"description": "Number of the model in `models` of the comparison, from 0."},
    )


UNTIL = [claim.value for claim in (Claim.NOT_WORSE, Claim.BETTER, Claim.EQUIVALENT)]
