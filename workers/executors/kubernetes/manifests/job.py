"""Indexed Jobs: the launch of a cluster without JobSet, and the Jobs inside of a JobSet."""

import math
from typing import Any

from core.domain.scheduling.launches import Launch
from workers.executors.kubernetes.manifests.pod_spec import PodSpecBuilder
from workers.executors.kubernetes.objects import QUEUE

Object = dict[str, Any]

#: How often a pod of independent workers may fail until its index is given up; the other indexes go on.
POD_LOSSES = 6
#: Seconds until the cluster removes a finished object, should the executor not do so before.
TTL_SECONDS = 3600
#: Exit code of a runner whose error a retry cannot mend.
HOPELESS = 70
_DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def job(pods: PodSpecBuilder) -> Object:
    """Return the Indexed Job of a launch with independent workers."""
    suspended = {"suspend": True} if pods.launch.placement.queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(pods),
        "spec": independent(pods) | {"ttlSecondsAfterFinished": TTL_SECONDS} | suspended,
    }


def metadata(pods: PodSpecBuilder) -> Object:
    """Return an owner's name and labels, with its Kueue queue if the launch has one."""
    queue = {QUEUE: pods.launch.placement.queue} if pods.launch.placement.queue else {}
    return {"name": pods.name, "labels": pods.labels | queue}


def deadline(launch: Launch) -> Object:
    """Return the field that ends an owner after the launch's timeout, if it has one."""
    return {"activeDeadlineSeconds": max(1, math.ceil(launch.timeout))} if launch.timeout else {}


def independent(pods: PodSpecBuilder) -> Object:
    """Return the Job spec of independent runner pods: a failed pod is replaced; its tasks are leased to others.

    Disruptions (drain, preemption) do not count as failures; a runner's exit code HOPELESS fails the whole Job.
    """
    count = max(1, math.ceil(pods.launch.workers / pods.options.workers_per_pod))
    return _indexed(count, pods.launch) | {
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
        "template": pods.runner_pod(),
    }


def replicas(pods: PodSpecBuilder) -> Object:
    """Return the Job spec of a gang's slice: a failed pod fails the Job; a disruption fails it with its own reason."""
    return _together(pods.gang.size, pods.launch) | {"template": pods.replica()}


def leader(pods: PodSpecBuilder) -> Object:
    """Return the Job spec of a gang's leader pod."""
    return _together(1, pods.launch) | {"template": pods.leader()}


def _together(count: int, launch: Launch) -> Object:
    return _indexed(count, launch) | {
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "FailJob", **_DISRUPTED}]},
    }


def _indexed(count: int, launch: Launch) -> Object:
    return {"completionMode": "Indexed", "parallelism": count, "completions": count, **deadline(launch)}
