"""The types of Python models in the client are what a model server calls, with what it passes."""

import inspect
from typing import Any, get_type_hints

import numpy as np
import pytest

import windtunnel
from runtimes.harness.models import python
from runtimes.harness.models.base import Assignment, Misfit
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
