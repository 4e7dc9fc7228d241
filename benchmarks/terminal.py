"""Terminal: a program on a pseudo-terminal, as a person starts it, with what it has printed so far."""

import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

#: Sequences that set colours and move the cursor.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: Seconds between two looks at the output, and in which a terminated program must end.
LOOK_INTERVAL, END = 0.02, 60.0


class Terminal:
    """A program on a pseudo-terminal, in a process group of its own."""

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        environ = {**environ, "TERM": "xterm", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environ, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self._printed = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 1 << 16)
            except OSError:  # the last process that held the terminal has ended
                return
            if not piece:
                return
            self._printed += piece

    @property
    def text(self) -> str:
        """What was printed so far, without control sequences."""
        return _CONTROL.sub("", bytes(self._printed).decode(errors="replace"))

    def until(self, pattern: str, limit: float) -> re.Match[str]:
        """Wait until the output has a pattern, and return its first match."""
        deadline = time.monotonic() + limit
        while (match := re.search(pattern, self.text)) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{pattern!r} was not printed: {self.text[-3000:]}")
            time.sleep(LOOK_INTERVAL)
        return match

    def end(self) -> int:
        """Terminate the group if it runs, and return the program's exit status."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)  # SIGINT may be ignored: a shell's background job inherits that
        try:
            return self.process.wait(END)
        finally:
            self._reader.join(END)
            os.close(self._master)


@contextmanager
def on_terminal(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> Iterator[Terminal]:
    """Run a program on a terminal, and terminate it afterwards."""
    terminal = Terminal(command, folder, environ)
    try:
        yield terminal
    finally:
        terminal.end()
