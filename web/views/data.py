"""Pages of datasets: versions and their difference, scenarios, files with previews, and their simulations."""

import csv
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from io import StringIO
from typing import Any

from flask import Blueprint, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from web.api_client import Refused, api, path_of_reference
from web.run_list import run_counts, run_page
from web.version_tags import remove_tag, set_tag
from web.views.comparison import DECISIONS

blueprint = Blueprint("data", __name__, url_prefix="/data")
#: Apart from the pages of datasets, one of which may have any name.
register_blueprint = Blueprint("register", __name__, url_prefix="/register")

SCENARIOS, FILES, CHANGES = 30, 100, 500
#: Runs that are named on the page of the version that they used.
NEWEST = 5
#: Bytes of a file that a preview reads, and rows of a table that it shows.
PREVIEWED, ROWS = 64 << 10, 100
#: Statuses of a resource that a version does not have: of a dataset with files only, or that is being registered.
UNANSWERED = (404, 409, 422)
PICTURES = frozenset({"gif", "jpeg", "jpg", "png", "webp"})


@register_blueprint.get("")
def register() -> str:
    """Show the form that registers a dataset, or its next version: files by drop."""
    return render_template("data/new.html", name=request.args.get("name", "").strip())


@blueprint.get("")
def index() -> str:
    """List datasets."""
    shared = "shared" in request.args
    page = api().get("/v1/datasets", limit=200, after=request.args.get("after", ""), shared="true" if shared else "")
    return render_template("data/list.html", datasets=page["items"], following=page["next"], shared=shared)


@blueprint.get("/<reference:name>")
def show(name: str) -> str | Response:
    """Show a version of a dataset: `name`, `name@version`, `name@tag`, or the id of a registration."""
    dataset = api().get(path_of_reference("datasets", name))
    if dataset["state"] != "ready":
        return registration(dataset)
    if "@" not in name and name != dataset["name"]:  # an id, whose registration has just become a version, or a digest
        address = url_for("data.show", name=f"{dataset['name']}@{dataset['version']}")
        if request.headers.get("HX-Request"):
            return Response(status=204, headers={"HX-Redirect": address})
        return redirect(address, 303)
    used = {"dataset": dataset["name"], "dataset_version": dataset["version"]}
    newest = run_page(used, limit=NEWEST)
    return render_template(
        "data/dataset.html",
        dataset=dataset,
        reference=f"{dataset['name']}@{dataset['version']}",
        versions=api().get(path_of_reference("datasets", dataset["name"], "versions"), limit=50)["items"],
        scenarios=scenarios(name, request.args.get("from", 0, type=int)),
        files=files(name) if dataset["registered"] else None,
        runs=newest.items,
        used=run_counts(used, newest)["total"],
        decisions=DECISIONS,
        ranked=bool(dataset.get("score")),
        leaderboard=leaderboard(name) if dataset.get("score") and request.args.get("whole") else None,
    )


def registration(dataset: Mapping[str, Any]) -> str:
    """Show a registration, or only what changes: its progress, or why it has failed."""
    part = "_live" if request.headers.get("HX-Request") else ""
    return render_template(f"data/registration{part}.html", dataset=dataset)


@blueprint.post("/<reference:name>/tags")
def tag(name: str) -> Response:
    """Set or move a tag to a version: `name@version`."""
    dataset = api().get(path_of_reference("datasets", name))
    set_tag("datasets", dataset["name"], dataset["version"])
    return redirect(url_for("data.show", name=f"{dataset['name']}@{dataset['version']}"), 303)


@blueprint.post("/<reference:name>/tags/remove")
def untag(name: str) -> Response:
    """Remove a tag of a version."""
    dataset = api().get(path_of_reference("datasets", name))
    remove_tag("datasets", dataset["name"])
    return redirect(url_for("data.show", name=f"{dataset['name']}@{dataset['version']}"), 303)


@blueprint.post("/<reference:name>/delete")
def delete(name: str) -> Response:
    """Delete a version, or with a name alone all of them."""
    api().delete(path_of_reference("datasets", name))
    return redirect(url_for("data.index"), 303)


@blueprint.get("/<reference:name>/leaderboard")
def show_leaderboard(name: str) -> str | Response:
    """Return the leaderboard as a part of a version's page, which does not wait for it; without scripts, the page."""
    if not request.headers.get("HX-Request"):
        return redirect(url_for("data.show", name=name, whole=1, _anchor="leaderboard-heading"), 303)
    return render_template("data/leaderboard.html", leaderboard=leaderboard(name))


def leaderboard(name: str) -> Mapping[str, Any] | None:
    """Return the best simulation of each model on a version; None if its score has no direction."""
    ranked: Mapping[str, Any] | None = api().find(
        path_of_reference("datasets", name, "leaderboard"), UNANSWERED, limit=20
    )
    return ranked


def scenarios(name: str, start: int) -> Mapping[str, Any] | None:
    """Return a page of scenarios with the columns of their table; None for a dataset without a list of them."""
    page = api().find(path_of_reference("datasets", name, "scenarios"), UNANSWERED, after=start, limit=SCENARIOS)
    if page is None:
        return None
    columns = list(dict.fromkeys(key for item in page["items"] for key in item))
    return {
        "items": page["items"],
        "columns": columns,
        "next": page["next"],
        "start": start,
        "mapped": all("street" in item for item in page["items"]),
    }


@blueprint.get("/<reference:name>/scenarios/<int:index>")
def show_scenario(name: str, index: int) -> str:
    """Show a scenario on its map, or only the map to a page that has the list already."""
    items = api().get(path_of_reference("datasets", name, "scenarios"), after=index, limit=1)["items"]
    if not items or "street" not in items[0]:
        abort(404)
    shown = {
        "name": name,
        "scenario": items[0],
        "address": path_of_reference("datasets", name, "scenarios", str(index), "map"),
    }
    part = request.headers.get("HX-Target") == "scenario-map"
    return render_template("data/map.html" if part else "data/scenario.html", **shown)


def files(name: str) -> Mapping[str, Any]:
    """Return a page of a version's files, after the path that the query names."""
    page: Mapping[str, Any] = api().get(
        path_of_reference("datasets", name, "files"), limit=FILES, after=request.args.get("after_file", "")
    )
    return page


@blueprint.get("/<reference:name>/files/<path:path>")
def show_file(name: str, path: str) -> str:
    """Show the beginning of a file: a picture, a table, or text."""
    address = path_of_reference("datasets", name, "files", *path.split("/"))
    suffix = path.rpartition(".")[2].lower()
    preview: dict[str, Any] = {"kind": "picture"}
    if suffix not in PICTURES:
        body, whole = beginning(address)
        preview = previewed(body, suffix, whole=whole)
    return render_template("data/file.html", name=name, path=path, address=address, preview=preview)


def beginning(address: str) -> tuple[bytes, bool]:
    """Return the first bytes of a file, and whether they are all."""
    try:
        answer = api().send("GET", address, headers={"Range": f"bytes=0-{PREVIEWED - 1}"})
    except Refused as error:
        if error.status != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        return b"", True  # an empty file has no range of bytes (RFC 9110, 14.1.2)
    total = answer.headers.get("Content-Range", "").rpartition("/")[2]
    return answer.content, total in ("", str(len(answer.content)))


def previewed(body: bytes, suffix: str, *, whole: bool) -> dict[str, Any]:
    """Return the preview of a file's beginning; ``whole``: nothing follows."""
    if not body:
        return {"kind": "empty", "whole": whole}
    try:
        text = body.decode() if whole else body[: body.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        return {"kind": "binary", "bytes": len(body), "whole": whole}
    if suffix in {"csv", "tsv"}:
        rows = list(csv.reader(StringIO(text), delimiter="\t" if suffix == "tsv" else ","))
        return {"kind": "table", "columns": rows[0] if rows else [], "rows": rows[1 : ROWS + 1], "whole": whole}
    if suffix in {"ndjson", "jsonl"}:
        return ndjson(text.splitlines(), whole=whole)
    return {"kind": "text", "text": text, "whole": whole}


def ndjson(lines: Sequence[str], *, whole: bool) -> dict[str, Any]:
    """Return the preview of lines of JSON objects as a table; of other lines, as text."""
    try:
        items = [json.loads(line) for line in lines[:ROWS] if line.strip()]
    except ValueError:
        items = [None]
    if not all(isinstance(item, dict) for item in items):
        return {"kind": "text", "text": "\n".join(lines), "whole": whole}
    columns = list(dict.fromkeys(key for item in items for key in item))
    rows = [[item.get(column) for column in columns] for item in items]
    return {"kind": "table", "columns": columns, "rows": rows, "whole": whole}


@blueprint.get("/<reference:name>/diff")
def show_difference(name: str) -> str:
    """Show what changed between two versions."""
    old, new = request.args.get("from", ""), request.args.get("to", "latest")
    answer = api().send("GET", path_of_reference("datasets", name, "diff"), parameters={"from": old, "to": new})
    changes = [json.loads(line) for line in answer.text.splitlines()[:CHANGES]]
    total = answer.text.count("\n")
    return render_template("data/diff.html", name=name, old=old, new=new, changes=changes, total=total)
