"""Table of PettingZoo's environments, from which `python -m scripts.dataset_tables.pettingzoo` writes their datasets.

The model plays one agent, and a fixed policy the others. The digest of a `dataset.json` is part of every task's seed: a
change of any text here changes all results of that dataset.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets.catalogue import SIMULATORS
from scripts.dataset_tables.definitions import Entry, common_metrics, evaluation, identity, interaction, space, write

HERE = SIMULATORS / "pettingzoo" / "datasets"
#: Scenarios of each dataset: seeds.
TASKS = 100
#: Datasets with a baseline of their own; that of the others does nothing.
BASELINES = ("pettingzoo_connect_four", "pettingzoo_simple_spread", "pettingzoo_simple_tag", "pettingzoo_tictactoe")


def pair(name: str, unit: str = "") -> tuple[Entry, ...]:
    return (f"{name}_x", unit), (f"{name}_y", unit)


def pairs(name: str, count: int) -> tuple[Entry, ...]:
    return tuple(entry for number in range(1, count + 1) for entry in pair(f"{name}_{number}"))


def leg(number: int) -> tuple[Entry, ...]:
    return (
        (f"hip_{number}_angle", "rad"),
        (f"hip_{number}_speed", "x 4 rad/s"),
        (f"knee_{number}_angle", "rad"),
        (f"knee_{number}_speed", "x 6 rad/s"),
        (f"leg_{number}_contact", ""),
    )


#: Continuous actions of MPE's agents.
MOVES = (("no_action", ""), ("left", ""), ("right", ""), ("down", ""), ("up", ""))


def board(rows: int, columns: int) -> tuple[Entry, ...]:
    """Return the squares of a board, row by row from the top: whether the own piece or the other's is there."""
    return tuple(
        (f"{who}_row_{row}_column_{column}", "")
        for row in range(1, rows + 1)
        for column in range(1, columns + 1)
        for who in ("own", "other")
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Entries:
    """A space: its entries and their range."""

    entries: tuple[Entry, ...]
    low: float | None = None
    high: float | None = None

    def describe(self) -> dict[str, Any]:
        """Return the JSON form."""
        return space(self.entries, "float32", self.low, self.high)


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """An environment, the agent that the model plays, and the policy of the others. ``dt``: seconds per step."""

    env: str
    title: str
    description: str
    agent: str
    others: str
    observation: Entries
    action: Entries
    steps: int
    reward: str
    worst: float
    outcomes: Mapping[str, str]
    ends: str
    #: Agents that a user's scenario may choose; their spaces are equal.
    agents: tuple[str, ...]
    dt: float | None = None
    failure: tuple[str, ...] = ()
    game: bool = False
    kwargs: Mapping[str, Any] = field(default_factory=dict)


GAME: Mapping[str, Any] = {
    "reward": "1 for a win, -1 for a loss or an illegal move, 0 otherwise",
    "worst": -1.0,
    "outcomes": {},
    "failure": ("loss", "illegal_action"),
    "game": True,
    "others": "random",
}

ALL: Mapping[str, Environment] = {
    "pettingzoo_connect_four": Environment(
        env="connect_four_v3",
        title="Connect Four against random moves",
        description="Four in a row, on six rows and seven columns. The model begins, the other plays at random.",
        agent="player_0",
        agents=("player_0", "player_1"),
        observation=Entries(
            entries=(*board(6, 7), *((f"column_{column}_legal", "") for column in range(1, 8))), low=0, high=1
        ),
        action=Entries(entries=(("column", ""),), low=0, high=6),
        steps=21,
        ends="win, loss or draw; illegal_action: a column that is full",
        **GAME,
    ),
    "pettingzoo_tictactoe": Environment(
        env="tictactoe_v3",
        title="Tic-tac-toe against random moves",
        description="Three in a row on a board of nine squares. The model begins, the other plays at random.",
        agent="player_1",
        agents=("player_1", "player_2"),
        observation=Entries(
            entries=(
                # PettingZoo numbers the squares column by column.
                *(
                    (f"{who}_row_{row}_column_{column}", "")
                    for column in range(1, 4)
                    for row in range(1, 4)
                    for who in ("own", "other")
                ),
                *((f"square_{square}_legal", "") for square in range(9)),
            ),
            low=0,
            high=1,
        ),
        action=Entries(entries=(("square", ""),), low=0, high=8),
        steps=5,
        ends="win, loss or draw; illegal_action: a square that is taken",
        **GAME,
    ),
    "pettingzoo_simple_spread": Environment(
        env="simple_spread_v3",
        title="Simple spread: three agents cover three landmarks",
        description="MPE's cooperative task: each landmark is to have an agent near it. The model plays one of three, "
        "the others move at random.",
        agent="agent_0",
        agents=("agent_0", "agent_1", "agent_2"),
        others="random",
        observation=Entries(
            entries=(
                *pair("velocity"),
                *pair("position"),
                *pairs("landmark", 3),
                *pairs("other", 2),
                *((f"message_{other}_{part}", "") for other in (1, 2) for part in (1, 2)),
            )
        ),
        action=Entries(entries=MOVES, low=0, high=1),
        steps=25,
        dt=0.1,
        reward="minus the distances of the landmarks to the nearest agent, minus 1 for each collision, half of each",
        worst=-250.0,
        outcomes={"truncated": "completed"},
        ends="completed: 25 steps",
        kwargs={"continuous_actions": True},
    ),
    "pettingzoo_simple_tag": Environment(
        env="simple_tag_v3",
        title="Simple tag: a pursuer among three",
        description="MPE's predator and prey with obstacles. The model plays one of three pursuers, which are slower "
        "than the prey; the others and the prey move at random.",
        agent="adversary_0",
        agents=("adversary_0", "adversary_1", "adversary_2"),
        others="random",
        observation=Entries(
            entries=(
                *pair("velocity"),
                *pair("position"),
                *pairs("obstacle", 2),
                *pairs("pursuer", 2),
                *pair("prey"),
                *pair("prey_velocity"),
            )
        ),
        action=Entries(entries=MOVES, low=0, high=1),
        steps=25,
        dt=0.1,
        reward="10 for each collision of a pursuer with the prey",
        worst=0.0,
        outcomes={"truncated": "completed"},
        ends="completed: 25 steps",
        kwargs={"continuous_actions": True},
    ),
    "pettingzoo_multiwalker": Environment(
        env="multiwalker_v9",
        title="Multiwalker: three walkers carry a package",
        description="SISL's cooperative task: walkers with two legs carry a package to the right. The model plays the "
        "first of three; the others stand still.",
        agent="walker_0",
        agents=("walker_0", "walker_1", "walker_2"),
        others="still",
        observation=Entries(
            entries=(
                ("hull_angle", "rad"),
                ("hull_angular_velocity", "x 25 rad/s"),
                *pair("velocity"),
                *leg(1),
                *leg(2),
                *((f"lidar_{ray}", "x 5.33 m") for ray in range(1, 11)),
                *pair("left_neighbour"),
                *pair("right_neighbour"),
                *pair("package"),
                ("package_angle", "rad"),
            )
        ),
        action=Entries(
            entries=(("hip_1_torque", ""), ("knee_1_torque", ""), ("hip_2_torque", ""), ("knee_2_torque", "")),
            low=-1,
            high=1,
        ),
        steps=500,
        dt=0.02,
        reward="the progress of the package, minus 5 times the change of the hull's angle; -100 for a fall, averaged",
        worst=-150.0,
        outcomes={"terminated": "fell", "truncated": "completed"},
        ends="completed: 500 steps; fell: a walker or the package",
        failure=("fell",),
    ),
}


def definition(name: str) -> dict[str, Any]:
    """Return the definition of a dataset."""
    environment = ALL[name]
    metrics = common_metrics(
        reward=environment.reward,
        source=f"PettingZoo {environment.env}",
        worst=environment.worst,
        steps=environment.steps,
        outcomes=environment.ends,
    )
    return {
        **identity(
            name,
            title=environment.title,
            description=f"PettingZoo's {environment.env}. {environment.description} Scenarios differ in their seeds.",
            simulator="pettingzoo",
            env=environment.env,
        ),
        "kwargs": dict(environment.kwargs),
        "agent": environment.agent,
        "others": environment.others,
        "game": environment.game,
        **interaction(
            tasks=TASKS,
            observation=environment.observation.describe(),
            action=environment.action.describe(),
            dt=environment.dt or 1.0,
        ),
        "outcomes": dict(environment.outcomes),
        **evaluation(
            metrics=metrics,
            score=f"sum of the agent's rewards in {environment.env}",
            failures=environment.failure,
            baseline=name if name in BASELINES else "zero",
        ),
    }


def generate(folder: Path) -> None:
    """Write the files of every environment to its folder."""
    others = {"kind": "string", "choices": ["random", "still"]}
    for name, environment in ALL.items():
        write(folder, definition(name), {"agent": {"kind": "string", "choices": environment.agents}, "others": others})


if __name__ == "__main__":
    generate(HERE)
