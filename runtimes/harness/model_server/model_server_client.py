"""Model server client: the evaluator's side of the model protocol, from `hello` to `close`."""

import array
import contextlib
import select
import signal
import socket
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..forking.scenario_sockets import ScenarioSockets
from ..python_process import KILLED
from ..simulators.base import Interface, Space
from ..visible_text import visible
from .action_exchange import FIRST, NUMBER, ActionExchange
from .deadline_watch import DeadlineWatch, ReadTimes
from .deadlines import HELLO, LOAD, RESET
from .direct_loop import ServerLoop
from .explanations import explain_end
from .model_faults import Crashed, Garbage, Killed, ModelFault, NotStarted, TimedOut
from .model_protocol import (
    LENGTH,
    PROCESS_PER_SCENARIO,
    PROTOCOL,
    SERVES_ROWS,
    SOCKET_FRAME,
    Ended,
    ErrorReply,
    Hello,
    Kernel,
    LoadedReply,
    RowsReply,
    Scalar,
    describe,
    framed,
)
from .model_server_socket import ModelServerSocket, reported
from .row_exchange import RowExchange

#: Seconds to wait for a model server's last frame, which tells how a scenario's process ended.
END_WAIT = 0.5
#: The most bytes of this last frame.
LAST = 64

_hello_decoder = msgspec.msgpack.Decoder(Hello)
_ended_decoder = msgspec.msgpack.Decoder(Ended)
Reply = TypeVar("Reply", LoadedReply, RowsReply)


class ModelServerClient:
    """The evaluator's client of a model server: validates every reply; an action has ``deadline`` seconds.

    ``per_scenario``: nothing may carry over between scenarios. The model server has a process for each scenario, with
    a socket that is made here, or continues on its own socket after a `done`.
    ``rows``: how many scenarios it may serve at once, if it can.
    ``read_times`` tells what the machine let the model server do, so that a deadline counts only time that it had.
    """

    def __init__(
        self,
        connected: socket.socket,
        interface: Interface,
        *,
        batch: int,
        deadline: float,
        per_scenario: bool = True,
        rows: int = 0,
        read_times: ReadTimes = lambda: None,
    ) -> None:
        self._control: socket.socket | None = None  # on which the sockets of scenarios are passed
        self._sockets: ScenarioSockets | None = None
        self._process_per_scenario = False  # as the model server has said in its `hello`
        self._has_process = True  # ``_socket`` is that of a process whose scenario has not ended
        self._interface = interface
        self._batch = batch
        self.deadline = deadline
        self._per_scenario = per_scenario
        self._resetting: int | None = None  # the seed of a `reset` that has not been answered yet
        self._in_scenario = False
        self._ready = bytearray(framed(("ready", FIRST)))
        #: Exchange of many scenarios at once; None: the model server, or its model, serves one.
        self.rows: RowExchange | None = None
        self._most_rows = rows
        #: Tells how the model server's process ended, None if it has not; asked only after a crash.
        self.describe_end: Callable[[], str | None] = lambda: None
        room = len(framed(("action", FIRST, bytes(batch * interface.action.size))))
        self._socket = ModelServerSocket(connected, room, deadline, read_times)
        self._step = ActionExchange(interface, batch, self._socket.buffer)
        self._direct: ServerLoop | None = None

    def explain_fault(self, fault: ModelFault) -> ModelFault:
        """Return a fault with how the process ended, if it is a crash: the socket tells only that it has ended.

        It is Killed if the model server was killed from outside.
        """
        if not isinstance(fault, Crashed | NotStarted):
            return fault
        code = self._scenario_end() if isinstance(fault, Crashed) else None
        if (how := self.describe_end()) is None:
            return fault
        # Its control group would have counted a kill for memory, and its runner knows whom it has killed itself. The
        # seal of a scenario's process lets it send no such signal, not even to itself.
        outside = isinstance(fault, Crashed) and how == KILLED and code in {None, -signal.SIGKILL}
        return (Killed if outside else type(fault))(f"{fault}: {explain_end(how)}")

    # -- requests

    def hello(self) -> dict[str, Scalar]:
        """Wait for the model server's first frame; return its description."""
        payload = self._socket.receive_small(self._socket.watch(HELLO))
        try:
            greeting = _hello_decoder.decode(payload)
        except (msgspec.MsgspecError, RecursionError):
            raise Garbage("the model server's first frame is not `hello`") from None
        if greeting.protocol != PROTOCOL:
            raise Garbage(f"the model server speaks protocol {greeting.protocol}, not {PROTOCOL}")
        serves_rows = greeting.model_server.pop(SERVES_ROWS, None) is True
        self._most_rows = self._most_rows if serves_rows else 0
        self._process_per_scenario = greeting.model_server.pop(PROCESS_PER_SCENARIO, None) is True
        return _visible_values(greeting.model_server)

    def load(
        self, format: str, params: Mapping[str, Any], model: int | str, *, step: float | None = None
    ) -> dict[str, Scalar]:
        """Send the model's descriptor, or the path of its folder; return the model server's information on it.

        ``step``: seconds from one action to the next, if the dataset has them. Raises the model server's refusal.
        """
        if self._most_rows:
            try:
                self.rows = RowExchange(self._socket, self._interface, self._most_rows)
            except OSError:  # this machine or container lets it make no such memory
                self._most_rows = 0
        request = {
            "format": format,
            "model": model if isinstance(model, str) else None,
            "observation": describe(self._interface.observation),
            "action": describe(self._interface.action),
            "batch": self._batch,
            "params": dict(params),
            "step": step,
            **({"rows": self._most_rows} if self._most_rows else {}),
        }
        frame = framed(("load", self._socket.draw(), request))
        with contextlib.ExitStack() as passed_on:
            passed = [] if isinstance(model, str) else [model]
            if self._per_scenario and self._process_per_scenario:
                self._sockets = ScenarioSockets(self._socket.connected, SOCKET_FRAME)
                passed.append(passed_on.enter_context(self._sockets.make()).fileno())
            if self.rows is not None:
                passed += self.rows.descriptors
                passed_on.callback(self.rows.close_passed)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", passed))] if passed else []
            try:
                sent = self._socket.connected.sendmsg([frame], rights)
            except BlockingIOError:
                raise TimedOut("the model server does not read its socket") from None
            except OSError:
                raise Crashed("the model's process ended") from None
        if sent < len(frame):  # otherwise send nothing: the server may have exited after an error that is still unread
            self._socket.send(frame[sent:])
        watch = self._socket.watch(LOAD)
        received = self._use_first_process(self._sockets, watch) if self._sockets is not None else b""
        return _visible_values(self._answer("load", LoadedReply, watch, received).info)

    def begin(self, seed: int) -> None:
        """Send `reset` without waiting for the reply, unless it was sent with this seed or has no process yet."""
        if self._resetting == seed:
            return
        if self._resetting is not None:
            self._await_ready()
        self._done()
        if self._has_process or self._use_next_process(None):
            self._socket.send(framed(("reset", self._socket.draw(), {"seed": seed})))
            self._resetting = seed

    def ready(self, seed: int) -> None:
        """Wait for the reply to `reset`, which is sent if it has not been sent with this seed.

        Raises NotStarted if the model server has no process for this scenario, which is then no fault of the scenario.
        """
        self.begin(seed)
        if self._resetting is None:
            if not self._use_next_process(self._socket.watch(max(RESET, self.deadline))):
                raise NotStarted("the model server did not start the scenario's process in time")
            self.begin(seed)
        self._await_ready()

    def end(self, next_seed: int | None) -> None:
        """End the scenario, and send the `reset` of the one that probably follows.

        A fault here is ignored: the scenario has ended, and the next request will raise it again.
        """
        with contextlib.suppress(ModelFault):
            self._done()
            if next_seed is not None:
                self.begin(next_seed)

    def _await_ready(self) -> None:
        self._resetting = None
        self._in_scenario = True
        NUMBER.pack_into(self._ready, len(self._ready) - NUMBER.size, self._socket.seq)
        self._socket.receive_exactly(self._ready, self._socket.watch(max(RESET, self.deadline)))

    def act(self, observations: NDArray[Any]) -> tuple[NDArray[Any], float]:
        """Return the actions, a view that the next call overwrites, and the latency in seconds.

        The actions have the right shape and type, but any values: see ``finite``.
        """
        exchange = self._step
        exchange.observations[:] = observations
        return exchange.actions, self._socket.ask(exchange)

    def act_alone(self, observation: NDArray[Any]) -> tuple[NDArray[Any], float]:
        """Return the action of a batch of one, in an array of its own, and the latency in seconds."""
        exchange = self._step
        if observation.dtype is exchange.dtype and observation.shape == exchange.shape:
            exchange.observed[:] = observation.tobytes()  # numpy's own assignment takes longer to begin
        else:
            exchange.observation[...] = observation
        latency = self._socket.ask(exchange)
        return exchange.action.copy(), latency

    def direct_loop(self, observation: NDArray[Any]) -> ServerLoop:
        """Return the loop of a scenario for its simulator's compiled code, which begins with this observation."""
        if self._direct is None:
            self._direct = ServerLoop(self._socket, self._step)
        self._direct.begin(observation, self._socket.deadline)
        return self._direct

    def open_rows(self, *, one_step: bool, patience: float) -> Kernel | None:
        """Let the model server answer through ``rows`` until the next request; return how, None: it does not.

        ``one_step``: each scenario ends with its first action. ``patience``: seconds for the comparison of kernels.
        """
        if self.rows is None:
            return None
        if self._resetting is not None:
            self._await_ready()
        self._done()
        self._socket.send(framed(("rows", self._socket.draw(), one_step, patience)))
        kernel = self._answer("rows", RowsReply, self._socket.watch(LOAD)).kernel
        return None if kernel == "none" else kernel

    def _answer(self, request: str, reply: type[Reply], watch: DeadlineWatch, beginning: bytes = b"") -> Reply:
        """Receive the answer to the last request, after its ``beginning``; raise the model server's refusal."""
        received = self._socket.receive_small(watch, beginning)
        try:
            answer: Reply | ErrorReply = msgspec.msgpack.decode(received, type=reply | ErrorReply)
        except (msgspec.MsgspecError, RecursionError):
            raise Garbage(f"the model server's answer to `{request}` is not a frame of the protocol") from None
        if answer.seq != self._socket.seq:
            raise Garbage("the model server answered another request")
        if isinstance(answer, ErrorReply):
            raise reported(answer)
        return answer

    def close(self) -> None:
        """Send `close` and close the socket."""
        connected = self._socket.connected
        try:
            connected.send(framed(("close", self._socket.draw())), socket.MSG_DONTWAIT)
        except OSError:
            pass  # the model server has ended or hangs; its runner ends it
        for connection in (self._control, connected, self._sockets, self._socket.run_delay, self.rows):
            if connection is not None:
                connection.close()

    # -- a process per scenario

    def _done(self) -> None:
        """End the scenario: by closing its process's socket or, if the model server has only one socket, by `done`."""
        if not self._in_scenario:
            return
        if self._sockets is not None:
            self._socket.connected.close()
            self._has_process = False
            self._sockets.offer()
        elif self._per_scenario:
            self._socket.send(framed(("done", self._socket.draw())))
        self._in_scenario = False

    def _use_first_process(self, sockets: ScenarioSockets, watch: DeadlineWatch) -> bytes:
        """Use the socket that was passed with `load`, if its process runs; return what the model server sent else."""
        connected = self._socket.connected
        watch.wait(connected)
        if (received := _received(connected)) != SOCKET_FRAME:
            if not received:
                raise Crashed("the model's process ended")
            sockets.close()
            return received
        self._control = connected
        self._socket.use(sockets.take())
        return b""

    def _use_next_process(self, watch: DeadlineWatch | None) -> bool:
        """Use the socket that was passed for the next scenario, once its process runs; return False if none does in
        time, or yet.
        """
        assert self._control is not None and self._sockets is not None
        try:
            if watch is not None:
                watch.wait(self._control)
            elif not _is_readable(self._control):
                return False
        except TimedOut:
            return False
        if _received(self._control) != SOCKET_FRAME:
            raise NotStarted("the model's process ended between two scenarios")
        self._socket.use(self._sockets.take())
        self._has_process = True
        return True

    def _scenario_end(self) -> int | None:
        """Return how the scenario's process ended (`Ended`); None if the whole model server has ended, or is silent."""
        if self._control is None:
            return None
        if not _is_readable(self._control, END_WAIT):
            return None
        try:
            return _ended_decoder.decode(_received(self._control, LAST)[LENGTH.size :]).code
        except (msgspec.MsgspecError, RecursionError):
            return None


def _received(connection: socket.socket, most: int = len(SOCKET_FRAME)) -> bytes:
    """Receive the next bytes, which a zygote sends at once; none if it has ended."""
    try:
        return connection.recv(most)
    except OSError:
        return b""


def _is_readable(connection: socket.socket, seconds: float = 0.0) -> bool:
    """Return whether a socket has bytes to read within so many seconds, or has been closed at its other end."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _visible_values(info: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {visible(name): visible(value) if isinstance(value, str) else value for name, value in info.items()}


#: Entries of an action whose sum is computed faster by Python than by numpy.
FEW = 16


def finite(actions: NDArray[Any]) -> bool:
    """Return whether every entry is a finite number."""
    return actions.dtype.kind != "f" or bool(np.isfinite(actions).all())


def finite_check(space: Space) -> Callable[[NDArray[Any]], bool]:
    """Return the function that is called at every step to tell whether every entry of an action is a finite number.

    A finite sum is the fastest proof for a list of few floats; that of finite entries may be infinite, too.
    """
    if len(space.shape) == 1 and space.items <= FEW and np.dtype(space.dtype).kind == "f":
        return lambda action: isfinite(sum(action.tolist())) or finite(action)
    return finite
