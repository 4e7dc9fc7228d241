"""Kubernetes executor options: parsed and validated once, then immutable."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from common.former_names import refuse_former_names
from datasets.catalogue import datasets
from runtimes import catalogue

#: Label values and namespace names.
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
#: Maximum warm pods per target; each uses as much of its node as a pod that works.
MAX_WARM_PODS = 100


#: Annotation of pods with their secondary networks (Multus), and of Jobs: one Job per topology domain (JobSet).
NETWORKS_ANNOTATION = "k8s.v1.cni.cncf.io/networks"
EXCLUSIVE_ANNOTATION = "alpha.jobset.sigs.k8s.io/exclusive-topology"

#: DNS servers, as peers of NetworkPolicies.
KUBE_DNS: Mapping[str, Any] = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
}


#: Annotations of pods that attach networks, place a Job exclusively or queue it -> the option of `placement` that does.
#: They are refused as annotations, whatever pattern allows them, so that each thing has one allow-list.
EQUIVALENTS: Mapping[str, str] = {
    NETWORKS_ANNOTATION: "networks",
    "v1.multus-cni.io/default-network": "networks",
    EXCLUSIVE_ANNOTATION: "exclusive",
    "kueue.x-k8s.io/queue-name": "queue",
}

#: Options of earlier releases by their present names: an old key is refused, and the error says the new name.
RENAMED: Mapping[str, str] = {
    "courier": "runner",
    "drivers_url": "runner_api_url",
    "host": "model_server",
    "player": "evaluator",
    "seats": "workers_per_pod",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """Images: ``runner`` as a whole reference, environments as ``<prefix><name>:<tag or digest>``."""

    runner: str = "windtunnel-server:latest"
    prefix: str = "windtunnel-"
    tag: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Resources of a container as Kubernetes quantities; ``cpu`` is a request, ``memory`` also a limit."""

    cpu: str
    memory: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheOptions:
    """Cache service that runners use; empty ``nodes``: none."""

    nodes: str = ""
    audience: str = "scs"


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmOptions:
    """Warm pods of one kind. ``format`` empty: the format that has the runtime's name."""

    runtime: str
    dataset: str
    format: str = ""
    project: str = "default"
    pods: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesOptions:
    """Options of one cluster. Without ``evaluator`` or ``model_server``: resources as the launch requests."""

    kubeconfig: str = ""  # a path; empty: the service account of the platform's own pod
    context: str = ""  # of the kubeconfig; empty: its current context
    installation: str = "windtunnel"  # distinguishes installations that share a cluster
    namespace: str = "windtunnel-{project}"
    create_namespaces: bool = False
    runner_api_url: str = ""  # as pods reach it; empty: the launch's URL
    images: Images = Images()
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    workers_per_pod: int = 1  # workers per pod
    runner: Share = Share(cpu="100m", memory="256Mi")
    evaluator: Share | None = None
    model_server: Share | None = None
    scs: CacheOptions = CacheOptions()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    runtime_class: str = ""
    dns: tuple[Mapping[str, Any], ...] = (KUBE_DNS,)  # policy peers; a node-local DNS cache has an address
    dns_ports: tuple[int, ...] = (53,)
    patience: float = 120.0  # seconds that a pod may be unable to start
    cores: int = 0  # of version 0.2; nothing depends on it
    time_out: float = 10.0  # seconds for an answer of the API server
    warm: tuple[WarmOptions, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for options that can never work."""
        if not LABEL.fullmatch(self.installation):
            raise ValueError(f"installation: lower-case letters, digits and '-', at most 63; not {self.installation!r}")
        fields = set(re.findall(r"\{(.*?)\}", self.namespace))
        if fields - {"project"} or not LABEL.fullmatch(re.sub(r"\{project\}", "p", self.namespace)):
            raise ValueError(f"namespace: a name, or one with {{project}} in it; not {self.namespace!r}")
        if self.pull_policy not in PULL_POLICIES:
            raise ValueError(f"pull_policy: one of {', '.join(PULL_POLICIES)}; not {self.pull_policy!r}")
        if self.workers_per_pod < 1 or self.patience <= 0 or self.time_out <= 0:
            raise ValueError("workers_per_pod is at least 1, patience and time_out are above 0")
        if not self.dns or not self.dns_ports:
            raise ValueError("dns and dns_ports name a peer and a port at least: none would be any, to a policy")
        for entry in self.warm:
            if not 1 <= entry.pods <= MAX_WARM_PODS:
                raise ValueError(f"warm: pods is at least 1 and at most {MAX_WARM_PODS}; not {entry.pods}")
            _check_warm_option(entry)

    @property
    def shared_namespace(self) -> bool:
        """Return whether all projects share one namespace, so that rights in that namespace suffice."""
        return "{project}" not in self.namespace


def parse(options: Mapping[str, Any]) -> KubernetesOptions:
    """Parse options. Raise ValueError for unknown keys at any depth."""
    strict = _refuse_unknown_keys(KubernetesOptions, dict(options), "")
    try:
        return msgspec.convert(strict, KubernetesOptions)
    except msgspec.ValidationError as error:
        raise ValueError(f"the options of a Kubernetes executor: {error}") from None


def _refuse_unknown_keys(kind: type, options: dict[str, Any], path: str) -> dict[str, Any]:
    """Return ``options`` if all keys are known, else raise ValueError."""
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    if unknown := sorted(set(options) - set(known)):
        present = {old: new for old, new in RENAMED.items() if new in known}
        refuse_former_names(unknown, present, where=f"the options of a Kubernetes executor: {path}")
        message = f"the options of a Kubernetes executor have no {path}{unknown[0]!r}"
        raise ValueError(f"{message}; they have {', '.join(known)}")
    parts = {
        "images": Images,
        "runner": Share,
        "evaluator": Share,
        "model_server": Share,
        "scs": CacheOptions,
        "warm": WarmOptions,
    }
    for key, part in parts.items():
        if kind is KubernetesOptions and (value := options.get(key)):
            for entry in value if isinstance(value, list) else [value]:
                if isinstance(entry, dict):
                    _refuse_unknown_keys(part, entry, f"{key}: ")
    return options


def _check_warm_option(entry: WarmOptions) -> None:
    """Raise ValueError if runtime, format or dataset do not exist: no launch would ever match."""
    runtime, format = catalogue.runtimes().get(entry.runtime), entry.format or entry.runtime
    if runtime is None:
        raise ValueError(f"warm: there is no runtime {entry.runtime!r}; there are {', '.join(catalogue.runtimes())}")
    if format not in runtime.formats:
        raise ValueError(f"warm: {entry.runtime} has no format {format!r}; it has {', '.join(runtime.formats)}")
    if entry.dataset not in datasets():
        raise ValueError(f"warm: there is no dataset {entry.dataset!r}; there are {', '.join(datasets())}")
