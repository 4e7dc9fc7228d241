"""Modules of the product: all Python code that is installed, as git has it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Folders with code that no installation has.
OTHERS = frozenset({"benchmarks", "docs", "examples", "scripts", "tests"})


def modules() -> list[Path]:
    """Return the paths of the modules, from the checkout; new files count before they are committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.py"]
    files = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return sorted(Path(file) for file in files if file.split("/")[0] not in OTHERS and (ROOT / file).is_file())


def rooms() -> set[str]:
    """Return the top-level folders and modules, as `core` and `app.py`."""
    return {path.parts[0] for path in modules()}
