"""Package hints: where a model of this form declares a package that it lacks, in words that can be followed.

The first file that declares packages counts (runtimes/dependencies/declaration.py), so a hint names that file.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

PAGE = "docs/dependencies.md#declaring-them"
#: Packages whose modules have another name.
PACKAGES: Mapping[str, str] = {
    "PIL": "pillow",
    "attr": "attrs",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "sb3_contrib": "sb3-contrib",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "stable_baselines3": "stable-baselines3",
    "yaml": "pyyaml",
}
BLOCK = "# /// script"
#: Files of an archive that declare packages, in the order in which they count, and how one more is declared in each.
FILES: Mapping[str, str] = {
    "pylock.toml": "add `{package}` to the project and write pylock.toml again (`uv export --format pylock.toml`)",
    "uv.lock": "run `uv add {package}` and pack pyproject.toml and uv.lock again",
    "requirements.txt": "add a line `{package}` to requirements.txt",
    "pyproject.toml": 'add "{package}" to the list `dependencies` in [project] of pyproject.toml',
}


def package_hint(module: str, *, files: Path | None, source: bytes, declares: bool) -> str:
    """Return how a model declares the package of a module. ``files``: its folder; None: it is one file, ``source``.

    ``declares``: its format may declare packages.
    """
    top = module.partition(".")[0]
    package = PACKAGES.get(top, top)
    if not declares:
        return f"send a zip of this file, a `model.py` that loads it, and a requirements.txt with `{package}` ({PAGE})."
    if files is not None:
        there = _counts(files.joinpath)
        if there is not None:
            return f"{FILES[there].format(package=package)} ({PAGE})."
        source = _read(files / "model.py")
    if any(line.rstrip() == BLOCK for line in source.decode(errors="replace").splitlines()):
        return f'add "{package}" to `dependencies` in the block `{BLOCK}` of model.py ({PAGE}).'
    if files is not None:
        return f"put a requirements.txt with a line `{package}` beside model.py ({PAGE})."
    return f'begin the file with these three lines ({PAGE}):\n{BLOCK}\n# dependencies = ["{package}"]\n# ///\n'


def _counts(path_of: Callable[[str], Path]) -> str | None:
    """Return the file of an archive that declares packages and counts; uv.lock counts with pyproject.toml only."""
    for name in FILES:
        if path_of(name).is_file() and (name != "uv.lock" or path_of("pyproject.toml").is_file()):
            return name
    return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
