"""Environment zygote: imports an environment once, and forks a process for each scenario from that state.

A scenario's process has no way to change its parent or the next scenario's process: that of a model's scenario has
none either (harness/forking/zygote.py).
"""

import ctypes
import importlib
import json
import mimetypes
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..forking import zygote
from ..forking.scratch import TMP, Scratch

#: The most characters of a reason that the evaluator gets.
REASON = 1000
#: Environment variables of every environment: without its web page, which needs a network.
ENVIRON: Mapping[str, str] = {"ENABLE_WEB_INTERFACE": "false", "GRADIO_ANALYTICS_ENABLED": "False"}


def run(order: Mapping[str, Any], control: socket.socket, *, parent: int, sealed: bool, scratch: bool) -> NoReturn:
    """Import the environment of an order, report it, and serve scenarios until the evaluator is gone.

    ``order``: the `folder` of the environment as a package, its `site` of packages, `app`, and `environ`.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # not inherited by a fork
    if os.getppid() != parent:
        os._exit(1)
    if sealed:
        from ..sandbox import keep_signals_inside

        keep_signals_inside()  # the code that is imported next could otherwise stop the evaluator and the launcher
    try:
        application = load(order)
        from .asgi_connection import AsgiServer  # imports the environment's uvicorn

        server = AsgiServer(application)
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        _report(control, {"error": f"{type(error).__name__}: {error}"[:REASON]})
        os._exit(1)
    _report(control, {"ready": True})
    plan = zygote.ScenarioPlan(
        start=lambda: None,
        serve=lambda connected, first: server.serve(connected),
        announce=lambda code: json.dumps({"ended": code}).encode(),
        sealed=sealed,
        scratch=Scratch(TMP) if scratch else None,
        survives=True,
    )
    zygote.run(control, plan)


def load(order: Mapping[str, Any]) -> Any:
    """Return the ASGI application of an environment, in whose folder this process works from now on.

    Its own modules and packages come after the standard library on the path, so that none replaces a module of it.
    """
    folder = Path(order["folder"])
    sys.path += [str(folder), str(folder.parent), order["site"]]
    os.environ.update({**ENVIRON, **order["environ"]})
    os.chdir(folder)
    mimetypes.knownfiles.clear()  # files of the machine, of which the sandbox shows none
    module, _, attribute = order["app"].partition(":")
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        if "relative import" not in str(error):
            raise
        # The module's `from ..models import` means the whole folder to be a package, as an installation makes it.
        loaded = importlib.import_module(f"{folder.name}.{module}")
    application: Any = loaded
    for name in (attribute or "app").split("."):
        application = getattr(application, name)
    return application


def _report(control: socket.socket, message: Mapping[str, Any]) -> None:
    try:
        control.send(json.dumps(message).encode())
    except OSError:
        os._exit(0)  # the evaluator is gone
