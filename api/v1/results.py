"""Routes /v1/simulations/{id}/results, /events and /logs, complete or as streams."""

from collections.abc import Iterable, Mapping
from typing import Any

from flask import Response, request

from api.blueprint import BINARY, TEXT, Blueprint, Success, empty_response, header, lines_of
from api.byte_ranges import read_ahead, serve
from api.context import analysis_services as services
from api.context import caller, context
from api.downloads import NOT_MODIFIED, PARTIAL_CONTENT
from api.escaping import escaped
from api.negotiation import choose
from api.paging import LINK, next_page, page
from api.schemas.results import (
    EventPageSchema,
    EventsHeaders,
    EventsQuery,
    HistoryQuery,
    LogsQuery,
    ResultSchema,
    ResultsHeaders,
    ResultsQuery,
)
from api.streams import (
    NDJSON,
    SSE,
    STREAM_HEADERS,
    encode_heartbeats,
    encode_results,
    mark_incomplete,
    require_free_stream,
    stream,
    stream_events,
)
from api.tabular import PARQUET, Lines, as_csv
from common.errors import (
    Invalid,
    NotAcceptable,
    PreconditionFailed,
    RangeNotSatisfiable,
    TooManyStreams,
    UnknownSimulation,
)
from core.domain.results.result_conditions import Condition
from core.domain.results.result_selection import Selection

blueprint = Blueprint(
    "results", __name__, url_prefix="/v1/simulations/<id:id>", description="Results, events and logs of a simulation."
)

CSV = "text/csv"
FORMATS: Mapping[str, str] = {"ndjson": NDJSON, "csv": CSV, "parquet": PARQUET}
STREAM_FORMATS: Mapping[str, str] = {"ndjson": NDJSON, "sse": SSE}
#: Headers that only a file whose size is known can answer.
CONDITIONS = ("Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since")


def follow(id: str, skip: int, format: str) -> Response:
    """Stream results in order of arrival until the simulation ends; the first ``skip`` results are left out."""
    require_free_stream()
    lines = mark_incomplete(services().results.follow(caller(), id, skip=skip, heartbeat=context().heartbeat))
    chunks = encode_results(lines, skip) if format == "sse" else encode_heartbeats(lines)
    check_readable = services().results.events.readability(caller(), id)
    return stream(chunks, STREAM_FORMATS[format], check_readable=check_readable)


def table(id: str, selection: Selection, format: str) -> Response:
    """Answer with the present results in task order, or with a selection of them."""
    selections = services().selections
    headers: dict[str, str] = {}
    if selection.pages:
        page = selections.page(caller(), id, selection)
        if page.cursor is not None:
            headers["Link"] = next_page(page.cursor)
        if page.total is not None:
            headers["Total-Count"] = str(page.total)

        def lines() -> Iterable[bytes]:
            return page.lines

    else:

        def lines() -> Iterable[bytes]:
            return selections.selected(caller(), id, selection)

    if format == "ndjson":
        body = mark_incomplete(read_ahead(lines()))
        return Response(body, headers=headers, content_type=NDJSON, direct_passthrough=True)
    headers["Content-Disposition"] = f'attachment; filename="{id}.{format}"'
    kinds, version = selections.columns(caller(), id)  # raises before the first byte is sent
    if format == "csv":
        body = read_ahead(as_csv(lines, kinds))
        return Response(body, headers=headers, content_type=f"{CSV}; charset=utf-8", direct_passthrough=True)
    return parquet(lines, kinds, f"{version} {selection}", headers)


def parquet(lines: Lines, kinds: Mapping[str, str] | None, version: str, headers: Mapping[str, str]) -> Response:
    """Answer with a Parquet file: a GET of the whole file is streamed if the columns are known, else it is spooled.

    Both are equal to the byte. ``version``: of the results and their selection.
    """
    from api.parquet import as_parquet, etag_of, stream_parquet  # imported at the first use: pyarrow is large

    if kinds is None:
        blob = as_parquet(lines, context().spool)
        return serve(blob.read, size=blob.size, etag=blob.etag, media_type=PARQUET, headers=headers)
    etag = etag_of(version, kinds)
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache", **headers}
    if "If-Match" not in request.headers and request.if_none_match.contains_weak(etag.strip('"')):
        return empty_response(304, headers)  # without writing the file
    if request.method == "GET" and not any(name in request.headers for name in CONDITIONS):
        body = read_ahead(stream_parquet(lines(), kinds))
        return Response(body, headers=headers, content_type=PARQUET, direct_passthrough=True)
    blob = as_parquet(lines, context().spool, kinds, etag)
    return serve(blob.read, size=blob.size, etag=etag, media_type=PARQUET, headers=headers)


@blueprint.operation(
    "GET /results",
    Success(
        description="Results, a line or row for each task.",
        media={NDJSON: lines_of(ResultSchema), CSV: BINARY, PARQUET: BINARY, SSE: BINARY},
        headers=LINK | {"Total-Count": header("Number of results on all pages, if the request has `count`.")},
    ),
    other_responses={
        204: {"description": "The stream has delivered all results already: do not reconnect."},
        206: PARTIAL_CONTENT | {"content": {PARQUET: {"schema": BINARY}}},
        304: NOT_MODIFIED,
    },
    errors=[UnknownSimulation, NotAcceptable, TooManyStreams, PreconditionFailed, RangeNotSatisfiable],
)
@blueprint.takes(ResultsQuery)
@blueprint.takes(ResultsHeaders, location="headers")
def get_simulation_results(query: dict[str, Any], headers: dict[str, Any], id: str) -> Response:
    """Get results

    The present results in task order, or a selection of them by `where`, `status`, `sort` and `limit`; or with
    `follow`, in order of arrival until the simulation ends. A stream of lines that cannot be completed ends with a
    line `{"incomplete": reason}`.
    """
    if query["follow"]:
        if "start" in query:
            raise Invalid("`from` is for results in task order; resume a followed stream with `skip`.")
        if selecting := sorted(query.keys() & {"status", "where", "sort", "limit", "after"}):
            raise Invalid(f"`{selecting[0]}` selects present results; leave it out, or leave out `follow`.")
        format = choose(STREAM_FORMATS, query.get("format"))
        if format not in STREAM_FORMATS:
            raise Invalid(f"The format {format} cannot be streamed; leave out `follow` or `format`.")
        if format == "sse" and (last_id := headers.get("last_event_id")):
            return (
                empty_response(204, STREAM_HEADERS)
                if services().results.delivered(caller(), id, last_id)
                else follow(id, last_id, format)
            )
        return follow(id, query.get("skip", 0), format)
    if "skip" in query:
        raise Invalid("`skip` is for a followed stream; use `from` for results in task order.")
    selection = Selection(
        start=query.get("start", 0),
        statuses=frozenset(query.get("status", ())),
        where=tuple(map(Condition.read, query.get("where", ()))),
        sort=query.get("sort"),
        limit=query.get("limit"),
        after=query.get("after"),
        count=query["count"],
    )
    if selection.count and selection.limit is None:
        raise Invalid("`count` is for pages: add a `limit`, such as 1.")
    if selection.after is not None and not selection.pages:
        raise Invalid("`after` is the cursor of a page; add the `limit` and `sort` of the page before.")
    return table(id, selection, choose(FORMATS, query.get("format")))


@blueprint.operation(
    "GET /events",
    Success(description="Events as they happen, until the simulation has ended.", media={SSE: BINARY}),
    other_responses={204: {"description": "The last event has been received already: do not reconnect."}},
    errors=[UnknownSimulation, TooManyStreams],
)
@blueprint.takes(EventsQuery)
@blueprint.takes(EventsHeaders, location="headers")
def watch_simulation_events(query: dict[str, Any], headers: dict[str, Any], id: str) -> Response:
    """Stream the events of a simulation, as server-sent events

    State, progress, staging, launches and changes of workers, each with its number as the id of the event. A client
    that reconnects with `Last-Event-ID` gets what it has missed.
    """
    return stream_events(services().results.events, id, query, headers)


@blueprint.operation(
    "GET /history",
    Success(schema=EventPageSchema, description="A page of events, in order.", headers=LINK),
    errors=[UnknownSimulation],
)
@blueprint.takes(HistoryQuery)
def list_simulation_events(query: dict[str, Any], id: str) -> Response:
    """List the events of a simulation so far

    In order, in pages: the events that `/events` streams, without waiting for more.
    """
    limit = query["limit"]
    events = services().results.events.read(caller(), id, query["after"], limit + 1, types=query.get("type", ()))
    shown = [{"number": event.seq, "type": event.type, "at": event.at, **event.body} for event in events[:limit]]
    return page(shown, events[limit - 1].seq if len(events) > limit else None)


@blueprint.operation(
    "GET /logs",
    Success(description="Lines, each prefixed with the name of its writer.", media={"text/plain": TEXT}),
    errors=[UnknownSimulation, TooManyStreams],
)
@blueprint.takes(LogsQuery)
def get_simulation_logs(query: dict[str, Any], id: str) -> Response:
    """Get the logs of models and simulators

    What models and simulators have printed so far, in order of arrival; with `follow`, until the simulation ends.
    Control characters are escaped unless `raw` is true.
    """
    require_free_stream()
    lines = services().results.logs(caller(), id, follow=query["follow"], heartbeat=context().heartbeat)
    lines = encode_heartbeats(lines if query["follow"] else read_ahead(lines))
    body = lines if query["raw"] else escaped(lines)
    headers = {"Content-Security-Policy": "sandbox", "Content-Disposition": "inline"}
    check_readable = services().results.events.readability(caller(), id)
    return stream(body, "text/plain; charset=utf-8", headers=headers, check_readable=check_readable)
