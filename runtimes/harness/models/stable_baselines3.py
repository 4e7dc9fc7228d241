"""Stable-Baselines3 format: the zip that `save` of an algorithm wrote; its policy predicts the actions."""

import importlib.util
import inspect
import io
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..simulators.base import Space
from ..simulators.structures import Parts, element_of, equal
from .base import (
    Assignment,
    Certainty,
    Misfit,
    ModelFormat,
    Recognition,
    Sample,
    Unreadable,
    action_bytes,
    format_type,
)
from .torch_module import preload as preload_torch
from .torch_module import shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Members of every agent's zip (stable_baselines3/common/save_util.py).
DATA, POLICY, VERSION = "data", "policy.pth", "_stable_baselines3_version"
#: What a dataset does with observations, and the key of the legal actions in a Dict of observations.
OBSERVES, MASK = "observes", "action_mask"
#: Functions of the training, which are pickled as bytecode of one version of Python, and what replaces them.
TRAINING = ("lr_schedule", "clip_range", "clip_range_vf", "exploration_schedule", "learning_rate")


def recognise(sample: Sample) -> Recognition | None:
    """Recognise an agent by the names in its zip."""
    found = sample.members is not None and {DATA, POLICY} <= set(sample.members)
    return Recognition(Certainty.CONTENT) if found else None


def preload() -> None:
    """Import PyTorch and Stable-Baselines3, with the algorithms of its second package."""
    preload_torch()
    import sb3_contrib  # noqa: F401
    import stable_baselines3  # noqa: F401

    _name_gymnasium_gym()


def _name_gymnasium_gym() -> None:
    """Let Gymnasium's spaces be found under the names of Gym: agents that were saved before 2023 have Gym's spaces.

    Gymnasium reads the state of Gym's spaces itself.
    """
    if "gym" not in sys.modules and importlib.util.find_spec("gym") is None:
        for name, module in tuple(sys.modules.items()):
            if name == "gymnasium" or name.startswith(("gymnasium.spaces", "gymnasium.utils")):
                sys.modules["gym" + name.removeprefix("gymnasium")] = module


class AgentModel:
    """Asks an agent's policy for its action, the most likely one of a stochastic policy, and feeds its state back."""

    def __init__(self, assignment: Assignment) -> None:
        """Make the agent's policy from its parameters, and check its spaces."""
        import stable_baselines3
        import torch

        data, policy = _policy(assignment.source)
        interface = assignment.interface
        _check(data["observation_space"], interface.observation, OBSERVES)
        _check(data["action_space"], interface.action, "takes")
        self._torch = torch
        self._policy = policy
        self._space = interface.action
        self._observed = interface.observation.gymnasium
        self._by_key = isinstance(self._observed, Parts) and data["observation_space"].shape is None
        self._shape = () if self._by_key else tuple(data["observation_space"].shape)
        has_mask = isinstance(self._observed, Parts) and MASK in self._observed.keys
        self._masks = has_mask and "action_masks" in inspect.signature(policy.predict).parameters
        self._state: Any = None
        self._starts = True
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"Stable-Baselines3 {stable_baselines3.__version__}, PyTorch {torch.__version__}",
            "policy": type(policy).__name__,
            "steps": int(data.get("num_timesteps") or 0),
        }

    def reset(self, seed: int) -> None:
        self._torch.manual_seed(seed)
        self._state, self._starts = None, True

    def act(self, observations: "NDArray[Any]") -> bytes:
        import numpy as np

        count = len(observations)
        starts = np.full(count, self._starts)
        with self._torch.inference_mode():
            answer, self._state = self._policy.predict(
                self._elements(observations) if self._by_key else observations.reshape(count, *self._shape).copy(),
                state=self._state,
                episode_start=starts,
                deterministic=True,
                **({"action_masks": self._elements(observations)[MASK]} if self._masks else {}),
            )
        self._starts = False
        return action_bytes(answer, count, self._space)

    def _elements(self, observations: "NDArray[Any]") -> dict[str, Any]:
        """Return observations of a Dict space as an array for each key, with a leading axis."""
        import numpy as np

        assert isinstance(self._observed, Parts)
        elements = [element_of(self._observed, observation.reshape(-1)) for observation in observations]
        return {key: np.stack([element[key] for element in elements]) for key in self._observed.keys}


def _policy(source: bytes) -> tuple[Mapping[str, Any], Any]:
    """Return what the agent's zip describes, and its policy with its parameters."""
    import stable_baselines3
    from stable_baselines3.common.save_util import load_from_zip_file

    try:
        replaced = dict.fromkeys(TRAINING, _constant)
        data, parameters, _ = load_from_zip_file(io.BytesIO(source), custom_objects=replaced, device="cpu")
        options = dict(data.get("policy_kwargs") or {})
        options.pop("device", None)
        policy_class = data["policy_class"]
        accepted = inspect.signature(policy_class).parameters
        if data.get("use_sde"):
            options["use_sde"] = True
        if "lr_schedule" in accepted:  # not of the policies that are trained without gradients
            options |= {"lr_schedule": _constant, "optimizer_class": _Untrained}
        policy = policy_class(data["observation_space"], data["action_space"], **options)
        policy.load_state_dict(parameters["policy"])
        policy.set_training_mode(False)
    except Exception as error:
        raise Unreadable(
            f"Stable-Baselines3 {stable_baselines3.__version__} does not load the agent: {type(error).__name__}:"
            f" {shortened(error)}. If it needs another version or modules of its own, send a zip with a `model.py` that"
            " loads it and a `requirements.txt` (docs/exporting.md#stable-baselines3)"
        ) from None
    return data, policy


class _Untrained:
    """Stand in for an optimizer: PyTorch's own import its compiler when the first one is made, which takes seconds."""

    def __init__(self, parameters: Any, **options: Any) -> None:
        pass


def _constant(progress: float) -> float:
    """Stand in for a schedule of the training."""
    return 0.0


def _check(trained: Any, space: Space, verb: str) -> None:
    """Check that an agent's space has the numbers of the dataset's, or is its Dict; raise Misfit with both.

    A choice of n values is the numbers from its start on: of an integer or a float space with the same bounds.
    """
    from gymnasium import spaces

    if isinstance(trained, spaces.Dict) and verb == OBSERVES and isinstance(space.gymnasium, Parts):
        from ..simulators.gymnasium_spaces import structure_of_space

        if equal(structure_of_space(trained), space.gymnasium):
            return
        raise Misfit(f"the agent was trained with {trained}; the dataset {verb} {space.gymnasium}")
    if not isinstance(trained, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        has = space.gymnasium or format_type(space.dtype, space.shape)
        raise Misfit(f"the agent was trained with {trained}; the dataset {verb} {has}")
    fits = math.prod(trained.shape) == math.prod(space.shape)
    if isinstance(trained, spaces.Discrete):
        fits = fits and (space.low[0], space.high[0]) == (trained.start, trained.start + trained.n - 1)
    elif isinstance(trained, spaces.Box):
        fits = fits and (space.dtype.startswith("float") or trained.dtype.kind in "iub")
    if not fits:
        bounds = f" from {space.low[0]:g} to {space.high[0]:g}" if math.prod(space.shape) == 1 else ""
        raise Misfit(
            f"the agent was trained with {trained}; the dataset {verb} {format_type(space.dtype, space.shape)}{bounds}"
        )


FORMAT = ModelFormat(
    title="Stable-Baselines3",
    description=(
        "The .zip that `save` of an algorithm of stable-baselines3 or sb3-contrib wrote. Its policy predicts the action"
        " that it holds for the best."
    ),
    runtime="stable-baselines3",
    environment="python",
    requirements=("stable-baselines3>=2.3,<3", "sb3-contrib>=2.3,<3"),
    isolation="scenario",  # the file has pickled objects, which are code
    ambiguous_suffixes=(".zip",),
    recognise=recognise,
    zip_contents=f"`{DATA}` and `{POLICY}` (`save` of an algorithm)",
    preload=preload,
    load=AgentModel,
)
