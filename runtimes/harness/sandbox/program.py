"""Confined program: a process that confines itself and is then replaced by a program, such as the package installer.

``python -c "...; from harness.sandbox.program import main; main()"`` reads a JSON object from its standard input, with
the members ``command`` (a list), ``environ`` and ``confinement`` (fields of Confinement). A program with a listener
sends its HTTP requests to it. Nothing of this is on the command line, which every user of the machine may read.
"""

import json
import os
import sys

from . import Confinement, Unconfined, confine


def main() -> None:
    """Confine this process as the standard input says, and execute the program."""
    options = json.load(sys.stdin)
    environ: dict[str, str] = dict(options["environ"])
    try:
        report = confine(Confinement(**options["confinement"]))
    except Unconfined as error:
        sys.exit(str(error))
    if report.port is not None:
        address = f"http://127.0.0.1:{report.port}"
        environ |= {"HTTP_PROXY": address, "HTTPS_PROXY": address, "http_proxy": address, "https_proxy": address}
    command = options["command"]
    os.execve(command[0], command, {**os.environ, **environ})
