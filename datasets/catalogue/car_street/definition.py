"""What `dataset.json` says of the data set beside its files: interface, parameters, metrics, score."""

from typing import Any

#: name, unit, low, high
OBSERVATION: tuple[tuple[str, str, float, float], ...] = (
    ("speed", "m/s", 0, 50),
    ("accel", "m/s2", -9, 3),
    ("speed_limit", "m/s", 0, 50),
    ("lane_offset", "m", -2, 2),
    ("lane_index", "", 0, 4),
    ("lane_count", "", 1, 5),
    ("route_lane_shift", "lanes", -2, 2),
    ("route_lane_left", "m", 0, 300),
    ("route_left", "m", 0, 2000),
    ("lead_present", "", 0, 1),
    ("lead_gap", "m", 0, 100),
    ("lead_rel_speed", "m/s", -50, 50),
    ("lead_accel", "m/s2", -9, 5),
    ("rear_gap", "m", 0, 100),
    ("rear_rel_speed", "m/s", -50, 50),
    ("left_lead_gap", "m", 0, 100),
    ("left_lead_rel_speed", "m/s", -50, 50),
    ("left_rear_gap", "m", 0, 100),
    ("left_rear_rel_speed", "m/s", -50, 50),
    ("right_lead_gap", "m", 0, 100),
    ("right_lead_rel_speed", "m/s", -50, 50),
    ("right_rear_gap", "m", 0, 100),
    ("right_rear_rel_speed", "m/s", -50, 50),
    ("left_open", "", 0, 1),
    ("right_open", "", 0, 1),
    ("stop_line", "m", 0, 100),
    ("light_red", "", 0, 1),
    ("light_yellow", "", 0, 1),
    ("conflict", "", 0, 1),
    ("conflict_ego_dist", "m", 0, 60),
    ("conflict_foe_dist", "m", 0, 60),
    ("conflict_foe_speed", "m/s", 0, 50),
)

ACTION: tuple[tuple[str, str, float, float], ...] = (("accel", "m/s2", -9, 3), ("lane", "", -1, 1))

NUPLAN = "nuPlan, docs/metrics_description.md"
CARLA = "CARLA leaderboard 2.1"
SSM = "SUMO, SSM device"
OURS = "Windtunnel"


def space(entries: tuple[tuple[str, str, float, float], ...]) -> dict[str, Any]:
    """Return the JSON form of a flat float32 space."""
    return {
        "dtype": "float32",
        "shape": [len(entries)],
        "names": [entry[0] for entry in entries],
        "units": [entry[1] for entry in entries],
        "low": [float(entry[2]) for entry in entries],
        "high": [float(entry[3]) for entry in entries],
    }


def metric(
    name: str,
    title: str,
    unit: str,
    formula: str,
    source: str,
    better: str | None,
    worst: float | None,
    bounds: tuple[float | None, float | None] = (None, None),
) -> dict[str, Any]:
    """Return one metric's entry; ``worst`` is what a scenario counts that the model broke off."""
    return {
        "name": name,
        "title": title,
        "unit": unit,
        "formula": formula,
        "source": source,
        "better": better,
        "worst": worst,
        "low": bounds[0],
        "high": bounds[1],
    }


METRICS: tuple[dict[str, Any], ...] = (
    metric(
        "outcome",
        "Outcome",
        "",
        "arrived, collision, timeout, stranded; or how the model broke off: failed, crashed, timed_out, invalid",
        "Gymnasium terminated and truncated; CARLA status",
        None,
        None,
    ),
    metric(
        "score",
        "Driving score",
        "%",
        "route_completion / (1 + 1.0 pedestrian at fault + 0.7 vehicle at fault + 0.4 red_lights"
        " + 0.4 (timeout or stranded)); 0 if the model broke off",
        CARLA,
        "higher",
        0.0,
        (0.0, 100.0),
    ),
    metric(
        "route_completion",
        "Route completion",
        "%",
        "100 driven / route; 100 on arrival",
        CARLA,
        "higher",
        0.0,
        (0.0, 100.0),
    ),
    metric("arrived", "Arrived", "", "1 if the route was driven to its end", CARLA, "higher", 0.0, (0.0, 1.0)),
    metric("collision", "Collision", "", "1 if the ego collided; the first ends it", NUPLAN, "lower", 1.0, (0.0, 1.0)),
    metric(
        "at_fault",
        "Collision at fault",
        "",
        "1 if the ego was the rear-end collider, changed lanes (side), had to yield or ran a red light (junction),"
        " or hit a pedestrian; 0 if it stood",
        NUPLAN,
        "lower",
        1.0,
        (0.0, 1.0),
    ),
    metric("collision_kind", "Kind of collision", "", "SUMO's collision type", "SUMO", None, None),
    metric(
        "impact_speed",
        "Impact speed",
        "m/s",
        "|v_ego - v_other| along the ego's heading; 0 without a collision",
        "after nuPlan's collision energy",
        "lower",
        50.0,
        (0.0, 80.0),
    ),
    metric(
        "min_ttc",
        "Least time to collision",
        "s",
        "min gap / (v_ego - v_lead) where closing > 0.1 m/s; 100 if never",
        SSM,
        "higher",
        0.0,
        (0.0, 100.0),
    ),
    metric(
        "ttc_below_1_5",
        "Time with TTC below 1.5 s",
        "s",
        "seconds with TTC < 1.5",
        "Minderhoud and Bovy 2001",
        "lower",
        60.0,
        (0.0, 60.0),
    ),
    metric(
        "max_drac",
        "Greatest deceleration to avoid a crash",
        "m/s2",
        "max (v_ego - v_lead)^2 / (2 gap), gap at least 0.1 m",
        SSM,
        "lower",
        100.0,
        (0.0, None),
    ),
    metric(
        "min_headway",
        "Least time headway",
        "s",
        "min gap / v_ego where v_ego > 1 m/s; 100 if never",
        "CommonRoad-CriMe, THW",
        "higher",
        0.0,
        (0.0, 100.0),
    ),
    metric(
        "min_pet",
        "Least post-encroachment time",
        "s",
        "time from one car's leaving the ground two paths share to the other's entering it; 5 if longer or never",
        SSM,
        "higher",
        0.0,
        (0.0, 5.0),
    ),
    metric(
        "rss_share",
        "Share of time below the RSS gap",
        "",
        "share of steps with gap < RSS distance (rho 0.5 s, a_max 3, b_min 4, b_max 8 m/s2)",
        "arXiv 1708.06374, Definition 1",
        "lower",
        1.0,
        (0.0, 1.0),
    ),
    metric(
        "red_lights",
        "Red lights run",
        "",
        "times the ego drove from a road onto a junction while its light was red, or red and yellow",
        CARLA,
        "lower",
        1.0,
        (0.0, None),
    ),
    metric(
        "speeding", "Mean speeding", "m/s", "integral of max(0, v - limit) dt / T", NUPLAN, "lower", 2.23, (0.0, None)
    ),
    metric("max_speeding", "Greatest speeding", "m/s", "max (v - limit)", NUPLAN, "lower", 26.1, (0.0, None)),
    metric(
        "comfort",
        "Comfort",
        "",
        "share of steps with -4.05 <= a <= 2.40 and |jerk| <= 4.13",
        NUPLAN,
        "higher",
        0.0,
        (0.0, 1.0),
    ),
    metric("jerk_rms", "Jerk", "m/s3", "sqrt(mean jerk^2)", "CommonRoad J", "lower", 120.0, (0.0, None)),
    metric("max_decel", "Hardest braking", "m/s2", "max (-a)", "CommonRoad Jlon", "lower", 9.0, (0.0, 9.0)),
    metric("mean_speed", "Mean speed", "m/s", "driven / T", "SUMO tripinfo", "higher", 0.0, (0.0, None)),
    metric("time_lost", "Time lost", "s", "T - driven / mean limit of the route", "SUMO tripinfo", "lower", 60.0),
    metric("lane_changes", "Lane changes", "", "count", OURS, None, None, (0.0, None)),
    metric(
        "clipped_actions",
        "Actions out of range",
        "",
        "steps in which an entry of the action was clipped",
        OURS,
        "lower",
        600.0,
        (0.0, 600.0),
    ),
    metric(
        "co2",
        "CO2",
        "g/km",
        "sum mg/s dt / km; none before the first metre",
        "HBEFA4/PC_petrol_Euro-6ab",
        "lower",
        5000.0,
        (0.0, None),
    ),
    metric("seconds", "Simulated time", "s", "steps x 0.1", OURS, None, None, (0.0, 60.0)),
    metric("event_met", "Event met", "", "1 if the scenario's event happened to the ego", OURS, None, None, (0.0, 1.0)),
)

PARAMS: dict[str, dict[str, Any]] = {
    "lane_guard": {
        "type": "bool",
        "default": False,
        "description": "SUMO refuses lane changes into gaps it holds unsafe; off, the model owns its lane changes.",
    },
    "latency_steps": {
        "type": "int",
        "default": 0,
        "low": 0,
        "high": 10,
        "description": "Every action takes effect so many tenths of a second late; zeros before the first.",
    },
}

DEFINITION: dict[str, Any] = {
    "name": "car_street",
    "version": "1",
    "title": "Car on a street",
    "description": "Drive a car along a route through traffic, lights, pedestrians and other people's mistakes:"
    " six streets, three densities, four events each.",
    "simulator": "sumo",
    "environment": "sumo",
    "max_tasks": 1_000_000,
    "scenarios": "scenarios.ndjson",
    "interface": {"observation": space(OBSERVATION), "action": space(ACTION)},
    "dt": 0.1,
    "deadline": 1.0,
    "params": PARAMS,
    "metrics": list(METRICS),
    "score": {"name": "ds-1", "metric": "score", "formula": METRICS[1]["formula"]},
    "failure": {"metric": "outcome", "in": ["collision", "stranded", "timeout"]},
    "record": True,
    "isolation": "scenario",
    "yardstick": "idm",
    "group_by": ["street", "density", "event", "mix"],
}
