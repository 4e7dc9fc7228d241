"""Small images for the test cluster: one layer with a few programs, in an archive that a container runtime imports."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def write_image(
    target: Path, name: str, programs: Mapping[str, Path], *, entry: Sequence[str], user: str = "", sh: bool = False
) -> Path:
    """Write an image of these programs, by their paths in it; with ``sh``, busybox and its applets' names."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for folder, mode in (("tmp", 0o1777), ("etc", 0o755), ("bin", 0o755)):
            directory = tarfile.TarInfo(folder)
            directory.type, directory.mode = tarfile.DIRTYPE, mode
            archive.addfile(directory)
        add(archive, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\nuser:x:10001:10001:user:/:/bin/sh\n", 0o644)
        for path, program in programs.items():
            add(archive, path, program.read_bytes(), 0o755)
        if sh:
            add(archive, "bin/busybox", Path("/bin/busybox").read_bytes(), 0o755)
            for applet in "sh ls cat echo sleep env hostname id true false kill dd touch test head tail".split():
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
    settings = {"Entrypoint": list(entry), "Env": ["PATH=/bin"], "User": user, "WorkingDir": "/"}
    digest = "sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": os.uname().machine.replace("x86_64", "amd64").replace("aarch64", "arm64"),
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    blobs: dict[str, bytes] = {}

    def put(kind: str, content: bytes) -> dict[str, object]:
        checksum = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{checksum}"] = content
        return {"mediaType": kind, "digest": f"sha256:{checksum}", "size": len(content)}

    layers = [put(LAYER, layer.getvalue())]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": put(CONFIG, json_bytes(config)), "layers": layers}
    descriptor = put(MANIFEST, json_bytes(manifest)) | {"annotations": {"io.containerd.image.name": name}}
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    with tarfile.open(partial, "w") as archive:
        add(archive, "oci-layout", json_bytes({"imageLayoutVersion": "1.0.0"}))
        add(archive, "index.json", json_bytes({"schemaVersion": 2, "manifests": [descriptor]}))
        for path, content in blobs.items():
            add(archive, path, content)
    partial.rename(target)
    return target


def add(archive: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file to an archive."""
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def json_bytes(document: object) -> bytes:
    """Return a document as bytes."""
    return json.dumps(document).encode()
