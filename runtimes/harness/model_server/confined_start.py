"""Confined start of a model server: the process is confined before any file of its packages is read.

A model's packages are as untrusted as the model. They come after the standard library on the path, so that none of
them replaces a module of it, and onto the path only in the sandbox: `numpy` and `msgspec` are theirs too.
"""

import ctypes
import json
import os
import secrets
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..forking.scratch import TMP


def main() -> None:
    """Confine this process, put its packages on the path, and serve an evaluator."""
    options = json.loads(sys.argv[1])
    scratch, sealed = _confine(options.get("confinement"), fork=options["isolation"] == "scenario")
    sys.path.append(options["site"])
    from .model_server import serve  # imports numpy and msgspec, which are the model's

    serve(options, scratch, sealed=sealed)


def _confine(options: dict[str, Any] | None, *, fork: bool) -> tuple[Path | None, bool]:
    """Confine this process; return the folder a model may write to, if any, and whether the sandbox must be sealed."""
    if options is None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        return Path(tempfile.gettempdir()) / f"model-{os.getpid()}-{secrets.token_hex(4)}", False
    from ..sandbox import Confinement, confine

    fields = dict(options)
    fields["readonly"] = tuple(fields.get("readonly", ()))
    fields["keep"] = tuple(fields.get("keep", ()))
    report = confine(Confinement(**{"may_fork": fork, **fields}))
    return TMP if report.level == 3 else None, report.level > 1
