"""OCI images as plain files: layers from folders, archives from layers, and folders from archives again.

The same folder gives the same bytes: sorted, owned by root, of no time.
Archives are of the OCI image layout 1.0, with Docker's own table of contents beside it.
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
#: Bytes of a file from which it is looked for among those before it.
LARGE = 1 << 16
OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's file. ``diff`` is the digest of its tar, ``digest`` that of the file as it lies, perhaps packed."""

    path: Path
    diff: str
    digest: str
    size: int
    packed: bool


class _Sink:
    """Counts and hashes what goes by, and packs it on the way if told so."""

    def __init__(self, file: IO[bytes], pack: bool) -> None:
        self._file = file
        # gzip's header has a time in it; zlib's gzip has none
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
    """Make a layer of everything in a folder."""
    with open(path, "wb") as file:
        sink = _Sink(file, packed)
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
            _add(tar, folder, "", {})
        sink.close()
    return Layer(path, sink.diff.hexdigest(), sink.digest.hexdigest(), sink.size, packed)


def _add(tar: tarfile.TarFile, folder: Path, prefix: str, seen: dict[tuple[int, str], str]) -> None:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        told = tarfile.TarInfo(prefix + entry.name)
        mode = entry.stat(follow_symlinks=False).st_mode
        if entry.is_symlink():
            told.type, told.linkname = tarfile.SYMTYPE, os.readlink(entry.path)
            tar.addfile(told)
        elif entry.is_dir():
            told.type, told.mode = tarfile.DIRTYPE, 0o755 | (mode & 0o1022)
            tar.addfile(told)
            _add(tar, Path(entry.path), f"{told.name}/", seen)
        else:
            told.mode, told.size = 0o755 if mode & 0o111 else 0o644, entry.stat().st_size
            with open(entry.path, "rb") as file:
                if told.size >= LARGE:  # several environments in one layer bring the same libraries
                    same = (told.mode, hashlib.file_digest(file, "sha256").hexdigest())
                    told.linkname = seen.setdefault(same, told.name)
                    if told.linkname != told.name:
                        told.type, told.size = tarfile.LNKTYPE, 0
                    else:
                        told.linkname = ""
                    file.seek(0)
                tar.addfile(told, None if told.islnk() else file)


def manifest(layers: Sequence[Layer], config: Mapping[str, Any], machine: str) -> tuple[bytes, bytes]:
    """Return an image's manifest and its configuration."""
    whole = {
        "architecture": machine,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one.diff}" for one in layers]},
    }
    told = _json(whole)
    listed = [
        {"mediaType": f"{OCI}.layer.v1.tar{'+gzip' * one.packed}", "digest": f"sha256:{one.digest}", "size": one.size}
        for one in layers
    ]
    described = {"mediaType": f"{OCI}.config.v1+json", "digest": f"sha256:{_sha(told)}", "size": len(told)}
    kind = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json"}
    return _json({**kind, "config": described, "layers": listed}), told


def archive(path: Path, reference: str, layers: Sequence[Layer], manifest: bytes, config: bytes) -> None:
    """Write an archive that ``ctr images import``, ``docker load`` and skopeo take; ``reference`` is ``name:tag``.

    Kubernetes looks for a name without a registry under docker.io/library, where Docker itself puts it.
    """
    name, _, tag = reference.rpartition(":")
    full = reference if "/" in name else f"docker.io/library/{reference}"
    noted = {"io.containerd.image.name": full, "org.opencontainers.image.ref.name": tag}
    entry = {"mediaType": f"{OCI}.manifest.v1+json", "digest": f"sha256:{_sha(manifest)}", "size": len(manifest)}
    index = _json(
        {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [{**entry, "annotations": noted}]}
    )
    docker = {"Config": _blob(_sha(config)), "RepoTags": [reference], "Layers": [_blob(one.digest) for one in layers]}
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with tarfile.open(draft, "w") as tar:
        _put(tar, "oci-layout", LAYOUT)
        _put(tar, "index.json", index)
        _put(tar, "manifest.json", _json([docker]))
        _put(tar, _blob(_sha(manifest)), manifest)
        _put(tar, _blob(_sha(config)), config)
        for one in {one.digest: one for one in layers}.values():
            told = tarfile.TarInfo(_blob(one.digest))
            told.size = one.size
            with open(one.path, "rb") as file:
                tar.addfile(told, file)
    draft.rename(path)


def unpack(path: Path, folder: Path) -> dict[str, Any]:
    """Lay an archive's image under a folder, as a runtime would; return its configuration."""
    with tarfile.open(path) as outer:

        def blob(digest: str) -> IO[bytes]:
            found = outer.extractfile(_blob(digest.removeprefix("sha256:")))
            assert found is not None
            return found

        index = outer.extractfile("index.json")
        assert index is not None
        listed = json.load(blob(json.load(index)["manifests"][0]["digest"]))
        for one in listed["layers"]:
            with tarfile.open(fileobj=blob(one["digest"]), mode="r|*") as inner:
                # By this name, because Python 3.11.2 has neither the filter nor the argument.
                inner.extraction_filter = getattr(tarfile, "tar_filter", lambda member, _: member)
                inner.extractall(folder)
        config: dict[str, Any] = json.load(blob(listed["config"]["digest"]))["config"]
        return config


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    told = tarfile.TarInfo(name)
    told.size = len(content)
    tar.addfile(told, io.BytesIO(content))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
