"""Build cache of tests, in the user's cache folder, filled once per machine: programs, environments, image layers.

``python -m tests.cached`` builds the images that a platform on a cluster needs.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

from runtimes.images import build, image_names

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "scripts" / "tools"
#: The same folder as in scripts/tools/cache.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windtunnel"
#: Environments of runtimes and simulators, by digest of their locks.
ENVIRONMENTS = CACHE / "environments"
#: Layers of images, by digest of their inputs.
LAYERS = CACHE / "layers"
#: Images of a platform on a cluster: its server, two simulators and two runtimes.
PLATFORM_IMAGES = ("server", "noop", "python", "sumo", "litert")
#: Seconds that a build may take on a slow, busy machine.
BUILDING = 1700


@cache
def tool(name: str, *arguments: str) -> str:
    """Return the output of a script of scripts/tools, a path or a command; the script fills the cache if necessary."""
    built = subprocess.run([str(TOOLS / name), *arguments], stdout=subprocess.PIPE, text=True, timeout=BUILDING)
    assert built.returncode == 0, f"scripts/tools/{name} fails; run it by hand to see why"
    return built.stdout.strip()


def image(name: str) -> build.Built:
    """Return an image of this checkout's code; only layers that the cache lacks are built."""
    return build.build(image_names.images()[name], ROOT / "var" / "images", kept=LAYERS)


if __name__ == "__main__":
    for name in PLATFORM_IMAGES:
        print(image(name).reference)
