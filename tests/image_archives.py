"""Archives of images as container runtimes read them."""

import json
import tarfile
from pathlib import Path
from typing import IO, Any


def unpack(path: Path, folder: Path) -> dict[str, Any]:
    """Unpack an archive's image into a folder, as a container runtime does; return its configuration."""
    with tarfile.open(path) as outer:

        def blob(digest: str) -> IO[bytes]:
            file = outer.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert file is not None
            return file

        index = outer.extractfile("index.json")
        assert index is not None
        listed = json.load(blob(json.load(index)["manifests"][0]["digest"]))
        for layer in listed["layers"]:
            with tarfile.open(fileobj=blob(layer["digest"]), mode="r|*") as inner:
                # Set as an attribute, because Python 3.11.2 has neither the filter nor the `filter` argument.
                inner.extraction_filter = getattr(tarfile, "tar_filter", lambda member, _: member)
                inner.extractall(folder)
        config: dict[str, Any] = json.load(blob(listed["config"]["digest"]))["config"]
        return config
