"""Logs: one JSON object per line from every role, files rotated by size, warnings repeated on the terminal."""

import errno
import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runtimes.harness.visible_text import visible

#: Bytes of a log file before it is rotated, and how many rotated files are kept.
SIZE, KEPT = 10 << 20, 2
#: Attributes of a record (`extra`) that are written beside its message.
EXTRA_FIELDS = ("simulation", "launch")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON, without a line break."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "role": self._role,
            "logger": record.name,
            "message": visible(record.getMessage()),
        }
        line |= {name: getattr(record, name) for name in EXTRA_FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["traceback"] = visible(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(role: str, level: str) -> None:
    """Write every log record of this process to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(role))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)  # lists all plug-ins at each start
    logging.captureWarnings(True)


class LogFile:
    """Log file rotated by size: appends whole lines, and keeps ``kept`` rotated files beside it.

    On a full disk lines are dropped without an error to the writer; the next line written is preceded by a record that
    counts them.
    """

    def __init__(self, path: Path, *, size: int = SIZE, kept: int = KEPT) -> None:
        self._path = path
        self._size = size
        self._kept = kept
        self._file = open(path, "ab", buffering=0)
        self._lost = 0
        self._error = ""

    def write(self, lines: bytes) -> None:
        """Append all of the lines, or none of them."""
        try:
            if self._file.tell() + len(lines) > self._size and self._file.tell():
                self._rotate()
            self._append(self._lost_lines_record() + lines)
            self._lost = 0
        except OSError as error:
            self._lost += lines.count(b"\n")
            self._error = error.strerror or type(error).__name__

    def _append(self, lines: bytes) -> None:
        before = self._file.tell()
        if self._file.write(lines) != len(lines):  # a partial write: the disk is full
            self._file.seek(before)
            self._file.truncate()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _lost_lines_record(self) -> bytes:
        """Return a log record that counts the lost lines, empty if none were lost."""
        if not self._lost:
            return b""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        message = f"{self._lost} lines of this log were lost: {self._error}"
        return json.dumps({"at": at, "level": "WARNING", "logger": __name__, "message": message}).encode() + b"\n"

    def _rotate(self) -> None:
        for number in range(self._kept, 0, -1):
            source = self._rotated_path(number - 1) if number > 1 else self._path
            if source.exists():
                source.replace(self._rotated_path(number))
        new_file = open(self._path, "ab", buffering=0)  # if this fails, the previous file is still open for writing
        self._file.close()
        self._file = new_file

    def _rotated_path(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def terminal_text(line: bytes) -> str | None:
    """Return the text of a log line to repeat on the terminal: warnings and errors; None for all other lines."""
    try:
        record = json.loads(line)
        if record["level"] in {"DEBUG", "INFO"}:
            return None
        return f"{record['level'].lower()}: {record['message']}"
    except (ValueError, KeyError, TypeError):
        return None
