"""Build the wheels and source distributions of server and client: `make dist`, or `python -m scripts.dist FOLDER`.

They are built from the files that git has, as they are in the working tree, so nothing untracked gets into them. Equal
commits give equal bytes: the builder is that of uv.lock, and the times of all files are the commit's.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import uv

ROOT = Path(__file__).parent.parent
#: Folders of the projects: the server, and the client.
PROJECTS = (".", "cli")
#: Time of all files where there is no git history, as in an unpacked archive: 2020-01-01.
NO_HISTORY = "1577836800"


def tracked() -> list[str]:
    """Return the paths of all files that git has and that are in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for path in listed.split("\0") if path and (ROOT / path).is_file()]


def copy(target: Path) -> None:
    """Copy the files that git has, with equal modes whatever this user's umask."""
    for path in tracked():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target / path)
        (target / path).chmod(0o755 if os.access(ROOT / path, os.X_OK) else 0o644)


def commit_time() -> str:
    """Return the time of the commit in seconds since 1970."""
    shown = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return shown.stdout.strip() or NO_HISTORY


def build(folder: Path) -> list[Path]:
    """Build all distributions into a folder; return their paths."""
    environ = os.environ | {"SOURCE_DATE_EPOCH": commit_time()}
    environ.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory(prefix="windtunnel-dist-") as scratch:
        source, built = Path(scratch, "source"), Path(scratch, "built")
        copy(source)
        for project in PROJECTS:
            command = [uv.find_uv_bin(), "build", "--quiet", "--no-build-isolation", "--python", sys.executable]
            subprocess.run([*command, "--out-dir", str(built), str(source / project)], env=environ, check=True)
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in built.iterdir() if path.suffix in {".whl", ".gz"})
        for name in names:
            shutil.move(built / name, folder / name)
    return [folder / name for name in names]


def main() -> int:
    """Build into `dist`, or into the folder that the command line names; print sizes."""
    for path in build(Path(*(sys.argv[1:2] or [ROOT / "dist"]))):
        print(f"{path}  {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
