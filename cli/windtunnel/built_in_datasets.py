# Generated from the catalogue of datasets by scripts/sync_client.py.
"""Built-in datasets: the names of those with scenarios to step through."""

DATASETS = (
    "car_street",
    "cartpole",
    "flow_control",
    "highway",
    "mujoco_ant",
    "mujoco_half_cheetah",
    "mujoco_hopper",
    "mujoco_humanoid",
    "mujoco_humanoid_standup",
    "mujoco_inverted_double_pendulum",
    "mujoco_inverted_pendulum",
    "mujoco_pusher",
    "mujoco_reacher",
    "mujoco_swimmer",
    "mujoco_walker2d",
    "noop",
    "pettingzoo_connect_four",
    "pettingzoo_multiwalker",
    "pettingzoo_simple_spread",
    "pettingzoo_simple_tag",
    "pettingzoo_tictactoe",
)
