"""Routes /v1/simulations/{id}/artifacts, /archive, /tasks/{task}/replay and /pictures: files of a simulation."""

from collections.abc import Mapping
from typing import Any

import msgspec
from flask import Response

from api.blueprint import BINARY, TEXT, Blueprint, Success, empty_response, header
from api.byte_ranges import serve
from api.context import analysis_services as services
from api.context import caller
from api.downloads import (
    DOWNLOAD_HEADERS,
    NOT_MODIFIED,
    PARTIAL_CONTENT,
    REDIRECT,
    SANDBOXED,
    download,
    redirect,
    wants_redirect,
)
from api.negotiation import choose
from api.paging import LINK, page
from api.schemas.fields import Open
from api.schemas.results import (
    ArchiveQuery,
    ArtifactPageSchema,
    ArtifactQuery,
    ArtifactSchema,
    RangeHeaders,
    ReplayQuery,
)
from api.schemas.transfers import RedirectQuery
from common.downloads import Download
from common.errors import (
    IllegalTransition,
    NoReplay,
    NotAcceptable,
    NotFinished,
    PreconditionFailed,
    RangeNotSatisfiable,
    StoreUnavailable,
    UnknownArtifact,
    UnknownDataset,
    UnknownSimulation,
)
from core.services.analysis.task_pictures import as_picture

blueprint = Blueprint("artifacts", __name__, url_prefix="/v1/simulations/<id:id>", description="Files of a simulation.")

SVG = "image/svg+xml"
REPLAYS: Mapping[str, str] = {"json": "application/json", "svg": SVG}


def svg_of(replay: Download) -> Download:
    """Return a replay as an SVG."""
    from api.rendering.pictures import svg  # imported at the first use: most processes never draw a picture
    from api.rendering.svg_page import NotDrawable

    try:
        image = svg(msgspec.json.decode(b"".join(replay.read(0, replay.size)))).encode()
    except NotDrawable as error:
        raise NotAcceptable(f"This replay cannot be drawn: {error} Request it as application/json.") from None
    etag = f"{replay.etag.strip(chr(34))}-svg"
    return Download(len(image), SVG, etag, lambda start, stop: iter((image[start:stop],)))


def position(cursor: str | None) -> tuple[int, str]:
    """Return the (task, name) of the cursor after which a page of artifacts begins."""
    task, _, name = (cursor or "-2").partition("/")
    return int(task), name


@blueprint.operation(
    "GET /artifacts",
    Success(schema=ArtifactPageSchema, description="A page of artifacts, by task and name.", headers=LINK),
    errors=[UnknownSimulation],
)
@blueprint.takes(ArtifactQuery)
def list_simulation_artifacts(query: dict[str, Any], id: str) -> Response:
    """List artifacts

    By task and name: files that tasks have produced, such as traces of their actions.
    """
    limit = query["limit"]
    artifacts = services().results.artifacts(caller(), id, after=position(query.get("after")), limit=limit + 1)
    following = f"{artifacts[limit - 1]['task']}/{artifacts[limit - 1]['name']}" if len(artifacts) > limit else None
    return page(artifacts[:limit], following, ArtifactSchema())


@blueprint.operation(
    "GET /artifacts/<task:task>/<file:name>",
    Success(description="The artifact.", media={"*/*": BINARY}, headers=DOWNLOAD_HEADERS),
    other_responses={
        206: PARTIAL_CONTENT | {"content": {"*/*": {"schema": BINARY}}},
        304: NOT_MODIFIED,
        307: REDIRECT,
    },
    errors=[UnknownSimulation, UnknownArtifact, PreconditionFailed, RangeNotSatisfiable, StoreUnavailable],
)
@blueprint.takes(RedirectQuery)
@blueprint.takes(RangeHeaders, location="headers")
def get_simulation_artifact(query: dict[str, Any], headers: dict[str, Any], id: str, task: int, name: str) -> Response:
    """Download an artifact, whole or a range of it

    A `Range` is answered with 206. With `redirect`, the bytes come from the object store itself where that is
    possible.
    """
    if wants_redirect(query) and (url := services().results.link(caller(), id, task, name)) is not None:
        return redirect(url)
    return download(services().results.artifact(caller(), id, task, name), name)


@blueprint.operation(
    "GET /archive",
    Success(description="The archive, a zip.", media={"application/zip": BINARY}, headers=DOWNLOAD_HEADERS),
    other_responses={
        206: PARTIAL_CONTENT | {"content": {"application/zip": {"schema": BINARY}}},
        304: NOT_MODIFIED,
    },
    errors=[UnknownSimulation, NotFinished, PreconditionFailed, RangeNotSatisfiable],
)
@blueprint.takes(ArchiveQuery)
@blueprint.takes(RangeHeaders, location="headers")
def get_simulation_archive(query: dict[str, Any], headers: dict[str, Any], id: str) -> Response:
    """Download everything as one zip, whole or a range of it

    Results, summary, logs, artifacts, provenance and the model, so that the simulation can be repeated elsewhere
    (`POST /v1/reruns`). An interrupted download is continued with a `Range`.
    """
    return download(services().results.archive(caller(), id, model=query["model"]), f"{id}.zip")


@blueprint.operation(
    "GET /tasks/<task:task>/replay",
    Success(description="The replay.", media={"application/json": Open, SVG: TEXT}),
    other_responses={
        202: {
            "description": "The replay is being computed; repeat the request.",
            "headers": {"Retry-After": header("Seconds until the next request.", type="integer")},
        }
    },
    errors=[
        UnknownSimulation,
        UnknownArtifact,
        UnknownDataset,
        NoReplay,
        NotAcceptable,
        NotFinished,
        IllegalTransition,
    ],
)
@blueprint.takes(ReplayQuery)
def get_task_replay(query: dict[str, Any], id: str, task: int) -> Response:
    """Get the replay of a task, as data or as a picture

    The scene is a street (animated), a drawing (animated, above charts of observations, actions and rewards),
    signals (the charts alone), or, for a task without a trace of its actions, its result.
    """
    format = choose(REPLAYS, query.get("format"))
    blob = services().replays.get(caller(), id, task)
    if blob is None:
        return empty_response(202, {"Retry-After": "1"})
    if format == "svg":
        blob = svg_of(blob)
    return serve(blob.read, size=blob.size, etag=blob.etag, media_type=REPLAYS[format], headers=SANDBOXED)


@blueprint.operation(
    "GET /tasks/<task:task>/pictures/<file:picture>",
    Success(description="The picture.", media={"*/*": BINARY}, headers=DOWNLOAD_HEADERS),
    other_responses={206: PARTIAL_CONTENT | {"content": {"*/*": {"schema": BINARY}}}, 304: NOT_MODIFIED},
    errors=[UnknownSimulation, UnknownArtifact, NotAcceptable, PreconditionFailed, RangeNotSatisfiable],
)
@blueprint.takes(RangeHeaders, location="headers")
def get_task_picture(headers: dict[str, object], id: str, task: int, picture: str) -> Response:
    """Get an artifact of a task as a picture, to be shown in a page

    A PNG, JPEG, WebP or SVG, by its content and not by its name, of at most 16 MiB (SVG: 2 MiB) and the pixels of a
    4K screen. Anything else is refused with 406. No script runs in an SVG, and nothing is loaded for it.
    """
    shown = as_picture(services().results.artifact(caller(), id, task, picture))
    return serve(shown.read, size=shown.size, etag=shown.etag, media_type=shown.media_type, headers=SANDBOXED)
