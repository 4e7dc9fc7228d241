"""Indexed Jobs: one pod for each number, on their own where there is no JobSet, and inside of it where there is."""

import math
from typing import Any

from core.domain.launches import Launch
from workers.executors.kubernetes import gangs, names
from workers.executors.kubernetes.manifests import pods
from workers.executors.kubernetes.objects import QUEUE
from workers.executors.kubernetes.options import KubernetesOptions

Object = dict[str, Any]

#: How often a pod of independent work may be lost before its number is given up: the rest goes on without it.
POD_LOSSES = 6
#: Seconds that a finished object stays should nobody take it away; we do, as soon as we have seen its end.
TTL_SECONDS = 3600
#: A runner's exit for what trying again does not mend.
HOPELESS = 70
_DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def job(launch: Launch, options: KubernetesOptions) -> Object:
    """Return the Indexed Job of a launch of independent workers."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(launch, options),
        "spec": independent(launch, options) | {"ttlSecondsAfterFinished": TTL_SECONDS} | _suspended(launch),
    }


def metadata(launch: Launch, options: KubernetesOptions) -> Object:
    """Return an owner's name and labels, with the queue it waits in where a site runs one."""
    queue = {QUEUE: launch.placement.queue} if launch.placement.queue else {}
    return {"name": names.owner(launch.id), "labels": pods.labels(launch, options) | queue}


def independent(launch: Launch, options: KubernetesOptions) -> Object:
    """Return pods that know nothing of each other: one that is lost is replaced, and its work was leased again by then.

    What a drain or a preemption took does not count; what a runner calls hopeless ends the whole.
    """
    pods_needed = max(1, math.ceil(launch.workers / options.workers_per_pod))
    return _indexed(pods_needed, launch) | {
        "backoffLimitPerIndex": POD_LOSSES,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", **_DISRUPTED},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "runner", "operator": "In", "values": [HOPELESS]},
                },
            ]
        },
        "template": pods.runner_pod(launch, options),
    }


def replicas(launch: Launch, options: KubernetesOptions) -> Object:
    """Return a slice of a gang: one pod lost is the gang lost, and a drain says so by a reason of its own."""
    return _together(gangs.gang_of(launch).size, launch) | {"template": pods.replica(launch, options)}


def lead(launch: Launch, options: KubernetesOptions) -> Object:
    """Return the one pod that leads a gang."""
    return _together(1, launch) | {"template": pods.lead(launch, options)}


def _together(count: int, launch: Launch) -> Object:
    return _indexed(count, launch) | {
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "FailJob", **_DISRUPTED}]},
    }


def _indexed(count: int, launch: Launch) -> Object:
    deadline = {"activeDeadlineSeconds": max(1, math.ceil(launch.timeout))} if launch.timeout else {}
    return {"completionMode": "Indexed", "parallelism": count, "completions": count, **deadline}


def _suspended(launch: Launch) -> Object:
    return {"suspend": True} if launch.placement.queue else {}
