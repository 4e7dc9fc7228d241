"""car_street as one would write it by hand: libsumo, a process pool, an IDM driver; no isolation, no metrics.

python libsumo_script.py DATASET PROCESSES: drives the dataset's scenarios with as many processes, prints the rate.
"""

import json
import multiprocessing
import random
import sys
import time
from math import sqrt
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

STEP = 0.1
FOLDER = Path(sys.argv[1])
DRIVERS, SHARES = ("calm", "normal", "aggressive"), {"mixed": (0.25, 0.6, 0.15), "rough": (0.0, 0.5, 0.5)}


def successors(network: Path) -> dict[str, list[str]]:
    """Return the edges that follow each edge for cars."""
    root = ElementTree.parse(network).getroot()
    cars = {
        edge.attrib["id"]
        for edge in root.iter("edge")
        if edge.get("function") is None and any(lane.get("allow") != "pedestrian" for lane in edge.iter("lane"))
    }
    following: dict[str, list[str]] = {edge: [] for edge in sorted(cars)}
    for connection in root.iter("connection"):
        start, end = connection.attrib["from"], connection.attrib["to"]
        if start in cars and end in cars and end not in following[start]:
            following[start].append(end)
    return following


def insert_traffic(sumo: Any, spec: dict[str, Any], rng: random.Random, following: dict[str, list[str]]) -> None:
    """Insert the ego and the other vehicles, on random routes."""
    start = spec["start"]
    sumo.route.add("ego", spec["route"])
    sumo.vehicle.add(
        "ego",
        "ego",
        typeID="ego",
        departLane=str(start["lane"] + (1 if spec["street"] == "crosswalk" else 0)),
        departPos=str(start["pos"]),
        departSpeed=str(start["speed"]),
    )
    edges = [edge for edge, onto in following.items() if onto]
    for number in range(spec["vehicles"]):
        route = [rng.choice(edges)]
        while len(route) < 25 and following[route[-1]]:
            route.append(rng.choice(following[route[-1]]))
        kind = rng.choices(DRIVERS, SHARES[spec["mix"]])[0]
        sumo.route.add(f"v{number}", route)
        sumo.vehicle.add(
            f"v{number}", f"v{number}", typeID=kind, departLane="random", departPos="random_free", departSpeed="max"
        )


def acceleration(sumo: Any, speed: float, limit: float) -> float:
    """Return IDM's acceleration behind the leader, or behind a light that is not green."""
    free = 1.5 * (1 - (speed / max(1.0, limit)) ** 4)
    obstacles = []
    leader = sumo.vehicle.getLeader("ego", 100.0)
    if leader and leader[0]:
        obstacles.append((max(0.1, leader[1]), speed - sumo.vehicle.getSpeed(leader[0])))
    lights = sumo.vehicle.getNextTLS("ego")
    if lights and lights[0][3].lower() in "ruy" and lights[0][2] < 100.0:
        obstacles.append((max(0.1, lights[0][2]), speed))
    for gap, closing in obstacles:
        wanted = 2.0 + max(0.0, 1.2 * speed + speed * closing / (2 * sqrt(1.5 * 2.0)))
        free = min(free, 1.5 * (1 - (speed / max(1.0, limit)) ** 4 - (wanted / gap) ** 2))
    return max(-9.0, min(3.0, free))


def drive(line: str) -> int:
    """Drive one scenario; return its steps."""
    import libsumo as sumo

    spec = json.loads(line)
    network = FOLDER / "nets" / f"{spec['street']}.net.xml"
    options = ["sumo", "--net-file", str(network), "--additional-files", str(FOLDER / "types.add.xml"), "--seed", "1"]
    options += ["--step-length", str(STEP), "--step-method.ballistic", "--lanechange.duration", "3", "--no-warnings"]
    options += ["--default.action-step-length", "0.5", "--time-to-teleport", "-1", "--no-step-log"]
    options += ["--collision.action", "warn", "--collision.check-junctions", "--duration-log.disable"]
    if sumo.isLoaded():
        sumo.load(options[1:])
    else:
        sumo.start(options)
    insert_traffic(sumo, spec, random.Random(spec["index"]), successors(network))
    sumo.simulationStep()
    sumo.vehicle.setSpeedMode("ego", 32)
    for step in range(int(spec["time_limit"] / STEP)):
        speed, limit = sumo.vehicle.getSpeed("ego"), sumo.vehicle.getAllowedSpeed("ego")
        sumo.vehicle.setSpeed("ego", max(0.0, speed + acceleration(sumo, speed, limit) * STEP))
        sumo.simulationStep()
        hit = any("ego" in (crash.collider, crash.victim) for crash in sumo.simulation.getCollisions())
        if hit or "ego" in sumo.simulation.getArrivedIDList():
            return step + 1
    return int(spec["time_limit"] / STEP)


if __name__ == "__main__":
    lines = (FOLDER / "scenarios.ndjson").read_text().splitlines()
    with multiprocessing.get_context("forkserver").Pool(int(sys.argv[2])) as pool:
        pool.map(drive, lines[:4], chunksize=1)  # a warm-up: imports
        began = time.perf_counter()
        steps = sum(pool.imap_unordered(drive, lines))
        seconds = time.perf_counter() - began
    print(json.dumps({"rate": steps * STEP / seconds, "episodes": len(lines), "steps": steps, "seconds": seconds}))
