"""The interpreter as a part of an image: this machine's Python, the libraries it needs, and a user to run as.

Whoever built the interpreter (pyenv, uv, Debian), it finds its standard library from where its own file lies, so it
works anywhere; its libraries go where the loader looks by itself. There is no shell and no other program.
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import certifi

from runtimes.images import libraries, packages
from runtimes.images.facts import Component, Facts

PREFIX = "opt/windtunnel/python"
#: Of the standard library, what no server and no model needs.
UNNEEDED = ("test", "idlelib", "tkinter", "turtledemo", "turtle.py", "ensurepip", "lib2to3", "pydoc_data", "venv")
UNNEEDED_PATTERNS = ("config-*", "site-packages", "dist-packages", "__pycache__", "*.a", "EXTERNALLY-MANAGED")
#: Extension modules that are tests, or that draw in libraries for what a container has not: terminals, NIS, Tk, dbm.
UNNEEDED_MODULES = ("_test", "_ctypes_test", "_xxtest", "xx", "_tkinter", "_curses", "nis", "readline", "_gdbm", "_dbm")
USERS = {"root": 0, "runner": 10001, "evaluator": 10002, "model_server": 10003}
GROUPS = {"root": 0, "windtunnel": 10000, "runner": 10001, "evaluator": 10002, "model_server": 10003}
#: Folders to mount something on.
FOLDERS = ("dev", "proc", "run/windtunnel", "sys", "tmp", "var/lib/windtunnel")


def executable() -> Path:
    """Return the interpreter's own file, whatever environment it was started in."""
    return Path(os.path.realpath(sys.executable))


def modules() -> list[Path]:
    """Return the standard library's extension modules that go along."""
    shared = sysconfig.get_config_var("DESTSHARED") or Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
    return [path for path in sorted(Path(shared).glob("*.so")) if not path.name.startswith(UNNEEDED_MODULES)]


def needed() -> libraries.Needs:
    """Return what the interpreter and its modules are linked to; raise MissingLibrary."""
    found = libraries.needs([executable(), *modules()])
    if found.missing or found.loader is None:
        raise libraries.MissingLibrary(f"Python itself needs {', '.join(sorted(found.missing)) or 'a loader'}")
    return found


def install(root: Path) -> Facts:
    """Lay the interpreter, its libraries and the files of /etc under ``root``."""
    found = needed()
    _interpreter(root)
    assert found.loader is not None
    for name, path in found.libraries.items():
        _copy(path, root / home_of(found) / name)
    for extra in ("libresolv.so.2", "libnss_dns.so.2", "libnss_files.so.2"):  # what resolving names may load later
        if (there := Path("/", home_of(found), extra)).exists():
            _copy(there, root / home_of(found) / extra)
    _copy(found.loader, root / str(found.loader).lstrip("/"))
    _strip(root)
    _etc(root)
    stdlib = root / PREFIX / "lib" / f"python{sysconfig.get_python_version()}"
    packages.compile_all(stdlib, root)
    version = platform.python_version()
    python = Component("platform", "cpython", version, f"pkg:generic/cpython@{version}", "PSF-2.0")
    owners = libraries.packages([*found.libraries.values(), found.loader])
    carried = tuple(sorted(path.name for path in (root / home_of(found)).iterdir()))
    return Facts((python, *packages.debian(owners)), carried)


def home_of(found: libraries.Needs) -> str:
    """Return the folder where the loader looks by itself: that of the C library."""
    return str(found.libraries["libc.so.6"].parent).lstrip("/")


def _interpreter(root: Path) -> None:
    python = f"python{sysconfig.get_python_version()}"
    binary = root / PREFIX / "bin" / python
    _copy(executable(), binary)
    binary.chmod(0o755)
    for alias in ("python", "python3"):
        (binary.parent / alias).symlink_to(python)
    stdlib = root / PREFIX / "lib" / python
    ignore = shutil.ignore_patterns(*UNNEEDED_PATTERNS, "lib-dynload")

    def unneeded(folder: str, entries: list[str]) -> set[str]:
        top = os.path.samefile(folder, sysconfig.get_path("stdlib"))
        return ignore(folder, entries) | (set(entries) & set(UNNEEDED) if top else set())

    shutil.copytree(sysconfig.get_path("stdlib"), stdlib, ignore=unneeded, ignore_dangling_symlinks=True)
    for path in modules():
        _copy(path, stdlib / "lib-dynload" / path.name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def _strip(root: Path) -> None:
    """Take the symbols out of what this machine compiled itself; a machine without binutils leaves them in."""
    if (strip := shutil.which("strip")) is None:
        return
    stdlib = root / PREFIX / "lib"
    ours = [path for path in sorted(root.rglob("*.so*")) if path.name.startswith("libpython") or stdlib in path.parents]
    subprocess.run([strip, "--strip-unneeded", *map(str, ours)], check=True)


def _etc(root: Path) -> None:
    etc = root / "etc"
    (etc / "ssl/certs").mkdir(parents=True)
    users = (f"{name}:x:{number}:{number}::/tmp:/nowhere\n" for name, number in USERS.items())
    (etc / "passwd").write_text("".join(users))
    (etc / "group").write_text("".join(f"{name}:x:{number}:\n" for name, number in GROUPS.items()))
    (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    # Pinned by a hash in our lock, where the building machine's own might hold anything.
    shutil.copyfile(certifi.where(), etc / "ssl/certs/ca-certificates.crt")
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
