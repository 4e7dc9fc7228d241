"""Backups at the command line: `python -m server.backup copy FOLDER`, and `python -m server.backup check`."""

import os
import sys
from pathlib import Path

from common.errors import PlatformError
from core.settings import Settings

USAGE = "copy FOLDER | check    (docs/backup.md)"


def main(arguments: list[str], program: str = "python -m server.backup") -> int:
    """Copy this home's database and objects to a folder, or name the objects that rows name and the store lacks."""
    settings = Settings.from_env(os.environ)
    match arguments:
        case ["copy", folder]:
            return copy(settings, Path(folder))
        case ["check"]:
            return check(settings)
    print(f"usage: {program} {USAGE}", file=sys.stderr)
    return 2


def copy(settings: Settings, folder: Path) -> int:
    """Back up an SQLite database with its objects."""
    from core.services.backups import back_up
    from server.composition import store_of

    if not settings.database.startswith("sqlite:///"):
        print("PostgreSQL is backed up by pg_dump, and its bucket beside it: see docs/backup.md.", file=sys.stderr)
        return 2
    try:
        number = back_up(Path(settings.database.removeprefix("sqlite:///")), store_of(settings), folder)
    except PlatformError as error:
        print(error.detail, file=sys.stderr)
        return 1
    print(f"{folder} has the database and {number} objects.")
    return 0


def check(settings: Settings) -> int:
    """Print the missing objects; 0 if there are none."""
    from core.services.backups import missing
    from core.store.database import Database
    from server.composition import store_of

    database = Database(settings.database)
    try:
        absent = list(missing(database, store_of(settings)))
    finally:
        database.close()
    for key in absent:
        print(key)
    print(f"{len(absent)} objects are missing." if absent else "Every object that the database names exists.")
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
