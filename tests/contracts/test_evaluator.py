"""Evaluator with real model servers: every task gets a result and the range continues, whatever the model does."""

import io
import json
import os
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtimes.harness.evaluator.evaluator import STRIKES
from runtimes.harness.evaluator.tasks import TaskPlan
from runtimes.harness.runner import framed_socket
from runtimes.harness.sandbox import level
from tests.contracts import graphs
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec

ZERO = Path("runtimes/harness/simulators/noop/baselines/zero.py").read_bytes()

#: A model with a faulty statement in `act` of its third scenario; it answers zeros otherwise.
FAULTY_MODEL = """
import os, sys, time
import numpy as np
SEED = {seed}
class Unprintable(Exception):
    def __str__(self):
        raise SystemError
class Model:
    def reset(self, info):
        self.now = info["seed"] == SEED
    def act(self, observation):
        if self.now:
            {fault}
        return np.zeros(4, np.float32)
"""
#: Faults of models: the statement, the result's status, and a part of its error. Descriptors keep the number that they
#: have in the test's process, which may be above 1,024.
FAULTS = {
    "raises": ("raise ValueError('no idea')", "failed", "ValueError: no idea (model.py, line 13)"),
    "raises an unprintable exception": ("raise Unprintable", "failed", "Unprintable, whose text cannot be formatted"),
    "raises with a lone surrogate": ("raise ValueError(chr(0xd800))", "failed", "ValueError: ? (model.py, line 13)"),
    "raises without a stderr": (
        "sys.stderr = 7; raise ValueError('no idea')",
        "failed",
        "ValueError, whose text cannot",
    ),
    "exits by sys.exit": ("sys.exit(0)", "failed", "SystemExit: 0"),
    "exits": ("os._exit(0)", "crashed", "the model's process ended: it exited with code 0: the model or one of its"),
    "exits with the code of a finished scenario": ("os._exit(94)", "crashed", "ended: it exited with code 94"),
    "kills itself": ("os.kill(os.getpid(), 9)", "crashed", "ended: killed by SIGKILL: by the model itself, or"),
    "aborts": ("os.abort()", "crashed", "ended: killed by SIGABRT: a library that gave up"),
    "reads an invalid address": (
        "__import__('ctypes').string_at(1)",
        "crashed",
        "ended: killed by SIGSEGV: a fault of machine code",
    ),
    "hangs": ("time.sleep(600)", "timed_out", "no answer within 3 s"),
    "answers late": ("time.sleep(6)", "timed_out", "no answer within 3 s"),
    "answers NaN": ("return np.array([0, np.nan, 0, 0], np.float32)", "invalid", "the action is not finite: [0.0, nan"),
    "answers infinity": ("return [0, 0, 0, float('inf')]", "invalid", "the action is not finite"),
    "answers too little": ("return np.zeros(3)", "invalid", "the model answered an array of shape (3,), not (4,)"),
    "answers too much": ("return [10**400, 0, 0, 0]", "invalid", "the model answered list, which is not an array"),
    "answers text": ("return 'left'", "invalid", "the model answered str"),
    "answers nothing": ("return None", "invalid", "the model answered nothing (None)"),
    "allocates too much memory": ("x = bytearray(1 << 50)", "failed", "MemoryError"),
    "prints garbage on its socket": (
        "[os.write(fd, b'garbage' * 99) for fd in map(int, os.listdir('/proc/self/fd'))"
        " if os.path.exists(f'/proc/self/fd/{{fd}}') and 'socket' in os.readlink(f'/proc/self/fd/{{fd}}')]",
        "invalid",
        "the model server sent",
    ),
    "closes its socket": ("os.closerange(3, 65536)", "crashed", "the model's process ended"),
}


def faulty_model(fault: str, play: dict[str, Any], task: int = 2) -> bytes:
    seed = TaskPlan(play["tasks"]).model_server_seed(task)
    return FAULTY_MODEL.format(fault=FAULTS[fault][0].format(), seed=seed).encode()


@pytest.mark.parametrize("isolation", ["launch", "scenario"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_models_fault_is_the_result_of_its_task_and_the_range_continues(fault: str, isolation: str) -> None:
    _, status, text = FAULTS[fault]
    # The deadline is short only for timed_out: other tasks must meet it on a busy machine.
    play = play_of(deadline=3.0 if status == "timed_out" else 60.0, isolation=isolation, worlds=1)
    with evaluator_pair(worker_spec(isolation=isolation), faulty_model(fault, play), play) as pair:
        results = pair.run(0, 6)
    statuses = [result["status"] for result in results]
    assert statuses == ["ok", "ok", status, "ok", "ok", "ok"]
    assert text in results[2]["error"]
    assert [result["error"] for result in results[:2] + results[3:]] == [None] * 5
    # Without a sandbox, SIGKILL of one's own is not told from one that came from outside, which is no fault.
    strikes = STRIKES if fault == "kills itself" else 1
    assert len(pair.needs) == strikes * (status in {"crashed", "timed_out"} or "garbage" in fault)


def test_a_range_has_one_result_line_per_task() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of()) as pair:
        results = pair.run(10, 40)
    assert [result["task"] for result in results] == list(range(10, 40))
    assert {result["status"] for result in results} == {"ok"}
    assert list(results[0]) == ["task", "status", "scenario", "metrics", "error", "artifacts", "timing"]
    inference = results[0]["timing"]["inference"]
    assert 0 < inference["p50"] <= inference["p99"] <= inference["p999"] <= inference["max"]


def test_sketches_cover_the_tasks_with_status_ok() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of()) as pair:
        results = pair.run(0, 30)
    echoes = [result["metrics"]["echo"] for result in results]
    counts, sums, squares, minima, maxima = np.array([sketch["echo"] for sketch in pair.sketches]).T
    assert counts.sum() == 30
    assert sums.sum() == pytest.approx(sum(echoes))
    assert squares.sum() == pytest.approx(sum(echo * echo for echo in echoes))
    assert (minima.min(), maxima.max()) == (min(echoes), max(echoes))


def without_timing(lines: bytes) -> list[bytes]:
    return [line.partition(b'"timing"')[0] for line in lines.splitlines()]


RANDOM = """
import random
import numpy as np
DRAWN = random.random()
class Model:
    def act(self, observation):
        global DRAWN
        DRAWN += random.random()
        return np.array([DRAWN, np.random.rand(), len(str(hash("text"))), observation[0]], np.float32)
"""


@pytest.mark.parametrize("isolation", ["launch", "scenario"])
def test_equal_seeds_give_equal_bytes_in_any_order_and_process(isolation: str) -> None:
    play = play_of(isolation=isolation)
    model = RANDOM if isolation == "scenario" else RANDOM.replace("DRAWN += random", "DRAWN = random")
    with evaluator_pair(worker_spec(isolation=isolation), model, play) as first:
        forwards = without_timing(first.run_lines(0, 20))
    with evaluator_pair(worker_spec(isolation=isolation), model, play) as second:
        backwards = [line for task in range(19, -1, -1) for line in without_timing(second.run_lines(task, task + 1))]
    assert forwards == backwards[::-1]
    assert len(set(line.partition(b'"metrics"')[2] for line in forwards)) == 20


def test_with_isolation_scenario_no_state_carries_over_to_the_next_scenario() -> None:
    model = """
    import builtins, numpy as np, os
    class Model:
        def act(self, observation):
            calls = getattr(builtins, "calls", 0) + getattr(np, "calls", 0)
            builtins.calls = np.calls = 1
            return np.full(4, calls, np.float32)
    """.replace("\n    ", "\n")
    with evaluator_pair(worker_spec(isolation="scenario"), model, play_of(isolation="scenario")) as pair:
        assert {result["metrics"]["value"] for result in pair.run(0, 5)} == {0.0}
    with evaluator_pair(worker_spec(isolation="launch"), model, play_of()) as pair:
        assert {result["metrics"]["value"] for result in pair.run(0, 5)} == {0.0, 8.0}


@pytest.mark.parametrize("batch", [1, 4])
def test_a_model_server_that_ends_with_one_scenario_is_replaced_before_the_next(batch: int) -> None:
    model = """
    import os, signal
    class Model:
        def act(self, observation):
            os._exit = lambda code: os.kill(os.getppid(), signal.SIGKILL)  # a zygote without a sandbox
            return [0.0] * 4
    """.replace("\n    ", "\n")
    play = play_of(isolation="scenario", params={"batch": batch})
    with evaluator_pair(worker_spec(isolation="scenario"), model, play) as pair:
        assert [result["status"] for result in pair.run(0, 3 * batch)] == ["ok"] * 3 * batch
        assert pair.needs == ["crashed"] * 2


@pytest.mark.parametrize("batch", [1, 16])
def test_batches_depend_on_task_numbers_only(batch: int) -> None:
    shapes = """
    import numpy as np
    class Model:
        def act(self, observation):
            return np.full(4, 1, np.float32)
        def act_batch(self, observations):
            return np.full((len(observations), 4), len(observations) + observations[:, :1], np.float32)
    """.replace("\n    ", "\n")
    play = play_of(params={"batch": batch}, sweep={"work_us": [0, 1]}, select={"range": [0, 50]})
    with evaluator_pair(worker_spec(), shapes, play) as pair:
        whole = without_timing(pair.run_lines(0, 100))
        parts = [line for start in range(0, 100, 10) for line in without_timing(pair.run_lines(start, start + 10))]
    assert whole == parts
    assert [json.loads(line + b'"timing":0}')["task"] for line in whole] == list(range(100))


def test_a_row_that_is_not_finite_is_a_fault_of_its_task_only() -> None:
    model = """
    import numpy as np
    class Model:
        def act(self, observation): ...
        def act_batch(self, observations):
            answer = np.zeros((len(observations), 4), np.float32)
            answer[5, 1] = np.nan
            return answer
    """.replace("\n    ", "\n")
    with evaluator_pair(worker_spec(), model, play_of(params={"batch": 16})) as pair:
        statuses = [result["status"] for result in pair.run(0, 16)]
    assert statuses == ["ok"] * 5 + ["invalid"] + ["ok"] * 10


def test_a_lowered_stop_is_obeyed_before_the_next_task() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of(params={"sleep_ms": 20})) as pair:
        page, channel = pair.evaluator.page, pair.evaluator.channel
        page.stop = 1000
        channel.send({"type": "play", "start": 0, "stop": 1000, "flush": 0.05, "careful_until": -1})
        first = channel.receive(30)
        assert isinstance(first, framed_socket.Batch)
        page.stop = lowered = first.to + 3
        last = first.to
        while not isinstance(message := channel.receive(30), framed_socket.Idle):
            assert isinstance(message, framed_socket.Batch)
            last = message.to
    assert first.to < last <= lowered
    assert last < 100


def test_up_to_careful_until_each_batch_has_one_result() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of()) as pair:
        pair.run(0, 20, careful_until=9)
        sizes = [sketch["value"][0] for sketch in pair.sketches]
    assert sizes[:10] == [1] * 10
    assert sum(sizes) == 20


def test_the_shared_page_has_the_current_task() -> None:
    play = play_of(params={"crash_at": 7})
    with evaluator_pair(worker_spec(), ZERO, play) as pair:
        assert pair.evaluator.page.task == -1
        with pytest.raises(framed_socket.PeerClosed):
            pair.run(0, 20, careful_until=20)
        assert pair.evaluator.page.task == 7
        assert "code 1" in pair.evaluator.process.reap()


def test_a_simulators_exception_is_the_result_of_its_task_and_the_range_continues() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of(params={"raise_at": 3})) as pair:
        results = pair.run(0, 6)
    assert [result["status"] for result in results] == ["ok"] * 3 + ["failed"] + ["ok"] * 2
    assert results[3]["error"] == "simulator: RuntimeError: the parameter raise_at names this scenario"
    assert not pair.needs


def test_result_lines_have_swept_parameters_and_repetition() -> None:
    play = play_of(sweep={"work_us": [0, 5]}, repeat=2, select={"range": [4, 6]})
    with evaluator_pair(worker_spec(), ZERO, play) as pair:
        scenarios = [result["scenario"] for result in pair.run(0, 8)]
    combinations = [(line["params"]["work_us"], line["repeat"], line["index"]) for line in scenarios]
    assert combinations == [(0, 0, 4), (0, 0, 5), (0, 1, 4), (0, 1, 5), (5, 0, 4), (5, 0, 5), (5, 1, 4), (5, 1, 5)]
    assert [line["seed"] for line in scenarios[:4]] == [line["seed"] for line in scenarios[4:]]


def test_a_model_that_does_not_load_is_refused_with_the_reason() -> None:
    reasons = {
        "x = 1": "the file has no class `Model` (its classes: none); name your class `Model`",
        "class Model:\n    pass": "the class `Model` has no method `act(self, observation)`",
        "class Model:\n  def act(": "the file is not valid Python in line 2: '(' was never closed",
        "import nosuchthing": "ModuleNotFoundError: No module named 'nosuchthing' (model.py, line 1). `nosuchthing` is"
        " neither a module of the model nor of a package in its environment (packages that are there: ",
        "import os; os._exit(3)": "the model's process ended: it exited with code 3: the model or one of its libraries"
        " ended the process (docs/sandbox.md#how-a-process-ends)",
        "import os; os.kill(os.getpid(), 11)": "the model's process ended: killed by SIGSEGV: a fault of machine code:",
    }
    for isolation in ("launch", "scenario"):
        for source, reason in reasons.items():
            pair = EvaluatorPair(worker_spec(isolation=isolation), source.encode())
            try:
                pair.set_up(play_of(isolation=isolation))
                answer = pair.give_model_server()
            finally:
                pair.end()
            assert isinstance(answer, framed_socket.ModelRefused)
            assert answer.reason.startswith(reason)


def test_a_model_server_that_has_ended_between_ranges_is_replaced() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of()) as pair:
        pair.run(0, 3)
        os.kill(pair.model_servers[0].process.pid, 9)
        results = pair.run(3, 6)
    assert [result["status"] for result in results] == ["ok", "ok", "ok"]
    assert pair.needs == ["crashed"]


def test_traces_are_recorded_as_requested_and_contain_the_applied_actions() -> None:
    definition = dict(play_of()["definition"]) | {"record": True}
    with evaluator_pair(worker_spec(), graphs.python(), play_of(definition=definition, record="all")) as pair:
        results = pair.run(0, 3)
    assert [result["artifacts"][0]["bytes"] for result in results] == [len(pair.artifacts[task]) for task in range(3)]
    applied = np.frombuffer(zlib.decompress(pair.artifacts[0]), np.float32)
    assert applied.sum() == pytest.approx(results[0]["metrics"]["value"])
    with evaluator_pair(
        worker_spec(), ZERO, play_of(definition=definition, record="failures", params={"raise_at": 1})
    ) as pair:
        pair.run(0, 3)
    assert list(pair.artifacts) == [1]
    with evaluator_pair(worker_spec(), ZERO, play_of(definition=definition, record="none")) as pair:
        pair.run(0, 3)
    assert not pair.artifacts


def zip_of(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text, zipfile.ZIP_DEFLATED if len(text) > 100 else zipfile.ZIP_STORED)
    return buffer.getvalue()


ZIP_FILES = {
    "model.py": """
import json, os
from parts.answer import answer
FOLDER = os.path.dirname(__file__)
with open(os.path.join(FOLDER, "weights.json")) as file:
    WEIGHTS = json.load(file)
class Model:
    def act(self, observation):
        for attempt in (
            lambda: open(os.path.join(FOLDER, "note"), "w"),
            lambda: open(os.path.join(FOLDER, "weights.json"), "a"),
            lambda: os.chmod(os.path.join(FOLDER, "weights.json"), 0o777),
            lambda: os.mkdir(os.path.join(FOLDER, "notes")),
            lambda: os.rename(os.path.join(FOLDER, "parts"), os.path.join(FOLDER, "others")),
            lambda: os.unlink(__file__),
        ):
            try:
                attempt()
            except OSError:
                continue
            return [9, 9, 9, 9]
        return answer(WEIGHTS)
""",
    "parts/__init__.py": "",
    "parts/answer.py": "def answer(weights):\n    return weights\n",
    "weights.json": "[1, 2, 3, 4]",
}


def tar_of(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_an_archive_contains_modules_and_files_which_its_model_cannot_change(
    pack: Callable[[dict[str, str]], bytes],
) -> None:
    spec = worker_spec(isolation="scenario", sandbox=level().number)
    with evaluator_pair(spec, pack(ZIP_FILES), play_of(isolation="scenario")) as pair:
        assert [result["metrics"]["value"] for result in pair.run(0, 4)] == [10.0] * 4


def test_an_archive_without_the_entry_is_refused_by_the_model_server() -> None:
    pair = EvaluatorPair(worker_spec(isolation="scenario", sandbox=level().number), zip_of({"main.py": ""}))
    try:
        pair.set_up(play_of(isolation="scenario"))
        answer = pair.give_model_server()
    finally:
        pair.end()
    assert isinstance(answer, framed_socket.ModelRefused)
    assert "the archive has no `model.py` at its top" in answer.reason


def test_a_shared_library_of_an_archive_is_loaded_by_its_model(tmp_path: Path) -> None:
    source, library = tmp_path / "double.c", tmp_path / "double.so"
    source.write_text("double twice(double value) { return 2 * value; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(library, "double.so")
        archive.writestr(
            "model.py",
            """
import ctypes, os
LIBRARY = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "double.so"))
LIBRARY.twice.restype = ctypes.c_double
class Model:
    def act(self, observation):
        return [LIBRARY.twice(ctypes.c_double(value)) for value in (1, 2, 3, 4)]
""",
        )
    spec = worker_spec(isolation="scenario", sandbox=level().number)
    with evaluator_pair(spec, packed.getvalue(), play_of(isolation="scenario")) as pair:
        assert [result["metrics"]["value"] for result in pair.run(0, 2)] == [20.0] * 2


def test_an_evaluator_that_cannot_be_set_up_reports_the_reason() -> None:
    play = play_of()
    play["tasks"]["select"] = {"range": [0, 10**9]}
    pair = EvaluatorPair(worker_spec(), ZERO)
    try:
        answer = pair.set_up(play)
    finally:
        pair.end()
    assert isinstance(answer, framed_socket.Broken)
    assert "TooMany" in answer.reason


def test_a_replay_has_the_observation_and_the_action() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of()) as pair:
        channel = pair.evaluator.channel
        channel.send({"type": "replay", "task": 0, "trace": zlib.compress(bytes(16))})
        answer = channel.receive(30)
    assert isinstance(answer, framed_socket.ReplayDone)
    assert answer.replay is not None and answer.replay["scene"]["kind"] == "signals"
    first, last = answer.replay["frames"]
    assert (first["action"], last["action"]) == (None, [0.0] * 4) and first["observation"] == last["observation"]


def test_a_models_output_is_captured() -> None:
    with evaluator_pair(worker_spec(), b"print('loading')\n" + ZERO, play_of()) as pair:
        pair.run(0, 1)
        pair.output_with("loading")


@pytest.mark.parametrize("isolation", ["launch", "scenario"])
def test_a_dry_run_ends_after_a_few_steps_and_describes_the_model(isolation: str) -> None:
    model = ZERO + b"\nkept = np.ones(4_000_000)\n"
    with evaluator_pair(worker_spec(isolation=isolation), model, play_of(dry_run=True, isolation=isolation)) as pair:
        (result,) = pair.run(0, 1)
    assert result["status"] == "ok"
    described = result["timing"]["model"]
    assert described["info"]["class"] == "Model" and described["info"]["format"] == "python"
    assert 32_000_000 < described["memory"] < 1 << 30, "the array of the model is in the memory of its process"
    assert described["seconds"] > 0 and result["timing"]["inference"]["p50"] > 0


def test_a_run_that_is_not_dry_says_nothing_of_the_model() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of()) as pair:
        (result,) = pair.run(0, 1)
    assert set(result["timing"]) == {"seconds", "inference", "worlds", "kernel"}


def test_an_evaluator_and_its_model_server_end_with_their_runner() -> None:
    with evaluator_pair(worker_spec(isolation="scenario"), ZERO, play_of(isolation="scenario")) as pair:
        pair.run(0, 2)
        pair.evaluator.channel.close()
        assert pair.evaluator.process.reap() == "it exited with code 0"
        assert pair.model_servers[0].process.reap() == "it exited with code 0"
