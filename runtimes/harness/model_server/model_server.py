"""Model server process: holds a user's model and answers the evaluator, in its own environment and sandbox.

With isolation "scenario", this process is a zygote that runs no user code: it forks a process for each scenario, so
that no state carries over from one scenario to the next (forking/zygote.py). docs/model-server.md has the protocol.
"""

import contextlib
import os
import platform
import random
import signal
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..forking import zygote
from ..forking.scratch import Scratch
from ..forking.zygote import exit_at_once
from ..models.base import Assignment, LoadedModel, Misfit, ModelFormat, format_named
from ..models.wrapped_zip import unwrapped
from ..simulators.base import Interface
from . import model_protocol
from .bare_zygote import read_model
from .evaluator_connection import EvaluatorConnection
from .fault_texts import calling_fault, loading_fault
from .model_protocol import PROCESS_PER_SCENARIO, SERVES_ROWS, Act, Close, Load, Reset, Rows
from .row_kernels import kernel_of
from .row_memory import RowMemory
from .row_server import RowServer, row_models
from .socket_program import SocketProgram
from .start import Start

if TYPE_CHECKING:
    from numpy.typing import NDArray


def serve(start: Start) -> None:
    """Import the format's libraries, seal the sandbox, serve one evaluator until it closes.

    The process is confined already (confined_start.py).
    """
    fork = start.options["isolation"] == "scenario"
    format = format_named(start.options["format"])
    format.preload()
    start.seal(may_fork=fork, may_execute=format.start is not None)
    connection = EvaluatorConnection(socket.socket(fileno=start.options["socket"]))
    description = {"model_server": "python", "version": platform.python_version(), "format": start.options["format"]}
    features = {SERVES_ROWS: not fork, PROCESS_PER_SCENARIO: fork}
    connection.send("hello", model_protocol.PROTOCOL, {**description, **features})
    request = connection.load()
    if request is None:
        return
    rows = [connection.rights.pop() for _ in range(3)][::-1] if "rows" in request.request else []
    first_socket = socket.socket(fileno=connection.rights.pop()) if fork and connection.rights else None
    path = request.request["model"]
    source = None
    if path is None or not os.path.isdir(path):
        source = read_model(connection.rights.pop() if connection.rights else os.open(str(path), os.O_RDONLY))
    server = ModelServer(connection, format, _assignment(request, source, start, format), request.seq)
    clearing = Scratch(start.scratch) if start.scratch is not None else None
    if fork:
        server.prepare()

        def serve_scenario(connected: socket.socket, first: bool) -> None:
            start.extend_path()
            server.serve_scenario(connected, first)

        plan = zygote.ScenarioPlan(
            start=server.start_programs,
            serve=serve_scenario,
            announce=lambda code: model_protocol.SOCKET_FRAME,
            report=server.report_end,
            sealed=start.sealed,
            scratch=clearing,
            only_libraries=True,
        )
        zygote.run(connection.socket, plan, first_socket)
    _seed(0)
    server.load()
    if rows:
        server.share_rows(int(request.request["rows"]), rows)
    server.serve(clearing)
    if not start.sealed and clearing is not None:
        clearing.clear()


def serve_loaded(start: Start, frame: bytes, source: bytes | None, connected: socket.socket, first: bool) -> None:
    """In a scenario's process of a bare zygote: serve the scenario, after a `load` that the zygote has received."""
    format = format_named(start.options["format"])
    format.preload()
    request = model_protocol.load_of(frame)
    if source is None and not os.path.isdir(path := request.request["model"]):
        source = read_model(os.open(path, os.O_RDONLY))
    connection = EvaluatorConnection(connected)
    _seed(0)
    ModelServer(connection, format, _assignment(request, source, start, format), request.seq).serve_scenario(
        connected, first
    )


def _assignment(request: Load, source: bytes | None, start: Start, format: ModelFormat) -> Assignment:
    """Return the assignment of a `load`; ``source``: the model's bytes, None if it is the folder that `load` names."""
    described = request.request
    return Assignment(
        source=unwrapped(source, format) if source else b"",
        files=Path(described["model"]) if source is None else None,
        interface=Interface.of(described),
        batch=int(described["batch"]),
        params=described["params"],
        step=described.get("step"),
        scratch=start.scratch,
        confined=start.sealed,
        on_socket=SocketProgram,
        packages=Path(start.packages) if start.packages else None,
    )


class ModelServer:
    """Serves one model. ``seq``: sequence number of the `load` request."""

    def __init__(self, connection: EvaluatorConnection, format: Any, assignment: Assignment, seq: int) -> None:
        connection.expect(assignment.interface, assignment.batch)
        self._connection = connection
        self._format = format
        self._assignment = assignment
        self._seq = seq
        self._not_started: Misfit | None = None
        self._clearing: Scratch | None = None
        self._rows_shared: tuple[RowMemory, int, int] | None = None
        self._row_server: RowServer | None = None
        self._model: LoadedModel
        space = assignment.interface.observation
        self._dtype = np.dtype(space.dtype)
        self._shape = space.shape

    def prepare(self) -> None:
        """In the zygote, do the preparation that does not run the model, once for all children."""
        with contextlib.suppress(Misfit):  # the child that loads the model reports the error
            self._format.prepare(self._assignment)
        _seed(0)  # for all children

    def start_programs(self) -> None:
        """In a scenario's process, before it is sealed, start the programs that the model consists of."""
        if self._format.start is not None:
            try:
                self._assignment = replace(self._assignment, started=self._format.start(self._assignment))
            except Misfit as error:
                self._not_started = error  # `load` reports it

    def report_end(self, code: int) -> bytes:
        """Return the frame that tells how a scenario's process ended, negative for a signal.

        A process that serves a program runs no other code of the model, and exits like the program.
        """
        if self._format.start is not None and code == 128 + signal.SIGKILL:
            code = -signal.SIGKILL
        return model_protocol.framed(("ended", code))

    def load(self, *, quiet: bool = False) -> None:
        """Load the model and answer `load`, unless ``quiet``; exit with an error frame if it does not load.

        The process has been seeded with 0: random numbers that are drawn while a model loads are reproducible, too.
        """
        try:
            if self._not_started is not None:
                raise self._not_started
            self._model = self._format.load(self._assignment)
        except BaseException as error:
            self._connection.send("error", self._seq, *loading_fault(error, self._format, self._assignment))
            exit_at_once(1)
        if not quiet:
            self._connection.send("loaded", self._seq, dict(self._model.info))

    def serve_scenario(self, connected: socket.socket, first: bool) -> None:
        """In a scenario's process, load the model and serve the scenario on its own socket."""
        self._connection.switch(connected)
        self.load(quiet=not first)
        self.serve()

    def serve(self, clearing: Scratch | None = None) -> None:
        """Answer until the evaluator closes. ``clearing``: the folder to empty at each reset, if this process serves
        more than one scenario.
        """
        self._clearing = clearing
        connection, model = self._connection, self._model
        act, usual = model.act, connection.observations
        while (request := connection.next()) is not None:
            try:
                if request is usual:
                    answer = act(usual)
                elif type(request) is Act:
                    answer = act(self._rows(request.observations, request.count))
                elif type(request) is Rows:
                    self._serve_rows(request)
                    continue
                elif type(request) is Reset:
                    self._reset(request.request["seed"])
                    answer = None
                elif type(request) is Close:
                    return
                else:
                    continue
            except BaseException as error:
                connection.send("error", connection.seq, *calling_fault(error, self._format, self._assignment))
            else:
                if answer is None:
                    connection.send("ready", connection.seq)
                else:
                    connection.answer(answer)

    def _reset(self, seed: int) -> None:
        if self._clearing is not None:
            self._clearing.reset()
        _seed(seed)
        self._model.reset(seed)

    def _rows(self, observations: memoryview, count: int) -> "NDArray[Any]":
        return np.frombuffer(observations, self._dtype).reshape(count, *self._shape)

    def _serve_rows(self, request: Rows) -> None:
        """Answer for many scenarios at once, until the evaluator has another request."""
        if (shared := self._rows_shared) is not None and self._row_server is None:
            memory = shared[0]
            models = row_models(self._model, memory.rows, self._reset if request.one_step else None)
            if models:
                kernel = kernel_of(models, self._assignment.interface, request.patience)
                self._row_server = RowServer(memory, models, kernel)
        server = self._row_server
        self._connection.send("rows", self._connection.seq, "none" if server is None else server.kernel)
        if server is not None and shared is not None:
            server.serve(self._connection.socket, *shared[1:])

    def share_rows(self, rows: int, descriptors: Sequence[int]) -> None:
        """Use this memory, and these pipes, for so many rows."""
        memory, asked, answered = descriptors
        self._rows_shared = (RowMemory.map_descriptor(self._assignment.interface, rows, memory), asked, answered)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
