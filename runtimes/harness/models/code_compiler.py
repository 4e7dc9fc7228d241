"""Code compiler: a program that compiles a model of one format to code for this machine, before its first scenario.

``python -c "...; from harness.models.code_compiler import main; main()" FORMAT FILE TARGET``.
"""

import sys
from pathlib import Path

from .base import format_named


def main() -> None:
    """Compile a file as the command line says; a model that cannot be compiled ends the program with the reason."""
    name, file, target = sys.argv[1:]
    compile_code = format_named(name).compile
    assert compile_code is not None
    Path(target).write_bytes(compile_code(Path(file).read_bytes()))
