"""Write the locks of environments, with hashes: `python -m scripts.lock [NAME ...] [-- ARGUMENTS OF uv pip compile]`.

An environment of model servers has the packages of its formats and of the harness; that of a simulator those of
`packages.in` in its folder; that of a converter, a server or a communication model
those of its NAME.in. Without names, all locks are written.
Pins stay unless ``-- --upgrade``. `scripts/uv.txt`, from which uv itself is installed, follows `uv.lock`, and is
written each time.
"""

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import uv

from runtimes import formats
from runtimes.catalogue import COMMUNICATIONS, CONVERTERS, MODEL_SERVERS, REQUIREMENTS, SERVERS, SIMULATORS

BOOTSTRAP = Path("scripts/uv.txt")
#: Packages that the harness itself imports in every environment.
HARNESS = ("msgspec", "numpy")
OPTIONS = ("--quiet", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", "3.11")
OPTIONS += ("--only-binary", ":all:", "--universal")


def requirements() -> Mapping[Path, str]:
    """Return the requirements of every environment by the path of its lock."""
    by_lock = {
        MODEL_SERVERS / f"{name}.lock": "\n".join(sorted({*HARNESS, *named})) + "\n"
        for name, named in packages().items()
    }
    sources = [path for folder in (CONVERTERS, SERVERS, COMMUNICATIONS) for path in sorted(folder.glob("*.in"))]
    sources += sorted(SIMULATORS.glob(f"*/{REQUIREMENTS}"))
    return by_lock | {path.with_suffix(".lock"): path.read_text() for path in sources}


def packages() -> Mapping[str, tuple[str, ...]]:
    """Return the packages of each environment of model servers, by the environment's name.

    Raise ValueError if two formats want different packages in one environment.
    """
    by_environment: dict[str, tuple[str, ...]] = {}
    for name, format in formats.formats().items():
        if by_environment.setdefault(format.environment, format.packages) != format.packages:
            raise ValueError(
                f"format {name}: the environment {format.environment} has other packages in another format"
            )
    return by_environment


def name_of(lock: Path) -> str:
    """Return the name of the environment of a lock."""
    return lock.parent.name if SIMULATORS in lock.parents else lock.stem


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
    if unknown := sorted(set(names) - set(map(name_of, by_lock))):
        print(f"no environment {', '.join(unknown)}; known: {', '.join(map(name_of, by_lock))}", file=sys.stderr)
        return 2
    BOOTSTRAP.write_text(bootstrap())
    for lock, text in by_lock.items():
        if not names or name_of(lock) in names:
            command = [uv.find_uv_bin(), "pip", "compile", *OPTIONS, "--output-file", str(lock), *uv_arguments, "-"]
            subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.DEVNULL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
