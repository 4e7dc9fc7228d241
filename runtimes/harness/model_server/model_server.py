"""The model server: holds a user's model and answers the evaluator, in an environment and a sandbox of its own.

With isolation "scenario" this process stays a zygote that runs no user code: each scenario is played by a fresh child,
so that nothing but the model's file carries over from one to the next. See docs/model-server.md for the protocol.
"""

import ctypes
import gc
import importlib
import json
import mmap
import os
import platform
import random
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np

from ..models.base import Assignment, LoadedModel, Misfit, NoAction
from ..simulators.base import Interface
from . import model_protocol
from .model_protocol import Act, Close, Done, Load, Reset

#: A confined model server's own; the machine's is not touched.
TMP = Path("/tmp")
#: How a child says that its scenario ended as it should; a model that exits will hardly use it.
PLAYED = 94
#: No frame from the evaluator is larger; it is trusted, but may be at odds with itself.
LARGEST = 256 << 20


class Line:
    """The model server's end of its socket. ``exact``: no byte beyond the frame is read; it may be a child's."""

    def __init__(self, end: socket.socket, *, exact: bool) -> None:
        self._socket = end
        self._exact = exact
        self._buffer = bytearray(1 << 16)
        self._view = memoryview(self._buffer)
        self._have = 0
        self._used = 0
        self._decoder = msgspec.msgpack.Decoder(model_protocol.Request)
        self._encoder = msgspec.msgpack.Encoder()
        self._out = bytearray(1 << 16)
        self.rights: list[int] = []

    def next(self) -> model_protocol.Request | None:
        """Return the next request, good until the one after it; None once the evaluator is gone."""
        have, used = self._have, self._used
        if used < have:
            self._buffer[: have - used] = self._buffer[used:have]
        self._have, self._used = have - used, 0
        if self._have < 4 and not self._fill(4):
            return None
        total: int = 4 + model_protocol.LENGTH.unpack_from(self._buffer)[0]
        if self._have < total and (total > LARGEST or not self._fill(total)):
            return None
        self._used = total
        return self._decoder.decode(self._view[4:total])  # type: ignore[no-any-return]

    def _fill(self, need: int) -> bool:
        if need > len(self._buffer):
            larger = bytearray(need)
            larger[: self._have] = self._buffer[: self._have]
            self._buffer, self._view = larger, memoryview(larger)
        while self._have < need:
            stop = need if self._exact else len(self._buffer)
            try:
                got = self._socket.recv_into(self._view[self._have : stop])
            except ConnectionError:
                return False
            if got == 0:
                return False
            self._have += got
        return True

    def load(self) -> Load | None:
        """Return the first request, which brings the model's descriptor along."""
        data, self.rights, _, _ = socket.recv_fds(self._socket, 4, 1)
        self._buffer[: len(data)] = data
        self._have = len(data)
        request = self.next() if data else None
        return request if isinstance(request, Load) else None

    def say(self, *message: Any) -> None:
        """Answer."""
        out = self._out
        self._encoder.encode_into(message, out, 4)
        model_protocol.LENGTH.pack_into(out, 0, len(out) - 4)
        sent = self._socket.send(out)
        if sent < len(out):
            self._socket.sendall(memoryview(out)[sent:])

    def forget(self) -> None:
        """Drop the bytes of the frame at hand."""
        self._have = self._used = 0


def main() -> None:
    """Confine this process, import the format's libraries, seal, and serve one evaluator until it closes."""
    told = json.loads(sys.argv[1])
    fork = told["isolation"] == "scenario"
    scratch, sealed = _confine(told.get("confinement"), fork=fork)
    name = told["format"]
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise SystemExit(f"no such format: {name!r}")
    format = importlib.import_module(f"..models.{name}", __package__).FORMAT
    format.preload()
    if sealed:
        from ..sandbox import seal

        seal(may_fork=fork)
    end = socket.socket(fileno=told["socket"])
    line = Line(end, exact=fork)
    line.say(
        "hello",
        model_protocol.PROTOCOL,
        {"model_server": "python", "version": platform.python_version(), "format": name},
    )
    request = line.load()
    if request is None:
        return
    assignment = Assignment(
        source=_source(request, line),
        interface=Interface.of(
            {"observation": _space(request.request["observation"]), "action": _space(request.request["action"])}
        ),
        batch=int(request.request["batch"]),
        params=request.request["params"],
        scratch=scratch,
    )
    server = ModelServer(line, format, assignment, request.seq)
    if fork:
        _zygote(server, sealed=sealed, scratch=scratch)
    server.load()
    server.serve()
    if not sealed and scratch is not None:
        _sweep(scratch)


def _confine(told: dict[str, Any] | None, *, fork: bool) -> tuple[Path | None, bool]:
    """Return the folder a model may write to, if any, and whether there is a seal to be put on."""
    if told is None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        return Path(tempfile.gettempdir()) / f"model-{os.getpid()}-{secrets.token_hex(4)}", False
    from ..sandbox import Confinement, confine

    fields = dict(told)
    fields["readonly"] = tuple(fields.get("readonly", ()))
    fields["keep"] = tuple(fields.get("keep", ()))
    report = confine(Confinement(**{"may_fork": fork, **fields}))
    return TMP if report.level == 3 else None, report.level > 1


def _source(request: Load, line: Line) -> bytes:
    """Return the model's bytes and keep no way to them that children would share."""
    descriptor = line.rights.pop() if line.rights else os.open(str(request.request["model"]), os.O_RDONLY)
    try:
        parts, at = [], 0
        while part := os.pread(descriptor, 1 << 24, at):
            parts.append(part)
            at += len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _space(told: dict[str, Any]) -> dict[str, Any]:
    low = [-np.inf if value is None else value for value in told["low"]]
    high = [np.inf if value is None else value for value in told["high"]]
    return {**told, "low": low, "high": high}


class ModelServer:
    """One model and its conversation with the evaluator."""

    def __init__(self, line: Line, format: Any, assignment: Assignment, seq: int) -> None:
        self._line = line
        self._format = format
        self._assignment = assignment
        self._seq = seq
        self._model: LoadedModel
        space = assignment.interface.observation
        self._dtype = np.dtype(space.dtype)
        self._shape = space.shape

    def prepare(self) -> None:
        """Do once, in the zygote, what can be done without running the model."""
        prepare = getattr(self._format, "prepare", None)
        if prepare is not None:
            try:
                prepare(self._assignment)
            except Misfit:
                return  # the child that loads it will say so

    def load(self, *, quiet: bool = False) -> None:
        """Load the model and answer `load`; end this process if it does not load."""
        _seed(0)  # what a model draws while it is loaded is the same every time, too
        try:
            self._model = self._format.load(self._assignment)
        except Misfit as error:
            self._line.say("error", self._seq, tellable(str(error)), "invalid")
            _leave(1)
        except BaseException as error:
            self._line.say("error", self._seq, told_of(error), "failed")
            _leave(1)
        if not quiet:
            self._line.say("loaded", self._seq, dict(self._model.info))

    def serve(self, *, once: bool = False) -> bool:
        """Answer until the evaluator is gone, which is False, or ``once``: until the scenario is done."""
        line, model = self._line, self._model
        while (request := line.next()) is not None:
            if type(request) is Act:
                try:
                    observations = np.frombuffer(request.observations, self._dtype)
                    answer = model.act(observations.reshape(request.count, *self._shape))
                except NoAction as error:
                    line.say("error", request.seq, tellable(str(error)), "invalid")
                except BaseException as error:
                    line.say("error", request.seq, told_of(error), "failed")
                else:
                    line.say("action", request.seq, answer)
            elif type(request) is Reset:
                seed = request.request["seed"]
                _seed(seed)
                try:
                    model.reset(seed)
                except BaseException as error:
                    line.say("error", request.seq, told_of(error), "failed")
                else:
                    line.say("ready", request.seq)
            elif type(request) is Done and once:
                return True
            elif type(request) is Close:
                return False
        return False


def _zygote(server: ModelServer, *, sealed: bool, scratch: Path | None) -> NoReturn:
    """Fork a child for each scenario, loaded before it is asked for; end as a child ends that does not end well."""
    server.prepare()
    gc.collect()
    gc.freeze()
    kept = frozenset(os.listdir(scratch)) if scratch is not None and scratch.exists() else frozenset()
    first = True
    heard = mmap.mmap(-1, 1)  # shared with each child, who says here that it was told of its scenario's end
    while True:
        zygote = os.getpid()
        heard[0] = 0
        child = os.fork()
        if child == 0:
            _scenario(server, heard, sealed=sealed, zygote=zygote, quiet=not first)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if scratch is not None:
            _sweep(scratch, kept)
        if code != PLAYED or not heard[0]:  # a model may end with any code, ours too
            os._exit(code if code >= 0 else 128 - code)
        first = False


def _scenario(server: ModelServer, heard: mmap.mmap, *, sealed: bool, zygote: int, quiet: bool) -> NoReturn:
    """Be the child that plays one scenario."""
    code = 1
    try:
        if sealed:
            from ..sandbox import seal

            seal()
        else:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() == zygote:
            server.load(quiet=quiet)
            if server.serve(once=True):
                heard[0], code = 1, PLAYED
            else:
                code = 0
    finally:
        _leave(code)


def _leave(code: int) -> NoReturn:
    """End now: no hooks of the model's, no threads to wait for."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            code = code or 1  # the model closed or replaced it
    os._exit(code)


def _sweep(folder: Path, kept: frozenset[str] = frozenset()) -> None:
    """Leave nothing for the next scenario's process, but for what lay there before the first: places of mounts."""
    if folder != TMP:  # unconfined, with a folder of our own among everybody's
        shutil.rmtree(folder, ignore_errors=True)
        return
    for entry in os.scandir(folder):
        if entry.name in kept:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


def told_of(error: BaseException) -> str:
    """Say what a model raised and where in its own file; the whole of it goes to the log."""
    try:
        traceback.print_exception(error)
        place = ""
        for step in traceback.extract_tb(error.__traceback__):
            name = os.path.basename(step.filename)
            if name == "model.py" or "/model/" in step.filename:
                place = f" ({name}, line {step.lineno})"
        return tellable(f"{type(error).__name__}: {error}"[: model_protocol.WORDS] + place)
    except BaseException:  # an exception of the model's may raise another when it is looked at, and so may its stderr
        return tellable(f"{type(error).__name__}, which cannot be told")


def tellable(text: str) -> str:
    """Return a text that can be written as UTF-8, and is not too long."""
    return text.encode(errors="replace").decode()[: model_protocol.WORDS]
