"""Answers of simulations, as records and in words: the score over all tasks with its interval, and the failures."""

from windtunnel import figures
from windtunnel.record import Record


class AnswerScore(Record, frozen=True, kw_only=True):
    """The score over ``tasks``, of which ``not_ok`` count as ``worst``; ``low`` and ``high``: its 95 % interval.

    ``ok_mean`` is over the tasks that are `ok`; ``left_out`` tasks have no value.
    """

    metric: str
    title: str
    unit: str
    better: str | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    tasks: int
    not_ok: int
    left_out: int
    worst: float | None = None
    ok_mean: float | None = None


class AnswerFailures(Record, frozen=True, kw_only=True):
    """The failures among ``tasks``: those that are not `ok`, and ``outcomes`` of ``metric`` that are failures."""

    count: int
    tasks: int
    share: float
    not_ok: int
    metric: str | None = None
    outcomes: dict[str, int] = {}


class Answer(Record, frozen=True, kw_only=True):
    """What a simulation says about its model, the same quantities while it runs and after its end."""

    score: AnswerScore | None = None
    failures: AnswerFailures | None = None


def score_text(answer: Answer | None) -> str:
    """Return the score with its unit and its interval; empty without a score."""
    score = answer.score if answer else None
    if score is None:
        return ""
    interval = f" ({figures.number(score.low)} to {figures.number(score.high)})" if score.low is not None else ""
    return f"{_with_unit(score.mean, score)}{interval}"


def failures_text(answer: Answer | None) -> str:
    """Return the failures as a share with their number; empty where they are not known."""
    failures = answer.failures if answer else None
    if failures is None:
        return ""
    return f"{figures.percent(failures.count, failures.tasks)} ({failures.count} of {failures.tasks})"


def answer_lines(answer: Answer) -> list[str]:
    """Return the answer in two lines: what the score counts, and which failures there are."""
    lines = []
    if answer.score is not None:
        lines.append(f"{answer.score.title}: {score_text(answer)}, {_meaning(answer.score)}")
    if answer.failures is not None:
        kinds = _kinds(answer.failures)
        lines.append(f"Failures: {failures_text(answer)}" + (f": {kinds}" if kinds else ""))
    return lines


def _meaning(score: AnswerScore) -> str:
    """Return over which tasks the score is, and whether those that are not ok count, and how."""
    parts = [f"the mean of {score.tasks} task{'s' if score.tasks != 1 else ''}"]
    if score.not_ok:
        parts.append(f"of which {score.not_ok} not ok count as {_with_unit(score.worst, score)}")
        if score.ok_mean is not None:
            parts.append(f"the others have {_with_unit(score.ok_mean, score)}")
    if score.left_out:
        parts.append(f"{score.left_out} without a value left out")
    return ", ".join(parts)


def _kinds(failures: AnswerFailures) -> str:
    kinds = {"not ok": failures.not_ok, **failures.outcomes}
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)


def _with_unit(value: float | None, score: AnswerScore) -> str:
    whole = int(value) if value is not None and value.is_integer() else value
    return figures.number(whole) + (f" {score.unit}" if score.unit else "")
