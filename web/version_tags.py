"""Tags of versions of models and datasets: set, moved and removed by the form of a page."""

from flask import request

from web.api_client import Refused, api, path_of


def set_tag(kind: str, name: str, version: str) -> None:
    """Let the tag of this request's form refer to a version of a model or a dataset; ``kind``: `models`, `datasets`."""
    api().send("PUT", path_of(kind, name, "tags", _tag()), body={"version": version})


def remove_tag(kind: str, name: str) -> None:
    """Delete the tag of this request's form."""
    api().delete(path_of(kind, name, "tags", _tag()))


def _tag() -> str:
    if not (tag := request.form.get("tag", "").strip()):
        raise Refused(422, {"title": "No tag", "detail": "Write the name of a tag, such as `gold`."})
    return tag
