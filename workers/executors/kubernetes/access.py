"""API server access: address and credentials from a kubeconfig, or from the pod's service account."""

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from datasets.scs_client.http_pool import BearerToken

#: Folder of the pod's service account.
POD_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Seconds that an exec plugin may take, and how long its token is used if it has no expiry (also the margin before
#: one).
EXEC_TIMEOUT, TOKEN_TTL = 30.0, 60.0


@dataclass(frozen=True, slots=True)
class Access:
    """Address, TLS settings, and a function that returns the headers for each request."""

    host: str
    port: int
    path: str  # prefix of every API path; usually empty
    tls: ssl.SSLContext | None
    server_name: str | None
    headers: Callable[[], Mapping[str, str]]


def open_access(kubeconfig: str = "", context: str = "") -> Access:
    """Return the access of a kubeconfig, or of the pod's service account."""
    return kubeconfig_access(Path(kubeconfig).expanduser(), context) if kubeconfig else pod_access()


def pod_access(folder: Path = POD_FOLDER, environ: Mapping[str, str] = os.environ) -> Access:
    """Use the pod's service account, whose token is replaced each hour."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
    if not host or not (folder / "ca.crt").exists():
        raise ValueError("this is no pod with a service account: name a kubeconfig")
    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    return Access(host, int(port), "", tls, None, BearerToken(folder / "token").headers)


def kubeconfig_access(path: Path, context: str = "") -> Access:
    """Use a context's user: certificate, token, token file, name and password, or exec plugin."""
    document = yaml.safe_load(path.read_text())
    if not isinstance(document, dict):
        raise ValueError(f"{path} is no kubeconfig")
    chosen = _named(document, "context", context or document.get("current-context") or "", path)
    cluster = _named(document, "cluster", chosen.get("cluster", ""), path)
    user = _named(document, "user", chosen["user"], path) if chosen.get("user") else {}
    address = urlsplit(cluster.get("server", ""))
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError(f"{path}: a cluster's server is an address, not {cluster.get('server')!r}")
    tls = _tls(cluster, user, path.parent) if address.scheme == "https" else None
    port = address.port or (443 if tls else 80)
    name = cluster.get("tls-server-name")
    return Access(address.hostname, port, address.path.rstrip("/"), tls, name, _headers(user, path.parent))


def _named(document: Mapping[str, Any], kind: str, name: str, path: Path) -> dict[str, Any]:
    for entry in document.get(f"{kind}s") or ():
        if entry.get("name") == name:
            found: dict[str, Any] = entry.get(kind) or {}
            return found
    raise ValueError(f"{path} has no {kind} {name!r}")


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    tls = ssl.create_default_context(
        cadata=base64.b64decode(authority).decode() if authority else None,
        cafile=str(folder / cluster["certificate-authority"]) if "certificate-authority" in cluster else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if "client-certificate-data" in user or "client-certificate" in user:
        _load_client_certificate(tls, _bytes(user, "client-certificate", folder), _bytes(user, "client-key", folder))
    return tls


def _bytes(user: Mapping[str, Any], key: str, folder: Path) -> bytes:
    inline = user.get(f"{key}-data")
    return base64.b64decode(inline) if inline else Path(folder / user[key]).read_bytes()


def _load_client_certificate(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate; OpenSSL's binding takes files only, so it lies in a private temporary file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        tls.load_cert_chain(file.name)


def _headers(user: Mapping[str, Any], folder: Path) -> Callable[[], Mapping[str, str]]:
    if "exec" in user:
        return ExecPlugin(user["exec"], folder).headers
    if "tokenFile" in user:
        return BearerToken(folder / user["tokenFile"]).headers
    if "token" in user:
        return lambda: {"Authorization": f"Bearer {user['token']}"}
    if "username" in user:
        both = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode()).decode()
        return lambda: {"Authorization": f"Basic {both}"}
    return dict


class ExecPlugin:
    """Exec plugin: prints credentials (client.authentication.k8s.io ExecCredential), like the clouds' own tools."""

    def __init__(self, spec: Mapping[str, Any], folder: Path) -> None:
        command = spec["command"]
        self._command = [str(folder / command) if "/" in command else command, *(spec.get("args") or ())]
        self._environ = {entry["name"]: entry["value"] for entry in spec.get("env") or ()}
        self._exec_info = {"apiVersion": spec["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
        self._token, self._until = "", 0.0

    def headers(self) -> Mapping[str, str]:
        """Return the header with the plugin's token; runs the plugin again shortly before the token expires."""
        if time.time() >= self._until:
            self._run()
        return {"Authorization": f"Bearer {self._token}"}

    def _run(self) -> None:
        environ = {**os.environ, **self._environ, "KUBERNETES_EXEC_INFO": json.dumps(self._exec_info)}
        try:
            done = subprocess.run(self._command, env=environ, capture_output=True, check=True, timeout=EXEC_TIMEOUT)
            status = json.loads(done.stdout)["status"]
            self._token = status["token"]
        except (subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
            # the output may contain a secret: only the exception's type is reported
            raise ConnectionError(f"{self._command[0]} told no token ({type(error).__name__})") from None
        ends = status.get("expirationTimestamp")
        now = time.time()
        self._until = datetime.fromisoformat(ends).timestamp() - TOKEN_TTL if ends else now + TOKEN_TTL
