"""Pages of the files of a task that runs: its folders, and a file that is followed while it grows."""

import mimetypes
from urllib.parse import urlencode

import msgspec
from flask import Blueprint, render_template, request

from web.api_client import api, path_of

blueprint = Blueprint("task_files", __name__, url_prefix="/simulations/<id>/tasks/<int:task>/files")

#: Types of files that are shown as pictures.
PICTURES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})


class ShownEntry(msgspec.Struct):
    """An entry of a folder; ``address``: of its page, if it has one."""

    name: str
    kind: str
    bytes: int
    changed_at: str
    address: str | None = None


class ShownFolder(msgspec.Struct):
    """A folder of a task."""

    entries: list[ShownEntry]
    more: bool


class ShownPath(msgspec.Struct):
    """The query of both pages."""

    path: str = ""

    @property
    def plain(self) -> str:
        """The path without slashes around it."""
        return self.path.strip("/")


@blueprint.get("")
def folder(id: str, task: int) -> str:
    """Show the entries of a folder; without a ``path``, the folders that are shown."""
    path = asked_path()
    files = path_of("simulations", id, "tasks", str(task), "files")
    listed = msgspec.json.decode(api().send("GET", files, parameters={"path": path}).content, type=ShownFolder)
    for entry in listed.entries:
        entry.address = address_of(id, task, path, entry)
    return render_template("simulation/files.html", **page_members(id, task, path), listed=listed)


@blueprint.get("/content")
def file(id: str, task: int) -> str:
    """Show a file: its end, and what is added to it; or a picture as it is at this moment."""
    path = asked_path()
    content = path_of("simulations", id, "tasks", str(task), "files", "content") + "?" + urlencode({"path": path})
    picture = mimetypes.guess_type(path)[0] in PICTURES
    return render_template("simulation/files.html", **page_members(id, task, path), content=content, picture=picture)


def asked_path() -> str:
    """Return the path that this request names."""
    return msgspec.convert(request.args.to_dict(), ShownPath).plain


def page_members(id: str, task: int, path: str) -> dict[str, object]:
    """Return the members of both pages: the simulation, the task, and the folders that the path is in."""
    parts = path.split("/") if path else []
    above = [(part, "/".join(parts[: number + 1])) for number, part in enumerate(parts)]
    return {"simulation": api().get(path_of("simulations", id)), "task": task, "path": path, "above": above}


def address_of(id: str, task: int, path: str, entry: ShownEntry) -> str | None:
    """Return the address of the page of an entry of a folder; None for one that is not shown."""
    if entry.kind == "other":
        return None
    query = urlencode({"path": f"{path}/{entry.name}" if path else entry.name})
    return f"/simulations/{id}/tasks/{task}/files{'/content' if entry.kind == 'file' else ''}?{query}"
