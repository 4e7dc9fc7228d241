"""Decision on a report: results from the range's cursor on count, once, for the holder of the lease only."""

from hypothesis import given
from hypothesis import strategies as st

from core.domain.scheduling.ranges import RangePosition, RangeState, ReportDecision, ReportedRange, decide_report

TASKS = st.integers(0, 20)
STATES = st.sampled_from(["pending", "leased", "done", "closed"])


@st.composite
def range_states(draw: st.DrawFn) -> RangeState:
    cursor = draw(TASKS)
    state = draw(STATES)
    stop = cursor if state == "done" else cursor + draw(st.integers(1, 20))
    token = None if state == "pending" else draw(st.sampled_from(["own", "other"]))
    return RangeState(state, token, RangePosition(cursor, stop))


@st.composite
def reports(draw: st.DrawFn) -> ReportedRange:
    since = draw(TASKS)
    return ReportedRange(stage="stage", start=0, fencing_token="own", since=since, to=since + draw(st.integers(1, 20)))


@given(range_states(), reports())
def test_a_report_counts_for_the_tasks_from_the_cursor_on_that_are_not_reported_yet(
    current: RangeState, report: ReportedRange
) -> None:
    decision = decide_report(current, report)
    counted = set(range(report.since, decision.end)) if decision.end is not None else set()
    missing = set(range(current.position.cursor, current.position.stop))
    reported = set(range(report.since, report.to))
    holds_lease = current.state == "leased" and current.fencing_token == report.fencing_token
    assert counted == (reported & missing if holds_lease and report.since == current.position.cursor else set())
    assert decision.end is None or counted, "a report that counts has results"


@given(range_states(), reports())
def test_after_a_report_the_holder_continues_behind_the_counted_tasks(
    current: RangeState, report: ReportedRange
) -> None:
    decision = decide_report(current, report)
    if current.fencing_token != report.fencing_token or current.state == "closed":
        assert decision == ReportDecision(None, None), "the lease is lost"
        return
    assert decision.position is not None
    assert decision.position.stop == current.position.stop
    assert decision.position.cursor == (current.position.cursor if decision.end is None else decision.end)


@given(range_states(), reports())
def test_the_same_report_never_counts_twice(current: RangeState, report: ReportedRange) -> None:
    first = decide_report(current, report)
    if first.end is None or first.position is None:
        return
    state = "done" if first.position.cursor == first.position.stop else "leased"
    repeated = decide_report(RangeState(state, current.fencing_token, first.position), report)
    assert repeated == ReportDecision(None, first.position), "the sender gets the position from which to continue"


def test_a_report_for_a_range_that_does_not_exist_is_lost() -> None:
    assert decide_report(
        None, ReportedRange(stage="stage", start=0, fencing_token="own", since=0, to=1)
    ) == ReportDecision(None, None)
