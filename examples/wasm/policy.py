"""The baseline of cartpole as a component; docs/exporting.md#webassembly has the command that builds it."""

import random

import wit_world
from componentize_py_types import Err


class WitWorld(wit_world.WitWorld):
    """The world `model` of `runtimes/native/windtunnel-model.wit`."""

    def create(self, description: str) -> None:
        """This model is for one dataset only."""

    def reset(self, seed: int) -> None:
        """Seed the generator: componentize-py stores the state that it has when the component is built."""
        random.seed(seed)

    def act(self, observation: list[float]) -> list[float]:
        """Push towards the side to which the pole falls."""
        if len(observation) != 4:
            raise Err(f"the policy takes 4 numbers, not {len(observation)}")
        position, velocity, angle, angular = observation
        return [1.0 if angle + 0.5 * angular + 0.02 * position + 0.05 * velocity > 0 else 0.0]
