"""Program format: an executable that answers in JSON lines on its standard streams, or on a socket as a model server.

docs/exporting.md#program describes the lines; docs/model-server.md describes the socket.
"""

import json
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from .base import (
    Assignment,
    Certainty,
    LoadedModel,
    Misfit,
    ModelFormat,
    NoAction,
    Recognition,
    Sample,
    StartedModel,
    action_bytes,
)
from .elf import ElfHeader
from .native import HEAD, model_description
from .program_process import ProgramEnded, ProgramFailed, ProgramProcess

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The program's name in its folder and at the top of an archive, and the file that names another command.
PROGRAM, DESCRIPTION = "program", "program.json"
#: Values of `protocol` in the description; the first is the default.
LINES, SOCKET = "json-lines", "socket"
#: The most bytes of the description, and of a line of the program, besides those for its action.
MAX_DESCRIPTION, MAX_LINE = 64 << 10, 64 << 10
#: Bytes of a line for each byte of an action. A number has at least one byte, and at most 25 characters in JSON.
LINE_BYTES = 32
#: Characters of a line that an error quotes.
QUOTED = 200
PAGE = "docs/exporting.md#program"


def recognise(sample: Sample) -> Recognition | None:
    """Recognise an ELF program, and an archive with a program or its description at its top."""
    if sample.members is not None:
        if DESCRIPTION in sample.members:
            return Recognition(Certainty.DECLARED)
        return Recognition(Certainty.CONTENT) if PROGRAM in sample.members else None
    header = ElfHeader.of(sample.head)
    return Recognition(Certainty.CONTENT) if header is not None and header.is_program else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """How to start the program: its path in the archive, its arguments, and its protocol."""

    command: Sequence[str]
    protocol: str

    @classmethod
    def of(cls, folder: Path) -> "Description":
        """Read the description in a model's folder; without it, the program has no arguments and answers JSON lines."""
        path = folder / DESCRIPTION
        if not path.is_file():
            return cls(command=(PROGRAM,), protocol=LINES)
        with open(path, "rb") as file:
            text = file.read(MAX_DESCRIPTION + 1)
        try:
            values = json.loads(text) if len(text) <= MAX_DESCRIPTION else None
        except (ValueError, RecursionError) as error:
            raise Misfit(f"`{DESCRIPTION}` is not JSON: {error} ({PAGE})") from None
        if not isinstance(values, dict) or values.keys() - {"command", "protocol"}:
            raise Misfit(f"`{DESCRIPTION}` has to be an object with the members `command` and `protocol` ({PAGE})")
        command, protocol = values.get("command", [PROGRAM]), values.get("protocol", LINES)
        if protocol not in (LINES, SOCKET):
            raise Misfit(f'`protocol` in `{DESCRIPTION}` has to be "{LINES}" or "{SOCKET}" ({PAGE})')
        if not isinstance(command, list) or not command or not all(map(_is_argument, command)):
            raise Misfit(f"`command` in `{DESCRIPTION}` has to be a list of strings, the program's path first ({PAGE})")
        return cls(command=tuple(command), protocol=protocol)


def _is_argument(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()  # a zero byte is not printable


def start(assignment: Assignment) -> StartedModel:
    """Start the program; if it answers JSON lines, one process for each row of a batch."""
    folder = assignment.files
    if folder is None:
        raise Misfit(f"the archive has no `{PROGRAM}` and no `{DESCRIPTION}` at its top")
    description = Description.of(folder)
    _check(folder, description.command[0])
    if description.protocol == LINES:
        return LinePrograms(description.command, folder, assignment)
    own, passed = socket.socketpair()
    with passed:
        options = {"socket": passed.fileno(), "format": "program", "isolation": "launch", "confinement": None}
        arguments = [*description.command, json.dumps(options)]
        process = ProgramProcess.start(arguments, folder, confined=assignment.confined, passed=passed)
    assert assignment.on_socket is not None
    return assignment.on_socket(process, own, assignment)


def _check(folder: Path, path: str) -> None:
    """Raise Misfit if the program is not in the folder, or is for another machine."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not (folder / path).is_file():
        raise Misfit(f"the archive has no file {path!r}, which is to be executed; paths begin at the archive's top")
    with open(folder / path, "rb") as file:
        header = ElfHeader.of(file.read(HEAD))
    here = platform.machine()
    if header is not None and header.machine_name != here:
        raise Misfit(f"the program is for {header.machine_name}, and this machine is {here}; build it for {here}")


def load(assignment: Assignment) -> LoadedModel:
    """Send the model's description to the program, and wait until it is ready."""
    assert assignment.started is not None
    return assignment.started.load()


class LinePrograms:
    """Programs that answer each line on their standard input with a line on their standard output."""

    info: Mapping[str, str | int | float | bool | None]

    def __init__(self, command: Sequence[str], folder: Path, assignment: Assignment) -> None:
        self._space = assignment.interface.action
        self._largest = MAX_LINE + LINE_BYTES * self._space.size
        self._description = model_description(assignment) | {"step": assignment.step}
        self._programs = [
            ProgramProcess.start(command, folder, confined=assignment.confined) for _ in range(assignment.batch)
        ]

    def load(self) -> LoadedModel:
        """Send `load`. Raise Misfit if a program refuses."""
        try:
            answers = [self._ask(program, {"load": self._description}) for program in self._programs]
        except (NoAction, ProgramFailed) as error:
            raise Misfit(str(error)) from None
        except ProgramEnded as error:
            raise error.before_load() from None
        info = answers[0].get("loaded")
        described = info.items() if isinstance(info, dict) else ()
        scalars = {key: value for key, value in described if isinstance(value, str | int | float | bool | None)}
        self.info = {"protocol": LINES, **scalars}
        return self

    def _ask(self, program: ProgramProcess, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its answer. Raises ProgramEnded, ProgramFailed, and NoAction for another value."""
        program.write(json.dumps(request, allow_nan=False, separators=(",", ":")).encode() + b"\n")
        line = program.read_line(self._largest)
        if not line.endswith(b"\n"):
            raise NoAction(f"the program wrote a line of more than {self._largest} bytes to its standard output")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            quoted = line[:QUOTED].decode(errors="replace").rstrip("\n")
            raise NoAction(
                f"the program wrote {quoted!r} to its standard output, where each line has to be a JSON object that"
                f" answers a request; write messages to standard error ({PAGE})"
            )
        if (error := answer.get("error")) is not None:
            raise ProgramFailed(error if isinstance(error, str) else json.dumps(error))
        return answer

    def _ask_in_scenario(self, program: ProgramProcess, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._ask(program, request)
        except ProgramEnded as error:
            error.exit_like_it()

    def reset(self, seed: int) -> None:
        for row, program in enumerate(self._programs):
            self._ask_in_scenario(program, {"reset": {"seed": (seed + row) & (2**63 - 1)}})

    def act(self, observations: "NDArray[Any]") -> bytes:
        import numpy as np  # the server reads formats without it

        actions = []
        rows = observations.reshape(len(observations), -1)
        for program, row in zip(self._programs, rows, strict=True):
            numbers = row.tolist()
            if not np.isfinite(row).all():
                numbers = [value if np.isfinite(value) else None for value in numbers]
            answer = self._ask_in_scenario(program, {"act": numbers})
            if "action" not in answer:
                raise NoAction(f"the program's answer to `act` has no member `action` ({PAGE})")
            actions.append(action_bytes(answer["action"], 1, self._space))
        return b"".join(actions)


FORMAT = ModelFormat(
    title="Program",
    description=(
        "A program for Linux (ELF), or a zip or tar with `program`, or with `program.json`, which names a command. It"
        " answers lines of JSON on its standard input with lines on its standard output, or speaks the protocol of"
        " model servers on a socket. Go, C, Rust and others build it."
    ),
    runtime="native",
    environment="python",
    isolation="scenario",
    forkable=True,
    recognise=recognise,
    unpacked=True,
    placed=PROGRAM,
    zip_contents=f"`{PROGRAM}` or `{DESCRIPTION}` at its top",
    start=start,
    load=load,
)
