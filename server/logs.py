"""Logs: one JSON object a line from every role, files rotated by size, warnings for the terminal."""

import errno
import json
import logging
import os
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
    """A file that lines are added to; past its size it is set aside and begun anew.

    Where the disk is full, lines are lost and the next one that is not says how many: whoever writes a log goes on.
    """

    def __init__(self, path: Path, *, size: int = SIZE, kept: int = KEPT) -> None:
        self._path = path
        self._size = size
        self._kept = kept
        self._file = open(path, "ab", buffering=0)
        self._lost = 0
        self._why = ""

    def write(self, lines: bytes) -> None:
        """Add whole lines, or none of them."""
        try:
            if self._file.tell() + len(lines) > self._size and self._file.tell():
                self._turn()
            self._add(self._word() + lines)
            self._lost = 0
        except OSError as error:
            self._lost += lines.count(b"\n")
            self._why = error.strerror or type(error).__name__

    def _add(self, lines: bytes) -> None:
        before = self._file.tell()
        if self._file.write(lines) != len(lines):  # the disk took some of it
            self._file.seek(before)
            self._file.truncate()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _word(self) -> bytes:
        """Return a line about those that were lost, if any were."""
        if not self._lost:
            return b""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        message = f"{self._lost} lines of this log were lost: {self._why}"
        return json.dumps({"at": at, "level": "WARNING", "logger": __name__, "message": message}).encode() + b"\n"

    def _turn(self) -> None:
        for number in range(self._kept, 0, -1):
            older = self._aside(number - 1) if number > 1 else self._path
            if older.exists():
                older.replace(self._aside(number))
        begun = open(self._path, "ab", buffering=0)  # where that fails, the old one is still there to write to
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
