"""Parts of a trusted model: random numbers and contexts of its own, versions of packages, and spot checks."""

import decimal
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.evaluator.model_globals import ModelGlobals
from runtimes.harness.evaluator.planned_tasks import PlannedTask, PlannedTasks
from runtimes.harness.evaluator.result_batch import Played
from runtimes.harness.evaluator.runner_connection import EvaluationSetup
from runtimes.harness.evaluator.spot_checks import TASKS_PER_CHECK, difference, is_drawn
from runtimes.harness.evaluator.trusted_model import TrustedModel
from runtimes.harness.evaluator.trusted_packages import TrustedPackages, conflict
from runtimes.harness.model_server.model_faults import Failed, TimedOut
from runtimes.harness.models.base import Assignment, format_named
from runtimes.harness.simulators.base import Interface, Space
from tests.contracts.harness_processes import play_of

#: Ways to draw from global generators; the normal numbers come in pairs, of which one is kept.
DRAWS = {
    "random": lambda: sys.modules["random"].random(),
    "gauss": lambda: sys.modules["random"].gauss(0, 1),
    "rand": lambda: np.random.rand(),
    "randn": lambda: np.random.randn(),
    "sample": lambda: np.random.sample(),
    "integers": lambda: np.random.randint(1000),
    "object": lambda: np.random.mtrand._rand.standard_normal(),
}
draws = st.lists(st.sampled_from(sorted(DRAWS)), max_size=6)


@given(st.lists(st.tuples(st.booleans(), draws), max_size=8), st.integers(0, 2**64 - 1))
def test_model_and_world_each_draw_what_they_would_draw_alone(turns: list[tuple[bool, list[str]]], seed: int) -> None:
    def draw(names: list[str]) -> list[float]:
        return [float(DRAWS[name]()) for name in names]

    def seed_world() -> None:
        random.seed(7)
        np.random.seed(7)

    model_globals = ModelGlobals(list(sys.path))
    seed_world()
    model_globals.seed(seed)
    both = [model_globals.run(draw, names) if of_model else draw(names) for of_model, names in turns]
    seed_world()
    world = [draw(names) for of_model, names in turns if not of_model]
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    model = [draw(names) for of_model, names in turns if of_model]
    assert [drawn for (of_model, _), drawn in zip(turns, both, strict=True) if not of_model] == world
    assert [drawn for (of_model, _), drawn in zip(turns, both, strict=True) if of_model] == model


def test_a_models_contexts_and_search_path_are_its_own_also_after_an_exception() -> None:
    model_globals = ModelGlobals(["/of/the/model"])
    before = np.geterr(), decimal.getcontext().prec, list(sys.path)

    def call() -> None:
        np.seterr(all="raise")
        decimal.getcontext().prec = 3
        sys.path.insert(0, "/more")
        raise ValueError

    with pytest.raises(ValueError):
        model_globals.run(call)
    assert (np.geterr(), decimal.getcontext().prec, list(sys.path)) == before
    assert model_globals.run(np.geterr)["over"] == "raise" and model_globals.path == ["/more", "/of/the/model"]


SPACE = Space(dtype="float32", shape=(2,), names=("a", "b"), units=("", ""), low=(-1, -1), high=(1, 1))
#: Its reset takes a tenth of its seed, in seconds.
RESETS_SLOWLY = """
import time
class Model:
    def reset(self, info):
        time.sleep(info["seed"] / 10)
    def act(self, observation):
        return observation
"""


def trusted_model(source: str, **changes: Any) -> TrustedModel:
    format = replace(format_named("python"), **changes)
    packages = TrustedPackages(format=format, folders=(), declared=None, globals=ModelGlobals(sys.path))
    assignment = Assignment(source=source.encode(), interface=Interface(observation=SPACE, action=SPACE))
    return TrustedModel(packages, assignment, deadline=0.1, renewed=False, most_rows=4)


def test_a_reset_that_takes_too_long_is_late_as_it_is_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtimes.harness.evaluator.trusted_model.RESET", 0.2)
    model = trusted_model(RESETS_SLOWLY)
    model.ready(0)
    with pytest.raises(TimedOut):
        model.ready(4)
    model.close()


def test_a_model_that_fails_to_serve_many_scenarios_has_a_fault_and_does_not_end_its_process() -> None:
    class NoRow:
        def row(self) -> None:
            raise MemoryError

    model = trusted_model(RESETS_SLOWLY, load=lambda assignment: NoRow())
    with pytest.raises(Failed, match="MemoryError"):
        model.open_rows(one_step=False, patience=1.0)
    model.close()


def test_packages_below_the_scratch_folder_stay_and_a_models_own_modules_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch, for one, can be imported once in a process; and a platform's home may be below /tmp."""
    site = tmp_path / "home" / "site"
    site.mkdir(parents=True)
    (site / "a_package.py").write_text("")
    (tmp_path / "written_by_the_model.py").write_text("")
    source = f"""
import sys
sys.path.append({str(tmp_path)!r})
import a_package, written_by_the_model
class Model:
    def act(self, observation):
        return observation
"""
    packages = TrustedPackages(
        format=format_named("python"),
        folders=[str(site)],
        declared=None,
        globals=ModelGlobals([*sys.path, str(site)]),
    )
    interface = Interface(observation=SPACE, action=SPACE)
    assignment = Assignment(source=source.encode(), interface=interface, scratch=tmp_path)
    model = TrustedModel(packages, assignment, deadline=1.0, renewed=True)
    package, own = sys.modules["a_package"], sys.modules["written_by_the_model"]
    model.ready(0)
    assert sys.modules["a_package"] is package and sys.modules["written_by_the_model"] is not own
    model.close()
    assert "written_by_the_model" not in sys.modules
    monkeypatch.delitem(sys.modules, "a_package")


def installed(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).mkdir(parents=True)
    return str(folder)


def test_one_distribution_in_two_versions_is_a_conflict_and_a_folder_that_is_not_there_is_none(tmp_path: Path) -> None:
    world = installed(tmp_path / "world", "Some_Package-1.0.dist-info", "numpy-2.4.6.dist-info", "numpy")
    equal = installed(tmp_path / "equal", "numpy-2.4.6.dist-info", "other-1.dist-info")
    other = installed(tmp_path / "other", "some.package-2.0rc1.dist-info")
    assert conflict([world], [equal, str(tmp_path / "nowhere")]) is None
    assert conflict([world, other], [equal]) is None, "of the simulator's own packages, the first counts"
    told = conflict([world], [equal, other])
    assert told is not None and "some-package is 1.0 in the simulator's packages and 2.0rc1 in the model's" in told


def task() -> PlannedTask:
    play = play_of()
    return PlannedTasks(EvaluationSetup(document=play["definition"], tasks=play["tasks"], deadline=1.0), ()).task(3)


def result(*actions: tuple[float, float], status: str = "ok", **metrics: float) -> Played:
    return Played(status, metrics, actions=[np.array(action, np.float32).tobytes() for action in actions])


@pytest.mark.parametrize(
    ("trusted", "isolated", "text"),
    [
        (result((0, 1), (0, 1), x=1), result((0, 1), (0, 1), x=1), None),
        (result((0, 1), (0, 1)), result((0, 1), (0, 0.5)), "at step 1 its action is [0, 1], and [0, 0.5] in a"),
        (result((0.0, 1)), result((-0.0, 1)), "at step 0 its action is [0, 1], and [-0, 1]"),
        (result((float("nan"), 1)), result((float("nan"), 1)), None),
        (result((0, 1)), result((0, 1), (0, 1)), "it takes 1 steps, and 2 in a"),
        (result((0, 1), status="failed"), result((0, 1)), "it ends failed, and ok in a"),
        (result((0, 1), x=9), result((0, 1), x=1), "its metrics are {'x': 9}, and {'x': 1} in a"),
        (result((0, 1), status="timed_out"), result((1, 1)), None),
    ],
)
def test_a_difference_is_told_with_scenario_and_step(trusted: Played, isolated: Played, text: str | None) -> None:
    told = difference(task(), trusted, isolated, SPACE)
    assert told is None if text is None else told is not None and text in told and "task 3 (scenario 3," in told


@given(st.integers(2, 10**6), st.integers(0, 2**64 - 1))
def test_the_first_and_the_last_task_are_checked_and_one_in_fifty_besides(count: int, seed: int) -> None:
    assert is_drawn(0, count, seed) and is_drawn(count - 1, count, seed)
    if count > 2:
        assert is_drawn(1, count, seed) == (seed % TASKS_PER_CHECK == 0)
