"""Record of the schema: whether this home's database is known to have the schema of this version."""

import hashlib
from pathlib import Path

from core.settings import Settings

ROOT = Path(__file__).parent.parent


def record_migration(settings: Settings) -> None:
    """Record that the database has this version's schema, so that the next start need not ask it."""
    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    _record(settings).write_text(_schema_fingerprint(settings))


def is_migrated(settings: Settings) -> bool:
    """Tell whether it is recorded that the database has this version's schema."""
    record = _record(settings)
    return record.exists() and record.read_text() == _schema_fingerprint(settings)


def _record(settings: Settings) -> Path:
    return settings.run_dir / "migrated"


def _schema_fingerprint(settings: Settings) -> str:
    """Return a digest that changes with this version's migrations and with the database."""
    versions = sorted(path.name for path in (ROOT / "core/store/migrations/versions").glob("*.py"))
    database = Path(settings.database.removeprefix("sqlite:///"))
    identity = str(database.stat().st_ino) if database.exists() else settings.database
    return hashlib.sha256("\n".join([*versions, identity]).encode()).hexdigest()
