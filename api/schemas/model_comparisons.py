"""Schemas of comparisons of models: documents and pages."""

from marshmallow import fields

from api.schemas.comparisons import ScenarioDifferenceSchema
from api.schemas.fields import Open
from api.schemas.members import boolean, count_of_each, dictionary, document, documents, integer, moment, real, string
from api.schemas.pages import PageSchema
from api.schemas.simulations import ModelRefSchema
from api.schemas.verdicts import (
    DESIGN,
    DESIGNS,
    HIGH,
    LOW,
    METHOD,
    METHODS,
    NOTICE,
    UNTIL,
    FlipsSchema,
    GroupVerdictSchema,
    VerdictSchema,
)
from core.domain.comparisons.comparison_states import ComparisonState

_STATES = [state.value for state in ComparisonState]
_MODEL_STATES = [state.value for state in ComparisonState if state is not ComparisonState.CANCELLING]


class LookSchema(Open):
    """The mean difference and its interval after a batch."""

    count = integer("Number of scenarios that were played until then.")
    mean = real("Mean difference, in the scale's unit: positive is better.")
    low = real(LOW)
    high = real(HIGH)


class ComparedScenarioSchema(ScenarioDifferenceSchema):
    """A scenario that differs, with the simulations that played it."""

    simulation = string("Simulation of the model; `task` is of it.")
    to_simulation = string("Simulation of the reference; `to_task` is of it.")


class ComparedScenariosSchema(Open):
    """The scenarios that differ most, up to 20 of each direction, the largest difference first."""

    better = documents(ComparedScenarioSchema, "Scenarios in which the model is better than the reference.")
    worse = documents(ComparedScenarioSchema, "Scenarios in which the model is worse than the reference.")


class BatchSimulationSchema(Open):
    """The simulation of a batch."""

    id = string("Id of the simulation.")
    batch = integer("Number of the batch, from 0.")
    state = string("State of the simulation; null: it was deleted.", allow_none=True)


class ReferenceSchema(ModelRefSchema):
    """The model with which the others are compared."""

    runtime = string("Runtime of the model; null if none is recorded.", allow_none=True)
    simulations = documents(BatchSimulationSchema, "Its simulations, one for each batch.")


class ListedModelSchema(ReferenceSchema):
    """A model that is compared with the reference, as lists have it."""

    state = string("State of the model in the comparison.", enum=_MODEL_STATES)
    reason = string("Why it failed; null unless it did.", allow_none=True)
    batch = integer("Number of batches that its verdict has.")
    played = integer("Number of scenarios that its verdict has.")
    ended_at = moment("When it was decided, played to the end, cancelled or failed; null before.", allow_none=True)
    verdict = document(VerdictSchema, "The verdict so far; null before the first batch.", allow_none=True)


class ComparedModelSchema(ListedModelSchema):
    """A model that is compared with the reference."""

    looks = documents(LookSchema, "Course of the verdict: an entry for each batch.")
    groups = dictionary(
        "Verdicts on groups of scenarios, by grouping of the dataset.", fields.List(fields.Nested(GroupVerdictSchema))
    )
    scenarios = document(ComparedScenariosSchema, "The scenarios that differ most.")
    flips = document(
        FlipsSchema,
        "Scenarios that broke, and that were fixed; null before the first batch, and in comparisons that an earlier"
        " release began.",
        allow_none=True,
    )


class ComparedDatasetSchema(Open):
    """The version of a dataset on which models are compared."""

    name = string("Name of the dataset.")
    version = string("Version of the dataset.")
    digest = string("Digest of that version; null if an earlier release has recorded none.", allow_none=True)


class ListedComparisonSchema(Open):
    """A comparison of models, as lists have it."""

    id = string("Id of the comparison.")
    state = string("State of the comparison.", enum=_STATES)
    reason = string("What it waits for, or why it failed; null otherwise.", allow_none=True)
    dataset = document(ComparedDatasetSchema, "The dataset, at the version that is played.")
    metric = string("As requested; null: the dataset's score.", allow_none=True)
    design = string(DESIGN, enum=DESIGNS)
    method = string(METHOD, enum=METHODS)
    margin = real("Difference within which models are equivalent, in the unit of the metric; 0: none.")
    margin_from = string(
        "Who set the margin: the `request`, or the platform's `default`, 2 % of the declared range.",
        enum=["request", "default"],
    )
    until = string(
        "Claim at which a model ends, once it is shown or refuted; null: at equivalent, better or worse.",
        enum=[*UNTIL, None],
        allow_none=True,
    )
    family = boolean("Whether the error rate is that of all models together.")
    error_rate = real("Error rate of each verdict, a probability from 0 to 1.")
    bound = real(
        "Largest difference that counts, in the unit of the metric; null if the request named none.", allow_none=True
    )
    play_all = boolean("Whether all scenarios are played although the verdict holds.")
    params = dictionary("Parameters of the dataset, by name, as requested.")
    sweep = dictionary("Parameters with several values each, as requested.")
    repeat = integer("Number of times that each scenario is played.")
    seed = integer("Seed from which each task's seed is derived.")
    trusted = boolean("Whether the models run in the evaluator's process, as requested.")
    notice = string(NOTICE, allow_none=True)
    selection = dictionary("`scenarios` of the request; null: all.", allow_none=True)
    scenarios = integer("Number of scenarios that are played at most.")
    labels = dictionary("Labels of the request.", fields.String())
    submitted_by = string(
        "Address of the client that requested it; of IPv6 the /64 network. Null if not recorded.", allow_none=True
    )
    created_at = moment("When it was requested.")
    ended_at = moment("When it ended; null before.", allow_none=True)
    reference = document(ReferenceSchema, "The model with which the others are compared.")
    models = documents(ListedModelSchema, "All but the reference.")


class ModelComparisonSchema(ListedComparisonSchema):
    """A comparison of models, with the verdict on each so far."""

    models = documents(ComparedModelSchema, "All but the reference.")


class ComparisonPageSchema(PageSchema):
    """A page of comparisons, newest first."""

    items = documents(ListedComparisonSchema, "The comparisons of the page, newest first.")


class ComparisonCountsSchema(Open):
    """Numbers of comparisons."""

    total = integer("Number of comparisons that meet the filters.")
    states = count_of_each("Number in each state, also those without a comparison.", example={"running": 1})
