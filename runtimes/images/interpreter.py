"""Interpreter part of an image: this machine's Python, the shared libraries it needs, and the user accounts.

Python finds its standard library relative to its executable whether pyenv, uv or Debian built it, so it is
relocatable; its libraries are copied to the loader's default folder. There is no shell and no other program.
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
#: Modules of the standard library that neither the server nor models need.
UNNEEDED = ("test", "idlelib", "tkinter", "turtledemo", "turtle.py", "ensurepip", "lib2to3", "pydoc_data", "venv")
UNNEEDED_PATTERNS = ("config-*", "site-packages", "dist-packages", "__pycache__", "*.a", "EXTERNALLY-MANAGED")
#: Extension modules that are tests, or that need libraries useless in a container: terminals, NIS, Tk, dbm.
UNNEEDED_MODULES = ("_test", "_ctypes_test", "_xxtest", "xx", "_tkinter", "_curses", "nis", "readline", "_gdbm", "_dbm")
USERS = {"root": 0, "runner": 10001, "evaluator": 10002, "model_server": 10003}
GROUPS = {"root": 0, "windtunnel": 10000, "runner": 10001, "evaluator": 10002, "model_server": 10003}
#: Empty folders for mounts.
FOLDERS = ("dev", "proc", "run/windtunnel", "sys", "tmp", "var/lib/windtunnel")


def executable() -> Path:
    """Return the interpreter's real executable, also from within a venv."""
    return Path(os.path.realpath(sys.executable))


def modules() -> list[Path]:
    """Return the standard library's extension modules to include."""
    shared = sysconfig.get_config_var("DESTSHARED") or Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
    return [path for path in sorted(Path(shared).glob("*.so")) if not path.name.startswith(UNNEEDED_MODULES)]


def needed() -> libraries.Needs:
    """Return the libraries that the interpreter and its modules are linked to; raise MissingLibrary."""
    linked = libraries.needs([executable(), *modules()])
    if linked.missing or linked.loader is None:
        raise libraries.MissingLibrary(f"Python itself needs {', '.join(sorted(linked.missing)) or 'a loader'}")
    return linked


def install(root: Path) -> Facts:
    """Install the interpreter, its libraries and the files of /etc under ``root``."""
    linked = needed()
    _interpreter(root)
    assert linked.loader is not None
    for name, path in linked.libraries.items():
        _copy(path, root / library_folder(linked) / name)
    for extra in ("libresolv.so.2", "libnss_dns.so.2", "libnss_files.so.2"):  # name resolution loads these at run time
        if (there := Path("/", library_folder(linked), extra)).exists():
            _copy(there, root / library_folder(linked) / extra)
    _copy(linked.loader, root / str(linked.loader).lstrip("/"))
    _strip(root)
    _etc(root)
    stdlib = root / PREFIX / "lib" / f"python{sysconfig.get_python_version()}"
    packages.compile_all(stdlib, root)
    version = platform.python_version()
    python = Component(
        kind="platform", name="cpython", version=version, purl=f"pkg:generic/cpython@{version}", licence="PSF-2.0"
    )
    owners = libraries.packages([*linked.libraries.values(), linked.loader])
    carried = tuple(sorted(path.name for path in (root / library_folder(linked)).iterdir()))
    return Facts((python, *packages.debian(owners)), carried)


def library_folder(linked: libraries.Needs) -> str:
    """Return the loader's default folder, which has the C library, relative to the root."""
    return str(linked.libraries["libc.so.6"].parent).lstrip("/")


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
    """Strip symbols from Python's own libraries; without binutils, do nothing."""
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
    # certifi is pinned by a hash in the lock; the build machine's own certificates are not trusted.
    shutil.copyfile(certifi.where(), etc / "ssl/certs/ca-certificates.crt")
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
