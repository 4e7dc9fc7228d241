"""Schemas of comparisons of models: documents and pages."""

from marshmallow import fields

from api.schemas.comparisons import ScenarioDifferenceSchema
from api.schemas.fields import Open
from api.schemas.pages import PageSchema
from api.schemas.simulations import ModelRefSchema
from api.schemas.verdicts import (
    DESIGN,
    DESIGNS,
    HIGH,
    LOW,
    METHOD,
    METHODS,
    UNTIL,
    FlipsSchema,
    GroupVerdictSchema,
    VerdictSchema,
)
from core.domain.comparisons.comparisons import ComparisonState

_STATES = [state.value for state in ComparisonState]
_MODEL_STATES = [state.value for state in ComparisonState if state is not ComparisonState.CANCELLING]


class LookSchema(Open):
    """The mean difference and its interval after a batch."""

    count = fields.Integer(required=True, metadata={"description": "Number of scenarios that were played until then."})
    mean = fields.Float(
        required=True, metadata={"description": "Mean difference, in the scale's unit: positive is better."}
    )
    low = fields.Float(required=True, metadata=LOW)
    high = fields.Float(required=True, metadata=HIGH)


class ComparedScenarioSchema(ScenarioDifferenceSchema):
    """A scenario that differs, with the simulations that played it."""

    simulation = fields.String(required=True, metadata={"description": "Simulation of the model; `task` is of it."})
    to_simulation = fields.String(
        required=True, metadata={"description": "Simulation of the reference; `to_task` is of it."}
    )


class ComparedScenariosSchema(Open):
    """The scenarios that differ most, up to 20 of each direction, the largest difference first."""

    better = fields.List(
        fields.Nested(ComparedScenarioSchema),
        required=True,
        metadata={"description": "Scenarios in which the model is better than the reference."},
    )
    worse = fields.List(
        fields.Nested(ComparedScenarioSchema),
        required=True,
        metadata={"description": "Scenarios in which the model is worse than the reference."},
    )


class BatchSimulationSchema(Open):
    """The simulation of a batch."""

    id = fields.String(required=True, metadata={"description": "Id of the simulation."})
    batch = fields.Integer(required=True, metadata={"description": "Number of the batch, from 0."})
    state = fields.String(
        required=True, allow_none=True, metadata={"description": "State of the simulation; null: it was deleted."}
    )


class ReferenceSchema(ModelRefSchema):
    """The model with which the others are compared."""

    runtime = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": ("Runtime of the model; null if none is recorded.")},
    )
    simulations = fields.List(
        fields.Nested(BatchSimulationSchema),
        required=True,
        metadata={"description": "Its simulations, one for each batch."},
    )


class ListedModelSchema(ReferenceSchema):
    """A model that is compared with the reference, as lists have it."""

    state = fields.String(
        required=True, metadata={"enum": _MODEL_STATES, "description": "State of the model in the comparison."}
    )
    reason = fields.String(
        required=True, allow_none=True, metadata={"description": "Why it failed; null unless it did."}
    )
    batch = fields.Integer(required=True, metadata={"description": "Number of batches that its verdict has."})
    played = fields.Integer(required=True, metadata={"description": "Number of scenarios that its verdict has."})
    ended_at = fields.AwareDateTime(
        required=True,
        allow_none=True,
        format="iso",
        metadata={"description": "When it was decided, played to the end, cancelled or failed; null before."},
    )
    verdict = fields.Nested(
        VerdictSchema,
        required=True,
        allow_none=True,
        metadata={"description": "The verdict so far; null before the first batch."},
    )


class ComparedModelSchema(ListedModelSchema):
    """A model that is compared with the reference."""

    looks = fields.List(
        fields.Nested(LookSchema),
        required=True,
        metadata={"description": "Course of the verdict: an entry for each batch."},
    )
    groups = fields.Dict(
        keys=fields.String(),
        values=fields.List(fields.Nested(GroupVerdictSchema)),
        required=True,
        metadata={"description": "Verdicts on groups of scenarios, by grouping of the dataset."},
    )
    scenarios = fields.Nested(
        ComparedScenariosSchema, required=True, metadata={"description": "The scenarios that differ most."}
    )
    flips = fields.Nested(
        FlipsSchema,
        required=True,
        allow_none=True,
        metadata={
            "description": "Scenarios that broke, and that were fixed; null before the first batch, and in comparisons"
            " that an earlier release began."
        },
    )


class ComparedDatasetSchema(Open):
    """The version of a dataset on which models are compared."""

    name = fields.String(required=True, metadata={"description": "Name of the dataset."})
    version = fields.String(required=True, metadata={"description": "Version of the dataset."})
    digest = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "Digest of that version; null if an earlier release has recorded none."},
    )


class ListedComparisonSchema(Open):
    """A comparison of models, as lists have it."""

    id = fields.String(required=True, metadata={"description": "Id of the comparison."})
    state = fields.String(required=True, metadata={"enum": _STATES, "description": "State of the comparison."})
    reason = fields.String(
        required=True, allow_none=True, metadata={"description": "What it waits for, or why it failed; null otherwise."}
    )
    dataset = fields.Nested(
        ComparedDatasetSchema, required=True, metadata={"description": "The dataset, at the version that is played."}
    )
    metric = fields.String(
        required=True, allow_none=True, metadata={"description": "As requested; null: the dataset's score."}
    )
    design = fields.String(required=True, metadata={"enum": DESIGNS, "description": DESIGN})
    method = fields.String(required=True, metadata={"enum": METHODS, "description": METHOD})
    margin = fields.Float(
        required=True,
        metadata={"description": "Difference within which models are equivalent, in the unit of the metric; 0: none."},
    )
    margin_from = fields.String(
        required=True,
        metadata={
            "enum": ["request", "default"],
            "description": "Who set the margin: the `request`, or the platform's `default`, 2 % of the declared range.",
        },
    )
    until = fields.String(
        required=True,
        allow_none=True,
        metadata={
            "enum": [*UNTIL, None],
            "description": "Claim at which a model ends, once it is shown or refuted; null: at equivalent, better or"
            " worse.",
        },
    )
    family = fields.Boolean(
        required=True, metadata={"description": "Whether the error rate is that of all models together."}
    )
    error_rate = fields.Float(
        required=True, metadata={"description": "Error rate of each verdict, a probability from 0 to 1."}
    )
    bound = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Largest difference that counts, in the unit of the metric; null if the request named none."
            )
        },
    )
    play_all = fields.Boolean(
        required=True, metadata={"description": "Whether all scenarios are played although the verdict holds."}
    )
    params = fields.Dict(required=True, metadata={"description": "Parameters of the dataset, by name, as requested."})
    sweep = fields.Dict(required=True, metadata={"description": "Parameters with several values each, as requested."})
    repeat = fields.Integer(required=True, metadata={"description": "Number of times that each scenario is played."})
    seed = fields.Integer(required=True, metadata={"description": "Seed from which each task's seed is derived."})
    selection = fields.Dict(
        required=True, allow_none=True, metadata={"description": "`scenarios` of the request; null: all."}
    )
    scenarios = fields.Integer(required=True, metadata={"description": "Number of scenarios that are played at most."})
    labels = fields.Dict(
        keys=fields.String(), values=fields.String(), required=True, metadata={"description": "Labels of the request."}
    )
    submitted_by = fields.String(
        required=True,
        allow_none=True,
        metadata={
            "description": ("Address of the client that requested it; of IPv6 the /64 network. Null if not recorded.")
        },
    )
    created_at = fields.AwareDateTime(required=True, format="iso", metadata={"description": "When it was requested."})
    ended_at = fields.AwareDateTime(
        required=True, allow_none=True, format="iso", metadata={"description": "When it ended; null before."}
    )
    reference = fields.Nested(
        ReferenceSchema, required=True, metadata={"description": "The model with which the others are compared."}
    )
    models = fields.List(
        fields.Nested(ListedModelSchema), required=True, metadata={"description": "All but the reference."}
    )


class ModelComparisonSchema(ListedComparisonSchema):
    """A comparison of models, with the verdict on each so far."""

    models = fields.List(
        fields.Nested(ComparedModelSchema), required=True, metadata={"description": "All but the reference."}
    )


class ComparisonPageSchema(PageSchema):
    """A page of comparisons, newest first."""

    items = fields.List(
        fields.Nested(ListedComparisonSchema),
        required=True,
        metadata={"description": "The comparisons of the page, newest first."},
    )


class ComparisonCountsSchema(Open):
    """Numbers of comparisons."""

    total = fields.Integer(required=True, metadata={"description": "Number of comparisons that meet the filters."})
    states = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.Integer(),
        metadata={"description": "Number in each state, also those without a comparison.", "example": {"running": 1}},
    )
