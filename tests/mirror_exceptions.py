"""Table of what is answered otherwise beside a mirror, each entry with its reason: no project may read it."""

from collections.abc import Sequence

from tests.mirror_answers import ASSERTIONS, MirrorException

EXCEPTIONS: Sequence[MirrorException] = [
    MirrorException(
        r"tests/api/test_audit\.py",
        r"^GET /v1/audit\?.* by an operator, of all projects$",
        "An operator who names no project reads what is done in all of them.",
    ),
    MirrorException(
        r"tests/api/test_audit\.py",
        ASSERTIONS,
        "It counts entries as an operator who reads those of all projects.",
    ),
    MirrorException(
        r"::test_a_compressed_pickle_of_an_estimator_is_of_the_format_of_estimators$",
        r"^PUT /v1/models/policy\?$",
        "The file that the test packs has the time in it, and so another digest in each run.",
    ),
    MirrorException(
        r"::test_results_are_read_once_for_many_leaderboards$", ASSERTIONS, "It counts the statements of both projects."
    ),
    MirrorException(
        r"::test_a_simulation_fails_when_more_tasks_fail_than_allowed",
        ASSERTIONS,
        "It takes the first simulation of all projects that has not ended.",
    ),
    MirrorException(
        r"::test_a_comparison_with_a_tag_plays_the_version_that_had_it_at_the_request$",
        ASSERTIONS,
        "It asks, as the platform, for the comparisons of all projects that are due.",
    ),
]
