"""Confined program: a process that confines itself and is then replaced by a program, such as the package installer.

``python -c "...; from harness.sandbox.program import main; main()" JSON`` with the members ``command`` (a list),
``environ``, ``confinement`` (fields of Confinement; null: not confined) and ``proxy`` (whether the program's HTTP
requests go to the listener).
"""

import json
import os
import sys

from . import Confinement, Unconfined, confine


def main() -> None:
    """Confine this process as the command line says, and execute the program."""
    options = json.loads(sys.argv[1])
    environ: dict[str, str] = dict(options["environ"])
    fields = dict(options["confinement"])
    for name in ("readonly", "writable", "keep"):
        fields[name] = tuple(fields.get(name, ()))
    try:
        report = confine(Confinement(**fields))
    except Unconfined as error:
        sys.exit(str(error))
    if report.port is not None:
        address = f"http://127.0.0.1:{report.port}"
        environ |= {"HTTP_PROXY": address, "HTTPS_PROXY": address, "http_proxy": address, "https_proxy": address}
    command = options["command"]
    os.execve(command[0], command, {**os.environ, **environ})
