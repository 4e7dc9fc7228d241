"""What an installation says of one cluster: read once, checked whole, and never changed afterwards."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from datasets.catalogue import datasets
from runtimes import catalogue

#: A label's value, and a name of a namespace.
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
#: Pods of one kind that may wait; each takes as much of its node as one at work.
MOST_WARM = 100


#: Who answers for names, as NetworkPolicies name peers.
KUBE_DNS: Mapping[str, Any] = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """Where pods get their programs from: ``runner`` whole, an environment's as ``<prefix><name>:<tag or digest>``."""

    runner: str = "windtunnel-server:latest"
    prefix: str = "windtunnel-"
    tag: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What a container is given, as Kubernetes writes quantities; ``cpu`` is asked for, ``memory`` is also a limit."""

    cpu: str
    memory: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cache:
    """The cache service that runners ask first; no ``nodes``: there is none."""

    nodes: str = ""
    audience: str = "scs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Warm:
    """So many pods wait for a launch of this kind. ``format`` empty: the one that the runtime is named after."""

    runtime: str
    dataset: str
    format: str = ""
    project: str = "default"
    pods: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How one cluster is reached, and how pods look there. No ``evaluator`` or ``model_server``: as the launch asks."""

    kubeconfig: str = ""  # a path; empty: the service account of the pod we run in
    context: str = ""  # of the kubeconfig; empty: its current one
    installation: str = "windtunnel"  # whose objects are whose, where several installations share a cluster
    namespace: str = "windtunnel-{project}"
    create_namespaces: bool = False
    runner_api_url: str = ""  # as pods reach it; empty: as the launch says
    images: Images = Images()
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    seats: int = 1  # workers a pod
    runner: Share = Share(cpu="100m", memory="256Mi")
    evaluator: Share | None = None
    model_server: Share | None = None
    scs: Cache = Cache()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    runtime_class: str = ""
    dns: tuple[Mapping[str, Any], ...] = (KUBE_DNS,)  # peers of a policy; a cache on each node has an address
    dns_ports: tuple[int, ...] = (53,)
    patience: float = 120.0  # seconds that a pod may be unable to start
    cores: int = 0  # to reckon with; 0: what the nodes have
    time_out: float = 10.0  # seconds for an answer of the API server
    warm: tuple[Warm, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could never work."""
        if not LABEL.fullmatch(self.installation):
            raise ValueError(f"installation: lower-case letters, digits and '-', at most 63; not {self.installation!r}")
        fields = set(re.findall(r"\{(.*?)\}", self.namespace))
        if fields - {"project"} or not LABEL.fullmatch(re.sub(r"\{project\}", "p", self.namespace)):
            raise ValueError(f"namespace: a name, or one with {{project}} in it; not {self.namespace!r}")
        if self.pull_policy not in PULL_POLICIES:
            raise ValueError(f"pull_policy: one of {', '.join(PULL_POLICIES)}; not {self.pull_policy!r}")
        if self.seats < 1 or self.patience <= 0 or self.time_out <= 0 or self.cores < 0:
            raise ValueError("seats is at least 1, patience and time_out are above 0, cores is not below 0")
        if not self.dns or not self.dns_ports:
            raise ValueError("dns and dns_ports name a peer and a port at least: none would be any, to a policy")
        for one in self.warm:
            if not 1 <= one.pods <= MOST_WARM:
                raise ValueError(f"warm: pods is at least 1 and at most {MOST_WARM}; not {one.pods}")
            _known(one)

    @property
    def shared_namespace(self) -> bool:
        """Tell whether all projects share one namespace, so that rights in that one are enough."""
        return "{project}" not in self.namespace


def parse(given: Mapping[str, Any]) -> Options:
    """Read options; a key that is not one is an error, at any depth."""
    strict = _strict(Options, dict(given), "")
    try:
        return msgspec.convert(strict, Options)
    except msgspec.ValidationError as error:
        raise ValueError(f"the options of a Kubernetes executor: {error}") from None


def _strict(kind: type, given: dict[str, Any], place: str) -> dict[str, Any]:
    """Return it if it has known keys only."""
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]
    if unknown := sorted(set(given) - set(known)):
        words = f"the options of a Kubernetes executor have no {place}{unknown[0]!r}"
        raise ValueError(f"{words}; they have {', '.join(known)}")
    parts = {"images": Images, "runner": Share, "evaluator": Share, "model_server": Share, "scs": Cache, "warm": Warm}
    for key, part in parts.items():
        if kind is Options and (said := given.get(key)):
            for one in said if isinstance(said, list) else [said]:
                if isinstance(one, dict):
                    _strict(part, one, f"{key}: ")
    return given


def _known(one: Warm) -> None:
    """Refuse to keep warm what there is not: no launch would ever come for it."""
    runtime, format = catalogue.runtimes().get(one.runtime), one.format or one.runtime
    if runtime is None:
        raise ValueError(f"warm: there is no runtime {one.runtime!r}; there are {', '.join(catalogue.runtimes())}")
    if format not in runtime.formats:
        raise ValueError(f"warm: {one.runtime} has no format {format!r}; it has {', '.join(runtime.formats)}")
    if one.dataset not in datasets():
        raise ValueError(f"warm: there is no dataset {one.dataset!r}; there are {', '.join(datasets())}")
