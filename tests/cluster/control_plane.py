"""A real Kubernetes API server with its etcd, of one test session: own certificates, own ports, data in a folder."""

import base64
import http.client
import json
import os
import ssl
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.system.house import die_with, free_ports

ISSUER = "https://kubernetes.default.svc.cluster.local"
#: Seconds that starting may take on a busy machine; it takes three on an idle one.
PATIENCE = 180.0
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """A certificate authority of this session's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        self._certificate = (
            self._begin(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / "ca.crt"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, group: str = "", addresses: Sequence[str] = ()) -> tuple[Path, Path]:
        """Write a certificate and its key; return both paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if group:
            parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        alternatives: list[x509.GeneralName] = [x509.DNSName("localhost")]
        alternatives += [x509.IPAddress(ip_address(address)) for address in addresses]
        certificate = (
            self._begin(x509.Name(parts), key)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(usage(signs=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        path = self.folder / f"{name}.crt"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path, write_key(self.folder / f"{name}.key", key)

    def _begin(self, subject: x509.Name, key: Key) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )


def usage(*, signs: bool) -> x509.KeyUsage:
    """Return what a key may be used for: an authority's signs certificates, another's only proves itself."""
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def write_key(path: Path, key: Key) -> Path:
    """Write a private key for its owner alone."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


class Refused(Exception):
    """The API server said no."""


class ControlPlane:
    """etcd and kube-apiserver; a context manager. There are no controllers and no nodes: what is made, stays."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self.folder = programs, folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port, *self._ports = free_ports(3)
        self.server = f"https://127.0.0.1:{self.port}"
        self.authority = Authority(folder)
        self.signing = rsa.generate_private_key(65537, 2048)
        self._admin = self.authority.issue("admin", group="system:masters")

    def __enter__(self) -> "ControlPlane":
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def request(self, verb: str, path: str, body: Any = None) -> Any:
        """Ask as the administrator; return the answer, or raise Refused."""
        context = ssl.create_default_context(cafile=str(self.authority.path))
        context.load_cert_chain(*self._admin)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(verb, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise Refused(f"{verb} {path}: {answer.status} {content.decode(errors='replace')}")
        return json.loads(content) if content[:1] == b"{" else content

    def make(self, path: str, kind: str, name: str, **members: Any) -> Any:
        """Create an object; ``path`` is its collection's, from ``/api`` on."""
        group = "/".join(path.split("/")[2:4]) if path.startswith("/apis/") else "v1"
        labels = members.pop("labels", {})
        metadata = {"name": name, "labels": labels}
        return self.request("POST", path, {"apiVersion": group, "kind": kind, "metadata": metadata} | members)

    def _start(self) -> None:
        etcd, peers = (f"http://127.0.0.1:{port}" for port in self._ports)
        self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync=true",
            "--log-level=warn",
        )
        certificate, key = self.authority.issue("apiserver", addresses=["127.0.0.1", "10.96.0.1"])
        signing = write_key(self.folder / "accounts.key", self.signing)
        self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            # loopback may not be announced to a cluster, and there is nobody to announce anything to
            "--advertise-address=192.0.2.1",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.authority.path}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={signing}",
            f"--service-account-signing-key-file={signing}",
            "--authorization-mode=RBAC",
        )
        self._wait()

    def _run(self, program: str, *arguments: str) -> None:
        parent = os.getpid()
        with open(self.folder / f"{program}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(self._programs / program), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    preexec_fn=lambda: die_with(parent),
                )
            )

    def _wait(self) -> None:
        ends = time.monotonic() + PATIENCE
        said: Exception | None = None
        while time.monotonic() < ends and all(process.poll() is None for process in self._processes):
            try:
                self.request("GET", "/readyz")
                return
            except (OSError, http.client.HTTPException, Refused) as error:
                said = error
                time.sleep(0.2)
        logs = "\n".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("*.log"))
        raise RuntimeError(f"the API server does not start: {said}\n{logs}")

    def _end(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def claims_of(token: str) -> dict[str, Any]:
    """Read what a token says, without asking whether it is true."""
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found
