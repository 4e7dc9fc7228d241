"""TrainJobs of the Trainer: the site's runtime says how, the launch what and how many; we only wait for its end."""

import math
from typing import Any

from core.domain.launches import Launch
from errors import Invalid
from workers.executors.kubernetes import gangs
from workers.executors.kubernetes.manifests import job, pods
from workers.executors.kubernetes.options import KubernetesOptions, Share

Object = dict[str, Any]

GROUP = "trainer.kubeflow.org"


def trainjob(launch: Launch, options: KubernetesOptions) -> Object:
    """Return a launch's TrainJob. What of a placement is a pod's own goes in as a patch of the runtime's pods."""
    gang = gangs.gang_of(launch)
    if not gang.runtime_ref:
        raise Invalid("A gang of the Trainer names a ClusterTrainingRuntime in `runtime_ref`.")
    placement = launch.placement
    image = {"image": gang.image} if gang.image else {}
    share = Share(cpu=f"{math.ceil(placement.cpu * 1000)}m", memory=str(placement.memory))
    # The Trainer sets what a framework wants to know; what is ours is the same for every node.
    variables = {
        "WINDTUNNEL_GANG_SIZE": str(gang.size),
        "WINDTUNNEL_GANG_SLOTS": str(gang.slots),
    }
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "TrainJob",
        "metadata": job.metadata(launch, options),
        "spec": {
            "runtimeRef": {"apiGroup": GROUP, "kind": "ClusterTrainingRuntime", "name": gang.runtime_ref},
            "trainer": {
                **image,
                "command": list(gang.command),
                "env": [{"name": name, "value": value} for name, value in variables.items()],
                "numNodes": gang.size,
                "numProcPerNode": gang.slots,
                "resourcesPerNode": pods.resources(share, launch),
            },
            "suspend": bool(placement.queue),
            **({"activeDeadlineSeconds": max(1, math.ceil(launch.timeout))} if launch.timeout else {}),
            "runtimePatches": [_patch(launch, options)],
        },
    }


def _patch(launch: Launch, options: KubernetesOptions) -> Object:
    placement = launch.placement
    spec: Object = {}
    if placement.node_selector or options.node_selector:
        spec["nodeSelector"] = {**options.node_selector, **placement.node_selector}
    if options.tolerations:
        spec["tolerations"] = [dict(one) for one in options.tolerations]
    if options.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in options.pull_secrets]
    metadata: Object = {"labels": pods.labels(launch, options) | {pods.PART: "replica"}}
    if written := pods.annotations(launch):
        metadata["annotations"] = written
    template = {"metadata": metadata} | ({"spec": spec} if spec else {})
    return {
        "manager": "windtunnel/executor",
        "trainingRuntimeSpec": {
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": template}}}]}}
        },
    }
