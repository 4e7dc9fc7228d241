"""Schemas of verdicts: claims, what was saved, groups, and scenarios that broke or were fixed."""

from marshmallow import validate

from api.schemas.fields import Choice, Open, Text, Whole
from api.schemas.members import boolean, dictionary, document, documents, integer, real, string
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
NOTICE = "What a reader has to know of models that ran in the evaluator's process; null if none did."
_INTERVAL = "of the 95 % interval of the mean difference (at another error rate r: 100 % - r), in the scale's unit."
LOW = f"Lower end {_INTERVAL}"
HIGH = f"Upper end {_INTERVAL}"


class ClaimsSchema(Open):
    """Which claims hold. They overlap: a small improvement can be better and equivalent."""

    better = boolean("The difference is above 0.")
    worse = boolean("The difference is below 0.")
    not_worse = boolean("The difference is above minus the margin.")
    equivalent = boolean("The difference is within the margin.")


class MetricScaleSchema(Open):
    """How two values became a bounded difference."""

    kind = string(
        "By the declared range; clipped to `bound`; or only which of the two is better, as 1, 0, -1.",
        validate=validate.OneOf(("declared", "clipped", "sign")),
    )
    bound = real("Largest difference that there can be, in `unit`.")
    unit = string("Unit of the differences, such as `m/s`; `points` for percentages; empty without a unit.")


class SavingSchema(Open):
    """Scenarios that were not played, beside a test of a fixed number of pairs."""

    played = integer("Number of scenarios that were played.")
    pairs = integer("Number of all scenarios.")
    share = real("Share of the scenarios that were not played, from 0 to 1.")
    needed = integer(
        "Number of pairs that a fixed test needs for the largest difference within the interval; null if the"
        " interval has 0.",
        allow_none=True,
    )
    needed_at_most = integer(
        "Number of pairs for the smallest difference within the interval; null if it has 0.", allow_none=True
    )
    sentence = string("The saving in words.")


class MeanDifferenceSchema(Open):
    """Mean of paired differences; positive where the first model is better."""

    sentence = string("The verdict in words.")
    count = integer("Number of scenarios that were tested.")
    mean = real("Mean difference, in the scale's unit: positive is better; null without scenarios.", allow_none=True)
    low = real(LOW)
    high = real(HIGH)
    smallest = real(
        "Smallest true difference, in the scale's unit, that would have been shown with 80 % power; null if none"
        " would, or if it is not known.",
        allow_none=True,
    )


class VerdictSchema(MeanDifferenceSchema):
    """Verdict on a model beside the reference, or on the first of two simulations beside the other."""

    metric = string("Name of the metric that the verdict is on.")
    design = string(DESIGN, enum=DESIGNS)
    method = string(METHOD, enum=METHODS)
    decision = string("The first claim that holds, of equivalent, better, worse and not worse.", enum=DECISIONS)
    claims = document(ClaimsSchema, "Which claims hold.")
    refuted = document(ClaimsSchema, "Which claims are shown to be false.")
    claim = string("Subject of the verdict, in words.")
    message = string(
        "Notes on the scale, the method, pairs without a result, and bias; null for none.", allow_none=True
    )
    error_rate = real("Probability of a wrong decision, at most, from 0 to 1.")
    margin = real("Difference within which the two are equivalent, in the scale's unit; 0: none.")
    p_better = real(
        "One-sided p-value against `not better`, of the test that decided, from 0 to 1; null without a decision.",
        allow_none=True,
    )
    p_worse = real(
        "One-sided p-value against `not worse`, of the test that decided, from 0 to 1; null without a decision.",
        allow_none=True,
    )
    pairs = integer("Number of scenarios that there are to be played.")
    tasks = integer("Number of pairs of tasks that were compared.")
    without_value = integer(
        "Number of pairs of tasks that say nothing: an `ok` one has no number, or neither is `ok`. They count as no"
        " difference for better and worse, and as the worst for equivalent and not worse."
    )
    decided_at = integer("Number of scenarios after which it was decided; null while it is undecided.", allow_none=True)
    decided_by = string(
        "The test that decided: `anytime`, `looks`, or `certain` at the end of an exact list; null without a"
        " decision, and if an earlier release has decided.",
        allow_none=True,
    )
    biased = boolean("Whether the difference is that of an early stop, which overestimates it on average.")
    smallest_margin = real(
        "Smallest margin, in the scale's unit, at which equal models would end equivalent with 80 % power; null if"
        " none would, or if it is not known.",
        allow_none=True,
    )
    pairs_for_margin = integer(
        "Number of scenarios with which equal models would end equivalent at the margin, with 80 % power; null"
        " without a margin, or if it is not known.",
        allow_none=True,
    )
    scale = document(MetricScaleSchema, "How two values became a bounded difference.")
    saving = document(SavingSchema, "What was not played, once nothing more is; null before.", allow_none=True)


class GroupVerdictSchema(MeanDifferenceSchema):
    """Verdict on one group of scenarios, corrected for the number of groups of its grouping."""

    group = string("Value that the scenarios of the group have in common.")
    verdict = string(
        "`regressed` and `improved`: by more than the margin. `suspect`: probably worse, but not enough among so"
        " many groups. `held`: no difference was shown; if `smallest` is null, none could have been, and it does"
        " not say that the two are as good.",
        validate=validate.OneOf(("regressed", "suspect", "improved", "held")),
    )


class FlipSchema(Open):
    """A scenario in which one model failed, and the other did not."""

    index = integer("Number of the scenario in the dataset, from 0.")
    name = string("Name of the scenario; null if it has none.", allow_none=True)
    repeat = integer("Repetition that shows it, from 0.")
    params = dictionary("Swept parameters, by name.")
    outcome = string("Outcome of the model's task: its status if that is not `ok`, else the dataset's.")
    to_outcome = string("Outcome of the reference's task.")
    simulation = string("Simulation of the model.")
    task = integer("Number of its task, from 0.")
    to_simulation = string("Simulation of the reference.")
    to_task = integer("Number of its task, from 0.")
    at = real("Seconds of the task's own clock at which the failing side ended; null if unknown.", allow_none=True)
    failures = integer("Number of repetitions that the model failed.")
    to_failures = integer("Number of repetitions that the reference failed.")
    played = integer("Number of repetitions.")
    p = real(
        "p-value of the exact test of the repetitions, from 0 to 1; null for a scenario played once.", allow_none=True
    )
    replay = string("Address of the page that replays both sides, at that moment.")


class FlipCountsSchema(Open):
    """Numbers of scenarios."""

    broke = integer("Number of scenarios that broke.")
    fixed = integer("Number of scenarios that were fixed.")


class FlipsSchema(Open):
    """Scenarios that broke, which only the model fails, and that were fixed: the first 50 of each."""

    broke = documents(FlipSchema, "The first 50 that broke.")
    fixed = documents(FlipSchema, "The first 50 that were fixed.")
    counts = document(FlipCountsSchema, "How many there are.")
    p = real(
        "p-value of McNemar's test of broke against fixed, from 0 to 1; null with repetitions, each of which has a"
        " test of its own.",
        allow_none=True,
    )
    sentence = string("The flips in words.")


class FlipPageSchema(NumberedPageSchema):
    """A page of flips, by the order of their scenarios."""

    items = documents(FlipSchema, "The flips.")


class _FlipQuery(NumberedPageQuery):
    direction = Choice("broke", "fixed", load_default="broke", description="Which flips.")


class SimulationFlipsQuery(_FlipQuery):
    """Which flips of two simulations."""

    to = Text(SIMULATION_ID, longest=26, required=True, description="Id of the other simulation.")


class ComparisonFlipsQuery(_FlipQuery):
    """Which flips of a comparison."""

    model = Whole(
        0, text=True, load_default=0, description="Number of the model in `models` of the comparison, from 0."
    )


UNTIL = [claim.value for claim in (Claim.NOT_WORSE, Claim.BETTER, Claim.EQUIVALENT)]
