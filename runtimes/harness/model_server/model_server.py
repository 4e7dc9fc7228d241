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
from typing import TYPE_CHECKING, Any

import numpy as np

from ..forking import zygote
from ..forking.scratch import Scratch
from ..forking.zygote import exit_at_once
from ..models.base import Assignment, LoadedModel, Misfit, NoAction
from ..simulators.base import Interface
from . import model_protocol
from .evaluator_connection import EvaluatorConnection
from .explanations import Surroundings, explain
from .model_protocol import SEED, SHARES_FRAMES, Act, Close, Load, Reset, Scenarios
from .socket_program import SocketProgram

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
        {"model_server": "python", "version": platform.python_version(), "format": name, SHARES_FRAMES: True},
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
    connection.expect(assignment.interface, assignment.batch)
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
        act, usual = model.act, connection.observations
        while (request := connection.next()) is not None:
            try:
                if request is usual:
                    answer = act(usual)
                elif type(request) is Act:
                    answer = act(self._rows(request.observations, request.count))
                elif type(request) is Scenarios:
                    answer = self._answer_each(request)
                elif type(request) is Reset:
                    self._reset(request.request["seed"])
                    answer = None
                elif type(request) is Close:
                    return
                else:
                    continue
            except NoAction as error:
                connection.send("error", connection.seq, printable(str(error)), "invalid")
            except BaseException as error:
                connection.send("error", connection.seq, describe_error(error), "failed")
            else:
                if answer is None:
                    connection.send("ready", connection.seq)
                else:
                    connection.answer(answer)

    def _reset(self, seed: int) -> None:
        _seed(seed)
        self._model.reset(seed)

    def _rows(self, observations: memoryview, count: int) -> "NDArray[Any]":
        return np.frombuffer(observations, self._dtype).reshape(count, *self._shape)

    def _answer_each(self, request: Scenarios) -> bytes:
        """Run scenarios of one step, one after another; return their actions."""
        seeds = np.frombuffer(request.seeds, SEED).tolist()
        observations = self._rows(request.observations, len(seeds))
        reset, act = self._model.reset, self._model.act
        answers = []
        for row, seed in enumerate(seeds):
            _seed(seed)
            reset(seed)
            answers.append(act(observations[row : row + 1]))
        return b"".join(answers)


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
