"""Spot checks: drawn scenarios of a trusted model that its model server plays too, and what is different.

A model in a process of its own for each scenario, or for each launch, has nothing to remember, and shares nothing with
the simulator. In the evaluator's process it might; then its results would depend on where and when they are made.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..model_server.model_faults import TimedOut
from .planned_tasks import PlannedTask
from .result_batch import Played

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..simulators.base import Space

#: One in so many tasks is drawn, besides the first and the last one of a simulation.
TASKS_PER_CHECK = 50
#: The most entries of an action that a text has.
SHOWN_ENTRIES = 8


def is_drawn(number: int, count: int, seed: int) -> bool:
    """Whether a task of ``count`` is checked. ``seed``: its model's, so that no choice of workers changes it."""
    return number in {0, count - 1} or seed % TASKS_PER_CHECK == 0


def difference(task: PlannedTask, trusted: Played, isolated: Played, space: "Space") -> str | None:
    """Return what two results of a task differ in, with the next step; None if they are equal.

    A late answer tells of its machine only. ``space``: of actions.
    """
    if TimedOut.status in {trusted.status, isolated.status}:
        return None
    first, second = (np.frombuffer(b"".join(played.actions), np.float32) for played in (trusted, isolated))
    first, second = (actions.reshape(-1, space.items) for actions in (first, second))
    steps = min(len(first), len(second))
    unlike = np.flatnonzero((first[:steps].view(np.int32) != second[:steps].view(np.int32)).any(axis=1))
    if len(unlike):
        step = int(unlike[0])
        mine, other = _describe_action(first[step]), _describe_action(second[step])
        what = f"at step {step} its action is {mine}, and {other} in a process of its own"
    elif len(first) != len(second):
        what = f"it takes {len(first)} steps, and {len(second)} in a process of its own"
    elif (trusted.status, trusted.error) != (isolated.status, isolated.error):
        what = f"it ends {_ending(trusted)}, and {_ending(isolated)} in a process of its own"
    elif dict(trusted.metrics) != dict(isolated.metrics):
        what = f"its metrics are {dict(trusted.metrics)}, and {dict(isolated.metrics)} in a process of its own"
    else:
        return None
    return (
        f"`trusted`: the results of this model depend on the process that it runs in. In task {task.number} (scenario"
        f" {task.scenario.index}, repetition {task.scenario.repeat}) {what}. It keeps something from one scenario to"
        " the next, or draws random numbers that are not seeded; run it without `trusted`."
    )


def _describe_action(action: "NDArray[np.float32]") -> str:
    values = ", ".join(f"{value:.9g}" for value in action[:SHOWN_ENTRIES])
    return f"[{values}{', …' if len(action) > SHOWN_ENTRIES else ''}]"


def _ending(played: Played) -> str:
    return f"{played.status} ({played.error})" if played.error else played.status
