"""Logs: one JSON object a line from every role, files rotated by size, warnings for the terminal."""

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: Bytes of one log file, and how many older ones are kept.
SIZE, KEPT = 10 << 20, 2
#: What a record may carry beside its message.
NAMED = ("simulation", "launch")


class JsonFormatter(logging.Formatter):
    """Writes a record as one line."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "role": self._role,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in NAMED if hasattr(record, name)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(role: str, level: str) -> None:
    """Send every record of this process to standard error as JSON."""
    writing = logging.StreamHandler(sys.stderr)
    writing.setFormatter(JsonFormatter(role))
    logging.basicConfig(level=level, handlers=[writing], force=True)
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)  # it lists them at each start
    logging.captureWarnings(True)


class LogFile:
    """A file that lines are added to; past its size it is set aside and begun anew."""

    def __init__(self, path: Path, *, size: int = SIZE, kept: int = KEPT) -> None:
        self._path = path
        self._size = size
        self._kept = kept
        self._file = open(path, "ab", buffering=0)

    def write(self, lines: bytes) -> None:
        """Add whole lines."""
        if self._file.tell() + len(lines) > self._size and self._file.tell():
            self._file.close()
            for number in range(self._kept, 0, -1):
                older = self._aside(number - 1) if number > 1 else self._path
                if older.exists():
                    older.replace(self._aside(number))
            self._file = open(self._path, "ab", buffering=0)
        self._file.write(lines)

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Close it."""
        self._file.close()


def worth_telling(line: bytes) -> str | None:
    """Return what a person at the terminal should see of a log line, if anything."""
    try:
        said = json.loads(line)
        if said["level"] in {"DEBUG", "INFO"}:
            return None
        return f"{said['level'].lower()}: {said['message']}"
    except (ValueError, KeyError, TypeError):
        return None
