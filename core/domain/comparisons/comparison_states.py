"""States of a comparison and of its models, and the limits of both."""

from collections.abc import Sequence
from enum import StrEnum

#: Fewest and most models of a comparison.
FEWEST_MODELS, MOST_MODELS = 2, 9
#: Most scenarios of a comparison: their order of play is computed for each batch.
MOST_SCENARIOS = 1_000_000
#: Label of the simulations of a comparison, with its id.
LABEL = "comparison"


class ComparisonState(StrEnum):
    """State of a comparison, and of each of its models."""

    RUNNING = "running"  # batches are played
    CANCELLING = "cancelling"  # its simulations are being cancelled; of comparisons only
    FINISHED = "finished"  # each verdict holds, or all scenarios were played
    FAILED = "failed"  # a simulation has ended without a result for each task
    CANCELLED = "cancelled"


#: States that do not change by themselves.
ENDED = frozenset({ComparisonState.FINISHED, ComparisonState.FAILED, ComparisonState.CANCELLED})


def end_of(models: Sequence[ComparisonState]) -> ComparisonState | None:
    """Return the state in which a comparison ends whose compared models have these states; None if it goes on.

    It is finished if a model is: its verdict counts whatever became of the others.
    """
    if ComparisonState.RUNNING in models:
        return None
    for state in (ComparisonState.FINISHED, ComparisonState.FAILED):
        if state in models:
            return state
    return ComparisonState.CANCELLED
