"""OCI image files: build layers from folders, and archives from layers.

The same folder gives the same bytes: entries are sorted, owned by root, with modification time 0.
Archives follow OCI image layout 1.0 and also contain Docker's manifest.json.
"""

import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
#: Files of at least this size (bytes) are deduplicated within a layer by hard links.
LARGE = 1 << 16
OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's file. ``diff`` is the SHA-256 of its tar, ``digest`` of the file, gzip-compressed if ``packed``."""

    path: Path
    diff: str
    digest: str
    size: int
    packed: bool


class _Sink:
    """Writes to a file, counts and hashes the bytes, and compresses them if ``pack``."""

    def __init__(self, file: IO[bytes], pack: bool) -> None:
        self._file = file
        # the gzip module writes a time into the header; zlib's gzip format does not
        self._pack = zlib.compressobj(6, zlib.DEFLATED, 31) if pack else None
        self.diff, self.digest, self.size = hashlib.sha256(), hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.diff.update(data)
        self._put(self._pack.compress(data) if self._pack else data)
        return len(data)

    def close(self) -> None:
        if self._pack:
            self._put(self._pack.flush())

    def _put(self, data: bytes) -> None:
        self.digest.update(data)
        self.size += len(data)
        self._file.write(data)


def write(folder: Path, path: Path, *, packed: bool) -> Layer:
    """Write a layer with the whole content of a folder."""
    with open(path, "wb") as file:
        sink = _Sink(file, packed)
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
            _add(tar, folder, "", {})
        sink.close()
    return Layer(path=path, diff=sink.diff.hexdigest(), digest=sink.digest.hexdigest(), size=sink.size, packed=packed)


def _add(tar: tarfile.TarFile, folder: Path, prefix: str, names_by_digest: dict[tuple[int, str], str]) -> None:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        header = tarfile.TarInfo(prefix + entry.name)
        mode = entry.stat(follow_symlinks=False).st_mode
        if entry.is_symlink():
            header.type, header.linkname = tarfile.SYMTYPE, os.readlink(entry.path)
            tar.addfile(header)
        elif entry.is_dir():
            header.type, header.mode = tarfile.DIRTYPE, 0o755 | (mode & 0o1022)
            tar.addfile(header)
            _add(tar, Path(entry.path), f"{header.name}/", names_by_digest)
        else:
            header.mode, header.size = 0o755 if mode & 0o111 else 0o644, entry.stat().st_size
            with open(entry.path, "rb") as file:
                if header.size >= LARGE:  # several environments in a layer contain the same libraries
                    same = (header.mode, hashlib.file_digest(file, "sha256").hexdigest())
                    header.linkname = names_by_digest.setdefault(same, header.name)
                    if header.linkname != header.name:
                        header.type, header.size = tarfile.LNKTYPE, 0
                    else:
                        header.linkname = ""
                    file.seek(0)
                tar.addfile(header, None if header.islnk() else file)


def manifest(layers: Sequence[Layer], config: Mapping[str, Any], machine: str) -> tuple[bytes, bytes]:
    """Return an image's manifest and its configuration, as JSON."""
    document = {
        "architecture": machine,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.diff}" for layer in layers]},
    }
    configuration = _json(document)
    listed = [
        {
            "mediaType": f"{OCI}.layer.v1.tar{'+gzip' * layer.packed}",
            "digest": f"sha256:{layer.digest}",
            "size": layer.size,
        }
        for layer in layers
    ]
    descriptor = {
        "mediaType": f"{OCI}.config.v1+json",
        "digest": f"sha256:{_sha(configuration)}",
        "size": len(configuration),
    }
    header_fields = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json"}
    return _json({**header_fields, "config": descriptor, "layers": listed}), configuration


def archive(path: Path, reference: str, layers: Sequence[Layer], manifest: bytes, config: bytes) -> None:
    """Write an archive for ``ctr images import``, ``docker load`` and skopeo; ``reference`` is ``name:tag``.

    Kubernetes resolves a name without a registry under docker.io/library, as Docker does.
    """
    name, _, tag = reference.rpartition(":")
    full = reference if "/" in name else f"docker.io/library/{reference}"
    annotations = {"io.containerd.image.name": full, "org.opencontainers.image.ref.name": tag}
    entry = {"mediaType": f"{OCI}.manifest.v1+json", "digest": f"sha256:{_sha(manifest)}", "size": len(manifest)}
    index = _json(
        {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [{**entry, "annotations": annotations}]}
    )
    docker = {
        "Config": _blob(_sha(config)),
        "RepoTags": [reference],
        "Layers": [_blob(layer.digest) for layer in layers],
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with tarfile.open(draft, "w") as tar:
        _put(tar, "oci-layout", LAYOUT)
        _put(tar, "index.json", index)
        _put(tar, "manifest.json", _json([docker]))
        _put(tar, _blob(_sha(manifest)), manifest)
        _put(tar, _blob(_sha(config)), config)
        for layer in {layer.digest: layer for layer in layers}.values():
            header = tarfile.TarInfo(_blob(layer.digest))
            header.size = layer.size
            with open(layer.path, "rb") as file:
                tar.addfile(header, file)
    draft.rename(path)


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    header = tarfile.TarInfo(name)
    header.size = len(content)
    tar.addfile(header, io.BytesIO(content))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
