"""Scenario folder: the files of a registered dataset as an evaluator or a program sees them on a machine.

An evaluator has those of the built-in dataset below it, and the user's scenarios; a program has the user's files.
"""

import io
import json
import os
import secrets
import shutil
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.ages import is_old_enough
from datasets.catalogue import Dataset
from datasets.catalogue.car_street.street_network import StreetNetwork
from datasets.versions import plant_files
from datasets.versions.scenarios import DESCRIPTION, SCENARIOS, non_blank, validated

#: Seconds for which a folder is kept after its last use.
TTL = 3600.0


def folder_name(digest: str, base: str) -> str:
    """Return the folder name of a dataset: its digest and that of the one below it; "" if it extends none."""
    if digest == base:
        return ""
    return "-".join(each.removeprefix("sha256:")[:32] for each in (digest, base))


def ready(plays: Path, name: str) -> bool:
    """Tell whether the folder exists, and renew its TTL if so."""
    try:
        os.utime(path_of(plays, name))
    except FileNotFoundError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """What a user's dataset has besides the files of the one that it extends.

    ``scenarios``: the file with them, if it has one; ``networks``: those of its own maps, by name. ``fmu``: the file of
    its plant, whose definition is ``plant``. ``add``: adds further read-only files to the folder.
    """

    scenarios: Path | None
    networks: Mapping[str, Path] = field(default_factory=dict)
    fmu: Path | None = None
    plant: Mapping[str, Any] | None = None
    add: Callable[[Path], None] | None = None


def create(plays: Path, name: str, built_in: Dataset, own: OwnFiles) -> Path:
    """Create the folder unless it exists, and return it. It appears atomically and is read-only."""
    target = path_of(plays, name)
    if ready(plays, name):
        return target
    draft = plays / f".{secrets.token_hex(8)}"
    draft.mkdir(parents=True)
    try:
        shutil.copyfile(built_in.folder / DESCRIPTION, draft / DESCRIPTION)
        for entry in built_in.declared.files:
            if entry.path != built_in.declared.scenarios:
                copy = draft / entry.path
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(built_in.folder / entry.path, copy)
        maps = {}
        for map_name, network in own.networks.items():
            shutil.copyfile(network, draft / "nets" / f"{map_name}.net.xml")
            maps[map_name] = StreetNetwork.read(network)
        if own.fmu is not None:
            plant_files.unpack(own.fmu, draft / plant_files.FOLDER)
        if own.scenarios is not None:
            with open(own.scenarios, "rb") as source, open(draft / SCENARIOS, "wb") as file:
                # Validated here again, because a simulator is about to read the scenarios.
                for scenario in validated(non_blank(source), built_in.name, maps, own.plant):
                    file.write(json.dumps(scenario).encode() + b"\n")
        for folder, _, files in os.walk(draft):
            for name in files:
                os.chmod(os.path.join(folder, name), 0o444)
            os.chmod(folder, 0o755)
        if own.add is not None:
            own.add(draft)
        draft.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another process created it first
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def pack(folder: Path) -> bytes:
    """Pack a folder as a tar, for an evaluator without a shared file system. Equal folders give equal bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            if "__pycache__" not in path.parts:
                entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
                entry.size, entry.mode = path.stat().st_size, 0o444
                with open(path, "rb") as file:
                    tar.addfile(entry, file)
    return packed.getvalue()


def sweep(plays: Path, needed: Callable[[], Iterable[str]]) -> None:
    """Remove folders whose TTL has passed and that are not among the names that ``needed`` returns."""
    now = time.time()
    expired = [path for path in plays.glob("*") if is_old_enough(path.stat().st_mtime, TTL, now)]
    names_in_use = set(needed()) if expired else set()
    for path in expired:
        if path.name not in names_in_use:
            shutil.rmtree(path, ignore_errors=True)


def path_of(plays: Path, name: str) -> Path:
    """Return the path of a folder."""
    return plays / name
