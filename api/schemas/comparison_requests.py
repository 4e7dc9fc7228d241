"""Schemas of requests of comparisons of models."""

from marshmallow import validate

from api.schemas.fields import NAME, REFERENCE, Choice, Flag, ListField, ObjectField, Real, Strict, Text
from api.schemas.members import array
from api.schemas.pages import PageQuery
from api.schemas.simulations import NamesQuery
from api.schemas.submissions import SubmissionSchema
from api.schemas.verdicts import DESIGN, DESIGNS, METHOD, METHODS, UNTIL
from core.domain.comparisons.comparison_states import FEWEST_MODELS, MOST_MODELS, ComparisonState
from core.domain.submissions.submission import MEMBERS

_STATES = [state.value for state in ComparisonState]


def _model_names(shortest: int, longest: int, description: str) -> ListField:
    return ListField(Text(REFERENCE), required=True, shortest=shortest, longest=longest, description=description)


def _runtimes() -> ObjectField:
    return ObjectField(
        most=MOST_MODELS,
        keys=Text(REFERENCE),
        values=Text(NAME, longest=100),
        description="Runtimes of models; by their formats if left out.",
    )


class ComparisonRequestSchema(SubmissionSchema):
    """A comparison of models on the same scenarios. The models and the dataset are required."""

    models = _model_names(
        FEWEST_MODELS,
        MOST_MODELS,
        "Models: each a name, `name@version`, `name@tag`, id or digest. The last is the reference.",
    )
    reference = Text(
        REFERENCE,
        allow_none=True,
        description="One of `models`: each of the others is compared with it; the last if left out or null.",
    )
    metric = Text(allow_none=True, description="Metric of the verdict; the dataset's score if left out or null.")
    error_rate = Real(
        0.0001, 0.5, description="Error rate of each verdict, a probability from 0 to 1: 0.05 if left out."
    )
    design = Choice(*DESIGNS, description=f"{DESIGN} `population` if left out.")
    method = Choice(*METHODS, allow_none=True, description=f"{METHOD} `joined` if left out or null.")
    margin = Real(
        0,
        1e300,
        allow_none=True,
        description="Difference within which models are equivalent, in the unit of the metric, below the bound. If left"
        " out or null: 2 % of the range that the dataset declares; 0: none.",
    )
    until = Choice(
        *UNTIL,
        allow_none=True,
        description="Claim at which a model ends, once it is shown or refuted. If left out or null, it ends at"
        " `equivalent`, `better` or `worse`.",
    )
    family = Flag(description="The error rate is that of all models of this request together; else it is that of each.")
    bound = Real(
        1e-12,
        1e300,
        allow_none=True,
        description="Largest difference that counts, in the unit of the metric; larger ones are clipped to it. If left"
        " out or null: the range that the dataset declares, or else only which model is better counts.",
    )
    play_all = Flag(description="Play all scenarios although the verdict holds, for the verdicts on groups.")
    runtimes = _runtimes()

    class Meta(SubmissionSchema.Meta):
        exclude = ("upload", *(member.name for member in MEMBERS if not member.facts.compared))


class JoiningModelsSchema(Strict):
    """Models that join a comparison."""

    models = _model_names(1, MOST_MODELS - 1, "Models: each a name, `name@version`, `name@tag`, id or digest.")
    runtimes = _runtimes()


class ComparisonListQuery(NamesQuery, PageQuery):
    """Filters of the list of comparisons: one meets a filter of a model or a runtime if one of its models does."""

    state = array(
        Choice(*_STATES),
        "Only comparisons in this state; may be repeated, for any of several states.",
        required=False,
        validate=validate.Length(max=len(_STATES)),
    )
