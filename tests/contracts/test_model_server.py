"""Contract of model servers, docs/model-server.md: the shipped servers, and a server in C written from that page."""

import array
import os
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import uv

from runtimes import catalogue, environments
from runtimes.harness.forking.scenario_sockets import ScenarioSockets
from runtimes.harness.model_server import model_faults, model_protocol
from runtimes.harness.model_server.model_server_client import ModelServerClient
from runtimes.harness.model_server.row_memory import IDLE, RESET
from runtimes.harness.runner import processes
from runtimes.harness.simulators.base import Interface, Space
from tests.cached import ENVIRONMENTS
from tests.contracts import graphs
from tests.contracts.harness_processes import SITE, worker_spec

#: Model servers of formats with declared inputs, and those of code.
DECLARED, CODE = ("onnx", "tflite", "c"), ("python", "python, a process per scenario")


def space(width: int) -> Space:
    names = tuple(f"x{number}" for number in range(width))
    infinity = (float("inf"),) * width
    low = tuple(-value for value in infinity)
    return Space(dtype="float32", shape=(width,), names=names, units=("",) * width, low=low, high=infinity)


def interface(observation_width: int = 4, action_width: int = 4) -> Interface:
    return Interface(observation=space(observation_width), action=space(action_width))


@dataclass
class Process:
    """A model server's process, and the evaluator's end of its socket."""

    popen: Any
    socket: socket.socket


@dataclass(frozen=True)
class ModelServerKind:
    """A kind of model server: how to start one, and a model for it that answers scale * x + offset."""

    name: str
    start: Callable[[], Process]
    model: Callable[..., bytes]
    isolation: str = "launch"


def shipped_model_server(format: str, site: str, isolation: str) -> Callable[[], Process]:
    def start() -> Process:
        model_server = processes.spawn_model_server(
            worker_spec(format=format, model_server_site=site, isolation=isolation), "model_server"
        )
        return Process(model_server.process.popen, model_server.socket)

    return start


@pytest.fixture(scope="session")
def c_model_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("c") / "model_server"
    source = Path(__file__).with_name("model_server.c")
    # Without a C compiler on this machine, uv downloads one.
    zig = [uv.find_uv_bin(), "run", "--quiet", "--no-project", "--with", "ziglang", "python", "-m", "ziglang", "cc"]
    compiler = ["cc"] if shutil.which("cc") else zig
    subprocess.run([*compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return program


def site_of(runtime: str, format: str) -> str:
    environment = catalogue.runtime(runtime).formats[format].environment
    return str(environments.prepare(environment, ENVIRONMENTS, lambda message, part: None))


@pytest.fixture(params=[*CODE, *DECLARED])
def kind(request: pytest.FixtureRequest) -> ModelServerKind:
    return kind_of(request.param, request)


@pytest.fixture(params=DECLARED)
def declared(request: pytest.FixtureRequest) -> ModelServerKind:
    return kind_of(request.param, request)


def kind_of(name: str, request: pytest.FixtureRequest) -> ModelServerKind:
    if name == "c":
        program = request.getfixturevalue("c_model_server")

        def start() -> Process:
            local, remote = socket.socketpair()
            with remote:
                options = f'{{"socket":{remote.fileno()}, "format": "text"}}'
                return Process(subprocess.Popen([program, options], pass_fds=[remote.fileno()]), local)

        return ModelServerKind("c", start, lambda width=4, scale=2.0, offset=1.0: f"{scale} {offset}".encode())
    if name.startswith("python"):
        isolation = "launch" if name == "python" else "scenario"
        return ModelServerKind(name, shipped_model_server("python", SITE, isolation), graphs.python, isolation)
    site = site_of({"onnx": "onnx", "tflite": "tensorflow"}[name], name)
    if name == "onnx":
        return ModelServerKind(name, shipped_model_server(name, site, "launch"), graphs.onnx)

    def tflite(width: int = 4, scale: float = 2.0, offset: float = 1.0) -> bytes:
        return graphs.tflite(site, width, scale, offset)

    return ModelServerKind(name, shipped_model_server(name, site, "launch"), tflite)


@contextmanager
def running_model_server(kind: ModelServerKind) -> Iterator[Process]:
    process = kind.start()
    try:
        yield process
    finally:
        process.socket.close()
        process.popen.kill()
        process.popen.wait()


@contextmanager
def open_file_of(content: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.fileno()


@contextmanager
def loaded(
    kind: ModelServerKind, *, batch: int = 1, deadline: float = 20.0, rows: int = 0
) -> Iterator[tuple[ModelServerClient, Process]]:
    with running_model_server(kind) as process, open_file_of(kind.model()) as model:
        model_server = ModelServerClient(
            process.socket,
            interface(),
            batch=batch,
            deadline=deadline,
            per_scenario=kind.isolation == "scenario",
            rows=rows,
        )
        model_server.hello()
        model_server.load("any", {}, model)
        try:
            yield model_server, process
        finally:
            model_server.close()


def observations(count: int = 1) -> np.ndarray[Any, Any]:
    return np.linspace(-1.0, 1.0, count * 4, dtype=np.float32).reshape(count, 4)


def test_the_first_frame_is_hello_with_the_protocol_version(kind: ModelServerKind) -> None:
    with running_model_server(kind) as process:
        frame = receive(process.socket)
    assert frame[:2] == ["hello", 1]
    assert all(isinstance(value, str | int | float | bool | None) for value in frame[2].values())


def test_each_observation_is_answered_with_the_models_action(kind: ModelServerKind) -> None:
    with loaded(kind) as (model_server, _):
        for seed in (1, 2, 2**63 - 1):
            model_server.ready(seed)
            for step in range(5):
                actions, latency = model_server.act(observations() + np.float32(step))
                assert np.array_equal(actions, 2 * (observations() + np.float32(step)) + 1)
                assert latency > 0
            model_server.end(None)


def test_a_batch_is_answered_row_by_row(kind: ModelServerKind) -> None:
    with loaded(kind, batch=16) as (model_server, _):
        model_server.ready(7)
        actions, _ = model_server.act(observations(16))
        assert actions.shape == (16, 4)
        assert np.allclose(actions, 2 * observations(16) + 1, rtol=1e-6)


def test_scenarios_side_by_side_are_answered_like_each_by_itself(kind: ModelServerKind) -> None:
    with loaded(kind, rows=5) as (model_server, _):
        if model_server.rows is None:
            assert kind.name == "c" or kind.isolation == "scenario", "every other one serves many"
            return
        model_server.end(3)
        assert model_server.open_rows(one_step=True, patience=9.0) == ("rows" if kind.name == "onnx" else "one")
        rows = model_server.rows
        rows.observations[:] = [observations()[0] + np.float32(row) for row in range(5)]
        rows.seeds[:], rows.kinds[:] = 7, bytes([RESET, RESET, IDLE, RESET, RESET])
        together, faults, latency = rows.ask()
        assert faults == bytes(5) and latency > 0
        for row in (0, 1, 3, 4):
            model_server.ready(7)
            alone, _ = model_server.act(observations() + np.float32(row))
            assert np.array_equal(together[row], alone[0])
            model_server.end(None)


def test_a_scenario_may_be_reset_without_being_run(kind: ModelServerKind) -> None:
    with loaded(kind) as (model_server, _):
        model_server.begin(1)
        model_server.begin(2)
        model_server.ready(2)
        model_server.act(observations())
        model_server.end(3)
        model_server.ready(4)
        actions, _ = model_server.act(observations())
        assert np.array_equal(actions, 2 * observations() + 1)


def test_replies_repeat_the_sequence_number_of_the_request(kind: ModelServerKind) -> None:
    with running_model_server(kind) as process, wire(kind, process) as connection:
        assert connection.load(1)[:2] == ["loaded", 1]
        for seq in (0, 127, 128, 255, 256, 65535, 65536, 2**31 - 1):
            connection.send(["reset", seq, {"seed": 5}])
            assert connection.receive() == ["ready", seq]
            connection.end(seq)


def test_frames_may_arrive_in_pieces_or_together(kind: ModelServerKind) -> None:
    with running_model_server(kind) as process, wire(kind, process) as connection:
        connection.load(1)
        act = ["act", 3, 1, observations().tobytes()]
        connection.send(["reset", 2, {"seed": 1}], act, ["done", 4])
        assert [connection.receive()[:2] for _ in range(2)] == [["ready", 2], ["action", 3]]
        connection.next_scenario()
        connection.send(["reset", 5, {"seed": 2}], act)
        assert [connection.receive()[:2] for _ in range(2)] == [["ready", 5], ["action", 3]]
        for byte in model_protocol.framed(act):
            connection.socket.send(bytes([byte]))
        assert np.array_equal(np.frombuffer(connection.receive()[2], np.float32), 2 * observations()[0] + 1)


def test_each_scenario_has_a_socket_of_its_own_or_a_done_before_it(kind: ModelServerKind) -> None:
    with running_model_server(kind) as process, wire(kind, process) as connection:
        connection.load(1)
        used = {os.fstat(connection.socket.fileno()).st_ino}
        for seq in range(2, 5):
            connection.send(["reset", seq, {"seed": seq}])
            assert connection.receive() == ["ready", seq]
            connection.end(seq)
            used.add(os.fstat(connection.socket.fileno()).st_ino)
        assert len(used) == (4 if kind.isolation == "scenario" else 1)


def test_a_model_of_another_width_is_refused_with_both_shapes(declared: ModelServerKind) -> None:
    with running_model_server(declared) as process, open_file_of(declared.model(width=3)) as model:
        observation_width, action_width = (4, 5) if declared.name == "c" else (4, 4)
        model_server = ModelServerClient(
            process.socket, interface(observation_width, action_width), batch=1, deadline=20.0
        )
        model_server.hello()
        with pytest.raises(model_faults.WrongAnswer) as refusal:
            model_server.load("any", {}, model)
    reasons = {
        "onnx": "the model's input is float32[n,3]; the dataset observes float32[4]",
        "tflite": "the model's input is float32[n,3]; the dataset observes float32[4]",
        "c": "the dataset observes 4 and acts by 5",
    }
    assert reasons[declared.name] in str(refusal.value)


def test_a_graph_with_an_input_that_is_neither_observation_nor_state_is_refused(request: pytest.FixtureRequest) -> None:
    kind = replace(kind_of("onnx", request), model=lambda: graphs.onnx_of("Add", ["observation", "hidden"]))
    with pytest.raises(model_faults.WrongAnswer, match=r"input hidden float32\[n,4\] is neither"), loaded(kind):
        pass


@pytest.mark.parametrize("model", [graphs.onnx_of("RandomUniformLike", ["observation"]), graphs.onnx_dropout()])
def test_a_graphs_random_numbers_are_reproducible_by_seed(request: pytest.FixtureRequest, model: bytes) -> None:
    kind = replace(kind_of("onnx", request), model=lambda: model)
    sequences_of_seed: dict[int, set[bytes]] = {}
    for seeds in ([5, 6, 5], [2**63 - 1, 5, 6]):
        with loaded(kind) as (model_server, _):
            for seed in seeds:
                model_server.ready(seed)
                actions = b"".join(model_server.act(observations())[0].tobytes() for _ in range(20))
                sequences_of_seed.setdefault(seed, set()).add(actions)
                assert len({actions[offset : offset + 16] for offset in range(0, 320, 16)}) > 2
    assert [len(sequences) for sequences in sequences_of_seed.values()] == [1, 1, 1]
    assert len(set.union(*sequences_of_seed.values())) == 3


@pytest.mark.parametrize("graph", ["counter", "draws"])
def test_a_lite_graphs_variables_and_random_numbers_end_with_the_scenario(
    request: pytest.FixtureRequest, graph: str
) -> None:
    model = graphs.stateful_tflite(site_of("tensorflow", "tflite"), graph)
    kind = replace(kind_of("tflite", request), model=lambda: model)
    sequences_of_seed: dict[int, set[bytes]] = {}
    for seeds in ([5, 6, 5], [6, 5]):
        with loaded(kind) as (model_server, _):
            for seed in seeds:
                model_server.ready(seed)
                actions = b"".join(model_server.act(observations())[0].tobytes() for _ in range(3))
                sequences_of_seed.setdefault(seed, set()).add(actions)
                assert len({actions[offset : offset + 16] for offset in (0, 16, 32)}) == 3
    assert [len(sequences) for sequences in sequences_of_seed.values()] == [1, 1]
    assert len(set.union(*sequences_of_seed.values())) == (1 if graph == "counter" else 2)


def test_a_file_that_is_not_a_model_is_refused_with_a_reason(kind: ModelServerKind) -> None:
    with running_model_server(kind) as process, open_file_of(b"\x00 no model at all") as model:
        model_server = ModelServerClient(process.socket, interface(), batch=1, deadline=20.0)
        model_server.hello()
        with pytest.raises((model_faults.WrongAnswer, model_faults.Failed)) as refusal:
            model_server.load("any", {}, model)
        model_server.close()
    assert len(str(refusal.value)) > 10


def test_a_model_server_exits_with_code_0_on_close_and_when_the_socket_is_closed(kind: ModelServerKind) -> None:
    with loaded(kind) as (model_server, process):
        model_server.ready(1)
        model_server.act(observations())
        model_server.end(None)
        model_server.close()
        assert process.popen.wait(10) == 0
    with running_model_server(kind) as process:
        with wire(kind, process) as connection:
            connection.load(1)
        process.socket.close()
        assert process.popen.wait(10) == 0


def load_request() -> dict[str, Any]:
    space_description = model_protocol.describe(replace(space(4)))
    request = {"format": "any", "model": None, "batch": 1, "params": {}}
    return request | {"observation": space_description, "action": space_description}


class Wire:
    """An evaluator's raw side of the protocol, on the socket of the model server or of the scenario's process."""

    def __init__(self, kind: ModelServerKind, control: socket.socket) -> None:
        self._kind = kind
        self._control = control
        self.socket = control
        per_scenario = kind.isolation == "scenario"
        self._sockets = ScenarioSockets(control, model_protocol.SOCKET_FRAME) if per_scenario else None

    def load(self, seq: int) -> Any:
        """Send `load`; return the answer, which a scenario's process gives on its own socket."""
        with open_file_of(self._kind.model()) as model:
            descriptors = [model]
            if self._sockets is not None:
                descriptors.append((first := self._sockets.make()).fileno())
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            self.socket.sendmsg([model_protocol.framed(["load", seq, load_request()])], rights)
        if self._sockets is not None:
            first.close()
            self._use_process(self._sockets)
        return self.receive()

    def send(self, *messages: list[Any]) -> None:
        """Send frames together."""
        self.socket.sendall(b"".join(model_protocol.framed(message) for message in messages))

    def receive(self) -> Any:
        """Receive a frame."""
        return receive(self.socket)

    def end(self, seq: int) -> None:
        """End a scenario in both ways that an evaluator has."""
        self.send(["done", seq])
        self.next_scenario()

    def next_scenario(self) -> None:
        """Continue on the socket of the next scenario's process, if there is a process per scenario."""
        if self._sockets is not None:
            self.close()
            self._sockets.offer()
            self._use_process(self._sockets)

    def _use_process(self, sockets: ScenarioSockets) -> None:
        self._control.settimeout(30)
        assert self._control.recv(len(model_protocol.SOCKET_FRAME)) == model_protocol.SOCKET_FRAME
        self.socket = sockets.take()

    def close(self) -> None:
        """Close the socket of the scenario's process."""
        if self.socket is not self._control:
            self.socket.close()


@contextmanager
def wire(kind: ModelServerKind, process: Process) -> Iterator[Wire]:
    """Connect to a model server that has greeted."""
    receive(process.socket)
    connection = Wire(kind, process.socket)
    try:
        yield connection
    finally:
        connection.close()


def receive(connection: socket.socket) -> Any:
    connection.settimeout(30)
    (length,) = struct.unpack("<I", receive_bytes(connection, 4))
    payload = receive_bytes(connection, length)
    decoded = msgspec.msgpack.decode(payload)
    assert msgspec.msgpack.encode(decoded) == payload, "the frame is not in the shortest encoding"
    return decoded


def receive_bytes(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        chunk = connection.recv(length - len(data))
        assert chunk, "the model server has ended"
        data += chunk
    return data
