"""Vendor the libraries of the web page: copy built files of npm packages to web/static/vendor.

`web/vendor/package-lock.json` fixes versions and hashes of the packages; SHA256SUMS lists the files that were copied.
The page needs neither npm nor a network: run `python -m scripts.vendor` after a change of `web/vendor/package.json`.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

LOCKED = Path("web/vendor")
TARGET = Path("web/static/vendor")
SUMS = "SHA256SUMS"
#: Files of each package: path in the package, by name in the folder of the page.
FILES: Mapping[str, Mapping[str, str]] = {
    "htmx.org": {"htmx.min.js": "dist/htmx.min.js", "htmx.LICENSE": "LICENSE"},
    "htmx-ext-sse": {"sse.min.js": "dist/sse.min.js", "sse.LICENSE": "LICENSE"},
    "idiomorph": {"idiomorph-ext.min.js": "dist/idiomorph-ext.min.js", "idiomorph.LICENSE": "LICENSE"},
    "tus-js-client": {"tus.min.js": "dist/tus.min.js", "tus.LICENSE": "LICENSE"},
    "uplot": {
        "uPlot.iife.min.js": "dist/uPlot.iife.min.js",
        "uPlot.min.css": "dist/uPlot.min.css",
        "uPlot.LICENSE": "LICENSE",
    },
}


def names() -> Iterator[str]:
    """Yield the names of all vendored files."""
    for files in FILES.values():
        yield from files


def sums(folder: Path) -> str:
    """Return the SHA-256 of each vendored file, as `sha256sum` prints them."""
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(names())]
    return "".join(lines)


def main() -> int:
    """Install the locked packages in a scratch folder, copy their files and write the sums."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(LOCKED / name, scratch)
        npm = ["scripts/tools/npm", "ci", "--prefix", scratch, "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(npm, check=True, stdout=sys.stderr)
        TARGET.mkdir(parents=True, exist_ok=True)
        for package, files in FILES.items():
            for name, path in files.items():
                shutil.copyfile(Path(scratch, "node_modules", package, path), TARGET / name)
    (TARGET / SUMS).write_text(sums(TARGET))
    print(f"vendored: {len(list(names()))} files in {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
