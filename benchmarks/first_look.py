"""First look: time from `git clone` until a browser shows the demo's simulation as succeeded, by `make demo`."""

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect, sync_playwright

from benchmarks.figures import spread
from benchmarks.platform_process import free_port
from benchmarks.results import number, spanned, table
from benchmarks.terminal import on_terminal
from tests.cached import tool

#: Runs whose caches are full.
WARM = 2
#: Seconds until the demo must have printed something, and milliseconds until its page must show the end.
LIMIT, SHOWN = 1500, 300_000
#: Moments, in order, as the section names them.
MOMENTS: Mapping[str, str] = {
    "cloned": "cloned",
    "started": "packages are installed, the platform starts",
    "page": "the demo prints the address of its page",
    "shown": "**the page shows the simulation as succeeded**",
    "printed": "`make demo` has printed its results, and the page shows both simulations",
}


def environ_with(caches: Path) -> dict[str, str]:
    """Return an environment without settings, with its own caches of packages and free ports."""
    removed = ("WINDTUNNEL_", "UV_CACHE_DIR", "VIRTUAL_ENV")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(removed) and name != "CI"}
    environ |= {"XDG_CACHE_HOME": str(caches), "UV_CACHE_DIR": str(caches / "uv"), "PIP_CACHE_DIR": str(caches / "pip")}
    ports = {name: str(free_port()) for name in ("PORT", "RUNNER_API_PORT", "SCS_PORT")}
    return environ | {f"WINDTUNNEL_{name}": port for name, port in ports.items()}


def first_look(browser: Browser, caches: Path) -> dict[str, float]:
    """Clone the commit of this checkout into a new folder and run the demo; return the seconds until each moment."""
    repository = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory(prefix="windtunnel-first-look-") as folder:
        clone = Path(folder) / "windtunnel"
        context = browser.new_context()
        page = context.new_page()
        began = time.perf_counter()
        seconds: dict[str, float] = {}

        def reached(moment: str) -> None:
            seconds[moment] = time.perf_counter() - began

        subprocess.run(["git", "clone", "--quiet", f"file://{repository}", str(clone)], check=True)
        reached("cloned")
        with on_terminal(["make", "demo"], clone, environ_with(caches)) as demo:
            demo.until("Starting Windtunnel at", LIMIT)
            reached("started")
            address = demo.until(r"Its page: (http://\S+)", LIMIT)[1]
            reached("page")
            page.goto(address)
            expect(page.locator("#live .statusline")).to_contain_text("succeeded", timeout=SHOWN)
            expect(page.get_by_role("region", name="Worst tasks")).to_be_visible()
            reached("shown")
            demo.until("shows the results in a browser", LIMIT)
            reached("printed")
            page.get_by_role("navigation", name="Main").get_by_role("link", name="Simulations").click()
            expect(page.locator("#rows tbody tr", has_text="succeeded")).to_have_count(2)
        context.close()
    print({moment: round(value, 1) for moment, value in seconds.items()}, flush=True)
    return seconds


def bytes_of(folder: Path) -> int:
    """Return the bytes of the files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def measure() -> dict[str, Any]:
    """Measure with empty caches once, then with what that run has left in them."""
    with tempfile.TemporaryDirectory(prefix="windtunnel-caches-") as folder, sync_playwright() as playwright:
        caches = Path(folder)
        browser = playwright.chromium.launch(executable_path=tool("chromium"), args=["--no-sandbox", "--disable-gpu"])
        cold = first_look(browser, caches)
        size = bytes_of(caches)
        warm = [first_look(browser, caches) for _ in range(WARM)]
        browser.close()
    return {
        "uv": "from a folder on this disk" if "PIP_FIND_LINKS" in os.environ else "from the same index",
        "cold": cold,
        "cache_bytes": size,
        "warm": {moment: spread(run[moment] for run in warm) for moment in MOMENTS},
    }


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    cold, warm = figures["cold"], figures["warm"]
    rows = [[words, number(cold[moment]), spanned(warm[moment])] for moment, words in MOMENTS.items()]
    return "\n\n".join(
        [
            "`git clone` from this disk into a new folder, then `make demo` in it, on a terminal; Chromium, which runs "
            "before the clone, opens the address that the demo prints at once. Seconds since the start of "
            f"`git clone`. *Empty caches*: one run that installs uv {figures['uv']}, and downloads from the package "
            "index that the machine uses the packages of the platform with those of its development (as `make setup` "
            "does), and those of the environments of the simulator and of the model's runtime. Unpacked they fill "
            f"{figures['cache_bytes'] / 1e6:,.0f} MB of caches. *Full caches*: later clones with the caches of that "
            "run. The demo's model is played on all scenarios of `car_street`, the baseline after it.",
            table(["seconds", "empty caches, 1 run", f"full caches, {warm['shown']['runs']} runs"], rows),
        ]
    )
