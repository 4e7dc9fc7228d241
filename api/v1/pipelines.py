"""Routes /v1/pipelines: request, list, steps, events, cancellation, running again and deletion."""

from typing import Literal

import msgspec
from flask import Response

from api.blueprint import BINARY, Blueprint, Success, header, json_response
from api.body import json_body, validated
from api.context import caller
from api.context import pipeline_services as services
from api.paging import LINK, page
from api.request_digests import pipeline_digest
from api.schemas.comparison_requests import ComparisonRequestSchema
from api.schemas.pipelines import (
    PipelineListQuery,
    PipelinePageSchema,
    PipelineRequestSchema,
    PipelineRetrySchema,
    PipelineSchema,
)
from api.schemas.results import EventsHeaders, EventsQuery
from api.schemas.submissions import IdempotencyHeaders
from api.streams import SSE, stream_events
from api.submissions import RequestKey, parse_submission, replay_headers
from api.v1.simulations import RESOLUTION_ERRORS
from common.errors import (
    Gone,
    IdempotencyMismatch,
    IllegalTransition,
    Invalid,
    NotFinished,
    TooManyStreams,
    UnknownPipeline,
)
from core.domain.access.roles import Verb
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.pipelines.pipeline_requests import PipelineRequest, StepRequest
from core.domain.pipelines.references import Placeholders

blueprint = Blueprint(
    "pipelines",
    __name__,
    url_prefix="/v1/pipelines",
    description="Submissions and comparisons whose outputs are the inputs of the next.",
)

CHANGED_PIPELINE = Success(schema=PipelineSchema, plain=True, status=202, description="The change is requested.")


class _StepBody(msgspec.Struct):
    """A step as its schema has accepted it."""

    name: str
    submission: dict[str, object] | None = None
    comparison: dict[str, object] | None = None
    after: list[str] = []
    retries: int = 0
    fresh: bool = False


class _PipelineBody(msgspec.Struct):
    """A request as its schema has accepted it."""

    steps: list[_StepBody]
    name: str = ""
    labels: dict[str, str] = {}
    fresh: bool = False


class _ListQuery(msgspec.Struct):
    """The query of the list as its schema has accepted it."""

    limit: int
    state: list[str] = []
    after: str | None = None


class _RetryBody(msgspec.Struct):
    """The options of a retry as their schema has accepted them."""

    first: str | None = None
    fresh: bool = False


def parse_step(step: _StepBody) -> StepRequest:
    """Return a step whose document is checked as one without references; raise Invalid with the name of the step."""
    placeholders = Placeholders()
    kind: Literal["submission", "comparison"] = "submission" if step.comparison is None else "comparison"
    content: object
    try:
        if step.comparison is None:
            submission = parse_submission(placeholders.insert(step.submission or {}))
            if submission.dry_run:
                raise Invalid("a dry run is `POST /v1/checks`, and no step.")
            content = submission
        else:
            values = validated(ComparisonRequestSchema(), placeholders.insert(step.comparison))
            content = msgspec.convert(values, ComparisonRequest)
    except Invalid as error:
        error.detail = f"Step {step.name!r}: {error.detail}"
        raise
    return StepRequest(
        name=step.name,
        kind=kind,
        document=placeholders.restore(msgspec.to_builtins(content)),
        after=step.after,
        retries=step.retries,
        fresh=step.fresh,
    )


@blueprint.operation("GET", Success(schema=PipelinePageSchema, description="A page of pipelines.", headers=LINK))
@blueprint.takes(PipelineListQuery)
def list_pipelines(query: dict[str, object]) -> Response:
    """List pipelines, without their steps

    The newest first. `GET /v1/pipelines/{id}` has the steps.
    """
    listed = msgspec.convert(query, _ListQuery)
    return page(*services().pipelines.list(caller(), states=listed.state, after=listed.after, limit=listed.limit))


@blueprint.operation(
    "POST",
    Success(
        status=201,
        schema=PipelineSchema,
        description="Accepted.",
        headers={
            "Location": header("Address of the pipeline."),
            "Idempotency-Replayed": header("`true` if an earlier request with the key has created it."),
        },
        links={"get_pipeline": {"id": "$response.body#/id"}, "cancel_pipeline": {"id": "$response.body#/id"}},
    ),
    body={"application/json": PipelineRequestSchema},
    errors=[*RESOLUTION_ERRORS, Gone, IdempotencyMismatch, Invalid],
    verb=Verb.SUBMIT,
)
@blueprint.takes(IdempotencyHeaders, location="headers")
def create_pipeline(headers: dict[str, str]) -> Response:
    """Submit steps in their order, with the outputs of some as the inputs of others

    A step is submitted once those that it waits for are complete. A step that is equal to one that was complete before,
    by the digests of all that it names, is skipped and has the outputs of the other.
    """
    body = msgspec.convert(validated(PipelineRequestSchema(), json_body()), _PipelineBody)
    steps = [parse_step(step) for step in body.steps]
    request = PipelineRequest(steps=steps, name=body.name, labels=body.labels, fresh=body.fresh)
    digest = pipeline_digest(request)
    key = msgspec.convert(headers, RequestKey).idempotency_key
    id, replayed = services().pipelines.create(caller(), request, key=key, request_digest=f"pipeline:{digest}")
    try:
        pipeline = services().pipelines.get(caller(), id)
    except UnknownPipeline:
        raise Gone("The pipeline of this Idempotency-Key has been deleted. Use a new key for a new request.") from None
    location = {"Location": f"/v1/pipelines/{id}"}
    return json_response(pipeline, 201, location | replay_headers(replayed))


@blueprint.operation(
    "GET /<id:id>",
    Success(schema=PipelineSchema, plain=True, description="The pipeline."),
    errors=[UnknownPipeline],
)
def get_pipeline(id: str) -> dict[str, object]:
    """Get a pipeline with the states and outputs of its steps

    Each step names its newest simulation or comparison, and the models and datasets that came of it.
    """
    return services().pipelines.get(caller(), id)


@blueprint.operation(
    "DELETE /<id:id>",
    Success(status=204, description="The pipeline is deleted."),
    errors=[UnknownPipeline, NotFinished],
    verb=Verb.CHANGE,
)
def delete_pipeline(id: str) -> None:
    """Delete a pipeline that has ended

    Its simulations, comparisons, models and datasets are kept; simulations and comparisons have its id as the label
    `pipeline`.
    """
    services().pipelines.delete(caller(), id)


@blueprint.operation(
    "POST /<id:id>/cancel", CHANGED_PIPELINE, errors=[UnknownPipeline, IllegalTransition], verb=Verb.CHANGE
)
def cancel_pipeline(id: str) -> dict[str, object]:
    """Cancel a pipeline, and what its steps have submitted

    Steps that are complete stay so. A retry goes on where it stopped.
    """
    return services().pipelines.cancel(caller(), id)


@blueprint.operation(
    "POST /<id:id>/retry",
    CHANGED_PIPELINE,
    body={"application/json": PipelineRetrySchema},
    errors=[UnknownPipeline, IllegalTransition, Invalid],
    verb=Verb.SUBMIT,
)
def retry_pipeline(id: str) -> dict[str, object]:
    """Run steps of a pipeline that has ended again

    Those that failed, were cancelled or not run; or a step, named by `from`, and all that wait for it. Steps after it
    whose inputs turn out equal are skipped, unless `fresh`.
    """
    options = msgspec.convert(validated(PipelineRetrySchema(), json_body(optional=True)), _RetryBody)
    return services().pipelines.retry(caller(), id, first=options.first, fresh=options.fresh)


@blueprint.operation(
    "GET /<id:id>/events",
    Success(description="Events as they happen, until the pipeline has ended.", media={SSE: BINARY}),
    other_responses={204: {"description": "The last event has been received already: do not reconnect."}},
    errors=[UnknownPipeline, TooManyStreams],
)
@blueprint.takes(EventsQuery)
@blueprint.takes(EventsHeaders, location="headers")
def watch_pipeline_events(query: dict[str, object], headers: dict[str, object], id: str) -> Response:
    """Stream the events of a pipeline, as server-sent events

    `state`: of the pipeline. `step`: a step has another state.
    """
    return stream_events(services().pipelines.events, id, query, headers)
