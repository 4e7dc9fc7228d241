"""Debian packages made by hand, and a mirror of them in a folder, whose index may be signed."""

import hashlib
import io
import lzma
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def entry(name: str, content: bytes = b"", mode: int = 0o644, **members: object) -> tuple[tarfile.TarInfo, bytes]:
    """Return a member of a tar: a file, or what ``type`` and ``linkname`` say."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    for key, value in members.items():
        setattr(info, key, value)
    return info, content


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    """Return a folder as a member of a tar."""
    return entry(name, mode=0o755, type=tarfile.DIRTYPE)


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    """Return a symbolic link as a member of a tar."""
    return entry(name, type=tarfile.SYMTYPE, linkname=target)


def deb(path: Path, *entries: tuple[tarfile.TarInfo, bytes], postinst: str = "") -> Path:
    """Write a package's file."""
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": _tar([entry("./postinst", postinst.encode(), 0o755)] if postinst else []),
        "data.tar.xz": _tar(entries),
    }
    with open(path, "wb") as file:
        file.write(b"!<arch>\n")
        for name, content in parts.items():
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode())
            file.write(content + b"\n" * (len(content) % 2))
    return path


def _tar(entries: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", format=tarfile.GNU_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


class Mirror:
    """A mirror of packages in a folder, with an index that a key of its own signs. Needs gpg."""

    def __init__(self, root: Path, suite: str = "bookworm") -> None:
        self.root, self.suite = root, suite
        self._home = root / "gpg"
        self._home.mkdir(parents=True, mode=0o700)
        self._gpg("--quick-generate-key", "mirror@example.org", "ed25519", "sign", "never")
        self.keyring = root / "keyring.gpg"
        self.keyring.write_bytes(self._gpg("--export"))
        self._stanzas: list[str] = []

    def _gpg(self, *arguments: str) -> bytes:
        command = ["gpg", "--homedir", str(self._home), "--batch", "--passphrase", "", "--pinentry-mode", "loopback"]
        return subprocess.run([*command, *arguments], check=True, capture_output=True).stdout

    def add(self, name: str, version: str, *entries: tuple[tarfile.TarInfo, bytes], **fields: str) -> Path:
        """Add a package; ``fields``: of its stanza, such as ``Depends``; ``postinst``: its script."""
        pool = self.root / "pool/main"
        pool.mkdir(parents=True, exist_ok=True)
        path = deb(pool / f"{name}_{version}.deb", *entries, postinst=fields.pop("postinst", ""))
        content = path.read_bytes()
        listed: Mapping[str, object] = {
            "Package": name,
            "Version": version,
            "Filename": str(path.relative_to(self.root)),
            "SHA256": hashlib.sha256(content).hexdigest(),
            "Size": len(content),
            **{key.replace("_", "-"): value for key, value in fields.items()},
        }
        self._stanzas.append("".join(f"{key}: {value}\n" for key, value in listed.items()))
        return path

    def sign(self, architecture: str) -> Path:
        """Write the index and sign it; return the path of InRelease."""
        packed = lzma.compress("\n".join(self._stanzas).encode())
        sha256 = hashlib.sha256(packed).hexdigest()
        release = self.root / "dists" / self.suite
        by_hash = release / f"main/binary-{architecture}/by-hash/SHA256"
        by_hash.mkdir(parents=True, exist_ok=True)
        (by_hash / sha256).write_bytes(packed)
        listed = f" {sha256} {len(packed)} main/binary-{architecture}/Packages.xz"
        text = f"Suite: stable\nCodename: {self.suite}\nSHA256:\n{listed}\n"
        (release / "Release").write_text(text)
        (release / "InRelease").unlink(missing_ok=True)
        self._gpg("--clearsign", "--output", str(release / "InRelease"), str(release / "Release"))
        return release / "InRelease"


def has_gpg() -> bool:
    """Return whether keys can be made and signatures verified here."""
    return shutil.which("gpg") is not None and shutil.which("gpgv") is not None
