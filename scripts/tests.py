"""`python -m scripts.tests ARGUMENTS...`: run pytest, and what failed once more, alone.

What fails both times has failed; what passes alone is named at the end (docs/decisions/0017-a-second-hearing.md).
"""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

#: Of so many failures at once none is an accident.
ACCIDENTS = 5


def pytest(arguments: Sequence[str], cache: Path) -> int:
    """Run it, with a memory of its own for what failed; return its status. Who ends us ends it, in its own time."""
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments, "-o", f"cache_dir={cache}"])
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal tells it, too
    signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    code = process.wait()
    return code if code >= 0 else 128 - code


def failed(cache: Path) -> list[str]:
    """Return the tests that did."""
    path = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def main(arguments: Sequence[str]) -> int:
    """Return 0 if all passed, at once or alone; otherwise pytest's status."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        status = pytest(arguments, cache)
        first = failed(cache)
        if status != 1 or not 0 < len(first) <= ACCIDENTS:
            return status
        print(f"\n{len(first)} failed; once more, alone:", flush=True)
        status = pytest([*arguments, "-n", "0", "--last-failed", "--last-failed-no-failures", "none"], cache)
        for test in first:
            print(f"{'failed twice' if test in failed(cache) else 'failed, and passed alone'}: {test}", flush=True)
        return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
