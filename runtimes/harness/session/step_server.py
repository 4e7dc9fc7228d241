"""Step server: the session process's side of the memory that it shares with a trainer, with a simulator for each world.

A trainer may order anything at any time: orders and actions are copied before they are looked at.
"""

import os
from collections.abc import Sequence

import msgspec

from ..evaluator.episodes import simulator_error
from ..simulators.base import SimulatorBroken
from .played_scenario import PlayedScenario
from .step_memory import (
    CUT_OFF,
    DOCUMENT,
    FAULT,
    OVER,
    RESET,
    RING,
    STEP,
    ArrayType,
    Document,
    RingWait,
    StepMemory,
)

#: The most characters of an error's text.
LONGEST_REASON = 4000
_encode = msgspec.msgpack.Encoder().encode


class StepServer:
    """Answers for all worlds. ``played``: one for each; ``descriptors``: the memory, and the pipes to and from here.

    ``spin``: seconds for which this process polls before it sleeps. Raise ValueError for a memory of another size.
    """

    def __init__(
        self, played: Sequence[PlayedScenario], worlds: int, descriptors: tuple[int, int, int], spin: float
    ) -> None:
        memory, self._asked, self._answered = descriptors
        interface = played[0].interface
        observation, action = (
            ArrayType(space.dtype, space.shape) for space in (interface.observation, interface.action)
        )
        self._memory = StepMemory.of_descriptor(observation, action, worlds, memory)
        self._played, self._spin = played, spin

    def serve(self) -> None:
        """Answer until the trainer has closed its pipe; raise SimulatorBroken if this process must be replaced."""
        asked, answered, wait = self._asked, self._answered, RingWait(self._asked, self._spin)
        while True:
            wait()
            if not os.read(asked, len(RING)):
                return
            self._answer()
            os.write(answered, RING)

    def _answer(self) -> None:
        memory = self._memory
        orders, actions = bytes(memory.orders), memory.actions.copy()
        memory.clear()
        observations, rewards = memory.observations, memory.rewards
        for world, (played, order, action) in enumerate(zip(self._played, orders, actions, strict=False)):
            try:
                if order == STEP:
                    observation, over = played.step(action)
                    observations[world], rewards[world] = observation, played.reward() or 0.0
                    if over:
                        self._end(world, played)
                elif order == RESET:
                    self._reset(world, played)
            except SimulatorBroken:
                raise
            except Exception as error:
                memory.outcomes[world] = FAULT
                self._say(world, Document(reason=simulator_error(error)[:LONGEST_REASON]))

    def _reset(self, world: int, played: PlayedScenario) -> None:
        memory = self._memory
        observation = played.reset(int(memory.scenarios[world]), int(memory.repeats[world]), int(memory.seeds[world]))
        memory.observations[world], memory.rewards[world] = observation, 0.0
        self._say(world, Document(seed=played.seed, name=played.name))

    def _end(self, world: int, played: PlayedScenario) -> None:
        metrics = played.metrics()
        self._say(world, Document(seed=played.seed, name=played.name, metrics=metrics))
        self._memory.outcomes[world] = CUT_OFF if played.cut_off(metrics) else OVER

    def _say(self, world: int, document: Document) -> None:
        """Write a document; raise ValueError if it is too long."""
        encoded = _encode(document)
        if len(encoded) > DOCUMENT:
            raise ValueError(f"the metrics of a scenario take {len(encoded):,} bytes; there is room for {DOCUMENT:,}")
        self._memory.documents[world][: len(encoded)] = encoded
        self._memory.lengths[world] = len(encoded)
