"""Health of the roles on this machine: noted in a file by the supervisor, for the API, which sees no other process."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

FILE = "roles.json"
#: What a role does, for people who do not know the name of its process.
DUTIES: Mapping[str, str] = {
    "api": "it serves this API",
    "runner-api": "it takes results from runners",
    "dispatch": "it admits, launches and ends simulations",
    "jobs": "it prepares and summarises simulations",
    "agent": "it starts runners on this machine",
    "scs": "it is the cache of datasets",
}


def note(run_dir: Path, failing: Mapping[str, str]) -> None:
    """Replace what is noted: what is wrong with each role that does not work. A full disk keeps the former note."""
    with suppress(OSError):
        draft = run_dir / f"{FILE}.draft"
        draft.write_text(json.dumps(dict(failing)))
        draft.replace(run_dir / FILE)


def problem(run_dir: Path) -> str | None:
    """Return which roles do not work, and what they are for; None if all do, or no supervisor runs here."""
    try:
        failing = json.loads((run_dir / FILE).read_bytes())
    except (OSError, ValueError):
        return None
    duties = {name: f" ({DUTIES[name]})" if name in DUTIES else "" for name in failing}
    return "; ".join(f"the role {name} {what}{duties[name]}" for name, what in failing.items()) or None
