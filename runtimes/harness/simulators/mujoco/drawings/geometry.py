"""Drawing of MuJoCo models: their capsules, spheres and cylinders, from the side, from above or obliquely.

The geometry is MuJoCo's own (`model.geom_*`, `data.geom_xpos`, `data.geom_xmat`), projected in parallel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, radians, sin
from typing import Any

from ...drawings.shapes import Drawing, Point, circle, floor, frame, ground, line, moving_circle, moving_line, scene

#: Types of geoms: mjtGeom of MuJoCo. Other types (planes, meshes) are not drawn.
SPHERE, CAPSULE, CYLINDER = 2, 3, 5
#: Bodies whose part in a task is known by their names.
ROLES: Mapping[str, str] = {"target": "goal", "goal": "goal", "object": "object", "fingertip": "ego"}
#: The body that all others of a robot are attached to; 0 is the world.
TORSO = 1
#: Colours for the limbs of a body, one after another.
LIMBS = 5
#: Share of a cylinder's axis across the view below which it is seen as a disc.
END_ON = 0.3


@dataclass(frozen=True, slots=True)
class View:
    """Directions of the world that are drawn to the right and up, and the size of what is shown in metres.

    ``centre``: of the view at first. The view follows the torso in the directions of ``follows``, "x" and "y" of the
    picture. ``every``: metres between the marks of the ground.
    """

    right: tuple[float, float, float]
    up: tuple[float, float, float]
    width: float
    height: float
    centre: Point
    follows: str = ""
    every: float = 1.0

    def project(self, position: Any) -> Point:
        """Return a position as it is drawn."""
        x, y, z = (float(value) for value in position)
        return (
            self.right[0] * x + self.right[1] * y + self.right[2] * z,
            self.up[0] * x + self.up[1] * y + self.up[2] * z,
        )

    def depth(self, position: Any) -> float:
        """Return how far a position is behind others."""
        (ax, ay, az), (bx, by, bz) = self.right, self.up
        x, y, z = (float(value) for value in position)
        return -(x * (ay * bz - az * by) + y * (az * bx - ax * bz) + z * (ax * by - ay * bx))


def _side(width: float, height: float, centre: Point, follows: str = "", every: float = 1.0) -> View:
    return View((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), width, height, centre, follows, every)


def _above(width: float, height: float, centre: Point, follows: str = "", every: float = 1.0) -> View:
    return View((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), width, height, centre, follows, every)


def _oblique(width: float, height: float, centre: Point, turn: float = 20.0, tilt: float = 20.0) -> View:
    """Return a view along x, turned and tilted by some degrees."""
    a, b = radians(turn), radians(tilt)
    return View((cos(a), sin(a), 0.0), (-sin(a) * sin(b), cos(a) * sin(b), cos(b)), width, height, centre, "xy")


#: The view of each of Gymnasium's tasks.
VIEWS: Mapping[str, View] = {
    "Ant": _oblique(6.0, 2.7, (0.0, 0.5), 25.0, 35.0),
    "HalfCheetah": _side(5.6, 1.9, (0.0, 0.6), "x"),
    "Hopper": _side(4.6, 2.1, (0.0, 0.75), "x"),
    "Humanoid": _oblique(4.4, 2.2, (0.0, 0.9), 30.0, 15.0),
    "HumanoidStandup": _oblique(4.4, 2.2, (0.0, 0.6), 30.0, 15.0),
    "InvertedDoublePendulum": _side(3.6, 1.7, (0.0, 0.55)),
    "InvertedPendulum": _side(3.0, 1.2, (0.0, 0.3)),
    "Pusher": _above(2.8, 1.4, (0.3, -0.25), every=0.25),
    "Reacher": _above(1.2, 0.66, (0.0, 0.0), every=0.1),
    "Swimmer": _above(7.0, 3.2, (0.0, 0.0), "xy"),
    "Walker2d": _side(4.6, 2.1, (0.0, 0.75), "x"),
}


def drawing(environment: Any, own: str) -> Drawing | None:
    """Return the drawing of an environment if it is one of Gymnasium's MuJoCo tasks."""
    name = str(getattr(getattr(environment, "spec", None), "name", None))
    is_mujoco = name in VIEWS and hasattr(environment.unwrapped, "model")
    return MujocoDrawing(environment.unwrapped, VIEWS[name]) if is_mujoco else None


class MujocoDrawing:
    """Each geom is a shape: a capsule is a line as wide as it, a sphere is a circle."""

    def __init__(self, environment: Any, view: View) -> None:
        self._model, self._data = environment.model, environment.data
        self._view = view
        kinds, bodies = self._model.geom_type, self._model.geom_bodyid
        drawn = [geom for geom in range(self._model.ngeom) if kinds[geom] in (SPHERE, CAPSULE, CYLINDER)]
        self._static = [geom for geom in drawn if bodies[geom] == 0]
        moving = [geom for geom in drawn if bodies[geom] != 0]
        # Painted from back to front as they are at the start: the order of shapes does not change in a replay.
        self._moving = sorted(moving, key=lambda geom: -view.depth(self._data.geom_xpos[geom]))
        self._limbs = self._limb_roots()
        self._discs = {geom for geom in drawn if self._is_disc(geom)}

    def scene(self) -> dict[str, Any]:
        view = self._view
        x, y = self._centre()
        shapes: list[dict[str, Any]] = []
        if view.up == (0.0, 0.0, 1.0) and (plane := self._plane()) is not None:
            shapes.append(ground(view.every, height=plane))
        elif view.up != (0.0, 0.0, 1.0):
            shapes.append(floor(view.every, view.project((1, 0, 0)), view.project((0, 1, 0))))
        for geom in self._static:
            points, radius = self._points(geom), float(self._model.geom_size[geom][0])
            in_line = line(points, "track", width=2 * radius)
            shapes.append(circle(points[0], radius, "track") if geom in self._discs else in_line)
        objects = [self._declared(geom) for geom in self._moving]
        box = (x - view.width / 2, y - view.height / 2, view.width, view.height)
        return scene(view=box, unit="m", shapes=shapes, objects=objects)

    def frame(self) -> dict[str, Any]:
        at = {_id(geom): self._points(geom) for geom in self._moving}
        return frame(at, centre=self._centre() if self._view.follows else None)

    def _declared(self, geom: int) -> dict[str, Any]:
        radius = float(self._model.geom_size[geom][0])
        if geom in self._discs:
            return moving_circle(_id(geom), self._role(geom), radius)
        is_cylinder = bool(self._model.geom_type[geom] == CYLINDER)
        return moving_line(_id(geom), self._role(geom), 2 * radius, flat_ends=is_cylinder)

    def _is_disc(self, geom: int) -> bool:
        if self._model.geom_type[geom] == SPHERE:
            return True
        x, y = self._view.project(self._axis(geom))
        return bool(self._model.geom_type[geom] == CYLINDER and x * x + y * y < END_ON**2)

    def _axis(self, geom: int) -> Any:
        """Return the unit vector along a capsule or cylinder, the third column of its rotation."""
        return self._data.geom_xmat[geom].reshape(3, 3)[:, 2]

    def _points(self, geom: int) -> list[Point]:
        """Return where a geom is drawn: the centre of a disc, or the ends of a line."""
        position = self._data.geom_xpos[geom]
        if geom in self._discs:
            return [self._view.project(position)]
        reach = self._axis(geom) * float(self._model.geom_size[geom][1])
        return [self._view.project(position - reach), self._view.project(position + reach)]

    def _role(self, geom: int) -> str:
        """Return what a geom is: by its body's name, or by the limb that it belongs to."""
        body = int(self._model.geom_bodyid[geom])
        if role := ROLES.get(self._model.body(body).name):
            return role
        while body != TORSO and body not in self._limbs:
            body = int(self._model.body_parentid[body])
            if body == 0:
                return "other"
        return "body" if body == TORSO else f"limb_{self._limbs.index(body) % LIMBS + 1}"

    def _limb_roots(self) -> list[int]:
        """Return the first body of each limb: those at the torso, and those where a limb divides."""
        parents = [int(parent) for parent in self._model.body_parentid]
        return [
            body
            for body, parent in enumerate(parents)
            if parent == TORSO or (parent > TORSO and parents.count(parent) > 1)
        ]

    def _plane(self) -> float | None:
        """Return the height of the floor; None if the model has none, or none near enough to be seen."""
        planes = [geom for geom in range(self._model.ngeom) if self._model.geom_type[geom] == 0]
        heights = [float(self._data.geom_xpos[geom][2]) for geom in planes]
        lowest = self._view.centre[1] - self._view.height / 2
        return next((height for height in heights if height > lowest), None)

    def _centre(self) -> Point:
        """Return the centre of the view, which follows the torso where the view follows at all."""
        x, y = self._view.centre
        torso = self._data.xpos[TORSO]
        seen_x, seen_y = self._view.project((torso[0], torso[1], 0.0))
        return x + seen_x * ("x" in self._view.follows), y + seen_y * ("y" in self._view.follows)


def _id(geom: int) -> str:
    return f"geom-{geom}"
