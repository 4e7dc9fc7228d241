"""Confined start of a model server: the process is confined before any file of its packages is read.

A model's packages are as untrusted as the model. They come after the standard library on the path, so that none of
them replaces a module of it, and onto the path only in the sandbox. Packages that a model has declared come onto it
only in the process of a scenario, once that is sealed: code of theirs in the zygote could carry something from one
scenario to the next. The zygote imports the platform's own packages, which are in a folder of their own.
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
from ..models.base import format_named
from . import bare_zygote
from .start import Start


def main() -> None:
    """Confine this process, put its packages on the path, and serve an evaluator."""
    options = json.loads(sys.argv[1])
    fork, packages = options["isolation"] == "scenario", options["packages"]
    scratch, sealed = _confine(options.get("confinement"), fork=fork)
    sys.path.append(options["site"])
    start = Start(options=options, scratch=scratch, sealed=sealed, packages=packages)
    if packages and not format_named(options["format"]).dependencies:
        start.extend_path()  # what a format needs is the platform's choice, and not the model's
    elif packages and not fork:
        start.seal()
        start.extend_path()
    elif packages and bare_zygote.is_needed(options["site"]):
        bare_zygote.serve(start)
        return
    from .model_server import serve  # imports numpy and msgspec

    serve(start)


def _confine(options: dict[str, Any] | None, *, fork: bool) -> tuple[Path | None, bool]:
    """Confine this process; return the folder a model may write to, if any, and whether the sandbox must be sealed."""
    if options is None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        return Path(tempfile.gettempdir()) / f"model-{os.getpid()}-{secrets.token_hex(4)}", False
    from ..sandbox import Confinement, confine

    report = confine(Confinement(**{"may_fork": fork, **options}))
    return TMP if report.level == 3 else None, report.level > 1
