"""Drawing of SISL's multiwalker: the terrain, the walkers' hulls and legs, and the package on them."""

from typing import Any

from ...drawings.shapes import Drawing, Point, frame, line, moving_polygon, polygon, scene

#: What is shown, in metres, and what is drawn of the ground below the terrain.
WIDTH, HEIGHT, DEPTH = 24.0, 9.0, 4.0


def drawing(environment: Any, own: str) -> Drawing | None:
    """Return the drawing of an environment if it is multiwalker."""
    is_multiwalker = getattr(environment, "metadata", {}).get("name") == "multiwalker_v9"
    return MultiwalkerDrawing(environment, own) if is_multiwalker else None


class MultiwalkerDrawing:
    """Box2D's polygons; the view follows the package."""

    def __init__(self, environment: Any, own: str) -> None:
        self._world = environment.env
        self._own = environment.possible_agents.index(own)

    def scene(self) -> dict[str, Any]:
        surface = [(float(x), float(y)) for x, y in zip(self._world.terrain_x, self._world.terrain_y, strict=False)]
        below = [(surface[-1][0], surface[-1][1] - DEPTH), (surface[0][0], surface[0][1] - DEPTH)]
        objects = [
            moving_polygon(f"{name}-{number}", self._role(name))
            for name, body in self._bodies()
            for number in _shapes(body)
        ]
        x, y = self._centre()
        return scene(
            view=(x - WIDTH / 2, y - HEIGHT / 2, WIDTH, HEIGHT),
            unit="m",
            shapes=[polygon([*surface, *below], "ground"), line(surface, "track", width=0.1)],
            objects=objects,
        )

    def frame(self) -> dict[str, Any]:
        at: dict[str, list[Point]] = {}
        for name, body in self._bodies():
            for number in _shapes(body):
                vertices = [body.transform * vertex for vertex in body.fixtures[number].shape.vertices]
                at[f"{name}-{number}"] = [(float(x), float(y)) for x, y in vertices]
        return frame(at, centre=self._centre())

    def _bodies(self) -> list[tuple[str, Any]]:
        """Return the bodies by name: legs before hulls, which are painted over them; a walker may have been removed."""
        bodies = []
        for number, walker in enumerate(self._world.walkers):
            if walker.hull is not None:
                bodies += [(f"walker-{number}-leg-{leg}", body) for leg, body in enumerate(walker.legs)]
                bodies.append((f"walker-{number}-hull", walker.hull))
        return [*bodies, ("package", self._world.package)]

    def _role(self, name: str) -> str:
        if name == "package":
            return "object"
        is_own = name.startswith(f"walker-{self._own}-")
        return ("limb_2" if "-leg-" in name else "ego") if is_own else ("vehicle" if "-leg-" in name else "body")

    def _centre(self) -> Point:
        package = self._world.package.position
        return float(package.x), float(self._world.terrain_y[0]) + HEIGHT / 2 - 1.5


def _shapes(body: Any) -> range:
    return range(len(body.fixtures))
