"""Decisions of the warm pool: which pods are kept, deleted and taken; without a cluster."""

import base64
import json
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.domain.ids import hashed
from core.domain.launches import Gang, Launch, Phase, Placement
from tests.unit.crds import complaints
from tests.unit.launch_samples import ALL, BARE, launch
from workers.executors.kubernetes import manifests, names, warm_pool
from workers.executors.kubernetes.objects import JOBSET, TOKEN_HASH, WARM, Metadata, ObjectReference, Owner
from workers.executors.kubernetes.options import KubernetesOptions, parse

ASKED = {"runtime": "python", "dataset": "noop", "pods": 2}
URL = "http://runner_api:1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def options(*entries: dict[str, Any], **others: Any) -> KubernetesOptions:
    return parse({"images": {"tag": "abc"}, "warm": list(entries or [ASKED]), **others})


def wanted(*entries: dict[str, Any], **others: Any) -> dict[str, warm_pool.WarmTarget]:
    return warm_pool.warm_targets(options(*entries, **others), ALL, URL)


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


def planned(
    owners: list[warm_pool.WarmOwner],
    wishes: dict[str, warm_pool.WarmTarget],
    taken: Collection[str] = (),
    handed_out: Collection[str] = (),
) -> warm_pool.PoolPlan:
    return warm_pool.plan_pool(owners, wishes, taken=taken, handed_out=handed_out)


def ids(some: Collection[warm_pool.WarmOwner]) -> list[str]:
    return [each.id for each in some]


def test_missing_pods_are_created_and_only_ready_pods_are_taken() -> None:
    wishes = wanted()
    (digest,) = wishes
    first = planned([], wishes)
    assert len(first.missing) == 2 and not first.ready and not first.complete
    starting = planned([pod("a", digest), pod("b", digest, Phase.STARTING)], wishes)
    assert ids(starting.ready) == ["a"] and not starting.missing and not starting.complete
    whole = planned([pod("a", digest, age=1), pod("b", digest, age=9)], wishes)
    assert ids(whole.ready) == ["b", "a"] and whole.complete, "the oldest goes first"


def test_surplus_ended_unknown_and_outdated_pods_are_deleted() -> None:
    wishes = wanted()
    (digest,) = wishes
    owners = [
        pod("old", digest, age=90),
        pod("new", digest, age=10),
        pod("starting", digest, Phase.STARTING, age=99),
        pod("ended", digest, Phase.ENDED),
        pod("otherwise", "0" * 16),
        pod("tokenless", digest, token_hash=""),
    ]
    plan = planned(owners, wishes)
    assert ids(plan.ready) == ["old", "new"] and plan.complete
    assert sorted(ids(plan.surplus)) == ["ended", "otherwise", "starting", "tokenless"]


def test_all_pods_are_deleted_when_none_is_configured() -> None:
    plan = planned([pod("a", "0" * 16)], {})
    assert ids(plan.surplus) == ["a"] and plan.complete


def test_a_taken_pod_is_labelled_and_replaced_and_an_unused_one_is_deleted() -> None:
    wishes = wanted()
    (digest,) = wishes
    plan = planned([pod("taken", digest), pod("vain", digest)], wishes, taken={"taken"}, handed_out={"taken", "vain"})
    assert ids(plan.in_use) == ["taken"] and ids(plan.surplus) == ["vain"] and len(plan.missing) == 2


def test_each_pod_is_taken_once_and_by_a_matching_launch() -> None:
    wishes = wanted()
    (digest,) = wishes
    owners = [pod("a", digest), pod("b", digest)]
    reserve = warm_pool.ReadyLaunches()
    assert reserve.take(noop()) is None, "nobody has looked yet"
    reserve.fill(planned(owners, wishes), wishes, owners)
    for unfit in ({"project": "red"}, {"dataset": "car_street"}, {"version": "0"}, {"runtime": "onnx"}):
        assert reserve.take(noop(**unfit)) is None
    assert reserve.take(noop(placement=Placement(cpu=2))) is None
    assert reserve.take(noop(gang=Gang(size=2))) is None
    found = [reserve.take(noop(placement=Placement(executor="west"), workers=9)), reserve.take(noop())]
    assert [each and (each.id, each.token_hash) for each in found] == [("a", "h"), ("b", "h")]
    assert reserve.take(noop()) is None and set(reserve.handed_out) == {"a", "b"}
    reserve.fill(planned([], wishes), wishes, [])
    assert not reserve.handed_out, "what is gone need not be remembered"


def test_a_pod_admitted_by_kueue_is_not_taken_by_a_launch_with_more_workers() -> None:
    wishes = wanted()
    (digest,) = wishes
    owners = [replace(pod("a", digest), queued=True)]
    reserve = warm_pool.ReadyLaunches()
    reserve.fill(planned(owners, wishes), wishes, owners)
    assert reserve.take(noop(workers=2)) is None
    assert reserve.take(noop(workers=1)) is not None


@pytest.mark.parametrize(
    "others",
    [
        {"images": {"tag": "newer"}},
        {"runner_api_url": "http://elsewhere"},
        {"workers_per_pod": 2},
        {"node_selector": {"pool": "b"}},
    ],
)
def test_other_images_or_options_make_warm_pods_outdated(others: dict[str, Any]) -> None:
    assert wanted().keys().isdisjoint(wanted(**others))
    assert wanted().keys() == wanted().keys() and wanted().keys() == wanted(ASKED | {"pods": 7}).keys()


def test_equal_entries_of_the_configuration_are_added() -> None:
    (wish,) = wanted(ASKED, ASKED | {"pods": 3, "format": "python"}).values()
    assert wish.pods == 5


@pytest.mark.parametrize("served", [ALL, BARE])
def test_a_warm_pod_has_the_objects_of_a_launch_and_knows_its_worker_spec(served: manifests.ServedApis) -> None:
    (wish,) = warm_pool.warm_targets(options(), served, URL).values()
    launch, token_hash = wish.new_launch()
    other, _ = wish.new_launch()
    assert launch.id != other.id and launch.token != other.token and token_hash == hashed(launch.token)
    assert names.owner(launch.id) == f"wt-{launch.id}" and len(launch.id) <= 40 and launch.id.isalnum()
    objects = manifests.launch_objects(launch, options(), served, worker_spec=wish.worker_spec)
    assert [complaint for each in objects for complaint in complaints(each)] == []
    secret = next(each for each in objects if each["kind"] == "Secret")
    document = json.loads(base64.b64decode(secret["data"]["launch.json"]))
    assert document["warm"] is True and document["url"] == URL
    assert document["worker_spec"] == {
        "format": "python",
        "isolation": "launch",
        "world": {"simulator": "noop", "package": None},
    }
    cold = manifests.launch_objects(replace(launch, token=""), options(), served)
    plain = next(each for each in cold if each["kind"] == "Secret")
    assert "warm" not in json.loads(base64.b64decode(plain["data"]["launch.json"]))


def test_only_pods_with_the_label_that_are_not_being_deleted_are_warm() -> None:
    def owner(**changes: Any) -> Owner:
        labels = {"windtunnel/launch": "a", WARM: "d"}
        handed_out = {"labels": labels, "annotations": {TOKEN_HASH: "h"}, "creation_timestamp": NOW}
        return Owner(metadata=Metadata(**{**handed_out, **changes}))

    (pod,) = warm_pool.warm_owners([(JOBSET, owner())])
    assert (pod.id, pod.digest, pod.token_hash, pod.made) == ("a", "d", "h", NOW)
    assert warm_pool.warm_owners([(JOBSET, owner(labels={"windtunnel/launch": "a"}))]) == []
    assert warm_pool.warm_owners([(JOBSET, owner(deletion_timestamp=NOW))]) == []
    assert warm_pool.warm_owners([(JOBSET, owner(owner_references=(ObjectReference(kind="Node"),)))])


@pytest.mark.parametrize(
    ("entry", "words"),
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
def test_a_specification_that_no_launch_can_use_is_not_kept_warm(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        options(entry)
