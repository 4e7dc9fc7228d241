"""Program that is a model server itself: the platform's model server passes requests on, as its evaluator's client."""

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..models.base import Assignment, LoadedModel, Misfit, NoAction, action_bytes
from ..models.program_process import ProgramFailed, ProgramProcess
from .model_faults import Crashed, Failed, ModelFault
from .model_server_client import ModelServerClient

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Seconds that the program has for an answer: the evaluator has the deadlines.
PATIENCE = 1e6


class SocketProgram:
    """A model whose program speaks the protocol of model servers on a socket, and serves all rows of a batch.

    Create it before the process is sealed: the client sets options of the socket.
    """

    info: Mapping[str, str | int | float | bool | None]

    def __init__(self, process: ProgramProcess, connection: socket.socket, assignment: Assignment) -> None:
        self._process = process
        self._assignment = assignment
        self._client = ModelServerClient(
            connection, assignment.interface, batch=assignment.batch, deadline=PATIENCE, per_scenario=False
        )

    def load(self) -> LoadedModel:
        """Send `load`. Raise Misfit if the program refuses."""
        params, folder, step = self._assignment.params, str(self._assignment.files), self._assignment.step
        try:
            greeting = self._client.hello()
            self.info = {"protocol": "socket", **greeting, **self._client.load("program", params, folder, step=step)}
        except Crashed:
            raise self._process.ended().before_load() from None
        except ModelFault as fault:
            raise Misfit(str(fault)) from None
        return self

    def reset(self, seed: int) -> None:
        try:
            self._client.ready(seed)
        except ModelFault as fault:
            self._raise(fault)

    def act(self, observations: "NDArray[Any]") -> bytes:
        try:
            actions, _ = self._client.act(observations)
        except ModelFault as fault:
            self._raise(fault)
        return action_bytes(actions, len(observations), self._assignment.interface.action)

    def _raise(self, fault: ModelFault) -> NoReturn:
        if isinstance(fault, Crashed):
            self._process.ended().exit_like_it()
        raise (ProgramFailed if isinstance(fault, Failed) else NoAction)(str(fault)) from None
