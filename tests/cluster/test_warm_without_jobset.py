"""Pods that wait for a launch, where they are Jobs: the very tests that JobSets are held to."""

from tests.cluster.test_warm import opened as opened
from tests.cluster.test_warm import owners as owners
from tests.cluster.test_warm import runner_api as runner_api  # fixtures are found by their names in here
from tests.cluster.test_warm import (
    test_a_dispatcher_that_dies_before_the_mark_loses_nothing_its_width_neither,
    test_a_pod_waits_is_taken_and_replaced_and_nothing_of_it_stays,
    test_what_was_taken_away_behind_our_back_is_missed_and_made_again,
)
from tests.cluster.test_without_jobset import brought as brought
from tests.cluster.test_without_jobset import images as images
from tests.cluster.test_without_jobset import owner as owner

SHARED = (
    test_a_pod_waits_is_taken_and_replaced_and_nothing_of_it_stays,
    test_a_dispatcher_that_dies_before_the_mark_loses_nothing_its_width_neither,
    test_what_was_taken_away_behind_our_back_is_missed_and_made_again,
)
