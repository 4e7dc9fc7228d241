"""Names that forms offer: datasets, models and runtimes, from the API's lists."""

from flask import current_app

from web.api_client import api

#: Names of a list that a form offers at most.
MOST = 200
#: Key of the runtimes' names in an application.
RUNTIMES = "windtunnel-runtimes"


def dataset_names() -> list[str]:
    """Return the names of datasets."""
    return [item["name"] for item in api().get("/v1/datasets", limit=MOST)["items"]]


def model_names() -> list[str]:
    """Return the names of models, each once: a list has an item for each version."""
    return list(dict.fromkeys(item["name"] for item in api().get("/v1/models", limit=MOST)["items"]))


def runtime_names() -> list[str]:
    """Return the names of the runtimes, read once: a description has all packages, and names come with the server."""
    names: list[str] | None = current_app.extensions.get(RUNTIMES)
    if names is None:
        names = current_app.extensions[RUNTIMES] = [item["name"] for item in api().get("/v1/runtimes")["items"]]
    return names
