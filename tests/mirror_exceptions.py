"""Table of what is answered otherwise beside a mirror, each entry with its reason: no project may read it.

A second one names tests that are answered otherwise in any two runs.
"""

from collections.abc import Mapping, Sequence

from tests.mirror_answers import ASSERTIONS, MirrorException

EXCEPTIONS: Sequence[MirrorException] = [
    MirrorException(
        r"tests/api/test_(audit|project_ends|project_quotas)\.py",
        r"^GET /v1/(audit|projects|quotas/fullest)\?.* by an operator, of all projects$",
        "An operator who names no project reads what is done in all of them, and which there are.",
    ),
    MirrorException(
        r"tests/api/test_audit\.py",
        ASSERTIONS,
        "It counts entries as an operator who reads those of all projects.",
    ),
    MirrorException(
        r"::test_(an_operator_sees_who_is_nearest|workers_that_run_count_among_the_fullest)",
        ASSERTIONS,
        "It lists as an operator who is nearest to a limit, in all projects.",
    ),
    MirrorException(
        r"tests/api/test_executors\.py",
        r"^GET /v1/queue\?",
        "Who may operate the platform reads what waits in all of its projects.",
    ),
    MirrorException(
        r"::test_a_compressed_pickle_of_an_estimator_is_of_the_format_of_estimators$",
        r"^PUT /v1/models/policy\?$",
        "The file that the test packs has the time in it, and so another digest in each run.",
    ),
    MirrorException(
        r"::test_results_are_read_once_for_many_leaderboards$"
        r"|test_bulk\.py::test_(a_page_is|retries_that_inherit_many|once_a_store_does_not_answer)",
        ASSERTIONS,
        "It counts statements or transactions of its process, which are those of both projects.",
    ),
    MirrorException(
        r"::test_an_idle_upload_expires$",
        ASSERTIONS,
        "It counts what a sweep of the platform removes, which is of both projects.",
    ),
    MirrorException(
        r"test_datasets\.py::test_(a_file_that_is_corrupt|a_file_that_the_object_store_lost|a_scenario_of_any_dataset"
        r"|a_range_of_a_damaged_pack)",
        ASSERTIONS,
        "It looks into the object store, which has the pack of the mirror too.",
    ),
]
#: Tests of files that are compared, which are not, each with the reason.
UNREPEATABLE: Mapping[str, str] = {
    "tests/api/test_simulations.py::test_concurrent_requests_with_one_key_create_one_simulation": (
        "Which of its eight requests is first differs in any two runs."
    ),
    "tests/api/test_project_ends.py::test_a_closed_project_accepts_nothing_new_and_is_read": (
        "It asks until a project is known to be closed: how often differs in any two runs."
    ),
}
