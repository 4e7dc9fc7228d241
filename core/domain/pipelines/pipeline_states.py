"""States of a pipeline and of its steps, and the limits of both."""

from collections.abc import Collection
from enum import StrEnum

#: Most steps of a pipeline, and most further attempts of a step.
MOST_STEPS, MOST_RETRIES = 1000, 10
#: Labels of what a pipeline submits: its id, and the name of the step.
LABEL, STEP_LABEL = "pipeline", "step"


class PipelineState(StrEnum):
    """State of a pipeline."""

    RUNNING = "running"  # steps are submitted in their order
    CANCELLING = "cancelling"  # what its steps have submitted is being cancelled
    SUCCEEDED = "succeeded"  # every step is complete
    FAILED = "failed"  # a step has failed, and those after it are not run
    CANCELLED = "cancelled"


class StepState(StrEnum):
    """State of a step of a pipeline."""

    WAITING = "waiting"  # for the steps before it
    READY = "ready"  # it is submitted next
    RUNNING = "running"  # its simulation or comparison has not ended
    SUCCEEDED = "succeeded"  # it is complete, with all of its outputs
    SKIPPED = "skipped"  # an equal step was complete already, whose run and outputs it has
    FAILED = "failed"  # its last attempt has failed
    NOT_RUN = "not_run"  # a step before it is not complete
    CANCELLED = "cancelled"


#: States that do not change by themselves.
PIPELINE_ENDED = frozenset({PipelineState.SUCCEEDED, PipelineState.FAILED, PipelineState.CANCELLED})
UNENDED_STEPS = frozenset({StepState.WAITING, StepState.READY, StepState.RUNNING})
#: States of steps whose outputs are there.
COMPLETE = frozenset({StepState.SUCCEEDED, StepState.SKIPPED})


def end_of_steps(states: Collection[StepState]) -> PipelineState | None:
    """Return the state in which a pipeline ends whose steps have these states; None if it goes on."""
    if not UNENDED_STEPS.isdisjoint(states):
        return None
    if StepState.FAILED in states or StepState.NOT_RUN in states:
        return PipelineState.FAILED
    return PipelineState.CANCELLED if StepState.CANCELLED in states else PipelineState.SUCCEEDED
