"""Certificates of a test cluster: its certificate authority, certificates and kubeconfigs."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """The certificate authority of one test session."""

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
        self.key = write_key(folder / "ca.key", self._key)

    def issue(
        self, name: str, *, group: str = "", addresses: Sequence[str] = (), names: Sequence[str] = ()
    ) -> tuple[Path, Path]:
        """Write a certificate and its key; return both paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if group:
            parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        alternatives: list[x509.GeneralName] = [x509.DNSName(host) for host in ("localhost", *names)]
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

    def kubeconfig(self, server: str, name: str, *, group: str = "") -> Path:
        """Issue a client certificate and write a kubeconfig that contains it."""
        certificate, key = self.issue(name, group=group)
        cluster = {"server": server, "certificate-authority-data": encoded(self.path)}
        user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": name}}],
            "current-context": "tests",
        }
        path = self.folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=1))
        return path

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
    """Return the key usage extension: an authority's key signs certificates, other keys only authenticate."""
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
    """Write a private key that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def encoded(path: Path) -> str:
    """Return a file's content in base64, as kubeconfigs contain it."""
    return base64.b64encode(path.read_bytes()).decode()
