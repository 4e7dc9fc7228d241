"""Trusted models: in the evaluator's process, a model has the results that it has in a process of its own."""

import json
import os
import shutil
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtimes.harness.evaluator.world_count import FIRST_PENALTY
from runtimes.harness.runner import framed_socket
from runtimes.harness.runner.processes import WorkerSpec
from runtimes.harness.sandbox.allowances import LIBRARIES
from tests.archives import zipped
from tests.contracts.harness_processes import SITE, EvaluatorPair, evaluator_pair, play_of, refusal_of, worker_spec
from tests.contracts.test_evaluator import FAULTS, faulty_model, without_timing
from tests.contracts.test_native_models import SOURCE, library
from tests.simulators.test_gymnasium import best_level

TASKS, MANY = 12, 400
#: Faults that end the process of the model; of a trusted one that is the evaluator.
ENDING = {
    *("exits", "exits with the code of a finished scenario", "kills itself", "aborts", "reads an invalid address"),
    *("hangs", "closes its socket", "prints garbage on its socket", "allocates too much memory"),
}

DRAWS = """
import random, numpy as np
from random import gauss
from numpy.random import randn
LOADED = random.random() + np.random.rand()
class Model:
    def reset(self, info):
        self.first = gauss(0, 1) + np.random.randn()
    def act(self, observation):
        import random as again
        drawn = again.random() + np.random.rand() + randn() + np.random.randint(9) + np.random.mtrand._rand.rand()
        return np.array([LOADED, self.first, drawn, np.random.standard_normal()], np.float32)
"""
REMEMBERS = """
import json, os, numpy as np
import beside
CALLS = []
class Model:
    kept = []
    def act(self, observation):
        CALLS.append(0)
        self.kept.append(0)
        beside.CALLS.append(0)
        there = os.listdir(os.environ.get("TMPDIR", "/nowhere")) if os.path.isdir("/tmp") and CONFINED else []
        if CONFINED:
            open(f"/tmp/{len(CALLS)}", "w").close()
        return np.array([len(CALLS), len(self.kept), len(beside.CALLS), len(there)], np.float32)
CONFINED = os.environ.get("TMPDIR") == "/tmp" and os.access("/tmp", os.W_OK)
"""
ANSWERS = """
import numpy as np
class Model:
    def reset(self, info):
        self.seed = info["seed"]
    def act(self, observation):
        return np.full(4, answer(self.seed), np.float32)
"""
#: What an honest model may leave behind in its process, and what it answers if it finds that again.
LEFT = {
    "a module of a package without __init__": """
from package import beside
def answer(seed):
    beside.CALLS.append(0)
    return len(beside.CALLS)
""",
    "a module that it has written": """
import importlib, os, sys
def answer(seed):
    if "written" not in globals():
        folder = os.environ.get("TMPDIR", "/tmp")
        with open(f"{folder}/written_by_model.py", "w") as file:
            file.write(f"SEED = {seed % 1000}")
        sys.path.append(folder)
        importlib.invalidate_caches()
        global written
        import written_by_model as written
    return written.SEED
""",
    "how errors of numbers are treated": """
import decimal
def answer(seed):
    np.seterr(over="raise" if np.geterr()["over"] == "warn" else "warn")
    decimal.getcontext().prec += 1
    return decimal.getcontext().prec + (np.geterr()["over"] == "raise") / 2
""",
    "its working folder and an environment variable": """
import os
FIRST = len(os.getcwd()) + len(os.environ)
def answer(seed):
    os.chdir("/usr")
    os.environ[f"SET_BY_MODEL_{seed}"] = "1"
    return FIRST
""",
    "arrays and files": """
import sys, weakref
FOUND = getattr(sys, "kept_by_model", lambda: None)() is not None
class Kept:
    pass
KEPT = Kept()
sys.kept_by_model = weakref.ref(KEPT)
def answer(seed):
    return FOUND
""",
    "another bit generator": """
def answer(seed):
    if np.random.get_state()[0] == "MT19937":
        np.random.set_bit_generator(np.random.PCG64(seed))
    return np.random.rand()
""",
}
#: Answers late in a third of the scenarios, after which its process has it loaded again.
LATE = """
import statistics, time, numpy as np
from package import beside
class Model:
    def reset(self, info):
        self.late = info["seed"] % 3 == 0
    def act(self, observation):
        if self.late:
            time.sleep(1.0)
        beside.CALLS.append(0)
        drawn = statistics.NormalDist().samples(1)[0]
        return np.array([len(beside.CALLS), drawn, 0, 0], np.float32)
"""
#: Counts scenarios where nothing of a model is removed: in a module of the standard library.
CARRIES = """
import json, numpy as np
class Model:
    def reset(self, info):
        json.scenarios = getattr(json, "scenarios", 0) + 1
    def act(self, observation):
        return np.full(4, json.scenarios, np.float32)
"""
UNSEEDED = """
import os, numpy as np
class Model:
    def act(self, observation):
        return np.frombuffer(os.urandom(16), np.uint32).astype(np.float32)
"""


def played(model: bytes | str, spec: WorkerSpec | None = None, **changes: Any) -> dict[bool, tuple[list[bytes], Any]]:
    """Return results without timing, and traces, of a model that is isolated and of one that is trusted."""
    runs = {}
    spec = spec or worker_spec(isolation=changes.get("isolation", "scenario"), sandbox=best_level())
    for trusted in (False, True):
        play = play_of(**{"isolation": spec.isolation, "worlds": 1, "record": "all"} | changes | {"trusted": trusted})
        with evaluator_pair(replace(spec, trusted=trusted), model, play) as pair:
            runs[trusted] = without_timing(pair.run_lines(0, TASKS)), pair.artifacts
    return runs


@pytest.mark.parametrize("isolation", ["launch", "scenario"])
def test_a_trusted_model_draws_the_random_numbers_of_an_isolated_one(isolation: str) -> None:
    runs = played(DRAWS, isolation=isolation)
    assert runs[True] == runs[False] and len(runs[True][0]) == TASKS


def test_nothing_of_a_trusted_model_is_left_for_its_next_scenario() -> None:
    runs = played(zipped({"model.py": REMEMBERS.encode(), "beside.py": b"CALLS = []\n"}))
    assert runs[True] == runs[False]


@pytest.mark.parametrize("left", sorted(LEFT))
def test_what_a_model_leaves_in_its_process_the_next_scenario_does_not_find(left: str) -> None:
    source = (
        f"import numpy as np{LEFT[left]}\nclass Model:\n    def reset(self, info):\n        self.seed = info['seed']\n"
    )
    source += "    def act(self, observation):\n        return np.full(4, answer(self.seed), np.float32)\n"
    runs = played(zipped({"model.py": source.encode(), "package/beside.py": b"CALLS = []\n"}))
    assert runs[True] == runs[False]
    assert json.loads(runs[True][0][2].decode().rstrip(",") + "}")["status"] == "ok", runs[True][0][2]


def test_a_model_that_is_loaded_again_after_a_fault_finds_nothing_either() -> None:
    runs = played(zipped({"model.py": LATE.encode(), "package/beside.py": b"CALLS = []\n"}), deadline=0.5)
    assert runs[True] == runs[False]
    assert {json.loads(line.decode().rstrip(",") + "}")["status"] for line in runs[True][0]} == {"ok", "timed_out"}


def test_a_shared_library_that_is_loaded_again_after_a_fault_has_new_variables(tmp_path: Path) -> None:
    late = "if (*(uint64_t *)model % 3 == 0) sleep(1); for (size_t i = 0; i < m; i++) action[i] = calls; return 0;"
    model = library(tmp_path, ACT=late, source=f"#include <unistd.h>\n{SOURCE}")
    spec = worker_spec(format="native", isolation="scenario", sandbox=best_level())
    runs = played(model, spec, deadline=0.5)
    assert runs[True] == runs[False]
    assert {json.loads(line.decode().rstrip(",") + "}")["status"] for line in runs[True][0]} == {"ok", "timed_out"}


def test_worlds_side_by_side_begin_again_when_the_model_server_of_spot_checks_is_killed(tmp_path: Path) -> None:
    model = library(tmp_path)
    spec = worker_spec(format="native", isolation="launch", sandbox=best_level())
    with evaluator_pair(spec, model, play_of(worlds=1, select={"range": [0, MANY]})) as pair:
        isolated = without_timing(pair.run_lines(0, MANY))
    play = play_of(worlds=16, select={"range": [0, MANY]}, trusted=True)
    with evaluator_pair(replace(spec, trusted=True), model, play) as pair:
        lines = pair.run_lines(0, 1)
        os.kill(pair.model_servers[-1].process.popen.pid, signal.SIGKILL)
        lines += pair.run_lines(1, MANY)
    assert without_timing(lines) == isolated
    worlds = [json.loads(line)["timing"]["worlds"] for line in lines.splitlines()]
    assert pair.needs == ["crashed"] and max(worlds) == 16
    assert worlds.count(1) < FIRST_PENALTY  # those that had begun did not fail


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - ENDING))
def test_a_trusted_models_fault_has_the_words_of_an_isolated_one(fault: str) -> None:
    status = FAULTS[fault][1]
    changes = {"deadline": 3.0 if status == "timed_out" else 60.0}
    play = play_of(isolation="scenario")
    runs = played(faulty_model(fault, play), **changes)
    assert runs[True] == runs[False]
    assert json.loads(runs[True][0][2].decode().rstrip(",") + "}")["status"] == status


@pytest.mark.parametrize(
    ("attack", "text"),
    [
        ("open('/etc/passwd').read()", "Error"),
        ("__import__('socket').create_connection(('127.0.0.1', 80))", "Error"),
        ("__import__('subprocess').run(['true'])", "Error"),
        ("__import__('os').fork()", "Error"),
        ("__import__('os').kill(__import__('os').getppid(), 9)", "Error"),
    ],
)
def test_a_trusted_model_stays_in_the_evaluators_sandbox(attack: str, text: str) -> None:
    if best_level() is None:
        pytest.skip("this machine has no sandbox that is sealed")
    source = f"class Model:\n    def act(self, observation):\n        {attack}\n        return [0, 0, 0, 0]\n"
    runs = played(source)
    results = [json.loads(line.decode().rstrip(",") + "}") for line in runs[True][0]]
    assert {result["status"] for result in results} == {"failed"} and text in results[0]["error"]
    assert runs[True] == runs[False]


def test_scenarios_in_lock_step_may_have_a_trusted_model() -> None:
    batch = "import numpy as np\nclass Model:\n    def act_batch(self, o):\n        return np.cumsum(o, axis=0)\n"
    source = batch + "    def act(self, o):\n        raise SystemError\n"
    runs = played(source, isolation="launch", params={"batch": 4})
    assert runs[True] == runs[False]


def refused_during(model: str, **changes: Any) -> framed_socket.ModelRefused:
    """Return how a trusted model is refused while its scenarios are played."""
    spec = worker_spec(isolation="scenario", trusted=True)
    with evaluator_pair(spec, model, play_of(isolation="scenario", trusted=True, record="all", **changes)) as pair:
        page, channel = pair.evaluator.page, pair.evaluator.channel
        page.stop = 100
        channel.send({"type": "play", "start": 0, "stop": 100, "flush": 1.0, "careful_until": -1})
        while isinstance(message := pair._receive(), framed_socket.Batch):
            pass
    assert isinstance(message, framed_socket.ModelRefused), message
    return message


def test_a_model_that_keeps_something_where_it_is_not_removed_fails_its_run_with_scenario_and_step() -> None:
    refusal = refused_during(CARRIES)
    assert refusal.final and "`trusted`" in refusal.reason and "run it without" in refusal.reason
    assert "at step 0 its action is [" in refusal.reason and "], and [1, 1, 1, 1] in a process" in refusal.reason


def test_the_first_task_shows_random_numbers_that_are_not_seeded() -> None:
    assert "In task 0 (scenario 0, repetition 0) at step 0 " in refused_during(UNSEEDED).reason


def test_a_model_whose_packages_contradict_the_simulators_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "NumPy-1.2.3.dist-info").mkdir()
    spec = worker_spec(isolation="launch", trusted=True)
    source = "class Model:\n    def act(self, o):\n        return [0, 0, 0, 0]\n"
    with evaluator_pair(spec, source, play_of(trusted=True)):
        pass
    # The model server has its packages from another folder, and would not begin without numpy.
    pair = EvaluatorPair(replace(spec, model_server_site=str(tmp_path)), source.encode())
    pair.spec = replace(pair.spec, model_server_site=spec.model_server_site)
    try:
        pair.set_up(play_of(trusted=True))
        answer = pair.give_model_server()
        assert isinstance(answer, framed_socket.ModelRefused), (answer, pair.output())
    finally:
        pair.end()
    assert "numpy is 2." in answer.reason and "and 1.2.3 in the model's" in answer.reason
    assert "Leave `trusted` out, or let the model have numpy==2." in answer.reason


def test_a_model_with_packages_of_its_own_beside_shared_ones_is_loaded_in_a_sandbox_without_forks() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        environment(Path(folder))
        spec = worker_spec(isolation="scenario", sandbox=best_level(), model_server_site="", model_environment=folder)
        source = "import joblib, own\nclass Model:\n    def act(self, o):\n        return [joblib.ONE, 0, 0, 0]\n"
        runs = played(source, replace(spec, model_server_libraries=LIBRARIES))
    assert runs[True] == runs[False]


def environment(folder: Path) -> None:
    """Make an environment of a model's own package beside one that is shared, with what a model server needs."""
    for path in ("shared/joblib", "shared/joblib-1.0.dist-info", "site/own"):
        (folder / path).mkdir(parents=True)
    (folder / "shared/joblib/__init__.py").write_text("ONE = 1\n")
    (folder / "site/own/__init__.py").write_text("")
    for package in ("numpy", "numpy.libs", "msgspec"):
        if Path(SITE, package).exists():
            shutil.copytree(Path(SITE, package), folder / "shared" / package)


def test_a_trusted_model_that_does_not_load_is_refused_in_the_same_words() -> None:
    reasons = set()
    for trusted in (False, True):
        spec = worker_spec(isolation="launch", trusted=trusted)
        reasons.add(refusal_of(spec, b"class Other: pass\n", play_of(trusted=trusted)))
    assert len(reasons) == 1


def test_what_a_trusted_model_ends_is_the_evaluator() -> None:
    play = play_of(isolation="scenario", trusted=True)
    spec = worker_spec(isolation="scenario", trusted=True)
    with (
        pytest.raises(framed_socket.PeerClosed),
        evaluator_pair(spec, faulty_model("exits", play), play) as pair,
    ):
        pair.run(0, 6)
