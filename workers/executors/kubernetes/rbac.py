"""RBAC: the rights that the platform's account needs in a cluster, and why; source of the chart's roles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workers.executors.kubernetes.objects import (
    EVENT,
    JOB,
    JOBSET,
    MPIJOB,
    NAMESPACE,
    POD,
    POLICY,
    SECRET,
    TRAINJOB,
    ResourceKind,
)


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on a resource. ``everywhere``: cluster-wide, even where all projects share a namespace."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    everywhere: bool = False


def _of(kind: ResourceKind, verbs: str, why: str, *, everywhere: bool = False) -> Right:
    group = kind.api.partition("/")[0] if "/" in kind.api else ""
    return Right(group=group, resource=kind.plural, verbs=tuple(verbs.split()), why=why, everywhere=everywhere)


RIGHTS: tuple[Right, ...] = (
    _of(JOBSET, "create delete get list patch watch", "launches; patched when their number of workers changes"),
    _of(JOB, "create delete get list patch watch", "launches where JobSet is not served; their number of workers"),
    _of(TRAINJOB, "create delete get list", "gangs that ask for Kubeflow Trainer"),
    _of(MPIJOB, "create delete get list", "gangs that ask for the MPI operator"),
    _of(POLICY, "create delete get list", "network policies of launches"),
    _of(SECRET, "create delete", "tokens of launches; never read"),
    _of(POD, "list", "reasons why a launch does not start, and its exit codes"),
    _of(EVENT, "list", "quota, volumes and refusals, for the simulation's events"),
    Right("kueue.x-k8s.io", "workloads", ("list",), "reasons why Kueue does not admit a launch"),
)
#: Only with ``create_namespaces``.
NAMESPACES = _of(NAMESPACE, "create", "a namespace for each project", everywhere=True)


def rules(rights: Iterable[Right] = RIGHTS) -> list[Mapping[str, Any]]:
    """Return rights as the rules of a Role or ClusterRole."""
    return [{"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)} for right in rights]
