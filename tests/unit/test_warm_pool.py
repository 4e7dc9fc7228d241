"""Warm pool: which pods are created, deleted and taken; without a cluster."""

import base64
import json
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.ids import hashed
from core.domain.scheduling.launches import Gang, Launch, Phase, Placement
from tests.unit.crds import violations
from tests.unit.launch_samples import ALL, BARE, launch
from workers.executors.kubernetes import manifests, names, warm_pool
from workers.executors.kubernetes.objects import JOBSET, TOKEN_HASH, WARM, Metadata, ObjectReference, Owner
from workers.executors.kubernetes.options import KubernetesOptions, parse

ENTRY = {"runtime": "python", "dataset": "noop", "pods": 2}
URL = "http://runner_api:1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def options(*entries: dict[str, Any], **other_options: Any) -> KubernetesOptions:
    return parse({"images": {"tag": "abc"}, "warm": list(entries or [ENTRY]), **other_options})


def targets(*entries: dict[str, Any], **other_options: Any) -> dict[str, warm_pool.WarmTarget]:
    return warm_pool.warm_targets(options(*entries, **other_options), ALL, URL)


def noop(**changes: Any) -> Launch:
    return launch(**{"runtime": "python", "format": "python", "dataset": "noop", "project": "default", **changes})


def pod(
    id: str, digest: str, phase: Phase = Phase.RUNNING, age: float = 60.0, token_hash: str = "h"
) -> warm_pool.WarmOwner:
    return warm_pool.WarmOwner(
        id=id,
        digest=digest,
        token_hash=token_hash,
        kind=JOBSET,
        namespace="ns",
        made=NOW - timedelta(seconds=age),
        phase=phase,
    )


def plan_of(
    owners: list[warm_pool.WarmOwner],
    targets: dict[str, warm_pool.WarmTarget],
    taken: Collection[str] = (),
    handed_out: Collection[str] = (),
) -> warm_pool.PoolPlan:
    return warm_pool.plan_pool(owners, targets, taken=taken, handed_out=handed_out)


def ids(pods: Collection[warm_pool.WarmOwner]) -> list[str]:
    return [pod.id for pod in pods]


def test_missing_pods_are_created_and_only_ready_pods_are_taken() -> None:
    pool_targets = targets()
    (digest,) = pool_targets
    empty_pool = plan_of([], pool_targets)
    assert len(empty_pool.missing) == 2 and not empty_pool.ready and not empty_pool.complete
    starting_pool = plan_of([pod("a", digest), pod("b", digest, Phase.STARTING)], pool_targets)
    assert ids(starting_pool.ready) == ["a"] and not starting_pool.missing and not starting_pool.complete
    full_pool = plan_of([pod("a", digest, age=1), pod("b", digest, age=9)], pool_targets)
    assert ids(full_pool.ready) == ["b", "a"] and full_pool.complete, "the oldest pod is taken first"


def test_surplus_ended_unknown_and_outdated_pods_are_deleted() -> None:
    pool_targets = targets()
    (digest,) = pool_targets
    owners = [
        pod("old", digest, age=90),
        pod("new", digest, age=10),
        pod("starting", digest, Phase.STARTING, age=99),
        pod("ended", digest, Phase.ENDED),
        pod("outdated", "0" * 16),
        pod("tokenless", digest, token_hash=""),
    ]
    plan = plan_of(owners, pool_targets)
    assert ids(plan.ready) == ["old", "new"] and plan.complete
    assert sorted(ids(plan.surplus)) == ["ended", "outdated", "starting", "tokenless"]


def test_all_pods_are_deleted_if_no_warm_pods_are_configured() -> None:
    plan = plan_of([pod("a", "0" * 16)], {})
    assert ids(plan.surplus) == ["a"] and plan.complete


def test_a_taken_pod_is_in_use_and_replaced_and_an_unused_pod_is_deleted() -> None:
    pool_targets = targets()
    (digest,) = pool_targets
    plan = plan_of(
        [pod("taken", digest), pod("unused", digest)], pool_targets, taken={"taken"}, handed_out={"taken", "unused"}
    )
    assert ids(plan.in_use) == ["taken"] and ids(plan.surplus) == ["unused"] and len(plan.missing) == 2


def test_each_pod_is_taken_once_and_by_a_matching_launch() -> None:
    pool_targets = targets()
    (digest,) = pool_targets
    owners = [pod("a", digest), pod("b", digest)]
    ready_launches = warm_pool.ReadyLaunches()
    assert ready_launches.take(noop()) is None, "the pool is empty before its first refresh"
    ready_launches.fill(plan_of(owners, pool_targets), pool_targets, owners)
    for changes in ({"project": "red"}, {"dataset": "car_street"}, {"version": "0"}, {"runtime": "onnx"}):
        assert ready_launches.take(noop(**changes)) is None
    assert ready_launches.take(noop(placement=Placement(cpu=2))) is None
    assert ready_launches.take(noop(gang=Gang(size=2))) is None
    taken_launches = [
        ready_launches.take(noop(placement=Placement(executor="west"), workers=9)),
        ready_launches.take(noop()),
    ]
    assert [launch and (launch.id, launch.token_hash) for launch in taken_launches] == [("a", "h"), ("b", "h")]
    assert ready_launches.take(noop()) is None and set(ready_launches.handed_out) == {"a", "b"}
    ready_launches.fill(plan_of([], pool_targets), pool_targets, [])
    assert not ready_launches.handed_out, "deleted pods are forgotten"


def test_a_pod_admitted_by_kueue_is_not_taken_by_a_launch_with_more_workers() -> None:
    pool_targets = targets()
    (digest,) = pool_targets
    owners = [replace(pod("a", digest), queued=True)]
    ready_launches = warm_pool.ReadyLaunches()
    ready_launches.fill(plan_of(owners, pool_targets), pool_targets, owners)
    assert ready_launches.take(noop(workers=2)) is None
    assert ready_launches.take(noop(workers=1)) is not None


@pytest.mark.parametrize(
    "changed_options",
    [
        {"images": {"tag": "newer"}},
        {"runner_api_url": "http://elsewhere"},
        {"workers_per_pod": 2},
        {"node_selector": {"pool": "b"}},
    ],
)
def test_other_images_or_options_make_warm_pods_outdated(changed_options: dict[str, Any]) -> None:
    assert targets().keys().isdisjoint(targets(**changed_options))
    assert targets().keys() == targets().keys() and targets().keys() == targets(ENTRY | {"pods": 7}).keys()


def test_the_pods_of_equal_entries_are_added_up() -> None:
    (target,) = targets(ENTRY, ENTRY | {"pods": 3, "format": "python"}).values()
    assert target.pods == 5


@pytest.mark.parametrize("served_apis", [ALL, BARE])
def test_a_warm_pod_has_the_objects_of_a_launch_and_its_worker_spec(served_apis: manifests.ServedApis) -> None:
    (target,) = warm_pool.warm_targets(options(), served_apis, URL).values()
    warm_launch, token_hash = target.new_launch()
    second_launch, _ = target.new_launch()
    assert (
        warm_launch.id != second_launch.id
        and warm_launch.token != second_launch.token
        and token_hash == hashed(warm_launch.token)
    )
    assert (
        names.owner(warm_launch.id) == f"wt-{warm_launch.id}" and len(warm_launch.id) <= 40 and warm_launch.id.isalnum()
    )
    objects = manifests.launch_objects(warm_launch, options(), served_apis, worker_spec=target.worker_spec)
    assert [violation for document in objects for violation in violations(document)] == []
    secret = next(document for document in objects if document["kind"] == "Secret")
    inputs = json.loads(base64.b64decode(secret["data"]["launch.json"]))
    assert inputs["warm"] is True and inputs["url"] == URL
    assert inputs["worker_spec"] == {
        "format": "python",
        "isolation": "launch",
        "world": {"simulator": "noop", "package": None, "starts_processes": None, "ranks": None},
    }
    cold_objects = manifests.launch_objects(replace(warm_launch, token=""), options(), served_apis)
    cold_secret = next(document for document in cold_objects if document["kind"] == "Secret")
    assert "warm" not in json.loads(base64.b64decode(cold_secret["data"]["launch.json"]))


def test_only_pods_with_the_label_that_are_not_being_deleted_are_warm() -> None:
    def owner(**changes: Any) -> Owner:
        labels = {"windtunnel/launch": "a", WARM: "d"}
        metadata = {"labels": labels, "annotations": {TOKEN_HASH: "h"}, "creation_timestamp": NOW}
        return Owner(metadata=Metadata(**{**metadata, **changes}))

    (pod,) = warm_pool.warm_owners([(JOBSET, owner())])
    assert (pod.id, pod.digest, pod.token_hash, pod.made) == ("a", "d", "h", NOW)
    assert warm_pool.warm_owners([(JOBSET, owner(labels={"windtunnel/launch": "a"}))]) == []
    assert warm_pool.warm_owners([(JOBSET, owner(deletion_timestamp=NOW))]) == []
    assert warm_pool.warm_owners([(JOBSET, owner(owner_references=(ObjectReference(kind="Node"),)))])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"runtime": "python", "dataset": "noop", "pods": 0}, "pods is at least 1 and at most"),
        ({"runtime": "python", "dataset": "noop", "pods": 101}, "pods is at least 1 and at most"),
        ({"runtime": "cobol", "dataset": "noop"}, "no runtime 'cobol'"),
        ({"runtime": "python", "dataset": "nothing"}, "no dataset 'nothing'"),
        ({"runtime": "python", "dataset": "noop", "format": "onnx"}, "python has no format 'onnx'"),
        ({"runtime": "python", "dataset": "noop", "pod": 1}, "have no warm: 'pod'"),
        ({"runtime": "python"}, "dataset"),
    ],
)
def test_a_warm_entry_that_no_launch_can_use_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(entry)
