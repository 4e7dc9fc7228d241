"""What each process of a platform imports: a library that few platforms need is imported when it is first used.

A library that is imported at the top by one module is paid for by every process; `minio` alone was a fifth of a start.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Libraries that a platform without a bucket, a cluster or a page never needs.
RARE = ("minio", "kubernetes", "flask", "scipy", "pandas", "pyarrow", "openenv", "requests")


@pytest.mark.parametrize("module", ["core.services.platform", "local_play.play"])
def test_the_services_are_imported_without_libraries_that_few_platforms_need(module: str) -> None:
    program = f"import sys, {module}; print(*(set({RARE!r}) & sys.modules.keys()))"
    imported = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert imported.stdout.split() == []
