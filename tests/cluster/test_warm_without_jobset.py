"""Warm pods as Jobs: the same tests as for JobSets."""

from tests.cluster.test_warm import open_executor as open_executor
from tests.cluster.test_warm import owners as owners
from tests.cluster.test_warm import runner_api as runner_api  # pytest finds fixtures by their names in this module
from tests.cluster.test_warm import (
    test_a_dispatcher_killed_before_labelling_loses_neither_launch_nor_workers,
    test_a_warm_pod_is_taken_and_replaced_and_leaves_no_objects,
    test_an_externally_deleted_warm_launch_is_missed_and_created_again,
)
from tests.cluster.test_without_jobset import images as images
from tests.cluster.test_without_jobset import owner as owner
from tests.cluster.test_without_jobset import platform_images as platform_images

SHARED = (
    test_a_warm_pod_is_taken_and_replaced_and_leaves_no_objects,
    test_a_dispatcher_killed_before_labelling_loses_neither_launch_nor_workers,
    test_an_externally_deleted_warm_launch_is_missed_and_created_again,
)
