"""Archives that users upload, and the files of a user's dataset."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping

Files = Mapping[str, bytes]

#: The description of a user's dataset, and its scenarios.
MINE = {"title": "Mine", "extends": "noop", "scenarios": "lines.ndjson"}
LINES = b"".join(json.dumps({"name": f"case-{number}"}).encode() + b"\n" for number in range(5))


def tar(files: Files, mode: str = "w:gz") -> bytes:
    """Return a tar archive of files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return buffer.getvalue()


def zipped(files: Files) -> bytes:
    """Return a zip archive of files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return buffer.getvalue()
