"""Schemas of pipelines: requests, answers, and options of what is done with them."""

from marshmallow import ValidationError, fields, validate, validates_schema

from api.schemas.fields import NAME, Choice, Flag, ListField, ObjectField, Open, Strict, Text, Whole
from api.schemas.members import array, boolean, count_of_each, dictionary, documents, integer, moment, string
from api.schemas.pages import PageQuery, PageSchema
from core.domain.pipelines.pipeline_states import MOST_RETRIES, MOST_STEPS, PipelineState, StepState

_STATES = [state.value for state in PipelineState]
_REFERENCES = 'with `{"from": STEP, "output": NAME}` where a model or the dataset is an output of another step.'


class PipelineStepRequestSchema(Strict):
    """A step: a submission or a comparison, which may refer to outputs of other steps."""

    name = Text(NAME, longest=63, required=True, description="Name of the step, which no other step has.")
    submission = ObjectField(description=f"As for `POST /v1/simulations`, {_REFERENCES}")
    comparison = ObjectField(description=f"As for `POST /v1/comparisons`, {_REFERENCES}")
    after = ListField(
        Text(NAME, longest=63),
        longest=MOST_STEPS,
        description="Names of steps that it waits for, besides those that it refers to.",
    )
    retries = Whole(0, MOST_RETRIES, description="Number of further attempts after one that failed; none if left out.")
    fresh = Flag(description="Run it although an equal step was complete before.")

    @validates_schema
    def one_document(self, data: dict[str, object], **_: object) -> None:
        """Require exactly one of `submission` and `comparison`."""
        if ("submission" in data) == ("comparison" in data):
            raise ValidationError("A step has a `submission` or a `comparison`.")


class PipelineRequestSchema(Strict):
    """A pipeline: steps that are submitted once the steps that they wait for are complete."""

    name = Text(longest=200, description="Name, for display.")
    steps = ListField(
        fields.Nested(PipelineStepRequestSchema),
        required=True,
        shortest=1,
        longest=MOST_STEPS,
        description="The steps, in any order.",
    )
    labels = ObjectField(
        most=32, keys=Text(NAME, longest=63), values=Text(shortest=0), description="Your labels of the pipeline."
    )
    fresh = Flag(description="Run every step although equal ones were complete before.")


class PipelineRetrySchema(Strict):
    """Which steps of a pipeline run again."""

    first = Text(
        NAME,
        longest=63,
        data_key="from",
        description="Step that runs again, with all that wait for it; left out: those that failed, were cancelled or"
        " not run.",
    )
    fresh = Flag(load_default=False, description="Run all of these although equal ones were complete before.")


class PipelineStepSchema(Open):
    """A step with its state."""

    name = string("Name of the step.")
    state = string(
        "`waiting` for steps before it, `ready` to be submitted, `running`; `succeeded` with all its outputs, `skipped`"
        " because an equal step was complete before, whose run and outputs it has, `failed`, `not_run` because a step"
        " before it is not complete, or `cancelled`.",
        enum=[state.value for state in StepState],
    )
    reason = string("Why it is in this state, or what its run waits for; null for nothing.", allow_none=True)
    after = array(fields.String(), "Names of the steps that it waits for.")
    submission = dictionary("Its submission, with references.", required=False)
    comparison = dictionary("Its comparison, with references.", required=False)
    retries = integer("Number of further attempts after one that failed.")
    fresh = boolean("Whether it runs although an equal step was complete before.")
    attempt = integer("Number of the attempt, from 1.")
    simulation_id = string("Id of its newest simulation; null before, and of comparisons.", allow_none=True)
    comparison_id = string("Id of its newest comparison; null before, and of submissions.", allow_none=True)
    run_state = string("State of its simulation or comparison; null before, and if that was deleted.", allow_none=True)
    digest = string(
        "Digest of what it submits, with all names resolved, which equal steps have; null before.", allow_none=True
    )
    outputs = dictionary("What its declared outputs became, as in its simulation; empty before.")
    started_at = moment("When it was submitted; null before.", allow_none=True)
    ended_at = moment("When it ended; null before.", allow_none=True)


class ListedPipelineSchema(Open):
    """A pipeline in a list, without its steps."""

    id = string("Id of the pipeline.")
    name = string("Name; empty for none.")
    state = string("State; it ends as `succeeded`, `failed` or `cancelled`.", enum=_STATES)
    reason = string("Why it ended in this state, or what it waits for; null for nothing.", allow_none=True)
    labels = dictionary("Labels of the request.", fields.String())
    submitted_by = string(
        "Address of the client that requested it; of IPv6 the /64 network. Null if not recorded.", allow_none=True
    )
    created_at = moment("When it was requested.")
    ended_at = moment("When it ended; null before.", allow_none=True)
    counts = count_of_each("Number of steps in each state that a step has.", example={"running": 1, "waiting": 2})


class PipelineSchema(ListedPipelineSchema):
    """A pipeline with its steps."""

    steps = documents(PipelineStepSchema, "The steps, in the order of the request.")


class PipelinePageSchema(PageSchema):
    """A page of pipelines, newest first."""

    items = documents(ListedPipelineSchema, "The pipelines of the page, newest first.")


class PipelineListQuery(PageQuery):
    """Filters of the list of pipelines."""

    state = array(
        Choice(*_STATES),
        "Only pipelines in this state; may be repeated, for any of several states.",
        required=False,
        validate=validate.Length(max=len(_STATES)),
    )
