"""Every object of a launch, as a function of the launch, the cluster's options and what the cluster serves."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.domain.launches import Launch
from errors import Unsupported
from workers.executors.kubernetes import gangs, names
from workers.executors.kubernetes.manifests import containers, job, jobset, mpijob, pods, policy, trainjob
from workers.executors.kubernetes.options import Options

Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """Which APIs a cluster serves beyond its own; ``dra`` is the version of its device claims, or empty."""

    jobset: bool = True
    trainer: bool = False
    mpijob: bool = False
    kueue: bool = False
    dra: str = ""


#: What runs a gang, and where else than in JobSets that may be.
OPERATORS: Mapping[str, tuple[str, Callable[[Launch, Options], Object]]] = {
    "": ("jobset", jobset.jobset),
    "trainer": ("trainer", trainjob.trainjob),
    "mpi-operator": ("mpijob", mpijob.mpijob),
}


def of(launch: Launch, options: Options, served: Served, *, kit: Mapping[str, Any] | None = None) -> list[Object]:
    """Return what a launch is made of, its owner first. Raise a PlatformError if this cluster can never run it.

    With a ``kit`` its runners do not know their launch yet: they begin with that, and wait.
    """
    asked = launch.placement
    if asked.claims and not served.dra:
        raise Unsupported("This cluster serves no device claims (resource.k8s.io); ask for extended resources instead.")
    if asked.queue and not served.kueue:
        raise Unsupported(f"This cluster runs no Kueue, so nothing would ever leave the queue {asked.queue!r}.")
    owner = _owner(launch, options, served)
    namespace = names.namespace(options.namespace, launch.project)
    others = [_secret(launch, options, kit), *policy.policies(launch, options)]
    return [_within(namespace, one) for one in [owner, *others]]


def _owner(launch: Launch, options: Options, served: Served) -> Object:
    if launch.gang is None:
        return jobset.jobset(launch, options) if served.jobset else job.job(launch, options)
    operator = gangs.of(launch).operator
    if operator not in OPERATORS:
        raise Unsupported(f"There is no operator {operator!r}; there are: trainer, mpi-operator.")
    api, make = OPERATORS[operator]
    if not getattr(served, api):
        raise Unsupported(f"This cluster does not serve {operator or 'JobSets'}, which this gang needs.")
    return make(launch, options)


def _within(namespace: str, one: Object) -> Object:
    return one | {"metadata": {**one["metadata"], "namespace": namespace}}


def _secret(launch: Launch, options: Options, kit: Mapping[str, Any] | None) -> Object:
    """The launch as its runner reads it, beside its token; and what a gang's pods know each other by.

    The second comes from the token and does not tell it, for a gang's program may read it.
    """
    told = {
        "id": launch.id,
        "url": options.runner_api_url or launch.url,
        "workers": options.seats,
        "format": launch.format,
        "token_file": f"{containers.RUN}/token/token",
    }
    if kit is not None:
        told |= {"warm": True, "kit": kit}
    content = {"launch.json": json.dumps(told, sort_keys=True), "token": launch.token}
    if launch.gang is not None:
        content |= {"gang": hmac.new(launch.token.encode(), b"gang", hashlib.sha256).hexdigest()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": names.owner(launch.id), "labels": pods.labels(launch, options)},
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in content.items()},
    }
