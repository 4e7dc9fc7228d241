"""The loop of car_street in compiled code against that in Python: equal results, whatever a model server answers."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from runtimes.compiled_code import find_compiler
from runtimes.harness.evaluator import episodes
from runtimes.harness.evaluator.episodes import EpisodeOptions
from runtimes.harness.model_server import action_exchange, direct_loop
from runtimes.harness.model_server.direct_loop import ServerLoop
from runtimes.harness.model_server.model_faults import ModelFault
from runtimes.harness.model_server.model_protocol import framed
from runtimes.harness.model_server.model_server_client import ModelServerClient
from runtimes.harness.simulators.base import Scenario, SimulatorBroken
from runtimes.harness.simulators.direct_exchange import Pause
from tests.simulators.car_street import SPECS, simulator, sumo

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="the compiled loop needs a C++ compiler")

#: The step whose answer is special, and a deadline that is met on a busy machine.
SPECIAL, PATIENT = 5, 60.0
Send = Callable[[socket.socket, int, bytes], object]


def usual(connection: socket.socket, seq: int, action: bytes) -> None:
    connection.sendall(framed(("action", seq, action)))


def in_pieces(connection: socket.socket, seq: int, action: bytes) -> None:
    for byte in framed(("action", seq, action)):
        connection.sendall(bytes([byte]))
        time.sleep(0.002)


def after(seconds: float) -> Send:
    def send(connection: socket.socket, seq: int, action: bytes) -> None:
        time.sleep(seconds)
        usual(connection, seq, action)

    return send


def with_values(*values: float) -> Send:
    return lambda connection, seq, action: usual(connection, seq, np.array(values, np.float32).tobytes())


def instead(*message: Any, after: bytes = b"") -> Send:
    """Send another message; the sequence number stands for SEQ in it."""

    def send(connection: socket.socket, seq: int, action: bytes) -> None:
        connection.sendall(framed(tuple(seq if part is ... else part for part in message)) + after)

    return send


ANSWERS: dict[str, tuple[Send, float]] = {
    "usual": (usual, PATIENT),
    "in pieces": (in_pieces, PATIENT),
    "slow": (after(0.3), 2.0),
    "one byte more": (instead("action", ..., bytes(8), after=b"x"), PATIENT),
    "another number": (instead("action", 70000, bytes(8)), PATIENT),
    "another length": (instead("action", ..., bytes(4)), PATIENT),
    "another frame": (instead("ready", ...), PATIENT),
    "no frame": (lambda connection, seq, action: connection.sendall(b"\xff\xff\xff\x7f"), PATIENT),
    "an error": (instead("error", ..., "oh no"), PATIENT),
    "an error of kind invalid": (instead("error", ..., "(3,)", "invalid"), PATIENT),
    "not a number": (with_values(np.nan, 0.0), PATIENT),
    "infinite": (with_values(0.0, -np.inf), PATIENT),
    "large and finite": (with_values(3e38, 3e38), PATIENT),
    "the end": (lambda connection, seq, action: connection.shutdown(socket.SHUT_RDWR), PATIENT),
    "nothing": (lambda connection, seq, action: None, 0.4),
    "too late": (after(0.8), 0.4),
}


def frames(connection: socket.socket) -> Iterator[list[Any]]:
    stream = connection.makefile("rb")
    while len(head := stream.read(4)) == 4:
        yield msgspec.msgpack.decode(stream.read(struct.unpack("<I", head)[0]))


def answer(connection: socket.socket, special: Send, seen: list[bytes]) -> None:
    """Answer each observation with an action that depends on it; step SPECIAL in another way."""
    try:
        for number, (_, seq, _, observation) in enumerate(frames(connection)):
            seen.append(observation)
            values = np.frombuffer(observation, np.float32)
            action = np.array([(values.sum() * 7) % 5 - 2.5, np.sign(values[6])], np.float32).tobytes()
            (special if number == SPECIAL else usual)(connection, seq, action)
    except OSError:
        pass  # the evaluator has closed its end after a fault


def play(loop: Any, scenario: Scenario, special: Send = usual, deadline: float = PATIENT) -> dict[str, Any]:
    """Run a scenario with one of the two loops; return all that its result depends on."""
    world = simulator()
    local, remote = socket.socketpair()
    client = ModelServerClient(local, world.interface, batch=1, deadline=deadline, per_scenario=False)
    seen: list[bytes] = []
    thread = threading.Thread(target=answer, args=(remote, special, seen))
    thread.start()
    latencies: list[float] = []
    actions: list[bytes] = []
    fault: Exception | None = None
    try:
        loop(world, client, world.reset(scenario), EpisodeOptions(), latencies, actions)
    except Exception as error:
        fault = error
    status = fault.status if isinstance(fault, ModelFault) else None
    # the signals of a frame are kept by steps only, which replays are made of
    frame = {name: value for name, value in world.frame().items() if name not in ("observation", "action")}
    outcome = json.dumps([world.outcome(status), frame])
    local.close()
    thread.join()
    remote.close()
    assert all(0.0 < latency < 60.0 for latency in latencies)
    return {
        "fault": (type(fault), str(fault)),
        "outcome": outcome,
        "seen": seen,
        "answers": len(latencies),
        "actions": b"".join(actions),
    }


def scenario_of(event: str, seed: int = 3) -> Scenario:
    line = next(line for line in SPECS if line["event"] == event and line["density"] == "medium")
    return Scenario(index=line["index"], seed=seed, spec=line)


@pytest.mark.parametrize("event", sorted({line["event"] for line in SPECS}))
def test_scenarios_of_every_event_are_equal_in_both_loops(event: str) -> None:
    for seed in range(3):
        scenario = scenario_of(event, seed)
        assert play(episodes.drive_directly, scenario) == play(episodes.drive, scenario)


@pytest.mark.parametrize("kind", ANSWERS)
def test_any_answer_has_the_same_result_in_both_loops(kind: str) -> None:
    special, deadline = ANSWERS[kind]
    direct = play(episodes.drive_directly, scenario_of("lead_brake"), special, deadline)
    assert direct == play(episodes.drive, scenario_of("lead_brake"), special, deadline)
    good = kind in {"usual", "in pieces", "slow", "large and finite"}
    assert (direct["answers"] > SPECIAL + 1) == good, direct["fault"]


def test_a_loop_that_pauses_often_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = scenario_of("cut_in")
    expected = play(episodes.drive, scenario)
    for module in (action_exchange, direct_loop):
        monkeypatch.setattr(module, "DRAWN", 7)
    assert play(episodes.drive_directly, scenario) == expected


def test_an_answer_that_is_whole_but_late_is_judged_by_the_watch_of_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin, settled = ServerLoop.begin, []

    def impatient(loop: ServerLoop, observation: Any, deadline: float) -> None:
        begin(loop, observation, deadline)
        loop.exchange.deadline = 0.0

    settle = ServerLoop.settle
    monkeypatch.setattr(ServerLoop, "begin", impatient)
    monkeypatch.setattr(ServerLoop, "settle", lambda loop, pause: (settled.append(pause), settle(loop, pause)))
    direct = play(episodes.drive_directly, scenario_of("none"))
    monkeypatch.undo()
    assert settled == [Pause.LATE] * direct["answers"]
    assert direct == play(episodes.drive, scenario_of("none"))


def test_an_exception_of_an_event_is_that_of_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator()  # SUMO can be imported from here on, whichever test came first
    from runtimes.harness.simulators.sumo.lead_events import LeadBrake

    step = LeadBrake.step

    def failing(event: LeadBrake, ego: Any) -> None:
        if ego.now > 1.0:
            raise ValueError("no such actor")
        step(event, ego)

    monkeypatch.setattr(LeadBrake, "step", failing)
    direct = play(episodes.drive_directly, scenario_of("lead_brake"))
    assert direct["fault"] == (ValueError, "no such actor")
    assert direct == play(episodes.drive, scenario_of("lead_brake"))


def test_an_error_of_sumo_in_the_loop_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    world = simulator()
    from runtimes.harness.simulators.sumo import compiled_library

    world.reset(scenario_of("none"))
    monkeypatch.setattr(world._step, "_drive", lambda *_: compiled_library.SUMO_FAILED)
    local, remote = socket.socketpair()
    client = ModelServerClient(local, world.interface, batch=1, deadline=PATIENT, per_scenario=False)
    with local, remote, pytest.raises(SimulatorBroken, match="SUMO failed"):
        episodes.drive_directly(world, client, np.zeros(32, np.float32), EpisodeOptions(), [], [])


def test_an_error_of_sumo_that_is_not_fatal_is_raised_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    world = simulator()
    from runtimes.harness.simulators.sumo.lead_events import SlowTruck

    def removing(event: SlowTruck, ego: Any) -> None:
        sumo().vehicle.remove("ego")
        sumo().simulationStep()

    monkeypatch.setattr(SlowTruck, "step", removing)
    local, remote = socket.socketpair()
    client = ModelServerClient(local, world.interface, batch=1, deadline=PATIENT, per_scenario=False)
    thread = threading.Thread(target=answer, args=(remote, usual, []))
    thread.start()
    observation = world.reset(scenario_of("slow_truck"))
    with pytest.raises(sumo().TraCIException, match="Vehicle 'ego' is not known"):
        episodes.drive_directly(world, client, observation, EpisodeOptions(), [], [])
    local.close()
    thread.join()
    remote.close()


def test_delayed_actions_and_dry_runs_are_driven_by_python() -> None:
    world = simulator()
    world.reset(scenario_of("none"))
    assert episodes.may_drive_directly(world, EpisodeOptions())
    assert not episodes.may_drive_directly(world, EpisodeOptions(latency_steps=2))
    assert not episodes.may_drive_directly(world, EpisodeOptions(describe_model=lambda: None))  # type: ignore[arg-type, return-value]
