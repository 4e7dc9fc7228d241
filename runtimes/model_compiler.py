"""Model compiler: code for this machine from models of formats that are compiled, made once per node in a sandbox.

A model server compiles by itself what has no such code, or code of another processor or library. A model that cannot
be compiled has none either, so that its model server says why, in the words of its format.
"""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from runtimes import harness
from runtimes.converters import confined_converter
from runtimes.converters.confined_converter import ConverterLimits
from runtimes.environments import Environment
from runtimes.harness.models.base import CODE

logger = logging.getLogger(__name__)

#: Bytes of a model from which its code is made before its launch: less is compiled in a moment.
COMPILED_FROM = 1 << 20
#: Seconds of a compilation at most, and bytes of the code.
SECONDS, LARGEST = 1800.0, 1 << 30
#: The folder above the harness may not be listed there, so the package is loaded by its file.
_BOOT = """
import importlib.util, sys
folder, site = sys.argv[1:3]
del sys.argv[1:3]
sys.path.insert(0, site)
spec = importlib.util.spec_from_file_location("harness", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["harness"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["harness"])
from harness.models.code_compiler import main
main()
"""
_HARNESS = str(Path(harness.__file__).parent)


def toolchain_of(format: str, environment: Environment) -> str:
    """Return the name of what compiles models of a format: equal files have equal code with it, on equal processors."""
    return f"{format} {environment.digest}"


def compile_model(
    format: str, file: Path, folder: Path, *, site: Path, sandbox: bool, report: Callable[[], None]
) -> None:
    """Write the code of a model to ``folder``, if it can be compiled. ``site``: the packages of the format.

    ``report`` is called several times a second; if it raises, the compilation is ended.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".compiled-") as name:
        workspace = Path(name)
        workspace.chmod(0o755)
        command = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", _BOOT, _HARNESS, str(site)]
        result = confined_converter.run(
            [*command, format, str(file), str(workspace / CODE)],
            folder=workspace,
            readonly=(site, file),
            environ={},
            limits=ConverterLimits(largest_file=LARGEST, seconds=SECONDS, sandbox=sandbox),
            report=report,
        )
        code = workspace / CODE
        if result.code == 0 and not result.timed_out and code.is_file() and not code.is_symlink():
            shutil.copyfile(code, folder / CODE, follow_symlinks=False)
            (folder / CODE).chmod(0o444)  # model servers have users of their own
            return
    reason = "it took too long" if result.timed_out else " ".join(result.lines[-3:]) or f"exit status {result.code}"
    logger.warning("a model of format %s is not compiled before its launch: %s", format, reason)
