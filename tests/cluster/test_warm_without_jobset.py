"""Warm pods as Jobs: the same tests as for JobSets."""

from tests.cluster.test_warm import opened as opened
from tests.cluster.test_warm import owners as owners
from tests.cluster.test_warm import runner_api as runner_api  # fixtures are found by their names in here
from tests.cluster.test_warm import (
    test_a_dispatcher_killed_before_labelling_loses_neither_launch_nor_workers,
    test_a_warm_pod_is_taken_and_replaced_and_leaves_no_objects,
    test_an_externally_deleted_warm_launch_is_missed_and_created_again,
)
from tests.cluster.test_without_jobset import brought as brought
from tests.cluster.test_without_jobset import images as images
from tests.cluster.test_without_jobset import owner as owner

SHARED = (
    test_a_warm_pod_is_taken_and_replaced_and_leaves_no_objects,
    test_a_dispatcher_killed_before_labelling_loses_neither_launch_nor_workers,
    test_an_externally_deleted_warm_launch_is_missed_and_created_again,
)
