"""Write the locks of environments, with hashes: `python -m scripts.lock [NAME ...] [-- ARGUMENTS OF uv pip compile]`.

An environment of model servers has the packages of its formats and of the harness; an environment of a simulator, a
converter or a server has the packages of its NAME.in in `runtimes/simulators`, `runtimes/converters` or
`runtimes/servers`. Without names, all locks are written. Pins stay unless ``-- --upgrade``.
`scripts/uv.txt`, from which uv itself is installed, follows `uv.lock`, and is written each time.
"""

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import uv

from runtimes import formats
from runtimes.catalogue import CONVERTERS, MODEL_SERVERS, SERVERS, SIMULATORS

BOOTSTRAP = Path("scripts/uv.txt")
#: Packages that the harness itself imports in every environment.
HARNESS = ("msgspec", "numpy")
OPTIONS = ("--quiet", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", "3.11")
OPTIONS += ("--only-binary", ":all:", "--universal")


def requirements() -> Mapping[Path, str]:
    """Return the requirements of every environment by the path of its lock."""
    by_lock = {
        MODEL_SERVERS / f"{name}.lock": "\n".join(sorted({*HARNESS, *packages})) + "\n"
        for name, packages in formats.packages().items()
    }
    sources = [path for folder in (SIMULATORS, CONVERTERS, SERVERS) for path in sorted(folder.glob("*.in"))]
    return by_lock | {path.with_suffix(".lock"): path.read_text() for path in sources}


def bootstrap() -> str:
    """Return the requirements from which `scripts/uv` installs uv: version and hashes of the wheels in `uv.lock`."""
    packages = tomllib.loads(Path("uv.lock").read_text())["package"]
    package = next(package for package in packages if package["name"] == "uv")
    hashes = "".join(f" \\\n    --hash={wheel['hash']}" for wheel in package["wheels"])
    return f"uv=={package['version']}{hashes}\n"


def main() -> int:
    """Write the locks that the command line names."""
    separator = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    names, uv_arguments = sys.argv[1:separator], sys.argv[separator + 1 :]
    by_lock = requirements()
    if unknown := sorted(set(names) - {lock.stem for lock in by_lock}):
        print(
            f"no environment {', '.join(unknown)}; known: {', '.join(lock.stem for lock in by_lock)}", file=sys.stderr
        )
        return 2
    BOOTSTRAP.write_text(bootstrap())
    for lock, text in by_lock.items():
        if not names or lock.stem in names:
            command = [uv.find_uv_bin(), "pip", "compile", *OPTIONS, "--output-file", str(lock), *uv_arguments, "-"]
            subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.DEVNULL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
