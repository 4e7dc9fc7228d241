"""Programs on a pseudo terminal: what they show is read, and keys are pressed as a person presses them."""

import fcntl
import os
import pty
import signal
import struct
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.waiting import until

CTRL_C, RETURN, TAB = "\x03", "\r", "\t"


class PseudoTerminal:
    """A program on a terminal of its own, 24 lines high; killed when the block ends, if it still runs."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], *, columns: int = 100) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            try:
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job inherits that it is ignored
                os.execvpe(command[0], list(command), dict(environ))
            finally:
                os._exit(127)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._status: int | None = None
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "PseudoTerminal":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended():
            os.kill(self._pid, signal.SIGKILL)
            self.wait()
        self._reader.join(10)
        os.close(self._terminal)

    @property
    def shown(self) -> str:
        """All that was written to the terminal so far."""
        return bytes(self._shown).decode(errors="replace")

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the terminal has shown a text so many times."""
        until(lambda: self.shown.count(text) >= times, message=lambda: f"{text!r} is not shown: {self.shown!r}")

    def press(self, keys: str) -> None:
        """Type keys, once the program waits for something.

        A Ctrl-C between Python's last look for signals and its wait for a key is only noticed with the next key.
        """
        until(self._sleeps, message=lambda: f"the program is always busy: {self.shown!r}")
        os.write(self._terminal, keys.encode())

    def wait(self) -> int:
        """Wait for the end of the program and return its exit code; negative: it was ended by this signal."""
        until(self._ended, message=lambda: f"the program goes on: {self.shown!r}")
        self._reader.join(10)
        assert self._status is not None
        return os.waitstatus_to_exitcode(self._status)

    def _sleeps(self) -> bool:
        return Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0] in "SZ"

    def _ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = status
        return self._status is not None

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._terminal, 1 << 16)
            except OSError:  # the program has closed the terminal
                return
            if not data:
                return
            self._shown += data
