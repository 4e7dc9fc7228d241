"""Definition of car_street, written to `dataset.json`: interface, parameters, metrics, score.

The digest of `dataset.json` is part of every task's seed: a change of any text here changes all results.
"""

from dataclasses import dataclass
from typing import Any

#: Name, unit, low, high.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricDefinition:
    """A metric; ``better`` is "higher" or "lower". ``worst``: the value of a scenario that a model's fault ended."""

    name: str
    title: str
    unit: str = ""
    formula: str
    source: str
    better: str | None = None
    worst: float | None = None
    bounds: tuple[float | None, float | None] = (None, None)

    def describe(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "formula": self.formula,
            "source": self.source,
            "better": self.better,
            "worst": self.worst,
            "low": self.bounds[0],
            "high": self.bounds[1],
        }


METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition(
        name="outcome",
        title="Outcome",
        formula=(
            "arrived, collision, timeout, stranded; or how the model broke off: failed, crashed, timed_out, invalid"
        ),
        source="Gymnasium terminated and truncated; CARLA status",
    ),
    MetricDefinition(
        name="score",
        title="Driving score",
        unit="%",
        formula=(
            "route_completion / (1 + 1.0 pedestrian at fault + 0.7 vehicle at fault + 0.4 red_lights"
            " + 0.4 (timeout or stranded)); 0 if the model broke off"
        ),
        source=CARLA,
        better="higher",
        worst=0.0,
        bounds=(0.0, 100.0),
    ),
    MetricDefinition(
        name="route_completion",
        title="Route completion",
        unit="%",
        formula="100 driven / route; 100 on arrival",
        source=CARLA,
        better="higher",
        worst=0.0,
        bounds=(0.0, 100.0),
    ),
    MetricDefinition(
        name="arrived",
        title="Arrived",
        formula="1 if the route was driven to its end",
        source=CARLA,
        better="higher",
        worst=0.0,
        bounds=(0.0, 1.0),
    ),
    MetricDefinition(
        name="collision",
        title="Collision",
        formula="1 if the ego collided; the first ends it",
        source=NUPLAN,
        better="lower",
        worst=1.0,
        bounds=(0.0, 1.0),
    ),
    MetricDefinition(
        name="at_fault",
        title="Collision at fault",
        formula=(
            "1 if the ego was the rear-end collider, changed lanes (side), had to yield or ran a red light (junction),"
            " or hit a pedestrian; 0 if it stood"
        ),
        source=NUPLAN,
        better="lower",
        worst=1.0,
        bounds=(0.0, 1.0),
    ),
    MetricDefinition(
        name="collision_kind",
        title="Kind of collision",
        formula="SUMO's collision type",
        source="SUMO",
    ),
    MetricDefinition(
        name="impact_speed",
        title="Impact speed",
        unit="m/s",
        formula="|v_ego - v_other| along the ego's heading; 0 without a collision",
        source="after nuPlan's collision energy",
        better="lower",
        worst=50.0,
        bounds=(0.0, 80.0),
    ),
    MetricDefinition(
        name="min_ttc",
        title="Least time to collision",
        unit="s",
        formula="min gap / (v_ego - v_lead) where closing > 0.1 m/s; 100 if never",
        source=SSM,
        better="higher",
        worst=0.0,
        bounds=(0.0, 100.0),
    ),
    MetricDefinition(
        name="ttc_below_1_5",
        title="Time with TTC below 1.5 s",
        unit="s",
        formula="seconds with TTC < 1.5",
        source="Minderhoud and Bovy 2001",
        better="lower",
        worst=60.0,
        bounds=(0.0, 60.0),
    ),
    MetricDefinition(
        name="max_drac",
        title="Greatest deceleration to avoid a crash",
        unit="m/s2",
        formula="max (v_ego - v_lead)^2 / (2 gap), gap at least 0.1 m",
        source=SSM,
        better="lower",
        worst=100.0,
        bounds=(0.0, None),
    ),
    MetricDefinition(
        name="min_headway",
        title="Least time headway",
        unit="s",
        formula="min gap / v_ego where v_ego > 1 m/s; 100 if never",
        source="CommonRoad-CriMe, THW",
        better="higher",
        worst=0.0,
        bounds=(0.0, 100.0),
    ),
    MetricDefinition(
        name="min_pet",
        title="Least post-encroachment time",
        unit="s",
        formula=(
            "time from one car's leaving the ground two paths share to the other's entering it; 5 if longer or never"
        ),
        source=SSM,
        better="higher",
        worst=0.0,
        bounds=(0.0, 5.0),
    ),
    MetricDefinition(
        name="rss_share",
        title="Share of time below the RSS gap",
        formula="share of steps with gap < RSS distance (rho 0.5 s, a_max 3, b_min 4, b_max 8 m/s2)",
        source="arXiv 1708.06374, Definition 1",
        better="lower",
        worst=1.0,
        bounds=(0.0, 1.0),
    ),
    MetricDefinition(
        name="red_lights",
        title="Red lights run",
        formula="times the ego drove from a road onto a junction while its light was red, or red and yellow",
        source=CARLA,
        better="lower",
        worst=1.0,
        bounds=(0.0, None),
    ),
    MetricDefinition(
        name="speeding",
        title="Mean speeding",
        unit="m/s",
        formula="integral of max(0, v - limit) dt / T",
        source=NUPLAN,
        better="lower",
        worst=2.23,
        bounds=(0.0, None),
    ),
    MetricDefinition(
        name="max_speeding",
        title="Greatest speeding",
        unit="m/s",
        formula="max (v - limit)",
        source=NUPLAN,
        better="lower",
        worst=26.1,
        bounds=(0.0, None),
    ),
    MetricDefinition(
        name="comfort",
        title="Comfort",
        formula="share of steps with -4.05 <= a <= 2.40 and |jerk| <= 4.13",
        source=NUPLAN,
        better="higher",
        worst=0.0,
        bounds=(0.0, 1.0),
    ),
    MetricDefinition(
        name="jerk_rms",
        title="Jerk",
        unit="m/s3",
        formula="sqrt(mean jerk^2)",
        source="CommonRoad J",
        better="lower",
        worst=120.0,
        bounds=(0.0, None),
    ),
    MetricDefinition(
        name="max_decel",
        title="Hardest braking",
        unit="m/s2",
        formula="max (-a)",
        source="CommonRoad Jlon",
        better="lower",
        worst=9.0,
        bounds=(0.0, 9.0),
    ),
    MetricDefinition(
        name="mean_speed",
        title="Mean speed",
        unit="m/s",
        formula="driven / T",
        source="SUMO tripinfo",
        better="higher",
        worst=0.0,
        bounds=(0.0, None),
    ),
    MetricDefinition(
        name="time_lost",
        title="Time lost",
        unit="s",
        formula="T - driven / mean limit of the route",
        source="SUMO tripinfo",
        better="lower",
        worst=60.0,
    ),
    MetricDefinition(
        name="lane_changes",
        title="Lane changes",
        formula="count",
        source=OURS,
        bounds=(0.0, None),
    ),
    MetricDefinition(
        name="clipped_actions",
        title="Actions out of range",
        formula="steps in which an entry of the action was clipped",
        source=OURS,
        better="lower",
        worst=600.0,
        bounds=(0.0, 600.0),
    ),
    MetricDefinition(
        name="co2",
        title="CO2",
        unit="g/km",
        formula="sum mg/s dt / km; none before the first metre",
        source="HBEFA4/PC_petrol_Euro-6ab",
        better="lower",
        worst=5000.0,
        bounds=(0.0, None),
    ),
    MetricDefinition(
        name="seconds",
        title="Simulated time",
        unit="s",
        formula="steps x 0.1",
        source=OURS,
        bounds=(0.0, 60.0),
    ),
    MetricDefinition(
        name="event_met",
        title="Event met",
        formula="1 if the scenario's event happened to the ego",
        source=OURS,
        bounds=(0.0, 1.0),
    ),
)

#: Of version 2, after `min_ttc`.
MIN_TTC_ANY = MetricDefinition(
    name="min_ttc_any",
    title="Least time to collision, pedestrians too",
    unit="s",
    formula=(
        "min of min_ttc and of the time until the ego and a pedestrian on a crossing or a lane for cars touch,"
        " if both keep speed and direction, where v_ego > 0.1 m/s; 100 if never"
    ),
    source="Hayward 1972",
    better="higher",
    worst=0.0,
    bounds=(0.0, 100.0),
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
    "metrics": [metric.describe() for metric in METRICS],
    "score": {"name": "ds-1", "metric": "score", "formula": METRICS[1].formula},
    "failure": {"metric": "outcome", "in": ["collision", "stranded", "timeout"]},
    "record": True,
    "isolation": "scenario",
    "yardstick": "idm",
    "group_by": ["street", "density", "event", "mix"],
}
