"""Driving metrics: surrogate safety measures (TTC, DRAC, PET), comfort and score, accumulated step by step."""

from dataclasses import dataclass
from math import inf, isfinite, sqrt

from ..base import Metric
from .clock import DT

#: nuPlan's comfort bounds (m/s2, m/s3).
COMFORT_DECEL, COMFORT_ACCEL, COMFORT_JERK = -4.05, 2.40, 4.13
#: RSS, Definition 1: response time (s), the ego's acceleration, the ego's and the leader's braking (m/s2); own values.
RSS_RHO, RSS_ACCEL, RSS_BRAKE, RSS_BRAKE_LEAD = 0.5, 3.0, 4.0, 8.0
#: Values (s) reported if the gap never closed, there was no leader, or no vehicle crossed the ego's path.
TTC_CAP, HEADWAY_CAP, PET_CAP = 100.0, 100.0, 5.0
#: Penalty coefficients of the CARLA leaderboard 2.1.
PENALTY_PEDESTRIAN, PENALTY_VEHICLE, PENALTY_RED, PENALTY_UNFINISHED = 1.0, 0.7, 0.4, 0.4


def rss_distance(speed: float, lead_speed: float) -> float:
    """Return the safe gap to a leader in metres (Shalev-Shwartz et al., arXiv 1708.06374, Definition 1)."""
    reached = speed + RSS_RHO * RSS_ACCEL
    gap = speed * RSS_RHO + RSS_ACCEL * (RSS_RHO * RSS_RHO) / 2
    # Products, not powers: they are rounded alike by every compiler and C library.
    return max(0.0, gap + reached * reached / (2 * RSS_BRAKE) - lead_speed * lead_speed / (2 * RSS_BRAKE_LEAD))


@dataclass(slots=True)
class Drive:
    """Accumulated measurements of one scenario, updated after each step."""

    steps: int = 0
    driven: float = 0.0
    min_ttc: float = inf
    ttc_exposed: int = 0
    max_drac: float = 0.0
    min_headway: float = inf
    min_pet: float = inf
    min_ttc_pedestrian: float = inf
    unsafe: int = 0
    red_lights: int = 0
    speeding: float = 0.0
    max_speeding: float = 0.0
    comfortable: int = 0
    jerk_squares: float = 0.0
    max_decel: float = 0.0
    lane_changes: int = 0
    clipped: int = 0
    co2: float = 0.0
    _accel: float = 0.0

    def move(self, speed: float, accel: float, limit: float, co2: float) -> None:
        """Record the ego's motion in one step; ``co2`` in mg/s."""
        jerk = (accel - self._accel) / DT
        self._accel = accel
        self.steps += 1
        self.jerk_squares += jerk * jerk
        if -accel > self.max_decel:
            self.max_decel = -accel
        if COMFORT_DECEL <= accel <= COMFORT_ACCEL and -COMFORT_JERK <= jerk <= COMFORT_JERK:
            self.comfortable += 1
        over = speed - limit
        if over > 0.0:
            self.speeding += over * DT
            if over > self.max_speeding:
                self.max_speeding = over
        self.co2 += co2 * DT

    def halt(self) -> None:
        """Record a step in which SUMO, not the model, stopped the car: it counts as comfortable, without motion."""
        self.steps += 1
        self.comfortable += 1

    def follow(self, speed: float, gap: float, relative: float) -> None:
        """Record the leader: metres from bumper to bumper, and the leader's speed minus the ego's."""
        closing = -relative
        if closing > 0.1:
            ttc = gap / closing
            if ttc < self.min_ttc:
                self.min_ttc = ttc
            if ttc < 1.5:
                self.ttc_exposed += 1
            drac = closing * closing / (2 * max(0.1, gap))
            if drac > self.max_drac:
                self.max_drac = drac
        if speed > 1.0 and gap / speed < self.min_headway:
            self.min_headway = gap / speed
        if gap < rss_distance(speed, speed + relative):
            self.unsafe += 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a scenario ended; ``route`` in metres, ``limit`` the route's mean speed limit."""

    outcome: str
    route: float
    limit: float
    collision: bool = False
    at_fault: bool = False
    pedestrian: bool = False
    impact_speed: float = 0.0
    kind: str | None = None


def penalty(ending: Ending, red_lights: int) -> float:
    """Return the divisor of the score, as in the CARLA leaderboard 2.1."""
    collision_penalty = PENALTY_PEDESTRIAN if ending.pedestrian else PENALTY_VEHICLE
    return (
        1.0
        + (collision_penalty if ending.collision and ending.at_fault else 0.0)
        + PENALTY_RED * red_lights
        + (PENALTY_UNFINISHED if ending.outcome in ("timeout", "stranded") else 0.0)
    )


#: The metric of version 2 that knows pedestrians: the least time to collision with the leader or one of them.
MIN_TTC_ANY = "min_ttc_any"


#: Outcomes of the traffic simulation; any other outcome is a fault of the model, with a score of 0.
SIMULATED_OUTCOMES = frozenset({"arrived", "collision", "timeout", "stranded", "unfinished"})


def metrics(drive: Drive, ending: Ending) -> dict[str, Metric]:
    """Return every metric of a scenario. Infinite times are replaced by their caps, so that no value is missing."""
    seconds = drive.steps * DT
    steps = max(1, drive.steps)
    completion = 100.0 if ending.outcome == "arrived" else max(0.0, min(100.0, 100.0 * drive.driven / ending.route))
    score = completion / penalty(ending, drive.red_lights) if ending.outcome in SIMULATED_OUTCOMES else 0.0
    moved = drive.driven >= 1.0
    return {
        "outcome": ending.outcome,
        "score": score,
        "route_completion": completion,
        "arrived": int(ending.outcome == "arrived"),
        "collision": int(ending.collision),
        "at_fault": int(ending.collision and ending.at_fault),
        "collision_kind": ending.kind,
        "impact_speed": ending.impact_speed,
        "min_ttc": min(drive.min_ttc, TTC_CAP),
        "ttc_below_1_5": drive.ttc_exposed * DT,
        "max_drac": drive.max_drac,
        "min_headway": min(drive.min_headway, HEADWAY_CAP),
        "min_pet": min(drive.min_pet, PET_CAP),
        "rss_share": drive.unsafe / steps,
        "red_lights": drive.red_lights,
        "speeding": drive.speeding / max(DT, seconds),
        "max_speeding": drive.max_speeding,
        "comfort": drive.comfortable / steps,
        "jerk_rms": sqrt(drive.jerk_squares / steps),
        "max_decel": drive.max_decel,
        "mean_speed": drive.driven / max(DT, seconds),
        "time_lost": seconds - drive.driven / ending.limit,
        "lane_changes": drive.lane_changes,
        "clipped_actions": drive.clipped,
        "co2": drive.co2 / drive.driven if moved and isfinite(drive.co2) else None,
        "seconds": seconds,
    }
