"""Routes /v1/comparisons: request, list, verdicts, events, joining models, cancellation, retry and deletion."""

from typing import Any

import msgspec
from flask import Response

from api.blueprint import BINARY, Blueprint, Success, header, json_response
from api.body import json_body, validated
from api.context import caller
from api.context import comparison_services as services
from api.paging import LINK, numbered_page, page
from api.request_digests import comparison_digest
from api.schemas.comparison_requests import (
    ComparisonListQuery,
    ComparisonRequestSchema,
    JoiningModelsSchema,
)
from api.schemas.model_comparisons import ComparisonCountsSchema, ComparisonPageSchema, ModelComparisonSchema
from api.schemas.results import EventsHeaders, EventsQuery
from api.schemas.simulations import NamesQuery
from api.schemas.submissions import IdempotencyHeaders
from api.schemas.verdicts import ComparisonFlipsQuery, FlipPageSchema
from api.simulation_filters import listing_of
from api.streams import SSE, stream_events
from api.submissions import replay_headers
from api.v1.simulations import RESOLUTION_ERRORS
from common.errors import (
    Conflict,
    Gone,
    IdempotencyMismatch,
    IllegalTransition,
    Invalid,
    NotFinished,
    TooManyStreams,
    UnknownComparison,
)
from core.domain.access.roles import Verb
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.comparisons.comparison_states import ComparisonState

blueprint = Blueprint(
    "comparisons",
    __name__,
    url_prefix="/v1/comparisons",
    description="Comparisons of models on the same scenarios, which stop when the verdict holds.",
)

CHANGED = Success(schema=ModelComparisonSchema, plain=True, status=202, description="The change is requested.")


@blueprint.operation(
    "GET",
    Success(schema=ComparisonPageSchema, description="A page of comparisons, newest first.", headers=LINK),
)
@blueprint.takes(ComparisonListQuery)
def list_comparisons(query: dict[str, Any]) -> Response:
    """List comparisons, without the details of their verdicts

    The newest first. `GET /v1/comparisons/{id}` has the details.
    """
    states, after, limit = query.pop("state", ()), query.pop("after", None), query.pop("limit")
    return page(*services().comparisons.list(caller(), listing_of(query), states=states, after=after, limit=limit))


@blueprint.operation(
    "POST",
    Success(
        status=201,
        schema=ModelComparisonSchema,
        description="Accepted.",
        headers={
            "Location": header("Address of the comparison."),
            "Idempotency-Replayed": header("`true` if an earlier request with the key has created it."),
        },
        links={"get_comparison": {"id": "$response.body#/id"}, "cancel_comparison": {"id": "$response.body#/id"}},
    ),
    body={"application/json": ComparisonRequestSchema},
    errors=[*RESOLUTION_ERRORS, Gone, IdempotencyMismatch, Invalid],
    verb=Verb.SUBMIT,
)
@blueprint.takes(IdempotencyHeaders, location="headers")
def create_comparison(headers: dict[str, Any]) -> Response:
    """Compare models on the same scenarios and seeds, until the verdicts hold

    Scenarios are played in random order, in batches of one simulation for each model. After each batch a sequential
    test decides whether more are needed. Its error rate holds whenever it stops.
    """
    request = msgspec.convert(validated(ComparisonRequestSchema(), json_body()), ComparisonRequest)
    digest = comparison_digest(request)
    key = headers.get("idempotency_key")
    try:
        comparison, replayed = services().comparisons.create(
            caller(), request, key=key, request_digest=f"comparison:{digest}"
        )
    except UnknownComparison:
        raise Gone(
            "The comparison of this Idempotency-Key has been deleted. Use a new key for a new request."
        ) from None
    location = {"Location": f"/v1/comparisons/{comparison['id']}"}
    return json_response(comparison, 201, location | replay_headers(replayed))


@blueprint.operation(
    "GET /counts",
    Success(schema=ComparisonCountsSchema, plain=True, description="The numbers of comparisons, by state."),
)
@blueprint.takes(NamesQuery)
def count_comparisons(query: dict[str, Any]) -> dict[str, Any]:
    """Count comparisons by state

    With the filters of the list. States without a comparison are listed with 0.
    """
    numbers = services().comparisons.count(caller(), listing_of(query))
    states = {state.value: numbers.get(state, 0) for state in ComparisonState}
    return {"total": sum(numbers.values()), "states": states}


@blueprint.operation(
    "GET /<id:id>",
    Success(schema=ModelComparisonSchema, plain=True, description="The comparison."),
    errors=[UnknownComparison],
)
def get_comparison(id: str) -> dict[str, Any]:
    """Get a comparison with its verdicts so far

    While it runs, a verdict may be read at any time: that does not change its error rate. Once it is finished, a
    verdict never changes.
    """
    return services().comparisons.get(caller(), id)


@blueprint.operation(
    "DELETE /<id:id>",
    Success(status=204, description="The comparison and its simulations are deleted."),
    errors=[UnknownComparison, NotFinished],
    verb=Verb.CHANGE,
)
def delete_comparison(id: str) -> None:
    """Delete a comparison that has ended, and its simulations

    Cancel it first if it has not ended.
    """
    services().comparisons.delete(caller(), id)


@blueprint.operation(
    "POST /<id:id>/models",
    CHANGED,
    body={"application/json": JoiningModelsSchema},
    errors=[*RESOLUTION_ERRORS, Conflict, IllegalTransition, Invalid, UnknownComparison],
    verb=Verb.SUBMIT,
)
def add_comparison_models(id: str) -> dict[str, Any]:
    """Let models join a comparison

    They are compared with its reference on the same scenarios and seeds. What was played is not played again, and
    the verdicts on other models stay as they are.
    """
    values = validated(JoiningModelsSchema(), json_body())
    return services().comparisons.add_models(caller(), id, values["models"], values.get("runtimes", {}))


@blueprint.operation("POST /<id:id>/cancel", CHANGED, errors=[UnknownComparison, IllegalTransition], verb=Verb.CHANGE)
def cancel_comparison(id: str) -> dict[str, Any]:
    """Cancel a comparison and its simulations

    Verdicts that hold are kept. A retry goes on where it stopped.
    """
    return services().comparisons.cancel(caller(), id)


@blueprint.operation("POST /<id:id>/retry", CHANGED, errors=[UnknownComparison, IllegalTransition], verb=Verb.SUBMIT)
def retry_comparison(id: str) -> dict[str, Any]:
    """Let models that failed or were cancelled go on where they stopped

    What was played is not played again. Models whose verdict holds, or that were played to the end, stay as they
    are.
    """
    return services().comparisons.retry(caller(), id)


@blueprint.operation(
    "GET /<id:id>/flips",
    Success(schema=FlipPageSchema, description="A page of flips.", headers=LINK),
    errors=[UnknownComparison, Invalid],
)
@blueprint.takes(ComparisonFlipsQuery)
def list_comparison_flips(query: dict[str, Any], id: str) -> Response:
    """List scenarios that a model fails and the reference does not

    `broke`: only the model fails; `fixed`: only the reference does. In the order of play, of the batches that the
    verdict has.
    """
    flips = services().comparison_flips.flips(caller(), id, query["model"], broke=query["direction"] == "broke")
    return numbered_page(flips, query["after"], query["limit"])


@blueprint.operation(
    "GET /<id:id>/events",
    Success(description="Events as they happen, until the comparison has ended.", media={SSE: BINARY}),
    other_responses={204: {"description": "The last event has been received already: do not reconnect."}},
    errors=[UnknownComparison, TooManyStreams],
)
@blueprint.takes(EventsQuery)
@blueprint.takes(EventsHeaders, location="headers")
def watch_comparison_events(query: dict[str, Any], headers: dict[str, Any], id: str) -> Response:
    """Stream the events of a comparison, as server-sent events

    `state`: of the comparison. `batch`: a batch was added to the verdict on a model. `model`: a model has ended.
    `joined`: a model has joined.
    """
    return stream_events(services().comparisons.events, id, query, headers)
