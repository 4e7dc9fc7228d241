"""Write the locks of the packages of shipped cases: `python -m scripts.package_locks [NAME ...]`.

Each shipped case (`*/baselines/*.case`) has a lock of its list of packages, named by the first of them. Needs a
mirror, gpgv and Debian's keyring.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from datasets.objectstore.filesystem import FilesystemStore
from runtimes.catalogue import SIMULATORS
from runtimes.packages.package_case import read_case
from runtimes.packages.package_installer import LOCKS, PackageInstaller
from runtimes.packages.package_options import PackageOptions


def lists() -> Iterator[tuple[str, list[str]]]:
    """Yield the lists of packages of shipped cases, with the names of their locks."""
    for path in sorted(SIMULATORS.glob("*/baselines/*.case")):
        packages = read_case(path).packages
        yield packages[0].partition("=")[0], packages


def main(names: list[str]) -> None:
    """Write the locks with these names, or all."""
    LOCKS.mkdir(exist_ok=True)
    chosen = {name: packages for name, packages in lists() if not names or name in names}
    with tempfile.TemporaryDirectory() as folder:
        allowed = tuple(request.partition("=")[0] for packages in chosen.values() for request in packages)
        installer = PackageInstaller(PackageOptions(packages=allowed), FilesystemStore(folder))
        for name, packages in sorted(chosen.items()):
            text = installer.resolve_from_index(packages, Path(folder), lambda message, _: print(message))
            (LOCKS / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
