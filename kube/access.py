"""API server access: which API server a client calls, and as whom. Values only; `kube.configuration` loads them."""

from dataclasses import dataclass
from pathlib import Path

#: Folder in a pod with the service account's token and the API server's CA certificate, and the API server's name.
SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER_SERVER = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """A context of a kubeconfig; ``context`` empty: its current context."""

    path: Path
    context: str = ""


@dataclass(frozen=True, slots=True)
class InCluster:
    """The service account of this process's pod, at the address that Kubernetes sets in the pod's environment."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A bearer token in a file, at a named server; ``authority``: a file of CA certificates, None: the system's."""

    server: str
    token: Path
    authority: Path | None = None


Access = Kubeconfig | InCluster | TokenFile


def access_of(kubeconfig: str = "", context: str = "") -> Access:
    """Return the access of a kubeconfig, or of this pod's service account if no kubeconfig is named."""
    return Kubeconfig(Path(kubeconfig).expanduser(), context) if kubeconfig else InCluster()
