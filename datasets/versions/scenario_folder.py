"""Scenario folder: what an evaluator sees of a registered dataset, a built-in one's files and the user's scenarios."""

import io
import json
import os
import secrets
import shutil
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from datasets.catalogue import Dataset
from datasets.versions.scenarios import DESCRIPTION, SCENARIOS, checked, written

#: Seconds for which a folder is kept after it was last wanted.
KEPT = 3600.0


def named(dataset: Mapping[str, Any]) -> str:
    """Name the folder of what a provenance says is played: by both datasets that it is made of; empty for one alone."""
    if "extends" not in dataset:
        return ""
    return "-".join(one["digest"].removeprefix("sha256:")[:32] for one in (dataset, dataset["extends"]))


def ready(plays: Path, name: str) -> bool:
    """Tell whether the folder is there; one that was asked for stays for a while."""
    try:
        os.utime(place(plays, name))
    except FileNotFoundError:
        return False
    return True


def lay_out(plays: Path, name: str, built_in: Dataset, scenarios: Path) -> Path:
    """Make the folder, unless it is there; it is seen whole or not at all, and nobody writes to it."""
    target = place(plays, name)
    if ready(plays, name):
        return target
    draft = plays / f".{secrets.token_hex(8)}"
    draft.mkdir(parents=True)
    try:
        shutil.copyfile(built_in.folder / DESCRIPTION, draft / DESCRIPTION)
        for entry in built_in.definition.get("files", ()):
            if entry["path"] != built_in.definition.get("scenarios"):
                copy = draft / entry["path"]
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(built_in.folder / entry["path"], copy)
        with open(scenarios, "rb") as given, open(draft / SCENARIOS, "wb") as file:
            # Checked here again: this is what a simulator is about to be given.
            for scenario in checked(written(given), built_in.name):
                file.write(json.dumps(scenario).encode() + b"\n")
        for folder, _, files in os.walk(draft):
            for name in files:
                os.chmod(os.path.join(folder, name), 0o444)
            os.chmod(folder, 0o755)
        draft.rename(target)
    except OSError:
        if not target.is_dir():  # another was quicker
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def pack(folder: Path) -> bytes:
    """Pack a folder for an evaluator that shares none with us: equal folders give equal bytes, whoever packs them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            if "__pycache__" not in path.parts:
                entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
                entry.size, entry.mode = path.stat().st_size, 0o444
                with open(path, "rb") as file:
                    tar.addfile(entry, file)
    return packed.getvalue()


def sweep(plays: Path, needed: Callable[[], Iterable[str]]) -> None:
    """Remove folders that nobody has asked for in a while and no simulation needs."""
    old = time.time() - KEPT
    found = [path for path in plays.glob("*") if path.stat().st_mtime < old]
    kept = set(needed()) if found else set()
    for path in found:
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def place(plays: Path, name: str) -> Path:
    """Return where a folder lies."""
    return plays / name
