"""Files as people send them: packed; and a dataset of scenarios of one's own."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping

Files = Mapping[str, bytes]

#: What makes files a dataset to be played, and what is played.
MINE = {"title": "Mine", "extends": "noop", "scenarios": "lines.ndjson"}
LINES = b"".join(json.dumps({"name": f"case-{number}"}).encode() + b"\n" for number in range(5))


def tar(files: Files, mode: str = "w:gz") -> bytes:
    """Pack files as tar does."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return packed.getvalue()


def zipped(files: Files) -> bytes:
    """Pack files as zip does."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return packed.getvalue()
