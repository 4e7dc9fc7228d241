"""Drawing of MPE's worlds: agents and landmarks as circles of their sizes."""

from typing import Any

from ...drawings.shapes import Drawing, floor, frame, moving_circle, moving_line, scene

#: Half the height of what is shown; MPE places everything within 1 of the middle.
REACH = 1.3
#: Length of the line that shows where an agent is going, in units per unit of velocity.
AHEAD = 0.3


def drawing(environment: Any, own: str) -> Drawing | None:
    """Return the drawing of an environment if it has a world of MPE's entities."""
    is_mpe = hasattr(getattr(environment, "world", None), "entities") and hasattr(environment, "scenario")
    return MpeDrawing(environment, own) if is_mpe else None


class MpeDrawing:
    """The model's agent has its own colour; adversaries and landmarks that collide (obstacles) have others."""

    def __init__(self, environment: Any, own: str) -> None:
        self._world, self._own = environment.world, own

    def scene(self) -> dict[str, Any]:
        objects = [moving_circle(entity.name, self._role(entity), float(entity.size)) for entity in self._entities()]
        ways = [moving_line(f"{agent.name}-way", "mark", 0.02) for agent in self._world.agents]
        view = (-1.9 * REACH, -REACH, 3.8 * REACH, 2 * REACH)
        return scene(view=view, unit="", shapes=[floor(0.5, (1.0, 0.0), (0.0, 1.0))], objects=[*ways, *objects])

    def frame(self) -> dict[str, Any]:
        at = {entity.name: [tuple(entity.state.p_pos)] for entity in self._entities()}
        for agent in self._world.agents:
            (x, y), (velocity_x, velocity_y) = agent.state.p_pos, agent.state.p_vel
            at[f"{agent.name}-way"] = [(x, y), (x + AHEAD * velocity_x, y + AHEAD * velocity_y)]
        return frame(at)

    def _entities(self) -> list[Any]:
        """Return landmarks before agents, which are painted over them; the model's agent is the last."""
        agents = sorted(self._world.agents, key=lambda agent: agent.name == self._own)
        return [*self._world.landmarks, *agents]

    def _role(self, entity: Any) -> str:
        if entity.name == self._own:
            return "ego"
        if entity in self._world.landmarks:
            return "track" if entity.collide else "goal"
        return "limb_1" if getattr(entity, "adversary", False) else "body"
