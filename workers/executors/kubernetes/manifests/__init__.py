"""Manifests: all objects of a launch, from the launch, the cluster's options and its served APIs."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import Unsupported
from core.domain.scheduling.launches import Launch
from workers.executors.kubernetes import gang_pods, names
from workers.executors.kubernetes.manifests import containers, job, jobset, mpijob, network_policy, trainjob
from workers.executors.kubernetes.manifests.pod_spec import PodSpecBuilder
from workers.executors.kubernetes.options import KubernetesOptions

Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedApis:
    """Optional APIs that a cluster serves; ``dra`` is the version of resource.k8s.io, or empty."""

    jobset: bool = True
    trainer: bool = False
    mpijob: bool = False
    kueue: bool = False
    dra: str = ""


#: Operators that run gangs; the empty name is JobSet.
OPERATORS: Mapping[str, tuple[str, Callable[[PodSpecBuilder], Object]]] = {
    "": ("jobset", jobset.jobset),
    "trainer": ("trainer", trainjob.trainjob),
    "mpi-operator": ("mpijob", mpijob.mpijob),
}


def launch_objects(
    launch: Launch, options: KubernetesOptions, served: ServedApis, *, worker_spec: Mapping[str, Any] | None = None
) -> list[Object]:
    """Return a launch's objects, the owner first. Raise a PlatformError if this cluster can never run it.

    With a ``worker_spec`` the launch is warm: its runners start workers by that spec and wait for their launch.
    """
    placement = launch.placement
    if placement.claims and not served.dra:
        raise Unsupported("This cluster serves no device claims (resource.k8s.io); ask for extended resources instead.")
    if placement.queue and not served.kueue:
        raise Unsupported(f"This cluster runs no Kueue, so nothing would ever leave the queue {placement.queue!r}.")
    pods = PodSpecBuilder(launch, options)
    namespace = names.namespace(options.namespace, launch.project)
    objects = [_owner(pods, served), _secret(pods, worker_spec), *network_policy.policies(pods)]
    return [_within(namespace, document) for document in objects]


def _owner(pods: PodSpecBuilder, served: ServedApis) -> Object:
    if pods.launch.gang is None:
        return jobset.jobset(pods) if served.jobset else job.job(pods)
    operator = pods.gang.operator
    if operator not in OPERATORS:
        known = ", ".join(name for name in OPERATORS if name)
        raise Unsupported(f"There is no operator {operator!r}; there are: {known}.")
    api, make = OPERATORS[operator]
    if not getattr(served, api):
        raise Unsupported(f"This cluster does not serve {operator or 'JobSets'}, which this gang needs.")
    return make(pods)


def _within(namespace: str, document: Object) -> Object:
    return document | {"metadata": {**document["metadata"], "namespace": namespace}}


def _secret(pods: PodSpecBuilder, worker_spec: Mapping[str, Any] | None) -> Object:
    """Return the secret with the runner's launch.json, its token, and the gang's shared key.

    The key is an HMAC of the token and does not reveal it, because a gang's program may read the key.
    """
    launch, options = pods.launch, pods.options
    config = {
        "id": launch.id,
        "url": options.runner_api_url or launch.url,
        "workers": options.workers_per_pod,
        "format": launch.format,
        "token_file": f"{containers.RUN}/token/token",
    }
    if worker_spec is not None:
        config |= {"warm": True, "worker_spec": worker_spec}
    content = {"launch.json": json.dumps(config, sort_keys=True), "token": launch.token}
    if launch.gang is not None:
        content |= {"gang": hmac.new(launch.token.encode(), b"gang", hashlib.sha256).hexdigest()}
        if launch.gang.attended:
            content |= {"launch.json": json.dumps(gang_pods.document(launch, config), sort_keys=True)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": pods.name, "labels": pods.labels},
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in content.items()},
    }
