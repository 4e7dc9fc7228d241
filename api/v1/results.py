"""Routes /v1/simulations/{id}/results, /events and /logs, complete or as streams."""

from collections.abc import Iterable, Mapping
from typing import Any

from flask import Response
from flask.views import MethodView

from api.blueprint import BINARY, EVENT, TEXT, Blueprint, Success, empty_response
from api.byte_ranges import read_ahead, serve
from api.context import context, services
from api.downloads import NOT_MODIFIED, PARTIAL_CONTENT
from api.escaping import escaped
from api.negotiation import choose
from api.schemas.results import EventsHeaders, EventsQuery, LogsQuery, ResultSchema, ResultsHeaders, ResultsQuery
from api.streams import (
    NDJSON,
    SSE,
    STREAM_HEADERS,
    encode_events,
    encode_heartbeats,
    encode_results,
    mark_incomplete,
    require_free_stream,
    stream,
)
from api.tabular import PARQUET, as_csv
from errors import Invalid, NotAcceptable, PreconditionFailed, RangeNotSatisfiable, TooManyStreams, UnknownSimulation

blueprint = Blueprint(
    "results", __name__, url_prefix="/v1/simulations/<id:id>", description="Results, events and logs of a simulation."
)

CSV = "text/csv"
FORMATS: Mapping[str, str] = {"ndjson": NDJSON, "csv": CSV, "parquet": PARQUET}
STREAM_FORMATS: Mapping[str, str] = {"ndjson": NDJSON, "sse": SSE}


def follow(id: str, skip: int, format: str) -> Response:
    """Stream results in order of arrival until the simulation ends; the first ``skip`` results are left out."""
    require_free_stream()
    lines = mark_incomplete(services().results.follow(id, skip=skip, heartbeat=context().heartbeat))
    return stream(encode_results(lines, skip) if format == "sse" else encode_heartbeats(lines), STREAM_FORMATS[format])


def table(id: str, start: int, format: str) -> Response:
    """Answer with the present results in task order, from task ``start`` on."""
    results = services().results
    if format == "ndjson":
        return Response(
            mark_incomplete(read_ahead(results.lines(id, start=start))), content_type=NDJSON, direct_passthrough=True
        )
    if start:
        raise Invalid("`from` is for NDJSON only; CSV and Parquet files contain all results.")
    attachment = {"Content-Disposition": f'attachment; filename="{id}.{format}"'}
    services().simulations.get(id)  # raises before the first byte is sent

    def lines() -> Iterable[bytes]:
        return results.lines(id)

    if format == "csv":
        body = read_ahead(as_csv(lines))
        return Response(body, headers=attachment, content_type=f"{CSV}; charset=utf-8", direct_passthrough=True)
    from api.parquet import as_parquet  # imported at the first use: pyarrow is large

    blob = as_parquet(lines, context().spool)
    return serve(blob.read, size=blob.size, etag=blob.etag, media_type=PARQUET, headers=attachment)


@blueprint.at("/results")
class ResultsView(MethodView):
    """The results of a simulation."""

    @blueprint.takes(ResultsQuery)
    @blueprint.takes(ResultsHeaders, location="headers")
    @blueprint.operation(
        "get_simulation_results",
        Success(
            description="Results, a line or row for each task.",
            media={NDJSON: ResultSchema, CSV: TEXT, PARQUET: BINARY, SSE: EVENT},
        ),
        other_responses={
            204: {"description": "The stream has delivered all results already: do not reconnect."},
            206: PARTIAL_CONTENT | {"content": {PARQUET: {"schema": BINARY}}},
            304: NOT_MODIFIED,
        },
        errors=[UnknownSimulation, NotAcceptable, TooManyStreams, PreconditionFailed, RangeNotSatisfiable],
    )
    def get(self, query: dict[str, Any], headers: dict[str, Any], id: str) -> Response:
        """Get results

        The present results in task order; or with `follow`, in order of arrival until the simulation ends. A stream of
        lines that cannot be completed ends with a line `{"incomplete": reason}`.
        """
        if query["follow"]:
            if "start" in query:
                raise Invalid("`from` is for results in task order; resume a followed stream with `skip`.")
            format = choose(STREAM_FORMATS, query.get("format"))
            if format not in STREAM_FORMATS:
                raise Invalid(f"The format {format} cannot be streamed; leave out `follow` or `format`.")
            if format == "sse" and (last_id := headers.get("last_event_id")):
                return (
                    empty_response(204, STREAM_HEADERS)
                    if services().results.delivered(id, last_id)
                    else follow(id, last_id, format)
                )
            return follow(id, query.get("skip", 0), format)
        if "skip" in query:
            raise Invalid("`skip` is for a followed stream; use `from` for results in task order.")
        return table(id, query.get("start", 0), choose(FORMATS, query.get("format")))


@blueprint.at("/events")
class EventsView(MethodView):
    """The events of a simulation."""

    @blueprint.takes(EventsQuery)
    @blueprint.takes(EventsHeaders, location="headers")
    @blueprint.operation(
        "watch_simulation_events",
        Success(description="Events as they happen, until the simulation has ended.", media={SSE: EVENT}),
        other_responses={204: {"description": "The last event has been received already: do not reconnect."}},
        errors=[UnknownSimulation, TooManyStreams],
    )
    def get(self, query: dict[str, Any], headers: dict[str, Any], id: str) -> Response:
        """Stream the events of a simulation, as server-sent events"""
        after = headers.get("last_event_id", query.get("after", 0))
        if after and services().results.ended(id, after):
            return empty_response(204, STREAM_HEADERS)
        require_free_stream()
        return stream(encode_events(services().results.follow_events(id, after, context().heartbeat)), SSE)


@blueprint.at("/logs")
class LogsView(MethodView):
    """The logs of a simulation."""

    @blueprint.takes(LogsQuery)
    @blueprint.operation(
        "get_simulation_logs",
        Success(description="Lines, each prefixed with the name of its writer.", media={"text/plain": TEXT}),
        errors=[UnknownSimulation, TooManyStreams],
    )
    def get(self, query: dict[str, Any], id: str) -> Response:
        """Get the logs of models and simulators"""
        require_free_stream()
        lines = services().results.logs(id, follow=query["follow"], heartbeat=context().heartbeat)
        lines = encode_heartbeats(lines if query["follow"] else read_ahead(lines))
        body = lines if query["raw"] else escaped(lines)
        headers = {"Content-Security-Policy": "sandbox", "Content-Disposition": "inline"}
        return stream(body, "text/plain; charset=utf-8", headers=headers)
