"""Routes /v1/simulations/{id}/tasks/{task}/files and /v1/simulations/{id}/looks: looks into tasks that run."""

import mimetypes

import msgspec
from flask import Response
from msgspec.structs import asdict

from api.blueprint import BINARY, Blueprint, Success, header
from api.context import caller
from api.context import submission_services as services
from api.downloads import SANDBOXED, attachment, inert
from api.paging import LINK, page
from api.schemas.looks import TaskFileQuery, TaskFolderQuery, TaskFolderSchema, TaskLookPageSchema, TaskLookSchema
from api.schemas.pages import NumberedPageQuery
from api.streams import require_free_stream
from common.errors import (
    LooksNotAllowed,
    RunnerSilent,
    TaskNotAtWork,
    TooManyStreams,
    UnknownSimulation,
    UnknownTask,
    UnknownTaskFile,
)
from common.moments import moment_of

blueprint = Blueprint(
    "looks", __name__, url_prefix="/v1/simulations/<id:id>", description="Looks into tasks while they run."
)

#: Errors of every look.
ERRORS = (LooksNotAllowed, RunnerSilent, TaskNotAtWork, TooManyStreams, UnknownSimulation, UnknownTask, UnknownTaskFile)


class FolderPath(msgspec.Struct):
    """The query of a request for the entries of a folder."""

    path: str


class FilePosition(msgspec.Struct):
    """The query of a request for bytes of a file."""

    path: str
    offset: int
    length: int
    wait_seconds: int


class ListPosition(msgspec.Struct):
    """The query of a request for records of looks."""

    after: int
    limit: int


@blueprint.operation(
    "GET /tasks/<task:task>/files",
    Success(schema=TaskFolderSchema, description="The entries of the folder at this moment."),
    errors=ERRORS,
)
@blueprint.takes(TaskFolderQuery)
def list_task_files(query: object, id: str, task: int) -> dict[str, object]:
    """List a folder of a task that runs

    `output`, `model` (the working directory), `checkpoints` and `logs` (what each rank prints) of a program, as they
    are at this moment. The operator allows it by `WINDTUNNEL_LOOK_INSIDE`, and each look is recorded.
    """
    require_free_stream()
    path = msgspec.convert(query, FolderPath).path
    seen = services().looks.list(caller(), id, task, path).answer
    entries = [{**asdict(entry), "changed_at": moment_of(entry.changed_at)} for entry in seen.entries]
    return {"task": task, "path": path, "entries": entries, "more": seen.more}


@blueprint.operation(
    "GET /tasks/<task:task>/files/content",
    Success(
        description="The bytes, possibly none.",
        media={"*/*": BINARY},
        headers={
            "File-Offset": header("Where the bytes begin: after `offset` if there is a hole.", type="integer"),
            "File-Size": header("Number of bytes of the whole file at this moment.", type="integer"),
        },
    ),
    errors=ERRORS,
)
@blueprint.takes(TaskFileQuery)
def get_task_file(query: object, id: str, task: int) -> Response:
    """Read a file of a task that runs

    A piece of it. Go on at `File-Offset` plus the bytes; with `wait_seconds`, until there are more. The output of each
    rank is in `logs/<rank>`, of which the beginning is dropped when it is long.
    """
    require_free_stream()
    asked = msgspec.convert(query, FilePosition)
    seen = services().looks.read(
        caller(), id, task, asked.path, offset=asked.offset, length=asked.length, wait=asked.wait_seconds
    )
    headers = {
        **SANDBOXED,
        "Cache-Control": "no-store",
        "Content-Disposition": attachment(asked.path.rpartition("/")[2]),
        "File-Offset": str(seen.answer.start),
        "File-Size": str(seen.answer.size),
    }
    guessed = inert(mimetypes.guess_type(asked.path)[0] or "")
    # A part of a document is none, but a picture is shown by a page.
    media_type = guessed if guessed.startswith("image/") else "application/octet-stream"
    return Response(seen.data, headers=headers, content_type=media_type)


@blueprint.operation(
    "GET /looks",
    Success(schema=TaskLookPageSchema, description="A page of looks.", headers=LINK),
    errors=[UnknownSimulation],
)
@blueprint.takes(NumberedPageQuery)
def list_looks(query: object, id: str) -> Response:
    """List who has looked into the tasks of a simulation

    By file and caller, in the order of their first looks; it is kept until the simulation is deleted.
    """
    asked = msgspec.convert(query, ListPosition)
    rows = services().looks.records(caller(), id, asked.after, asked.limit + 1)
    moments = [{"first_at": moment_of(row.first_at), "last_at": moment_of(row.last_at)} for row in rows]
    shown = [{**asdict(row), **times} for row, times in zip(rows, moments, strict=True)]
    following = asked.after + asked.limit if len(rows) > asked.limit else None
    return page(shown[: asked.limit], following, TaskLookSchema())
