"""The types of Python models in the client are what a model server calls, with what it passes."""

import inspect
from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np
import pytest

import windtunnel
from runtimes.harness.models import python
from runtimes.harness.models.base import Assignment, Misfit, NoAction
from runtimes.harness.simulators import structures
from runtimes.harness.simulators.base import Interface, Space
from windtunnel.python_models import ModelSpace, PythonBatchModel, PythonModel, ResetInfo

SPACE = Space(dtype="float64", shape=(2,), names=("a", "b"), units=("m", "s"), low=(0.0, 0.0), high=(1.0, float("inf")))
INTERFACE = Interface(observation=SPACE, action=SPACE)


class Recording(PythonModel):
    """A model that was written with the client installed, and keeps what it gets."""

    infos: list[ResetInfo] = []  # noqa: RUF012 - of this test

    def reset(self, info: ResetInfo) -> None:
        self.infos.append(info)

    def act(self, observation: Any) -> Any:
        return observation


def test_reset_gets_what_its_type_says() -> None:
    assignment = Assignment(interface=INTERFACE, params={"latency_steps": 2})
    model = python.PythonModel(Recording(), assignment)
    model.reset(7)
    (info,) = Recording.infos
    assert info.keys() == get_type_hints(ResetInfo).keys()
    assert info["seed"] == 7 and info["params"] == {"latency_steps": 2}
    for space in (info["observation"], info["action"]):
        assert all(hasattr(space, name) for name in get_type_hints(ModelSpace))


@pytest.mark.parametrize("rows", [1, 3])
def test_a_model_that_derives_from_the_type_acts_alone_and_in_batches(rows: int) -> None:
    model = python.PythonModel(Recording(), Assignment(interface=INTERFACE, batch=rows))
    observations = np.arange(2.0 * rows).reshape(rows, 2)
    assert model.act(observations) == observations.tobytes()


def gymnasium_model(source: str, action: structures.Structure) -> Any:
    observed = structures.dictionary({"seen": structures.discrete(4), "mask": structures.box((1,), "int8")})
    interface = Interface(
        observation=replace(SPACE, gymnasium=observed), action=replace(SPACE, shape=(action.size,), gymnasium=action)
    )
    return python.load(Assignment(source=source.encode(), interface=interface, batch=2))


def test_a_model_that_asks_for_it_gets_and_returns_elements_of_gymnasiums_spaces() -> None:
    action = structures.dictionary({"gear": structures.discrete(5), "force": structures.box(())})
    source = """
class Model:
    spaces = "gymnasium"
    def reset(self, info): self.gears = info["action"].gymnasium.parts[0].n[0]
    def act(self, observation):
        assert isinstance(observation["seen"], __import__("numpy").integer) and observation["mask"].dtype == "int8"
        return {"force": 0.5, "gear": (int(observation["seen"]) + int(observation["mask"][0])) % self.gears}
"""
    model = gymnasium_model(source, action)
    model.reset(1)
    observations = np.array([[3, 1], [2, 0]], np.float64)
    assert np.frombuffer(model.act(observations)).tolist() == [4.0, 0.5, 2.0, 0.5]
    batch = "\n    def act_batch(self, observations): return [{'gear': 1, 'force': 2}] * len(observations)\n"
    assert np.frombuffer(gymnasium_model(source + batch, action).act(observations)).tolist() == [1, 2, 1, 2]
    assert model.info["action"] == "Dict('gear': Discrete(5), 'force': Box(float32[]))"


@pytest.mark.parametrize("answer", ["0.7", "2", "-1", "[0, 1]", "None", "'left'", "{'push': 1}"])
def test_what_is_no_element_of_the_action_space_is_refused_with_what_was_expected(answer: str) -> None:
    source = f"class Model:\n    spaces = 'gymnasium'\n    def act(self, observation): return {answer}\n"
    with pytest.raises(NoAction, match=r"the model answered .* Discrete\(2\)"):
        gymnasium_model(source, structures.discrete(2)).act(np.zeros((1, 2)))


def test_the_spaces_that_a_model_may_ask_for_are_named_and_an_attribute_of_its_own_is_not_meant() -> None:
    with pytest.raises(Misfit, match=r"`Model.spaces` is 'gym'; it is 'array' or 'gymnasium', or left out"):
        gymnasium_model("class Model:\n    spaces = 'gym'\n    def act(self, o): ...\n", structures.discrete(2))
    own = "class Model:\n    spaces = [1]\n    def act(self, o): ...\n"
    assert isinstance(gymnasium_model(own, structures.discrete(2)), python.PythonModel)


def test_the_methods_of_the_types_are_those_that_are_called() -> None:
    named = {
        name: list(inspect.signature(getattr(PythonBatchModel, name)).parameters)
        for name in ("act", "act_batch", "reset")
    }
    assert named == {"act": ["self", "observation"], "act_batch": ["self", "observations"], "reset": ["self", "info"]}
    assert {"PythonModel", "PythonBatchModel", "ResetInfo"} <= set(windtunnel.__all__)


def test_a_file_without_the_class_is_refused_with_the_page_of_the_contract() -> None:
    with pytest.raises(Misfit, match=r"name your class `Model` \(docs/python-models\.md\)"):
        python.load(Assignment(source=b"class Policy: ...\n", interface=INTERFACE))
