"""Installed packages: sizes of the wheels, and time from `uvx windtunnel up --demo` until the demo has finished."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uv

from benchmarks.figures import spread
from benchmarks.first_look import bytes_of, environ_with
from benchmarks.results import number, spanned, table
from benchmarks.terminal import on_terminal
from scripts import dist

#: Runs whose cache of packages is full.
WARM = 3
#: Seconds until the demo must have finished.
LIMIT = 900
#: Moments, in order: what the demo prints, and the row of the section.
MOMENTS: Mapping[str, tuple[str, str]] = {
    "started": ("Starting Windtunnel at", "client and server are installed, the platform starts"),
    "page": ("Its page: http", "the platform has accepted the 1.0 request"),
    "finished": ("shows the results in a browser", "**the demo has finished**"),
}


def demo(distributions: Path, caches: Path) -> dict[str, float]:
    """Run the demo by uvx in an empty home folder, and end it by Ctrl-C; return the seconds until each moment."""
    with tempfile.TemporaryDirectory(prefix="windtunnel-installed-") as home:
        environ = environ_with(caches) | {"HOME": home, "UV_FIND_LINKS": str(distributions)}
        environ.pop("PYTHONPATH", None)
        seconds: dict[str, float] = {}
        began = time.perf_counter()
        command = [uv.find_uv_bin(), "tool", "run", "windtunnel", "up", "--demo"]
        with on_terminal(command, Path(home), environ) as terminal:
            for moment, (pattern, _) in MOMENTS.items():
                terminal.until(pattern, LIMIT)
                seconds[moment] = time.perf_counter() - began
    print({moment: round(value, 1) for moment, value in seconds.items()}, flush=True)
    return seconds


def measure() -> dict[str, Any]:
    """Build the packages; measure with an empty cache once, then with what that run has left in it."""
    with tempfile.TemporaryDirectory(prefix="windtunnel-caches-") as folder:
        distributions, caches = Path(folder, "dist"), Path(folder, "caches")
        sizes = {path.name: path.stat().st_size for path in dist.build(distributions) if path.suffix == ".whl"}
        caches.mkdir()
        cold = demo(distributions, caches)
        size = bytes_of(caches)
        warm = [demo(distributions, caches) for _ in range(WARM)]
    return {
        "sizes": sizes,
        "cold": cold,
        "cache_bytes": size,
        "warm": {moment: spread(run[moment] for run in warm) for moment in MOMENTS},
    }


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    cold, warm = figures["cold"], figures["warm"]
    sizes = " and ".join(f"`{name}` {size / 1e6:,.2f} MB" for name, size in sorted(figures["sizes"].items()))
    rows = [[words, number(cold[moment]), spanned(warm[moment])] for moment, (_, words) in MOMENTS.items()]
    return "\n\n".join(
        [
            f"The wheels of `make dist`: {sizes}. `UV_FIND_LINKS=dist uvx windtunnel up --demo` in an empty home"
            " folder, on a terminal; uv and Python are installed, nothing else of the platform is. Seconds since"
            " the start of `uvx`. *Empty cache*: one run, which downloads the packages of client and server from"
            " the package index that the machine uses, and those of the environments of the simulator and of the"
            f" model's runtime; unpacked they fill {figures['cache_bytes'] / 1e6:,.0f} MB. *Full cache*: later"
            " runs with the cache of that run, in new homes. The demo's model is played on all scenarios of"
            " `car_street`, the baseline after it.",
            table(["seconds", "empty cache, 1 run", f"full cache, {warm['finished']['runs']} runs"], rows),
        ]
    )
