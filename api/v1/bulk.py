"""Routes /v1/simulations/cancel and /retry: changes of many simulations, each with its own outcome."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from api.blueprint import Blueprint, Success
from api.body import json_body, validated
from api.context import caller
from api.context import submission_services as services
from api.problems import describe
from api.schemas.bulk import BulkRetrySchema, BulkSchema, OutcomesSchema
from api.simulation_filters import listing_of
from common.errors import Invalid, TooLarge, UnsupportedMedia
from core.domain.access.roles import Verb
from core.domain.scheduling.states import State
from core.services.simulations.bulk import CANCELLED_BY_DEFAULT, RETRIED_BY_DEFAULT, Outcome, Status

blueprint = Blueprint("bulk", __name__, url_prefix="/v1/simulations", description="Changes of many simulations.")

OUTCOMES = Success(schema=OutcomesSchema, description="The outcome of each simulation; some may have failed.")


def requested(schema: BulkSchema, states: tuple[State, ...]) -> tuple[list[str], str | None, dict[str, Any]]:
    """Return the ids that this request names or filters, the cursor of the next ones, and its other options.

    ``states``: of the simulations that a filter without states has.
    """
    options = validated(schema, json_body())
    limit = options.pop("limit")
    filters = options.pop("filter", None)
    if filters is None:
        return options.pop("ids"), None, options
    after = filters.pop("after", None)
    listing = listing_of(filters)
    listing = replace(listing, states=listing.states or states)
    return *services().bulk.select(caller(), listing, after=after, limit=limit), options


def described(outcomes: Sequence[Outcome], next: str | None) -> dict[str, Any]:
    """Return the document of outcomes."""
    simulations = services().bulk.simulations(caller(), outcomes)
    items = [
        {
            "id": outcome.id,
            "status": outcome.status,
            "reason": outcome.reason,
            "simulation": simulations.get(outcome.result or ""),
            "problem": describe(outcome.error) if outcome.error is not None else None,
        }
        for outcome in outcomes
    ]
    numbers = Counter(outcome.status for outcome in outcomes)
    return {"items": items, "next": next} | {status.value: numbers[status] for status in Status}


@blueprint.operation(
    "POST /cancel",
    OUTCOMES,
    body={"application/json": BulkSchema},
    errors=[Invalid, TooLarge, UnsupportedMedia],
    verb=Verb.CHANGE,
)
def cancel_simulations() -> dict[str, Any]:
    """Cancel many simulations

    By their ids, or by filters: then up to `limit` simulations that have not ended, newest first; `next` is the
    cursor `after` of those that follow. A simulation that has ended, or is being cancelled, is skipped, so that the
    request can be repeated.
    """
    ids, next, _ = requested(BulkSchema(), CANCELLED_BY_DEFAULT)
    return described(services().bulk.cancel(caller(), ids), next)


@blueprint.operation(
    "POST /retry",
    OUTCOMES,
    body={"application/json": BulkRetrySchema},
    errors=[Invalid, TooLarge, UnsupportedMedia],
    verb=Verb.SUBMIT,
)
def retry_simulations() -> dict[str, Any]:
    """Retry many simulations

    By their ids, or by filters: then up to `limit` simulations that failed, errored or were cancelled. A simulation
    that has a retry already, or whose tasks are all ok, is skipped, so that the request can be repeated.
    """
    ids, next, options = requested(BulkRetrySchema(), RETRIED_BY_DEFAULT)
    return described(services().bulk.retry(caller(), ids, **options), next)
