"""Code compiler: a program that compiles a model of one format to code for this machine, before its first scenario.

``python -c "...; from harness.models.code_compiler import main; main()" FORMAT FILE TARGET``.
"""

import importlib
import sys
from pathlib import Path

from .base import ModelFormat


def main() -> None:
    """Compile a file as the command line says; a model that cannot be compiled ends the program with the reason."""
    name, file, target = sys.argv[1:]
    format: ModelFormat = importlib.import_module(f"{__package__}.{name}").FORMAT
    assert format.compile is not None
    Path(target).write_bytes(format.compile(Path(file).read_bytes()))
