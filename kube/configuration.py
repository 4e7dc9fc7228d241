"""Configuration of the `kubernetes` package's client: kubeconfig, service account, exec plugin, OIDC, proxies.

Imports the package. What it reads and how is its own: contexts, certificates, tokens, `proxy-url`, HTTPS_PROXY and
NO_PROXY. Overridden here is only what it lacks: token files that are read again, exec plugins that end in time and
whose output appears in no log, and an OIDC issuer whose certificate is verified.
"""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import certifi
import yaml
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_incluster_config
from kubernetes.config.dateutil import parse_rfc3339
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.kube_config import (
    EXPIRY_SKEW_PREVENTION_DELAY,
    FileOrData,
    KubeConfigLoader,
    KubeConfigMerger,
)

from kube.access import Access, InCluster, Kubeconfig, TokenFile

#: Seconds that an exec plugin may take, and seconds before its credentials' expiry at which it is run again.
EXEC_TIMEOUT, EXPIRY_MARGIN = 30.0, 60.0
#: Extension of a cluster that an exec plugin gets as its configuration.
EXEC_EXTENSION = "client.authentication.k8s.io/exec"
#: Idle connections kept for each API server.
MAX_IDLE = 16
#: An expiry that has always passed: the package's refresh hook then reads a token file for each request.
_EVERY_REQUEST = datetime(1970, 1, 1, tzinfo=UTC)


def check(access: Access) -> None:
    """Raise ValueError if the access cannot be loaded; runs no exec plugin and sends no request."""
    if isinstance(access, InCluster):
        _in_cluster(Configuration())
    else:
        _loader(access)


def open_client(access: Access) -> ApiClient:
    """Return a client with fresh credentials. Raise ValueError for an invalid configuration, OSError for a failed load.

    The client retries nothing by itself: its own retries would hide an outage, and multiply time-outs.
    """
    configuration = Configuration()
    if isinstance(access, InCluster):
        _in_cluster(configuration)
    else:
        loader = _loader(access)
        try:
            loader.load_and_set(configuration)
        except OSError:
            raise
        except ConfigException as error:
            raise ConnectionError(f"the API server's credentials cannot be loaded: {_without_values(error)}") from None
        except Exception as error:  # of OIDC, for example; its message may contain a secret
            raise ConnectionError(f"the API server's credentials cannot be loaded: {type(error).__name__}") from None
    configuration.retries = False
    configuration.keep_alive = True
    configuration.connection_pool_maxsize = MAX_IDLE
    try:
        client = ApiClient(configuration)
    except Exception as error:  # an invalid proxy, or a SOCKS proxy without PySocks
        raise ValueError(f"the proxy of the API server cannot be used: {type(error).__name__}") from None
    client.user_agent = "windtunnel"
    return client


def _in_cluster(configuration: Configuration) -> None:
    try:
        load_incluster_config(configuration)
    except ConfigException as error:
        raise ValueError(f"this is not a pod with a service account ({error}): name a kubeconfig") from None


def _loader(access: Kubeconfig | TokenFile) -> "KubeconfigLoader":
    """Return the loader of a kubeconfig, or of an equivalent of it, whose structure has been checked."""
    if isinstance(access, TokenFile):
        if access.authority is not None and not access.authority.is_file():
            raise ValueError(f"{access.authority} is not a file of CA certificates")
        return KubeconfigLoader(_kubeconfig_of(access))
    path = str(access.path)
    try:
        # Opened here, because the package takes a missing file for an empty one.
        with open(path, "rb"):
            merged = KubeConfigMerger(path)
        # Tokens that OIDC replaces are written back, as kubectl does: the former ones may be valid no more.
        persister = merged.save_changes if os.access(path, os.W_OK) else None
        loader = KubeconfigLoader(merged.config, access.context or None, config_persister=persister)
        server = loader.server
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {type(error).__name__}") from None
    except ConfigException as error:
        raise ValueError(f"{path} is not a usable kubeconfig: {_without_values(error)}") from None
    except (yaml.YAMLError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a kubeconfig ({type(error).__name__})") from None
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{path}: a cluster's server is an http or https URL, not {server!r}")
    return loader


def _kubeconfig_of(access: TokenFile) -> dict[str, Any]:
    cluster = {"server": access.server}
    if access.authority is not None:
        cluster["certificate-authority"] = os.path.abspath(access.authority)
    return {
        "current-context": "default",
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "clusters": [{"name": "default", "cluster": cluster}],
        "users": [{"name": "default", "user": {"tokenFile": os.path.abspath(access.token)}}],
    }


def _without_values(error: ConfigException) -> str:
    """Return the message up to the first dictionary: the package repeats a kubeconfig's entries, secrets included."""
    return str(error).partition("{")[0].strip()


class KubeconfigLoader(KubeConfigLoader):  # type: ignore[misc]  # the package is not type-checked
    """The package's loader, whose refresh hook runs before each request."""

    def __init__(self, config: Any, context: str | None = None, *, config_persister: Any = None) -> None:
        super().__init__(config, active_context=context, config_base_path=None, config_persister=config_persister)

    @property
    def server(self) -> str:
        """The cluster's URL."""
        return str(self._cluster["server"])

    def _load_user_token(self) -> bool | None:
        """Load a token, or a token file, which the package reads once: mark it as expired, so that it is read again."""
        loaded: bool | None = super()._load_user_token()
        if loaded and "token" not in self._user:
            self.expiry = _EVERY_REQUEST
        return loaded

    def _load_from_exec_plugin(self) -> bool | None:
        """Run the exec plugin. Raise OSError where the package would log its output and go on without credentials."""
        if "exec" not in self._user:
            return None
        plugin = ExecPlugin(self._user["exec"], self._get_base_path(self._cluster.path), self._cluster)
        status = plugin.run()
        if token := status.get("token"):
            self.token = f"Bearer {token}"
        else:
            self.cert_file, self.key_file = (
                FileOrData(status, None, data_key_name=key, base64_file_content=False).as_file()
                for key in ("clientCertificateData", "clientKeyData")
            )
            if not (self.cert_file and self.key_file):
                raise ConnectionError(f"the exec plugin {plugin.args[0]} printed neither a token nor a certificate")
        if expiry := status.get("expirationTimestamp"):
            # The package refreshes five minutes early, which is more than the whole life of some tokens.
            margin = EXPIRY_SKEW_PREVENTION_DELAY - timedelta(seconds=EXPIRY_MARGIN)
            self.expiry = parse_rfc3339(expiry) + margin
        return True

    def _refresh_oidc(self, provider: Any) -> None:
        """Refresh the token; an issuer without a named authority is verified too, unlike in the package."""
        settings = provider["config"].value
        if any(key.startswith("idp-certificate-authority") for key in settings):
            super()._refresh_oidc(provider)
            return
        settings["idp-certificate-authority"] = certifi.where()
        try:
            super()._refresh_oidc(provider)
        finally:
            del settings["idp-certificate-authority"]


class ExecPlugin(ExecProvider):  # type: ignore[misc]  # the package is not type-checked
    """Exec plugin (client.authentication.k8s.io ExecCredential) with a time limit.

    Its output may contain a secret, so errors name the program and the kind of failure only.
    """

    def run(self, previous_response: Any = None) -> dict[str, Any]:
        """Run the program; return the status of the credential that it prints, or raise ConnectionError."""
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            extensions = self.cluster.value.get("extensions") or ()
            configs = [entry["extension"] for entry in extensions if entry["name"] == EXEC_EXTENSION]
            spec["cluster"] = self.cluster.value | ({"config": configs[0]} if configs else {})
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        environ = self.env | {"KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            done = subprocess.run(
                self.args,
                cwd=self.cwd,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=EXEC_TIMEOUT,
            )
            credential = json.loads(done.stdout)
            status: dict[str, Any] = credential["status"]
            version = credential.get("apiVersion")
        except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
            raise ConnectionError(
                f"the exec plugin {self.args[0]} gave no credentials ({type(error).__name__})"
            ) from None
        if version != self.api_version or not isinstance(status, dict):
            raise ConnectionError(f"the exec plugin {self.args[0]} gave no credentials of version {self.api_version}")
        return status
