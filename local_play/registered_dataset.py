"""Registered dataset: a user's scenarios, read from a running platform, in a folder as an evaluator sees them."""

import json
import os
import secrets
import tempfile
from dataclasses import replace
from pathlib import Path

from datasets.catalogue import Dataset, datasets
from datasets.versions import scenario_folder
from datasets.versions.scenarios import DESCRIPTION, extend, network_path, parse_description
from windtunnel import Client


class CannotFetch(Exception):
    """The dataset cannot be served here; the text is for the user."""


def fetch(client: Client, reference: str, root: Path) -> Dataset:
    """Return a dataset of the platform, with its files in a folder below ``root``.

    Raise CannotFetch if it has no scenarios, or extends a dataset that differs here; Refused if there is none.
    """
    described = client.get(f"/v1/datasets/{reference}")
    if not described["registered"]:
        return _same_as_here(client, described["name"])
    if described["state"] != "ready":
        raise CannotFetch(
            f"{described['name']} is {described['state']}: {described.get('reason') or 'try again soon'}."
        )
    if described["extends"] is None:
        raise CannotFetch(f"{described['name']} holds files, not scenarios; see docs/datasets.md.")
    shipped = _same_as_here(client, described["extends"])
    if shipped.declared.template:
        raise CannotFetch(
            f"{described['name']} has a world of its own ({shipped.name}); plants and OpenEnv environments are not"
            " served, only the scenarios of built-in worlds."
        )
    files = f"/v1/datasets/{described['name']}@{described['version']}/files"
    description = parse_description(client.read(f"{files}/{DESCRIPTION}"))
    dataset = extend(
        shipped,
        name=described["name"],
        version=described["version"],
        digest=described["digest"],
        description={**described, "scenarios": description.scenarios, "maps": None},
    )
    name = scenario_folder.folder_name(dataset.digest, shipped.digest)
    if not scenario_folder.ready(root, name):
        with tempfile.TemporaryDirectory() as draft:
            maps = [entry.name for entry in description.maps]
            networks = {one: _download(client, f"{files}/{network_path(one)}", Path(draft) / one) for one in maps}
            scenarios = _download(client, f"{files}/{description.scenarios}", Path(draft) / "scenarios.ndjson")
            scenario_folder.create(root, name, shipped, scenario_folder.OwnFiles(scenarios, networks))
    folder = scenario_folder.path_of(root, name)
    _write_definition(folder, dataset)
    return replace(dataset, folder=folder)


def _same_as_here(client: Client, name: str) -> Dataset:
    """Return a built-in dataset; raise CannotFetch if it is not the platform's, whose digest is part of its seeds."""
    here = datasets().get(name)
    if here is None or here.digest != client.get(f"/v1/datasets/{name}")["digest"]:
        raise CannotFetch(f"The platform's {name} differs from the one of this checkout: use the platform's release.")
    return here


def _download(client: Client, path: str, file: Path) -> Path:
    file.write_bytes(client.read(path))
    return file


def _write_definition(folder: Path, dataset: Dataset) -> None:
    """Replace the folder's definition, that of the built-in dataset, by the whole of the registered one's."""
    draft = folder / f".{secrets.token_hex(8)}"
    draft.write_text(json.dumps(dict(dataset.definition)))
    draft.chmod(0o444)
    os.replace(draft, folder / DESCRIPTION)
