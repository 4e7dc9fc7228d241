"""Package index: the packages of a suite as a mirror lists them, verified by the archive's signature.

The signature is of InRelease, which has the SHA-256 of each Packages file, which has that of each package. `gpgv`
verifies it with the keyring of the operator's choice; nothing of an index is read before that.
"""

import contextlib
import hashlib
import lzma
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from runtimes.environments import CannotPrepare, IndexUnavailable
from runtimes.packages.package_closure import IndexedPackage, PackageSet, parse_dependencies

#: Most bytes of InRelease, of a compressed Packages file, and of it unpacked.
LARGEST_RELEASE, LARGEST_PACKED_INDEX, LARGEST_INDEX = 4 << 20, 64 << 20, 512 << 20
#: Seconds until a mirror must answer, and that the check of a signature takes at most.
TIMEOUT, CHECK_TIMEOUT = 30.0, 30.0
CHUNK = 256 << 10
_SIGNED_HEADER = b"-----BEGIN PGP SIGNED MESSAGE-----\n"


class BadSignature(CannotPrepare):
    """An index is not signed by a key of the keyring, or a file is not the one that is signed."""


def download(mirrors: Sequence[str], path: str, *, largest: int) -> Iterator[bytes]:
    """Yield the bytes of a file from the first mirror that has it. Raise IndexUnavailable or CannotPrepare."""
    problem: CannotPrepare = CannotPrepare("there is no mirror of packages (WINDTUNNEL_DEBIAN_MIRRORS is empty)")
    for mirror in mirrors:
        try:
            with httpx.stream("GET", f"{mirror.rstrip('/')}/{path}", timeout=TIMEOUT, follow_redirects=True) as answer:
                if answer.status_code != 200:
                    kind = IndexUnavailable if answer.status_code >= 500 or answer.status_code == 429 else CannotPrepare
                    problem = kind(f"{mirror} answered {answer.status_code} for {path}")
                    continue
                received = 0
                for chunk in answer.iter_bytes(CHUNK):
                    received += len(chunk)
                    if received > largest:
                        raise CannotPrepare(f"{path} of {mirror} has more than {largest:,} bytes")
                    yield chunk
                return
        except httpx.HTTPError as error:
            problem = IndexUnavailable(f"{mirror} does not answer: {error}")
    raise problem


@dataclass(frozen=True, slots=True)
class SignedIndex:
    """The Packages file of a suite that its signed release names, before it is read."""

    mirrors: Sequence[str]
    suite: str
    name: str
    path: str
    sha256: str
    size: int

    def read(self) -> PackageSet:
        """Return its packages. Raise BadSignature, IndexUnavailable or CannotPrepare."""
        packed = b"".join(download(self.mirrors, self.path, largest=min(self.size, LARGEST_PACKED_INDEX)))
        if hashlib.sha256(packed).hexdigest() != self.sha256:
            raise BadSignature(f"{self.name} of the suite {self.suite} is not the file that its signed index names")
        inflater = lzma.LZMADecompressor()
        text = inflater.decompress(packed, LARGEST_INDEX)
        if not inflater.eof:
            raise CannotPrepare(f"{self.name} of the suite {self.suite} has more than {LARGEST_INDEX:,} bytes")
        return PackageSet(_packages(text.decode()))


def find_index(mirrors: Sequence[str], keyring: Path, *, suite: str, component: str, architecture: str) -> SignedIndex:
    """Return the index of a suite. Raise BadSignature, IndexUnavailable or CannotPrepare."""
    release = b"".join(download(mirrors, f"dists/{suite}/InRelease", largest=LARGEST_RELEASE))
    hashes = _hashes(signed_text(release, keyring), suite)
    name = f"{component}/binary-{architecture}/Packages.xz"
    if name not in hashes:
        raise CannotPrepare(f"the suite {suite} has no {name}")
    sha256, size = hashes[name]
    # By its hash: the file of that name may be of a later release than InRelease.
    path = f"dists/{suite}/{component}/binary-{architecture}/by-hash/SHA256/{sha256}"
    return SignedIndex(mirrors, suite, name, path, sha256, size)


def signed_text(release: bytes, keyring: Path) -> str:
    """Return the text that is signed in an InRelease file. Raise BadSignature, or CannotPrepare without `gpgv`.

    The text comes from gpgv, so that nothing beside the signed part is taken for it.
    """
    gpgv = shutil.which("gpgv")
    if gpgv is None or not keyring.is_file():
        missing = "the program gpgv" if gpgv is None else f"the keyring {keyring} (WINDTUNNEL_DEBIAN_KEYRING)"
        raise CannotPrepare(
            f"the signature of the package index cannot be verified without {missing}; install gpgv and"
            " debian-archive-keyring. Cases that have a lock do not need it"
        )
    if not release.startswith(_SIGNED_HEADER):
        raise BadSignature("the package index has no signature")
    with tempfile.TemporaryDirectory(prefix="index-") as folder:
        source, verified = Path(folder, "InRelease"), Path(folder, "Release")
        source.write_bytes(release)
        command = [gpgv, "--keyring", str(keyring), "--output", str(verified), str(source)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_TIMEOUT, check=False)
        if result.returncode or not verified.is_file():
            reason = " ".join(result.stderr.split())[-300:]
            raise BadSignature(f"the signature of the package index is not valid: {reason}")
        return verified.read_text()


def _hashes(release: str, suite: str) -> Mapping[str, tuple[str, int]]:
    """Return SHA-256 and bytes of the files that a release lists."""
    names = {
        line.partition(":")[2].strip() for line in release.splitlines() if line.startswith(("Suite:", "Codename:"))
    }
    if suite not in names:  # a mirror could answer with another suite, which is signed too
        raise BadSignature(f"the signed index is of {' or '.join(sorted(names))}, and {suite} was asked for")
    listed = re.search(r"^SHA256:\n((?: .*\n?)+)", release, re.MULTILINE)
    hashes = {}
    for line in listed[1].splitlines() if listed else ():
        sha256, size, name = line.split()
        hashes[name] = (sha256, int(size))
    return hashes


def _packages(text: str) -> Iterator[IndexedPackage]:
    for stanza in text.split("\n\n"):
        fields = _fields(stanza)
        if not {"Package", "Version", "Filename", "SHA256", "Size"} <= fields.keys():
            continue
        with contextlib.suppress(ValueError):  # a package with a dependency of a later syntax cannot be chosen
            depends = parse_dependencies(", ".join(filter(None, (fields.get("Pre-Depends"), fields.get("Depends")))))
            provides = [group[0] for group in parse_dependencies(fields.get("Provides", ""))]
            yield IndexedPackage(
                name=fields["Package"],
                version=fields["Version"],
                path=fields["Filename"],
                sha256=fields["SHA256"],
                size=int(fields["Size"]),
                essential=fields.get("Essential") == "yes",
                depends=depends,
                provides={each.name: each.version for each in provides},
            )


def _fields(stanza: str) -> Mapping[str, str]:
    """Return the fields of a stanza; continued lines are joined."""
    unfolded = re.sub(r"\n[ \t]+", " ", stanza)
    return {
        name: value.strip() for name, colon, value in (line.partition(":") for line in unfolded.splitlines()) if colon
    }
