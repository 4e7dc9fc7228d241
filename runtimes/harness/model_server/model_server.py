"""Model server process: holds a user's model and answers the evaluator, in its own environment and sandbox.

With isolation "scenario", this process is a zygote that runs no user code: it forks a process for each scenario, so
that no state carries over from one scenario to the next (forking/zygote.py). docs/model-server.md has the protocol.
"""

import importlib
import os
import platform
import random
import re
import socket
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..forking import zygote
from ..forking.scratch import Scratch
from ..forking.zygote import exit_at_once
from ..models.base import Assignment, LoadedModel, Misfit, NoAction
from ..simulators.base import Interface
from . import model_protocol
from .explanations import Surroundings, explain
from .model_protocol import Act, Close, Load, Reset
from .socket_program import SocketProgram

#: The most bytes of a frame from the evaluator, which is trusted: a limit for faults only.
LARGEST = 256 << 20


class EvaluatorConnection:
    """Socket to the evaluator, and the buffers of its frames."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._buffer = bytearray(1 << 16)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._used = 0
        self._decoder = msgspec.msgpack.Decoder(model_protocol.Request)
        self._encoder = msgspec.msgpack.Encoder()
        self._out = bytearray(1 << 16)
        self.rights: list[int] = []

    def switch(self, connected: socket.socket) -> None:
        """Continue on another socket."""
        self.socket = connected
        self._filled = self._used = 0

    def next(self) -> model_protocol.Request | None:
        """Return the next request, valid until the next call; None once the evaluator has closed its socket."""
        filled, used = self._filled, self._used
        if used < filled:
            self._buffer[: filled - used] = self._buffer[used:filled]
        self._filled, self._used = filled - used, 0
        if self._filled < 4 and not self._fill(4):
            return None
        total: int = 4 + model_protocol.LENGTH.unpack_from(self._buffer)[0]
        if self._filled < total and (total > LARGEST or not self._fill(total)):
            return None
        self._used = total
        return self._decoder.decode(self._view[4:total])  # type: ignore[no-any-return]

    def _fill(self, need: int) -> bool:
        if need > len(self._buffer):
            larger = bytearray(need)
            larger[: self._filled] = self._buffer[: self._filled]
            self._buffer, self._view = larger, memoryview(larger)
        while self._filled < need:
            try:
                received = self.socket.recv_into(self._view[self._filled :])
            except ConnectionError:
                return False
            if received == 0:
                return False
            self._filled += received
        return True

    def load(self) -> Load | None:
        """Return the first request, with the model's descriptor in ``rights``; None if it is not `load`."""
        data, self.rights, _, _ = socket.recv_fds(self.socket, 4, 1)
        self._buffer[: len(data)] = data
        self._filled = len(data)
        request = self.next() if data else None
        return request if isinstance(request, Load) else None

    def send(self, *message: Any) -> None:
        """Send a frame."""
        out = self._out
        self._encoder.encode_into(message, out, 4)
        model_protocol.LENGTH.pack_into(out, 0, len(out) - 4)
        sent = self.socket.send(out)
        if sent < len(out):
            self.socket.sendall(memoryview(out)[sent:])


def serve(options: Mapping[str, Any], scratch: Path | None, *, sealed: bool) -> None:
    """Import the format's libraries, seal the sandbox if it is to be, serve one evaluator until it closes.

    ``scratch``: the folder that a model may write to, if any. The process is confined already (confined_start.py).
    """
    fork, name = options["isolation"] == "scenario", options["format"]
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise SystemExit(f"unknown model format: {name!r}")
    format = importlib.import_module(f"..models.{name}", __package__).FORMAT
    format.preload()
    if sealed:
        from ..sandbox import seal

        seal(may_fork=fork, may_execute=format.start is not None)
    connection = EvaluatorConnection(socket.socket(fileno=options["socket"]))
    connection.send(
        "hello",
        model_protocol.PROTOCOL,
        {"model_server": "python", "version": platform.python_version(), "format": name},
    )
    request = connection.load()
    if request is None:
        return
    source, files = _model_of(request, connection)
    assignment = Assignment(
        source=source,
        files=files,
        interface=Interface.of(
            {"observation": _space(request.request["observation"]), "action": _space(request.request["action"])}
        ),
        batch=int(request.request["batch"]),
        params=request.request["params"],
        step=request.request.get("step"),
        scratch=scratch,
        confined=sealed,
        on_socket=SocketProgram,
    )
    server = ModelServer(connection, format, assignment, request.seq)
    clearing = Scratch(scratch) if scratch is not None else None
    if fork:
        server.prepare()
        plan = zygote.ScenarioPlan(
            start=server.start_programs,
            serve=server.serve_scenario,
            announce=lambda code: model_protocol.SOCKET_FRAME,
            sealed=sealed,
            scratch=clearing,
        )
        zygote.run(connection.socket, plan)
    server.load()
    server.serve()
    if not sealed and clearing is not None:
        clearing.clear()


def _model_of(request: Load, connection: EvaluatorConnection) -> tuple[bytes, Path | None]:
    """Return the model's bytes, or the folder of its files; close its descriptor, which children would share."""
    path = request.request["model"]
    if path is not None and os.path.isdir(path):
        return b"", Path(path)
    descriptor = connection.rights.pop() if connection.rights else os.open(str(path), os.O_RDONLY)
    try:
        parts, offset = [], 0
        while part := os.pread(descriptor, 1 << 24, offset):
            parts.append(part)
            offset += len(part)
        return b"".join(parts), None
    finally:
        os.close(descriptor)


def _space(description: dict[str, Any]) -> dict[str, Any]:
    """Return a space's JSON form with infinite bounds in place of None."""
    low = [-np.inf if value is None else value for value in description["low"]]
    high = [np.inf if value is None else value for value in description["high"]]
    return {**description, "low": low, "high": high}


class ModelServer:
    """Serves one model. ``seq``: sequence number of the `load` request."""

    def __init__(self, connection: EvaluatorConnection, format: Any, assignment: Assignment, seq: int) -> None:
        self._connection = connection
        self._format = format
        self._assignment = assignment
        self._seq = seq
        self._not_started: Misfit | None = None
        self._model: LoadedModel
        space = assignment.interface.observation
        self._dtype = np.dtype(space.dtype)
        self._shape = space.shape

    def prepare(self) -> None:
        """In the zygote, do the preparation that does not run the model, once for all children."""
        prepare = getattr(self._format, "prepare", None)
        if prepare is not None:
            try:
                prepare(self._assignment)
            except Misfit:
                return  # the child that loads the model reports the error

    def start_programs(self) -> None:
        """In a scenario's process, before it is sealed, start the programs that the model consists of."""
        if self._format.start is not None:
            try:
                self._assignment = replace(self._assignment, started=self._format.start(self._assignment))
            except Misfit as error:
                self._not_started = error  # `load` reports it

    def load(self, *, quiet: bool = False) -> None:
        """Load the model and answer `load`, unless ``quiet``; exit with an error frame if it does not load."""
        _seed(0)  # random numbers drawn while a model loads are reproducible, too
        try:
            if self._not_started is not None:
                raise self._not_started
            self._model = self._format.load(self._assignment)
        except Misfit as error:
            reason = ". ".join(filter(None, (str(error), explain(error, Surroundings.here()))))
            self._connection.send("error", self._seq, printable(reason), "invalid")
            exit_at_once(1)
        except BaseException as error:
            self._connection.send("error", self._seq, describe_error(error), "failed")
            exit_at_once(1)
        if not quiet:
            self._connection.send("loaded", self._seq, dict(self._model.info))

    def serve_scenario(self, connected: socket.socket, first: bool) -> None:
        """In a scenario's process, load the model and serve the scenario on its own socket."""
        self._connection.switch(connected)
        self.load(quiet=not first)
        self.serve()

    def serve(self) -> None:
        """Answer until the evaluator closes."""
        connection, model = self._connection, self._model
        while (request := connection.next()) is not None:
            if type(request) is Act:
                try:
                    observations = np.frombuffer(request.observations, self._dtype)
                    answer = model.act(observations.reshape(request.count, *self._shape))
                except NoAction as error:
                    connection.send("error", request.seq, printable(str(error)), "invalid")
                except BaseException as error:
                    connection.send("error", request.seq, describe_error(error), "failed")
                else:
                    connection.send("action", request.seq, answer)
            elif type(request) is Reset:
                seed = request.request["seed"]
                _seed(seed)
                try:
                    model.reset(seed)
                except BaseException as error:
                    connection.send("error", request.seq, describe_error(error), "failed")
                else:
                    connection.send("ready", request.seq)
            elif type(request) is Close:
                return


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


def describe_error(error: BaseException) -> str:
    """Return the text of a model's exception, the line in its file, and the limit that it met, if any.

    The traceback goes to the log.
    """
    try:
        explanation = explain(error, Surroundings.here())
        if isinstance(error, MemoryError):
            traceback.clear_frames(error.__traceback__)  # what the model's functions hold is needed for the text
        traceback.print_exception(error)
        location = ""
        for frame in traceback.extract_tb(error.__traceback__):
            name = os.path.basename(frame.filename)
            if name == "model.py" or "/model/" in frame.filename:
                location = f" ({name}, line {frame.lineno})"
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        end = f"{location}. {explanation}" if explanation else location
        return printable(text[: model_protocol.MAX_ERROR_TEXT - len(end)] + end)
    except BaseException:  # the model's exception or its replaced stderr may raise when the text is formatted
        return printable(f"{type(error).__name__}, whose text cannot be formatted")


def printable(text: str) -> str:
    """Return a text that can be encoded as UTF-8, shortened to the limit."""
    return text.encode(errors="replace").decode()[: model_protocol.MAX_ERROR_TEXT]
