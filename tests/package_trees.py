"""Trees of a few programs of this machine, as packages would be unpacked; they need no mirror."""

import os
import re
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("sh", "cat", "ls", "touch", "id", "sleep", "env")


def _add_program(root: Path, name: str) -> None:
    """Copy a program of this machine into a tree, with the libraries that it needs."""
    program = Path(shutil.which(name) or "")
    needed = re.findall(r"(/\S+\.so\S*)", subprocess.run(["ldd", program], capture_output=True, text=True).stdout)
    for source, folder in [(program, "usr/bin"), *((Path(path), "usr/lib") for path in needed)]:
        if source.name.startswith("ld-linux"):
            folder = "usr/lib64"
        target = root / folder / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(source, target)
            target.chmod(0o755)
    (root / "usr/bin" / program.name).rename(root / "usr/bin" / name)


def make_tree(root: Path) -> None:
    """Make a tree with PROGRAMS, a file of its own, and the files that a sandbox covers."""
    for name in PROGRAMS:
        _add_program(root, name)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    etc = root / "etc"
    etc.mkdir()
    for name in ("hosts", "passwd", "group", "nsswitch.conf"):
        (etc / name).touch()
    (etc / "of-the-tree").write_text("tree")
    for place, _, _ in os.walk(root.parent):
        os.chmod(place, 0o755)
