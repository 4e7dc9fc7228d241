"""Routes /v1/datasets: registration, versions, tags, scenarios, files, differences, leaderboard, prefetch, deletion."""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
from flask import Response

from api.blueprint import BINARY, Blueprint, Success, header, json_response, lines_of
from api.body import json_body, validated
from api.byte_ranges import serve
from api.context import caller
from api.context import catalogue_services as services
from api.downloads import DOWNLOAD_HEADERS, NOT_MODIFIED, PARTIAL_CONTENT, SANDBOXED, download
from api.negotiation import choose
from api.paging import LINK, page
from api.schemas.datasets import (
    ChangeSchema,
    DatasetListQuery,
    DatasetPageSchema,
    DatasetSchema,
    DiffQuery,
    FilePageQuery,
    FilePageSchema,
    PrefetchSchema,
    RegistrationSchema,
    ScenarioPageSchema,
    TagSchema,
)
from api.schemas.leaderboards import LeaderboardQuery, LeaderboardSchema
from api.schemas.pages import NumberedPageQuery, PageQuery
from api.schemas.results import RangeHeaders
from api.streams import NDJSON
from common.errors import (
    BadName,
    Conflict,
    Gone,
    InUse,
    Invalid,
    NotAcceptable,
    NotFound,
    NotPlayable,
    NotReady,
    PreconditionFailed,
    RangeNotSatisfiable,
    UnknownDataset,
    UnknownFile,
    UnknownUpload,
    UnsupportedMedia,
)
from core.domain.access.roles import Verb

blueprint = Blueprint(
    "datasets", __name__, url_prefix="/v1/datasets", description="Sets of scenarios with their files."
)

REGISTRATION_ERRORS = (Invalid, BadName, UnknownUpload, Gone, Conflict, UnsupportedMedia)
VERSION_ERRORS = (UnknownDataset, NotReady)
LOCATION = {"Location": header("Address of the version, with its state.")}
#: Media type of the same lines for web browsers, which display it.
TEXT = "text/plain"
SVG = "image/svg+xml"
#: Lines of a difference per chunk of the response.
CHUNK_LINES = 500


@blueprint.operation("GET", Success(schema=DatasetPageSchema, description="A page of datasets.", headers=LINK))
@blueprint.takes(DatasetListQuery)
def list_datasets(query: dict[str, Any]) -> Response:
    """List datasets

    Built-in datasets first, then by name, each at its latest version. With `shared`, what other projects share with
    yours, by owner and name.
    """
    return page(*services().datasets.page(caller(), **query))


@blueprint.operation(
    "POST",
    Success(
        schema=DatasetSchema,
        status=202,
        description="The version is being registered; poll its address for its state.",
        headers=LOCATION,
        links={"get_dataset": {"dataset": "$response.body#/id"}},
    ),
    body={"application/json": RegistrationSchema},
    errors=REGISTRATION_ERRORS,
    verb=Verb.UPLOAD,
)
def register_dataset() -> Response:
    """Register a dataset, or its next version

    Content that is registered already keeps its version.
    """
    version = services().datasets.register(caller(), **validated(RegistrationSchema(), json_body()))
    return json_response(version, 202, {"Location": f"/v1/datasets/{version['id']}"})


# A name without a ready version is the newest registration of that name, so that its state and reason are found.
@blueprint.operation(
    "GET /<ref:dataset>", Success(schema=DatasetSchema, plain=True, description="The dataset."), errors=[UnknownDataset]
)
def get_dataset(dataset: str) -> dict[str, Any]:
    """Describe a dataset, with its interface, metrics and parameters

    By its name (the latest version), `name@version`, `name@tag`, id or digest. It says what a model gets as its
    observation, what it has to answer, and what its metrics mean.
    """
    return services().datasets.get(caller(), dataset)


@blueprint.operation(
    "DELETE /<ref:dataset>",
    Success(status=204, description="Deleted."),
    errors=[UnknownDataset, InUse, Invalid],
    verb=Verb.CHANGE,
)
def delete_dataset(dataset: str) -> None:
    """Delete a version, or with a name alone all versions of a dataset

    `name@version` deletes a version. Refused while a simulation or a comparison that has not ended needs it.
    Numbers of versions are not used again.
    """
    services().datasets.delete(caller(), dataset)


@blueprint.operation(
    "GET /<ref:dataset>/versions",
    Success(schema=DatasetPageSchema, description="A page of versions, newest first.", headers=LINK),
    errors=[UnknownDataset],
)
@blueprint.takes(PageQuery)
def list_dataset_versions(query: dict[str, Any], dataset: str) -> Response:
    """List the versions of a dataset, including versions that are being registered

    The newest first, each with its state and tags.
    """
    return page(*services().datasets.versions(caller(), dataset, **query))


@blueprint.operation(
    "PUT /<name:name>/tags/<name:tag>",
    Success(schema=DatasetSchema, plain=True, description="The version that the tag now refers to."),
    body={"application/json": TagSchema},
    errors=(*VERSION_ERRORS, Invalid, UnsupportedMedia),
    verb=Verb.CHANGE,
)
def put_dataset_tag(name: str, tag: str) -> dict[str, Any]:
    """Set a tag to a version

    `name@tag` refers to the version from then on. A tag that exists is moved.
    """
    return services().datasets.tag(caller(), name, tag, validated(TagSchema(), json_body())["version"])


@blueprint.operation(
    "DELETE /<name:name>/tags/<name:tag>",
    Success(status=204, description="Deleted."),
    errors=[NotFound],
    verb=Verb.CHANGE,
)
def delete_dataset_tag(name: str, tag: str) -> None:
    """Delete a tag

    The version that it refers to stays.
    """
    services().datasets.untag(caller(), name, tag)


@blueprint.operation(
    "GET /<ref:dataset>/scenarios",
    Success(schema=ScenarioPageSchema, description="A page of scenarios.", headers=LINK),
    errors=(*VERSION_ERRORS, NotPlayable),
)
@blueprint.takes(NumberedPageQuery)
def list_dataset_scenarios(query: dict[str, Any], dataset: str) -> Response:
    """List the scenarios of a dataset

    In order, in pages, each with its number and its parameters.
    """
    return page(*services().datasets.scenarios(caller(), dataset, **query))


@blueprint.operation(
    "GET /<ref:dataset>/scenarios/<task:index>/map",
    Success(description="The map.", media={SVG: BINARY}, headers=DOWNLOAD_HEADERS),
    other_responses={304: NOT_MODIFIED},
    errors=(*VERSION_ERRORS, NotPlayable, NotFound, PreconditionFailed, RangeNotSatisfiable),
)
def get_scenario_map(dataset: str, index: int) -> Response:
    """Draw a scenario on its street, without a simulation

    Only scenarios of `car_street`, and of datasets that extend it, have a street. The map has the street around the
    route, crossings, the route, and the model's car at its start; other vehicles are placed by the simulation.
    """
    from api.rendering.scenario_map import svg  # imported at the first use: most processes never draw a map

    image = svg(*services().scenario_maps.find(caller(), dataset, index)).encode()
    etag = f'"{hashlib.sha256(image).hexdigest()[:32]}"'
    return serve(
        lambda start, stop: iter((image[start:stop],)),
        size=len(image),
        etag=etag,
        media_type=SVG,
        headers=SANDBOXED,
    )


@blueprint.operation(
    "GET /<ref:dataset>/leaderboard",
    Success(schema=LeaderboardSchema, plain=True, description="The pooled simulations of each model."),
    errors=(*VERSION_ERRORS, NotPlayable, Invalid),
)
@blueprint.takes(LeaderboardQuery)
def get_dataset_leaderboard(query: dict[str, Any], dataset: str) -> dict[str, Any]:
    """Rank the models that have played a version

    Of the 5,000 newest simulations of the version that have succeeded, those of all scenarios with the default
    parameters. A task that is not `ok` counts with the worst value of the score. Trusted simulations are left out and
    counted, unless `trusted=true`.
    """
    return services().leaderboards.leaderboard(caller(), dataset, **query)


@blueprint.operation(
    "GET /<ref:dataset>/files",
    Success(schema=FilePageSchema, description="A page of files, by path.", headers=LINK),
    errors=VERSION_ERRORS,
)
@blueprint.takes(FilePageQuery)
def list_dataset_files(query: dict[str, Any], dataset: str) -> Response:
    """List the files of a version

    By path, each with its size and its digest.
    """
    return page(*services().datasets.files(caller(), dataset, **query))


@blueprint.operation(
    "GET /<ref:dataset>/files/<path:file>",
    Success(description="The file.", media={"*/*": BINARY}, headers=DOWNLOAD_HEADERS),
    other_responses={206: PARTIAL_CONTENT | {"content": {"*/*": {"schema": BINARY}}}, 304: NOT_MODIFIED},
    errors=(*VERSION_ERRORS, UnknownFile, PreconditionFailed, RangeNotSatisfiable),
)
@blueprint.takes(RangeHeaders, location="headers")
def get_dataset_file(headers: dict[str, Any], dataset: str, file: str) -> Response:
    """Download a file of a version, whole or a range of it

    A `Range` is answered with 206, and an `If-None-Match` with 304 if the file is the same.
    """
    return download(services().datasets.file(caller(), dataset, file), file)


@blueprint.operation(
    "GET /<ref:dataset>/diff",
    Success(
        description="One line of JSON for each file that was added, removed or changed, by path.",
        media={NDJSON: lines_of(ChangeSchema), TEXT: BINARY},
    ),
    errors=(*VERSION_ERRORS, NotAcceptable),
)
@blueprint.takes(DiffQuery)
def compare_dataset_versions(query: dict[str, Any], dataset: str) -> Response:
    """Compare two versions

    A line for each file that was added, removed or changed, by path. Versions are named by number or tag.
    """
    media_type = choose({NDJSON: NDJSON, TEXT: TEXT})
    changes = services().datasets.diff(caller(), dataset, query["old"], query["new"])
    return Response(_encoded_lines(changes), mimetype=media_type, direct_passthrough=True)


def _encoded_lines(changes: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    lines: list[bytes] = []
    for change in changes:
        lines.append(msgspec.json.encode(change) + b"\n")
        if len(lines) >= CHUNK_LINES:
            yield b"".join(lines)
            lines = []
    yield b"".join(lines)


@blueprint.operation(
    "GET /<ref:dataset>/prefetch",
    Success(schema=PrefetchSchema, plain=True, description="The state of the prefetch."),
    errors=(*VERSION_ERRORS, NotFound),
)
def get_dataset_prefetch(dataset: str) -> dict[str, Any]:
    """Get the state of a prefetch

    `fetching`, `ready` or `failed`. A version that was never prefetched here has none.
    """
    return services().prefetches.progress(caller(), dataset)


@blueprint.operation(
    "POST /<ref:dataset>/prefetch",
    Success(
        schema=PrefetchSchema,
        status=202,
        plain=True,
        description="The version is being fetched; poll this address for the state.",
    ),
    errors=VERSION_ERRORS,
    verb=Verb.SUBMIT,
)
def prefetch_dataset(dataset: str) -> dict[str, Any]:
    """Fetch a version into this node's cache before it is simulated

    Simulations fetch what they need by themselves; this does it earlier.
    """
    return services().prefetches.request(caller(), dataset)
