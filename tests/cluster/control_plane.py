"""A real control plane: etcd, the API server, the controllers and the scheduler, on a machine of its own."""

import base64
import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from tests.cluster.authority import Authority, write_key
from tests.cluster.machines import PATIENCE, Machine
from tests.cluster.network import Network
from tests.waiting import until

ISSUER = "https://kubernetes.default.svc.cluster.local"
PORT = 6443
#: Programs that can be stopped and started by name, in the order of their start.
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ControlPlane:
    """The control plane, and a client with the rights of an administrator."""

    def __init__(self, programs: Path, machine: Machine, network: Network, *, fsync: bool, grace: int) -> None:
        self._programs, self._machine, self._network = programs, machine, network
        self._fsync, self._grace = fsync, grace
        self.server = f"https://{network.control}:{PORT}"
        pki = machine.folder / "pki"
        pki.mkdir()
        self.authority = Authority(pki)
        self.signing = rsa.generate_private_key(65537, 2048)
        self._admin = self.authority.issue("kubernetes-admin", group="system:masters")
        #: The administrator's kubeconfig; it works on this machine and in pods.
        self.kubeconfig = self.authority.kubeconfig(self.server, "tests-admin", group="system:masters")

    def start(self) -> None:
        """Start all programs and wait until the API server is ready."""
        self._start_etcd()
        self._start_server()
        self.wait()
        self._start_controllers()

    def stop(self, part: str, *, graceful: bool = True) -> None:
        """Stop a program by SIGTERM, or by SIGKILL as in a crash."""
        self._machine.end(part, graceful=graceful)

    def resume(self, part: str) -> None:
        """Start a stopped program again."""
        self._machine.resume(part)

    def wait(self, timeout: float = PATIENCE) -> None:
        """Wait until the API server is ready."""
        errors: list[Exception] = []

        def failure() -> str:
            logs = "\n".join(self._machine.log_tail(part) for part in PARTS[:2])
            return f"the API server does not start: {errors[-1:]}\n{logs}"

        def ready() -> bool:
            assert self._machine.runs("etcd") and self._machine.runs("kube-apiserver"), failure()
            try:
                self.request("GET", "/readyz")
            except (OSError, http.client.HTTPException, ApiError) as error:
                errors[:] = [error]
                return False
            return True

        until(ready, timeout, failure)

    def wait_until_unreachable(self) -> None:
        """Wait until the API server is not ready or does not answer."""

        def unreachable() -> bool:
            try:
                self.request("GET", "/readyz", timeout=5.0)
            except (OSError, http.client.HTTPException, ApiError):
                return True
            return False

        until(unreachable, PATIENCE, "the API server is still ready")

    def request(
        self, verb: str, path: str, body: Any = None, *, kind: str = "application/json", timeout: float = 30.0
    ) -> Any:
        """Send a request as the administrator; return the answer, or raise ApiError."""
        context = ssl.create_default_context(cafile=str(self.authority.path))
        context.load_cert_chain(*self._admin)
        connection = http.client.HTTPSConnection(self._network.control, PORT, timeout=timeout, context=context)
        try:
            headers = {"Content-Type": kind}
            connection.request(verb, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise ApiError(answer.status, f"{verb} {path}: {answer.status} {content.decode(errors='replace')}")
        return json.loads(content) if content[:1] == b"{" else content

    def create(self, path: str, kind: str, name: str, **members: Any) -> Any:
        """Create an object; ``path`` is the path of its collection, from ``/api`` on."""
        group = "/".join(path.split("/")[2:4]) if path.startswith("/apis/") else "v1"
        labels = members.pop("labels", {})
        metadata = {"name": name, "labels": labels}
        return self.request("POST", path, {"apiVersion": group, "kind": kind, "metadata": metadata} | members)

    def _start_etcd(self) -> None:
        client_url, peer_url = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        data = self._machine.folder / "etcd"
        data.mkdir(mode=0o700)
        self._machine.run(
            "etcd",
            self._programs / "etcd",
            f"--data-dir={data}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            f"--unsafe-no-fsync={str(not self._fsync).lower()}",
            "--log-level=warn",
        )

    def _start_server(self) -> None:
        service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        addresses = ["127.0.0.1", self._network.control, self._network.first_service]
        certificate, key = self.authority.issue("apiserver", addresses=addresses, names=[*service, ISSUER[8:]])
        kubelet, kubelet_key = self.authority.issue("apiserver-at-kubelets", group="system:masters")
        signing = write_key(self.authority.folder / "accounts.key", self.signing)
        self._machine.run(
            "kube-apiserver",
            self._programs / "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            "--bind-address=0.0.0.0",
            f"--secure-port={PORT}",
            f"--advertise-address={self._network.control}",
            f"--service-cluster-ip-range={self._network.services}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.authority.path}",
            f"--kubelet-client-certificate={kubelet}",
            f"--kubelet-client-key={kubelet_key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={signing}",
            f"--service-account-signing-key-file={signing}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            # seconds that pods tolerate a lost node; five minutes by default
            f"--default-not-ready-toleration-seconds={self._grace}",
            f"--default-unreachable-toleration-seconds={self._grace}",
            # webhooks are called at their pods' own addresses: there is no kube-proxy on this machine
            "--enable-aggregator-routing=true",
        )

    def _start_controllers(self) -> None:
        def kubeconfig_of(part: str) -> Path:
            return self.authority.kubeconfig(self.server, f"system:{part}")

        # as high as the simulated nodes of a size test need
        flags = ["--leader-elect=false", "--kube-api-qps=2000", "--kube-api-burst=4000", "--bind-address=127.0.0.1"]
        controllers, scheduler = kubeconfig_of("kube-controller-manager"), kubeconfig_of("kube-scheduler")
        self._machine.run(
            "kube-controller-manager",
            self._programs / "kube-controller-manager",
            f"--kubeconfig={controllers}",
            f"--service-account-private-key-file={self.authority.folder / 'accounts.key'}",
            f"--root-ca-file={self.authority.path}",
            f"--cluster-signing-cert-file={self.authority.path}",
            f"--cluster-signing-key-file={self.authority.key}",
            "--use-service-account-credentials=true",
            f"--node-monitor-grace-period={self._grace}s",
            "--node-monitor-period=2s",
            *flags,
        )
        self._machine.run(
            "kube-scheduler",
            self._programs / "kube-scheduler",
            f"--kubeconfig={scheduler}",
            f"--authentication-kubeconfig={scheduler}",
            f"--authorization-kubeconfig={scheduler}",
            *flags,
        )


def claims_of(token: str) -> dict[str, Any]:
    """Decode a token's claims without verification."""
    body = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return claims
