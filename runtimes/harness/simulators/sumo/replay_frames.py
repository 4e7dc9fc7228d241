"""Replay data: the street's static shapes, and a frame of vehicles, pedestrians and lights per step."""

from typing import Any

from .engine import EGO, sumo
from .street import Shape, Street
from .traffic import describe

#: SUMO's signal states from the most restrictive to the most permissive; "s": right turns after a stop, "o": off.
LIGHTS = "rusyog"


def rounded(shape: Shape) -> list[list[float]]:
    """Return a polyline for JSON, rounded to centimetres."""
    return [[round(x, 2), round(y, 2)] for x, y in shape]


def scene(street: Street) -> dict[str, Any]:
    """Return the static shapes: lanes, junctions, stop lines, crossings, pavements."""
    lanes = [
        {"id": lane.id, "shape": rounded(lane.shape), "width": lane.width, "rank": lane.rank, "count": lane.count}
        for lane in street.lanes.values()
        if not lane.internal
    ]
    stops = []
    for path in street.paths.values():
        lane = street.lanes[path.lane]
        stop = {"lane": lane.id, "at": rounded(lane.shape[-2:]), "width": lane.width, "light": path.light}
        if stop not in stops and street.yields[path.junction].get(path.link):
            stops.append(stop)
    return {
        "kind": "street",
        "lanes": lanes,
        "junctions": [rounded(shape) for shape in street.junctions.values() if len(shape) > 2],
        "stops": stops,
        "crossings": [{"shape": rounded(crosswalk.shape), "width": crosswalk.width} for crosswalk in street.crosswalks],
        "pavements": [{"shape": rounded(shape), "width": width} for _, shape, width in street.pavements.values()],
    }


def frame(street: Street, persons: list[str]) -> dict[str, Any]:
    """Return the current vehicles, pedestrians, lights by lane, and the ego's collisions."""
    vehicles = [describe(name) for name in sorted(sumo.vehicle.getIDList())]
    present = set(sumo.person.getIDList()) if persons else set()
    people = []
    for name in persons:
        if name in present:
            x, y = sumo.person.getPosition(name)
            speed = sumo.person.getSpeed(name)
            people.append({"id": name, "x": round(x, 2), "y": round(y, 2), "speed": round(speed, 2)})
    states = {light: sumo.trafficlight.getRedYellowGreenState(light) for light in street.lights}
    lights: dict[str, str] = {}
    for path in street.paths.values():
        if path.light is not None:
            state = states[path.light][path.light_index].lower()
            # For a lane with several paths, show the most permissive state.
            if path.lane not in lights or LIGHTS.index(state) > LIGHTS.index(lights[path.lane]):
                lights[path.lane] = state
    collisions = [
        {"with": collision.victim if collision.collider == EGO else collision.collider, "type": collision.type}
        for collision in sumo.simulation.getCollisions()
        if EGO in (collision.collider, collision.victim)
    ]
    return {"ego": EGO, "vehicles": vehicles, "pedestrians": people, "lights": lights, "collisions": collisions}
