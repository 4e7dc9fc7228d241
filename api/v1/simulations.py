"""Routes /v1/simulations: submission, list, state, change, cancellation, retry, deletion, summary and comparison."""

from functools import cache
from typing import Any

import msgspec
from flask import Response

from api.blueprint import BINARY, Blueprint, Success, header
from api.body import json_body, validated
from api.context import caller, context
from api.context import submission_services as services
from api.paging import LINK, numbered_page, page
from api.schemas.comparisons import ComparisonQuery, ComparisonSchema
from api.schemas.results import ChangesHeaders, ChangesQuery, SummarySchema
from api.schemas.simulations import (
    LARGE,
    CountsSchema,
    ListedSimulationSchema,
    ListingQuery,
    RetrySchema,
    SimulationPageSchema,
    SimulationQuery,
    SimulationSchema,
    WorkersSchema,
)
from api.schemas.submissions import IdempotencyHeaders, SubmissionHeaders, SubmissionSchema
from api.schemas.verdicts import FlipPageSchema, SimulationFlipsQuery
from api.simulation_filters import listing_of
from api.streams import SSE, encode_changes, require_free_stream, stream
from api.submissions import created, receive, replay_headers, submit
from common.errors import (
    BadArchive,
    FormatMismatch,
    Gone,
    IdempotencyMismatch,
    IllegalTransition,
    Invalid,
    NotAcceptable,
    NotAllowed,
    NotFinished,
    QuotaExceeded,
    ScenarioOutOfRange,
    StillRunning,
    StorageFull,
    TooLarge,
    TooManyDryRuns,
    TooManyStreams,
    TooManyTasks,
    TruncatedUpload,
    UnknownDataset,
    UnknownFormat,
    UnknownModel,
    UnknownRuntime,
    UnknownSimulation,
    UnknownUpload,
    Unsafe,
    UnsupportedMedia,
    UploadUnfinished,
)
from core.domain.access.roles import Verb
from core.domain.scheduling.states import State
from core.domain.submissions.records import Simulation
from core.services.analysis.comparison import Asked

blueprint = Blueprint(
    "simulations", __name__, url_prefix="/v1/simulations", description="Runs of a model on the scenarios of a dataset."
)

#: Errors of what a submission or a comparison names.
RESOLUTION_ERRORS = (
    BadArchive,
    FormatMismatch,
    NotAllowed,
    ScenarioOutOfRange,
    TooLarge,
    TooManyTasks,
    UnknownDataset,
    UnknownFormat,
    UnknownModel,
    UnknownRuntime,
    UnsupportedMedia,
)
SUBMISSION_ERRORS = (
    *RESOLUTION_ERRORS,
    Gone,
    IdempotencyMismatch,
    NotAcceptable,
    QuotaExceeded,
    StillRunning,
    StorageFull,
    TooManyDryRuns,
    TooManyStreams,
    TruncatedUpload,
    UnknownUpload,
    Unsafe,
    UploadUnfinished,
)
CREATED = {
    "Location": header("Address of the simulation."),
    "Idempotency-Replayed": header("`true` if this is the response of the first request with the key."),
    "Preference-Applied": header("`wait=N` if the request has waited for the end."),
}
#: Operations that a client may call next.
NEXT = {
    "get_simulation": {"id": "$response.body#/id"},
    "cancel_simulation": {"id": "$response.body#/id"},
    "compare_simulations": {"id": "$response.body#/id", "query.to": "$response.body#/id"},
}


@cache
def _listed(included: frozenset[str]) -> ListedSimulationSchema:
    """Return the schema of a list's items, with these large members."""
    return ListedSimulationSchema(exclude=set(LARGE) - included)


@blueprint.operation(
    "GET",
    Success(schema=SimulationPageSchema, description="A page of simulations, newest first.", headers=LINK),
)
@blueprint.takes(SimulationQuery)
def list_simulations(query: dict[str, Any]) -> Response:
    """List simulations

    The newest first, with state, progress and the answer so far. Filters are combined: a simulation meets all of
    them. `metrics`, `provenance` and `spec`, which are large, are listed if `include` names them.
    """
    after, limit = query.pop("after", None), query.pop("limit")
    schema = _listed(frozenset(query.pop("include", ())))
    return page(*services().simulations.list(caller(), listing_of(query), after=after, limit=limit), schema)


@blueprint.operation(
    "POST",
    Success(
        status=201,
        headers=CREATED,
        description="Accepted.",
        schema=SimulationSchema,
        links=NEXT,
    ),
    body={"application/json": SubmissionSchema},
    errors=SUBMISSION_ERRORS,
    verb=Verb.SUBMIT,
)
@blueprint.takes(SubmissionHeaders, location="headers")
def create_simulation(headers: dict[str, Any]) -> Response:
    """Submit a simulation

    With `Accept: application/x-ndjson` or `text/event-stream` the response is a stream of its results. Closing the
    connection does not stop the simulation. The forms of `/v1/forms/simulations` and the documents of `/v1/reruns`
    are accepted here too, and so is `dry_run`, which `/v1/checks` has replaced.
    """
    return submit(*receive(), key=headers.get("idempotency_key"), prefer=headers.get("prefer"))


@blueprint.operation(
    "GET /counts",
    Success(schema=CountsSchema, plain=True, description="The numbers of simulations, by state."),
)
@blueprint.takes(ListingQuery)
def count_simulations(query: dict[str, Any]) -> dict[str, Any]:
    """Count simulations by state

    With the filters of the list. States without a simulation are listed with 0.
    """
    numbers = services().simulations.count(caller(), listing_of(query))
    return {"total": sum(numbers.values()), "states": {state.value: numbers.get(state, 0) for state in State}}


@blueprint.operation(
    "GET /changes",
    Success(description="Ids of simulations that have changed; the stream does not end.", media={SSE: BINARY}),
    errors=[TooManyStreams],
)
@blueprint.takes(ChangesQuery)
@blueprint.takes(ChangesHeaders, location="headers")
def watch_simulations(query: dict[str, Any], headers: dict[str, Any]) -> Response:
    """Stream which simulations change, as server-sent events

    Events `changes` have `ids` of simulations that were submitted, have changed or were deleted, at most one event
    each second; if `all` is true, others may have changed too. Without `after`, the first event is sent at once:
    read the list then.
    """
    require_free_stream()
    after = headers.get("last_event_id", query.get("after"))
    changes = services().list_changes.follow(caller(), after, context().heartbeat)
    return stream(encode_changes(changes), SSE)


@blueprint.operation(
    "GET /<id:id>", Success(schema=SimulationSchema, description="The simulation."), errors=[UnknownSimulation]
)
def get_simulation(id: str) -> Simulation:
    """Get a simulation's state and progress

    The counts of tasks, the metrics so far, why it waits, and the remaining seconds as estimated. Poll it, send
    `Prefer: wait=N` with the submission, or follow its events.
    """
    return services().simulations.get(caller(), id)


@blueprint.operation(
    "PATCH /<id:id>",
    Success(schema=SimulationSchema, description="The change is requested; `workers` is the present number."),
    body={"application/json": WorkersSchema},
    errors=[IllegalTransition, Invalid, TooLarge, UnknownSimulation, UnsupportedMedia],
    verb=Verb.CHANGE,
)
def resize_simulation(id: str) -> Simulation:
    """Change a simulation's number of workers while it runs

    If the executor does not support that, the simulation continues unchanged; an event reports it.
    """
    return services().simulations.resize(caller(), id, validated(WorkersSchema(), json_body())["workers"])


@blueprint.operation(
    "DELETE /<id:id>",
    Success(status=204, description="The simulation and its results are deleted."),
    errors=[UnknownSimulation, NotFinished],
    verb=Verb.CHANGE,
)
def delete_simulation(id: str) -> None:
    """Delete a simulation that has ended

    Its results, logs and artifacts are deleted with it; its model and its dataset stay. Cancel it first if it has
    not ended.
    """
    services().simulations.delete(caller(), id)


@blueprint.operation(
    "POST /<id:id>/cancel",
    Success(schema=SimulationSchema, status=202, description="The cancellation is requested."),
    errors=[UnknownSimulation, IllegalTransition],
    verb=Verb.CHANGE,
)
def cancel_simulation(id: str) -> Simulation:
    """Cancel a simulation

    It is `cancelling` until its workers have ended, then `cancelled`. Results that have arrived are kept.
    """
    return services().simulations.cancel(caller(), id)


@blueprint.operation(
    "POST /<id:id>/retry",
    Success(
        schema=SimulationSchema,
        status=201,
        description="A new simulation.",
        headers={
            "Location": CREATED["Location"],
            "Idempotency-Replayed": header("`true` if an earlier request with the key has created it."),
        },
    ),
    body={"application/json": RetrySchema},
    body_required=False,
    errors=[
        Gone,
        IdempotencyMismatch,
        Invalid,
        NotAllowed,
        NotFinished,
        TooLarge,
        UnknownDataset,
        UnknownModel,
        UnknownRuntime,
        UnknownSimulation,
        UnsupportedMedia,
    ],
    verb=Verb.SUBMIT,
)
@blueprint.takes(IdempotencyHeaders, location="headers")
def retry_simulation(headers: dict[str, Any], id: str) -> Response:
    """Repeat the tasks that did not succeed, or all tasks, as a new simulation

    With `only_failed`, which is the default, the new simulation has the results of the tasks that are `ok` and
    plays the others again.
    """
    options = validated(RetrySchema(), json_body(optional=True))
    simulation, replayed = services().simulations.retry(caller(), id, **options, key=headers.get("idempotency_key"))
    return created(simulation, replay_headers(replayed))


@blueprint.operation(
    "GET /<id:id>/summary",
    Success(schema=SummarySchema, plain=True, description="The summary."),
    errors=[UnknownSimulation, NotFinished],
)
def get_simulation_summary(id: str) -> dict[str, Any]:
    """Get a simulation's summary

    Statistics of each metric over all tasks, by group of scenarios and by combination of a sweep, and the worst
    tasks. A simulation that has not ended has none yet: its metrics so far are in the simulation itself.
    """
    return services().simulations.summary(caller(), id)


@blueprint.operation(
    "GET /<id:id>/comparison",
    Success(schema=ComparisonSchema, plain=True, description="The paired differences, and the verdicts."),
    errors=[UnknownSimulation, NotFinished, Invalid],
)
@blueprint.takes(ComparisonQuery)
def compare_simulations(query: dict[str, Any], id: str) -> dict[str, Any]:
    """Compare with another simulation, scenario by scenario

    `metrics` has the paired differences of each metric. `verdict`, `groups` and `scenarios` are about one metric.
    The unit is the scenario. The verdict has one look, once both have ended; while one runs, only evidence that may
    be read at any time decides. Verdicts on groups are corrected for the number of groups of a grouping.
    """
    to = query.pop("to")
    return services().comparison.compare(caller(), id, to, msgspec.convert(query, Asked))


@blueprint.operation(
    "GET /<id:id>/comparison/flips",
    Success(schema=FlipPageSchema, description="A page of flips.", headers=LINK),
    errors=[UnknownSimulation, Invalid],
)
@blueprint.takes(SimulationFlipsQuery)
def list_simulation_flips(query: dict[str, Any], id: str) -> Response:
    """List scenarios that one simulation fails and the other does not

    `broke`: only the first fails; `fixed`: only the other does.
    """
    flips = services().comparison.flips(caller(), id, query["to"], broke=query["direction"] == "broke")
    return numbered_page(flips, query["after"], query["limit"])
