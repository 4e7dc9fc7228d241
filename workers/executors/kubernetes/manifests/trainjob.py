"""TrainJobs of the Kubeflow Trainer: the site's runtime defines the pods; the launch sets command, size and patches."""

import math
from typing import Any

from common.errors import Invalid
from workers.executors.kubernetes.manifests import job
from workers.executors.kubernetes.manifests.pod_spec import PodSpecBuilder
from workers.executors.kubernetes.options import Share

Object = dict[str, Any]

GROUP = "trainer.kubeflow.org"


def trainjob(pods: PodSpecBuilder) -> Object:
    """Return a launch's TrainJob. The parts of its placement that concern pods are a patch of the runtime's pods."""
    gang, placement = pods.gang, pods.launch.placement
    if not gang.runtime_ref:
        raise Invalid("A gang of the Trainer names a ClusterTrainingRuntime in `runtime_ref`.")
    image = {"image": gang.image} if gang.image else {}
    share = Share(cpu=f"{math.ceil(placement.cpu * 1000)}m", memory=str(placement.memory))
    # The Trainer sets the frameworks' variables; these are the platform's own, the same on every node.
    variables = {
        "WINDTUNNEL_GANG_SIZE": str(gang.size),
        "WINDTUNNEL_GANG_SLOTS": str(gang.slots),
    }
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "TrainJob",
        "metadata": job.metadata(pods),
        "spec": {
            "runtimeRef": {"apiGroup": GROUP, "kind": "ClusterTrainingRuntime", "name": gang.runtime_ref},
            "trainer": {
                **image,
                "command": list(gang.command),
                "env": [{"name": name, "value": value} for name, value in variables.items()],
                "numNodes": gang.size,
                "numProcPerNode": gang.slots,
                "resourcesPerNode": pods.resources(share, devices=True),
            },
            "suspend": bool(placement.queue),
            **job.deadline(pods.launch),
            "runtimePatches": [_runtime_patch(pods.patch())],
        },
    }


def _runtime_patch(template: Object) -> Object:
    return {
        "manager": "windtunnel/executor",
        "trainingRuntimeSpec": {
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": template}}}]}}
        },
    }
