"""Logs: one JSON object a line from every role, files rotated by size, warnings for the terminal."""

import json
import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: Bytes of one log file, and how many older ones are kept.
SIZE, KEPT = 10 << 20, 2
#: What a record may carry beside its message.
NAMED = ("simulation", "launch")
#: What stands in a log for lines that the disk had no room for.
LOST = b'{"level": "WARNING", "message": "%d lines before this one were lost: they could not be written"}\n'


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
        self._lost = 0
        self._file = open(path, "ab", buffering=0)

    def write(self, lines: bytes) -> None:
        """Add whole lines. On a full disk they are lost, and how many is told later: nobody ends for it."""
        gap = LOST % self._lost if self._lost else b""
        at = self._file.tell()
        try:
            if at and at + len(gap) + len(lines) > self._size:
                self._set_aside()
                at = 0
            whole = self._file.write(gap + lines) == len(gap) + len(lines)
        except OSError:
            whole = False
        if whole:
            self._lost = 0
            return
        self._lost += lines.count(b"\n")
        with suppress(OSError):  # half a line is none
            self._file.truncate(at)
            self._file.seek(at)

    def _set_aside(self) -> None:
        for number in range(self._kept, 0, -1):
            older = self._aside(number - 1) if number > 1 else self._path
            if older.exists():
                older.replace(self._aside(number))
        begun = open(self._path, "ab", buffering=0)
        self._file.close()
        self._file = begun

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
