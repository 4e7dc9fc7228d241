"""Scenarios of car_street: six streets x three densities x four events x two driver mixes x two seeds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from datasets.catalogue.car_street.map_scenarios import CYCLE, DENSITIES, MAX_TIME_LIMIT, MIN_SPEED_SHARE, MIXES
from datasets.catalogue.car_street.street_network import StreetNetwork

SEEDS = (0, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Parameters of a street's scenarios: vehicles and pedestrians by density, start range in m, speed in m/s."""

    street: str
    vehicles: tuple[int, int, int]
    events: tuple[str, str, str, str]
    start: tuple[float, float]
    speed: float
    pedestrians: tuple[int, int, int] = (0, 0, 0)


FAMILIES = (
    Family(
        street="signal_grid",
        vehicles=(8, 18, 32),
        events=("none", "lead_brake", "stopped_vehicle", "red_runner"),
        start=(5.0, 30.0),
        speed=8.0,
    ),
    Family(
        street="arterial",
        vehicles=(8, 18, 32),
        events=("none", "lead_brake", "stopped_vehicle", "cut_in"),
        start=(60.0, 85.0),
        speed=8.0,
    ),
    Family(
        street="roundabout",
        vehicles=(4, 8, 14),
        events=("none", "lead_brake", "failing_to_yield", "stalled"),
        start=(5.0, 15.0),
        speed=8.0,
    ),
    Family(
        street="ramp_merge",
        vehicles=(4, 9, 16),
        events=("none", "lead_brake", "cut_in", "slow_truck"),
        start=(60.0, 90.0),
        speed=14.0,
    ),
    Family(
        street="priority_junction",
        vehicles=(6, 12, 20),
        events=("none", "hurried_major", "stopped_vehicle", "lead_brake"),
        start=(5.0, 25.0),
        speed=8.0,
    ),
    Family(
        street="crosswalk",
        vehicles=(6, 12, 20),
        events=("none", "late_pedestrian", "lead_brake", "stopped_vehicle"),
        start=(10.0, 30.0),
        speed=8.0,
        pedestrians=(10, 15, 20),
    ),
)


def routes_from(network: StreetNetwork, first: str, edges: int) -> Iterator[tuple[str, ...]]:
    """Yield every route of ``edges`` edges that starts with ``first``."""
    if edges == 1:
        yield (first,)
        return
    for onto in network.onward(first):
        for rest in routes_from(network, onto, edges - 1):
            yield (first, *rest)


def routes(street: str, event: str, seed: int, network: StreetNetwork) -> Sequence[tuple[str, ...]]:
    """Return the routes a scenario may take."""
    match street:
        case "signal_grid":
            candidates = [route for first in sorted(network.lengths) for route in routes_from(network, first, 3)]
            # Not around one block, and for a red-light runner with a light at the first junction.
            candidates = [route for route in candidates if len({network.ends[edge] for edge in route}) == 3]
            if event == "red_runner":
                return [route for route in candidates if network.ends[route[0]] in ("B1",)]
            return [route for route in candidates if any(network.ends[edge] in network.signalled for edge in route[:2])]
        case "arterial":
            eastbound = (("left0A0", "A0B0", "B0C0"), ("A0B0", "B0C0", "C0D0"), ("B0C0", "C0D0", "D0right0"))
            westbound = (("right0D0", "D0C0", "C0B0"), ("D0C0", "C0B0", "B0A0"), ("C0B0", "B0A0", "A0left0"))
            turns = (("bottom1B0", "B0C0", "C0D0"), ("A0B0", "B0C0", "C0top2"))
            return (*eastbound, *westbound) if event == "cut_in" else (*eastbound, *westbound, *turns)
        case "roundabout":
            ring = "enws"
            candidates = []
            for start in range(4):
                for turns_taken in (1, 2, 3):
                    arms = [ring[(start + step) % 4] for step in range(turns_taken + 1)]
                    around = [f"r{here}r{there}" for here, there in pairwise(arms)]
                    candidates.append((f"a{arms[0]}r{arms[0]}", *around, f"r{arms[-1]}a{arms[-1]}"))
            return [route for route in candidates if event != "failing_to_yield" or len(route) > 3]
        case "ramp_merge":
            return [("rb", "bc", "cd")] if seed == 0 and event != "cut_in" else [("ab", "bc", "cd")]
        case "priority_junction":
            return [(f"{side}j", f"j{arm}") for side in "sn" for arm in "we"]
        case _:
            return [("wk", "kl", "lm", "me"), ("em", "ml", "lk", "kw")]


def trigger(event: str, route: tuple[str, ...], start: float, network: StreetNetwork, rng: Random) -> float:
    """Return the metres driven before an event may start, or the metres ahead at which its vehicle stands."""
    first = network.lengths[route[0]] - start
    match event:
        case "lead_brake" | "cut_in":
            return round(rng.uniform(30.0, 90.0), 1)
        case "stopped_vehicle":
            # In the middle of the second edge: after a junction, with room for a lane change before the next one.
            return round(first + 12.0 + rng.uniform(0.35, 0.55) * network.lengths[route[1]], 1)
        case "stalled":
            return round(rng.uniform(60.0, 80.0), 1)
        case "late_pedestrian":
            return round(rng.uniform(20.0, 120.0), 1)
        case _:
            return 0.0


def scenario(
    index: int, family: Family, density: int, event: str, mix: str, seed: int, network: StreetNetwork
) -> dict[str, Any]:
    """Return one line of `scenarios.ndjson`."""
    name = f"{family.street}-{DENSITIES[density]}-{event}-{mix}-{seed}"
    rng = Random(f"car_street:{name}")
    route = rng.choice(routes(family.street, event, seed, network))
    start = round(rng.uniform(*family.start), 1)
    if family.street == "ramp_merge" and route[0] == "ab":
        start += 140.0
    lanes = network.leading(route[0], route[1])
    length = sum(network.lengths[edge] for edge in route) - start
    free = sum(network.lengths[edge] / network.limits[edge] for edge in route) - start / network.limits[route[0]]
    lights = sum(network.ends[edge] in network.signalled for edge in route[:-1])
    limit = length / free
    return {
        "index": index,
        "name": name,
        "street": family.street,
        "density": DENSITIES[density],
        "vehicles": family.vehicles[density],
        "pedestrians": family.pedestrians[density],
        "event": event,
        "mix": mix,
        "seed": seed,
        "route": list(route),
        "start": {"lane": rng.choice(lanes), "pos": start, "speed": family.speed + (6.0 if route[0] == "ab" else 0.0)},
        "trigger": trigger(event, route, start, network, rng),
        "limit": round(limit, 3),
        "time_limit": min(MAX_TIME_LIMIT, round(length / (MIN_SPEED_SHARE * limit) + (CYCLE if lights else 0.0), 1)),
    }


def scenarios(networks: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return all scenarios; ``networks`` has the text of each street's network file."""
    parsed = {street: StreetNetwork.of(text) for street, text in networks.items()}
    lines: list[dict[str, Any]] = []
    for family in FAMILIES:
        for density in range(3):
            for event in family.events:
                for mix in MIXES:
                    for seed in SEEDS:
                        lines.append(scenario(len(lines), family, density, event, mix, seed, parsed[family.street]))
    return lines
