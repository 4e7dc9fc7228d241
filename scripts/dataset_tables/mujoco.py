"""Table of Gymnasium's MuJoCo tasks, from which `python -m scripts.dataset_tables.mujoco` writes their datasets.

Names and units follow Gymnasium's documentation of the v5 tasks; forces of the constraints and inertias are in MuJoCo's
order: rotation before translation, xx, yy, zz, xy, xz, yz. The digest of a `dataset.json` is part of every task's seed:
a change of any text here changes all results of that dataset.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.catalogue import SIMULATORS
from datasets.catalogue.definitions import metric
from scripts.dataset_tables.definitions import (
    Entry,
    common_metrics,
    evaluation,
    identity,
    interaction,
    space,
    write,
)

HERE = SIMULATORS / "mujoco" / "datasets"
#: Scenarios of each dataset: seeds.
TASKS = 100
#: Tasks with a baseline of their own; that of the others does nothing.
BASELINES = ("mujoco_inverted_pendulum", "mujoco_reacher", "mujoco_swimmer")
GYMNASIUM = "Gymnasium, MuJoCo v5"
XYZ = ("x", "y", "z")


def angles(*names: str) -> tuple[Entry, ...]:
    return tuple((f"{name}_angle", "rad") for name in names)


def rates(*names: str) -> tuple[Entry, ...]:
    return tuple((f"{name}_angular_velocity", "rad/s") for name in names)


def vector(name: str, unit: str) -> tuple[Entry, ...]:
    return tuple((f"{name}_{axis}", unit) for axis in XYZ)


def torques(*factors: tuple[str, float]) -> tuple[Entry, ...]:
    """Return the entries of motors: the action is multiplied by the motor's gear to a torque."""
    return tuple((f"{name}_torque", "N m" if factor == 1 else f"x {factor:g} N m") for name, factor in factors)


LEGS = ("front_left", "front_right", "back_left", "back_right")
ANT_JOINTS = tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("hip", "ankle"))
ANT_BODIES = ("torso", *(f"{leg}_{part}" for leg in LEGS for part in ("base", "thigh", "shin")))
CHEETAH_JOINTS = ("back_thigh", "back_shin", "back_foot", "front_thigh", "front_shin", "front_foot")
HOPPER_JOINTS = ("thigh", "leg", "foot")
WALKER_JOINTS = ("right_thigh", "right_leg", "right_foot", "left_thigh", "left_leg", "left_foot")
ARM_JOINTS = (
    "shoulder_pan",
    "shoulder_lift",
    "upper_arm_roll",
    "elbow_flex",
    "forearm_roll",
    "wrist_flex",
    "wrist_roll",
)
HUMANOID_JOINTS = (
    *("abdomen_z", "abdomen_y", "abdomen_x"),
    *(f"{side}_{joint}" for side in ("right", "left") for joint in ("hip_x", "hip_z", "hip_y", "knee")),
    *(f"{side}_{joint}" for side in ("right", "left") for joint in ("shoulder_1", "shoulder_2", "elbow")),
)
HUMANOID_BODIES = (
    *("torso", "lower_waist", "pelvis"),
    *(f"{side}_{part}" for side in ("right", "left") for part in ("thigh", "shin", "foot")),
    *(f"{side}_{part}" for side in ("right", "left") for part in ("upper_arm", "lower_arm")),
)
#: Orientation of a free body, and its six velocities.
ORIENTATION = tuple((f"orientation_{axis}", "") for axis in ("w", *XYZ))
FREE_VELOCITIES = (*vector("velocity", "m/s"), *vector("angular_velocity", "rad/s"))


def forces(bodies: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries of `cfrc_ext`, the external forces on bodies."""
    return tuple(
        entry for body in bodies for entry in (*vector(f"{body}_torque", "N m"), *vector(f"{body}_force", "N"))
    )


def inertias(bodies: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries of `cinert`, the inertias of bodies about the centre of mass of their tree."""
    return tuple(
        entry
        for body in bodies
        for entry in (
            *((f"{body}_inertia_{axes}", "kg m2") for axes in ("xx", "yy", "zz", "xy", "xz", "yz")),
            *vector(f"{body}_mass_moment", "kg m"),
            (f"{body}_mass", "kg"),
        )
    )


def velocities(bodies: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries of `cvel`, the velocities of bodies at the centre of mass of their tree."""
    return tuple(
        entry
        for body in bodies
        for entry in (*vector(f"{body}_angular_velocity", "rad/s"), *vector(f"{body}_velocity", "m/s"))
    )


HUMANOID = (
    ("height", "m"),
    *ORIENTATION,
    *angles(*HUMANOID_JOINTS),
    *FREE_VELOCITIES,
    *rates(*HUMANOID_JOINTS),
    *inertias(HUMANOID_BODIES),
    *velocities(HUMANOID_BODIES),
    *((f"{joint}_actuator_torque", "N m") for joint in HUMANOID_JOINTS),
    *forces(HUMANOID_BODIES),
)
HUMANOID_MOTORS = torques(
    *(("abdomen_y", 100), ("abdomen_z", 100), ("abdomen_x", 100)),
    *(
        (f"{side}_{joint}", gear)
        for side in ("right", "left")
        for joint, gear in (("hip_x", 100), ("hip_z", 100), ("hip_y", 300), ("knee", 200))
    ),
    *((f"{side}_{joint}", 25) for side in ("right", "left") for joint in ("shoulder_1", "shoulder_2", "elbow")),
)


#: Key of `info`, aggregation over the steps, metric.
InfoMetric = tuple[str, str, dict[str, Any]]


def last(name: str, title: str, unit: str, formula: str, better: str | None = None) -> InfoMetric:
    """Return a metric that is an entry of the last step's `info`, of the same name."""
    return name, "last", metric(name, title, unit, formula, better, source=f"{GYMNASIUM}, info")


def mean(key: str, name: str, title: str, formula: str, better: str, unit: str = "") -> InfoMetric:
    """Return a metric that is the mean of an entry of `info` over the steps."""
    return key, "mean", metric(name, title, unit, formula, better, source=f"{GYMNASIUM}, info")


DISTANCE = last("x_position", "Distance along x", "m", "x of the torso after the last step", "higher")
SPEED = mean("x_velocity", "mean_x_velocity", "Mean speed along x", "mean of the torso's velocity", "higher", "m/s")
CONTROL = mean("reward_ctrl", "mean_control_reward", "Mean reward of control", "mean of reward_ctrl", "higher")
FROM_ORIGIN = last("distance_from_origin", "Distance from the start", "m", "distance of the torso from the origin")


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A task of Gymnasium. ``dt``: seconds per step; ``terminated``: the outcome of an end before the last step.

    ``noise``: the default of `reset_noise_scale`; None where the task has no such option. ``worst``: the return of a
    scenario that a model's fault ended, not above that of any other.
    """

    env: str
    title: str
    description: str
    observation: tuple[Entry, ...]
    action: tuple[Entry, ...]
    bound: float
    dt: float
    steps: int
    reward: str
    info: tuple[InfoMetric, ...]
    terminated: str | None = None
    condition: str = ""
    noise: float | None = None
    worst: float = 0.0


ALL: dict[str, Task] = {
    "mujoco_ant": Task(
        env="Ant-v5",
        title="Ant: four legs, forwards",
        description="A body on four legs with two joints each; it is to walk along x as fast as it can.",
        observation=(
            ("height", "m"),
            *ORIENTATION,
            *angles(*ANT_JOINTS),
            *FREE_VELOCITIES,
            *rates(*ANT_JOINTS),
            *forces(ANT_BODIES),
        ),
        action=torques(*((joint, 150) for joint in (*ANT_JOINTS[6:], *ANT_JOINTS[:6]))),
        bound=1.0,
        dt=0.05,
        steps=1000,
        reward="1 a step while healthy, plus the torso's speed along x, minus costs of control and of contacts",
        info=(DISTANCE, SPEED, CONTROL, FROM_ORIGIN),
        terminated="fell",
        condition="the torso's height leaves 0.2 to 1 m",
        noise=0.1,
    ),
    "mujoco_half_cheetah": Task(
        env="HalfCheetah-v5",
        title="HalfCheetah: two legs in a plane, as fast as possible",
        description="A body with a front and a back leg, in a vertical plane; it is to run along x.",
        observation=(
            ("height", "m"),
            *angles("torso", *CHEETAH_JOINTS),
            ("velocity_x", "m/s"),
            ("velocity_z", "m/s"),
            *rates("torso", *CHEETAH_JOINTS),
        ),
        action=torques(*zip(CHEETAH_JOINTS, (120, 90, 60, 120, 60, 30), strict=True)),
        bound=1.0,
        dt=0.05,
        steps=1000,
        reward="the speed along x, minus 0.1 times the square of the action",
        info=(DISTANCE, SPEED, CONTROL),
        noise=0.1,
    ),
    "mujoco_hopper": Task(
        env="Hopper-v5",
        title="Hopper: one leg, forwards",
        description="A torso on one leg with three joints, in a vertical plane; it is to hop along x.",
        observation=(
            ("height", "m"),
            *angles("torso", *HOPPER_JOINTS),
            ("velocity_x", "m/s"),
            ("velocity_z", "m/s"),
            *rates("torso", *HOPPER_JOINTS),
        ),
        action=torques(*((joint, 200) for joint in HOPPER_JOINTS)),
        bound=1.0,
        dt=0.008,
        steps=1000,
        reward="1 a step while healthy, plus the speed along x, minus 0.001 times the square of the action",
        info=(DISTANCE, SPEED, CONTROL),
        terminated="fell",
        condition="the torso is below 0.7 m, or tilted by more than 0.2 rad",
        noise=0.005,
    ),
    "mujoco_humanoid": Task(
        env="Humanoid-v5",
        title="Humanoid: walks without falling",
        description="A body with two legs and two arms and 17 motors; it is to walk along x and not to fall.",
        observation=HUMANOID,
        action=HUMANOID_MOTORS,
        bound=0.4,
        dt=0.015,
        steps=1000,
        reward="5 a step while healthy, plus 1.25 times the speed along x, minus costs of control and of contacts",
        info=(DISTANCE, SPEED, CONTROL, FROM_ORIGIN),
        terminated="fell",
        condition="the torso's height leaves 1 to 2 m",
        noise=0.01,
    ),
    "mujoco_humanoid_standup": Task(
        env="HumanoidStandup-v5",
        title="HumanoidStandup: gets up from the ground",
        description="The same body as in mujoco_humanoid, lying on the ground; it is to stand up.",
        observation=HUMANOID,
        action=HUMANOID_MOTORS,
        bound=0.4,
        dt=0.015,
        steps=1000,
        reward="the torso's height over the time of a substep, plus 1, minus costs of control and of impacts",
        info=(
            last("z_distance_from_origin", "Rise", "m", "height of the torso above its start at the end", "higher"),
            mean("reward_linup", "mean_uprising", "Mean reward of rising", "mean of reward_linup", "higher"),
        ),
        noise=0.01,
    ),
    "mujoco_inverted_double_pendulum": Task(
        env="InvertedDoublePendulum-v5",
        title="InvertedDoublePendulum: two poles on a cart",
        description="A pole on a pole on a cart; the cart is to be pushed so that both stay up.",
        observation=(
            ("cart_position", "m"),
            ("sin_pole_angle", ""),
            ("sin_second_pole_angle", ""),
            ("cos_pole_angle", ""),
            ("cos_second_pole_angle", ""),
            ("cart_velocity", "m/s"),
            *rates("pole", "second_pole"),
            ("cart_constraint_force", "N"),
        ),
        action=(("cart_force", "x 500 N"),),
        bound=1.0,
        dt=0.05,
        steps=1000,
        reward="10 a step while up, minus penalties for the distance of the tip and for angular velocities",
        info=(
            mean(
                "distance_penalty",
                "mean_distance_penalty",
                "Mean penalty of distance",
                "mean of info, 0 or less",
                "higher",
            ),
            mean(
                "velocity_penalty",
                "mean_velocity_penalty",
                "Mean penalty of velocity",
                "mean of info, 0 or less",
                "higher",
            ),
        ),
        terminated="fell",
        condition="the tip of the second pole is at 1 m or below",
        noise=0.1,
    ),
    "mujoco_inverted_pendulum": Task(
        env="InvertedPendulum-v5",
        title="InvertedPendulum: a pole on a cart, with a force",
        description="Like cartpole, with a continuous force; the cart is to be pushed so that the pole stays up.",
        observation=(("cart_position", "m"), *angles("pole"), ("cart_velocity", "m/s"), *rates("pole")),
        action=(("cart_force", "x 100 N"),),
        bound=3.0,
        dt=0.04,
        steps=1000,
        reward="1 a step while the pole is up",
        info=(),
        terminated="fell",
        condition="the pole is tilted by more than 0.2 rad",
        noise=0.01,
    ),
    "mujoco_pusher": Task(
        env="Pusher-v5",
        title="Pusher: an arm moves a cylinder to a goal",
        description="An arm with seven joints above a table; it is to push a cylinder to a goal.",
        observation=(
            *angles(*ARM_JOINTS),
            *rates(*ARM_JOINTS),
            *vector("fingertip", "m"),
            *vector("object", "m"),
            *vector("goal", "m"),
        ),
        action=torques(*((joint, 1) for joint in ARM_JOINTS)),
        bound=2.0,
        dt=0.05,
        steps=100,
        reward="minus the distances of fingertip to object (times 0.5) and of object to goal, minus a cost of control",
        info=(
            last("reward_dist", "Goal at the end", "m", "minus the distance of the object to the goal", "higher"),
            last("reward_near", "Object at the end", "m", "minus half the distance of fingertip to object", "higher"),
        ),
        worst=-500.0,
    ),
    "mujoco_reacher": Task(
        env="Reacher-v5",
        title="Reacher: an arm of two links to a point",
        description="An arm with two joints in a horizontal plane; its fingertip is to be moved to a target.",
        observation=(
            *(("cos_joint_1_angle", ""), ("cos_joint_2_angle", "")),
            *(("sin_joint_1_angle", ""), ("sin_joint_2_angle", "")),
            *(("target_x", "m"), ("target_y", "m")),
            *rates("joint_1", "joint_2"),
            *(("fingertip_to_target_x", "m"), ("fingertip_to_target_y", "m")),
        ),
        action=torques(("joint_1", 200), ("joint_2", 200)),
        bound=1.0,
        dt=0.02,
        steps=50,
        reward="minus the distance of the fingertip to the target, minus the square of the action",
        info=(last("reward_dist", "Target at the end", "m", "minus the distance of fingertip to target", "higher"),),
        worst=-125.0,
    ),
    "mujoco_swimmer": Task(
        env="Swimmer-v5",
        title="Swimmer: three links in a fluid",
        description="A chain of three links in a viscous fluid, in a horizontal plane; it is to swim along x.",
        observation=(
            *angles("tip", "first_joint", "second_joint"),
            ("velocity_x", "m/s"),
            ("velocity_y", "m/s"),
            *rates("tip", "first_joint", "second_joint"),
        ),
        action=torques(("first_joint", 150), ("second_joint", 150)),
        bound=1.0,
        dt=0.04,
        steps=1000,
        reward="the speed along x, minus 0.0001 times the square of the action",
        info=(DISTANCE, SPEED, CONTROL, FROM_ORIGIN),
        noise=0.1,
    ),
    "mujoco_walker2d": Task(
        env="Walker2d-v5",
        title="Walker2d: two legs in a plane, forwards",
        description="A torso on two legs with three joints each, in a vertical plane; it is to walk along x.",
        observation=(
            ("height", "m"),
            *angles("torso", *WALKER_JOINTS),
            ("velocity_x", "m/s"),
            ("velocity_z", "m/s"),
            *rates("torso", *WALKER_JOINTS),
        ),
        action=torques(*((joint, 100) for joint in WALKER_JOINTS)),
        bound=1.0,
        dt=0.008,
        steps=1000,
        reward="1 a step while healthy, plus the speed along x, minus 0.001 times the square of the action",
        info=(DISTANCE, SPEED, CONTROL),
        terminated="fell",
        condition="the torso's height leaves 0.8 to 2 m, or it is tilted by more than 1 rad",
        noise=0.005,
    ),
}


def definition(name: str) -> dict[str, Any]:
    """Return the definition of a dataset."""
    task = ALL[name]
    ends = f"completed: {task.steps} steps" + (f"; {task.terminated}: {task.condition}" if task.terminated else "")
    metrics = common_metrics(
        reward=task.reward,
        source=f"Gymnasium {task.env}",
        worst=task.worst,
        steps=task.steps,
        outcomes=ends,
        among=[described for _, _, described in task.info],
    )
    return {
        **identity(
            name,
            title=task.title,
            description=f"Gymnasium's {task.env}. {task.description} Scenarios differ in their seeds alone.",
            simulator="mujoco",
            env=task.env,
        ),
        "kwargs": {},
        **interaction(
            tasks=TASKS,
            observation=space(task.observation, "float64"),
            action=space(task.action, "float32", -task.bound, task.bound),
            dt=task.dt,
        ),
        "outcomes": {"truncated": "completed"} | ({"terminated": task.terminated} if task.terminated else {}),
        "info": {described["name"]: [key, aggregation] for key, aggregation, described in task.info},
        **evaluation(
            metrics=metrics,
            score=f"sum of the rewards of {task.env}",
            failures=[task.terminated] if task.terminated else [],
            baseline=name if name in BASELINES else "zero",
        ),
    }


def generate(folder: Path) -> None:
    """Write the files of every task to its folder. Scenarios may start further from the task's own start, or nearer."""
    noise = {"kind": "object", "members": {"reset_noise_scale": {"kind": "float", "low": 0, "high": 1}}}
    for name, task in ALL.items():
        write(folder, definition(name), {} if task.noise is None else {"kwargs": noise})


if __name__ == "__main__":
    generate(HERE)
