"""Compiled code of an environment: C++ or C that this machine's compiler builds against the environment's libraries.

An environment without it works too. A simulator's does in less time what Python modules beside it do as well.
`recipe.json` in the folder of its sources names what is built from what.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

#: Compilers to look for; the first that there is builds. With each of them equal sources give equal results: arithmetic
#: is neither reordered nor contracted.
COMPILERS = ("g++", "c++", "clang++")
OPTIONS = ("-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-Wl,-z,defs", "-Wl,-z,now")
#: Seconds that a build may take.
BUILD_TIMEOUT = 300
#: What a compiler says of a part of it that was killed, such as by the kernel for memory: no fault of the sources.
KILLED = "Killed signal terminated program"
#: File beside the packages of an environment: by which compiler which sources were refused.
REFUSAL = "refused.txt"


class CannotCompile(Exception):
    """There is no compiler, or it did not build the sources."""


class Refused(CannotCompile):
    """The compiler refused the sources: it would do so again."""


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A library to build: ``output``, its name, from ``source``, against libraries of the environment (patterns).

    ``options``: of the compiler, besides those of all sources. ``without``: the loss where it is not built.
    """

    output: str
    source: str
    libraries: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    without: str = "it runs slower"


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """Sources in a folder, with their recipe."""

    folder: Path

    @property
    def digest(self) -> str:
        """SHA-256 of the names and contents of the files."""
        return _digest(self.folder)

    @property
    def output(self) -> str:
        """Name of the library that is built, in the folder of the environment's packages."""
        return _recipe(self.folder).output

    @property
    def without(self) -> str:
        """The loss of an environment in which it is not built, as the rest of a sentence."""
        return _recipe(self.folder).without

    def is_built(self, site: Path) -> bool:
        """Return whether an environment has the library."""
        return (site / self.output).exists()

    def is_refused(self, site: Path) -> bool:
        """Return whether the compiler of this machine is known to refuse these sources for an environment."""
        try:
            return (site.parent / REFUSAL).read_text() == self._attempt()
        except OSError:
            return False

    def note_refusal(self, site: Path) -> None:
        """Remember beside an environment that this machine's compiler refuses these sources."""
        (site.parent / REFUSAL).write_text(self._attempt())

    def _attempt(self) -> str:
        """Return what a refusal depends on: the sources, and the compiler's path, size and time."""
        path = find_compiler() or ""
        file = os.stat(path) if path else None
        return f"{self.digest} {path}" + (f" {file.st_size} {file.st_mtime_ns}\n" if file else "\n")

    def build(self, site: Path) -> None:
        """Build the library in the folder of an environment's packages. Raise CannotCompile if that fails."""
        compiler = find_compiler()
        if compiler is None:
            raise CannotCompile("there is no C++ compiler: install g++ and start again")
        recipe = _recipe(self.folder)
        libraries = [_one(site, pattern) for pattern in recipe.libraries]
        with tempfile.TemporaryDirectory(dir=site.parent) as draft:
            built = Path(draft, self.output)
            source = str(self.folder / recipe.source)
            command = [compiler, *OPTIONS, *recipe.options, source, "-o", str(built)]
            for library in libraries:
                # By name and not by path, so that the environment can be anywhere.
                command += [f"-L{library.parent}", f"-l:{library.name}"]
                command += [f"-Wl,-rpath,$ORIGIN/{library.parent.relative_to(site)}"]
            environ = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": draft}
            try:
                subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=BUILD_TIMEOUT)
            except subprocess.CalledProcessError as error:
                if error.returncode < 0 or KILLED in error.stderr:
                    raise CannotCompile(f"the compiler was killed: {error.stderr.strip()[-1000:]}") from error
                raise Refused(error.stderr.strip()[-1000:]) from error
            except (OSError, subprocess.TimeoutExpired) as error:
                raise CannotCompile(str(error)) from error
            built.chmod(0o444)
            built.rename(site / self.output)


@functools.cache
def find_compiler() -> str | None:
    """Return the path of this machine's C++ compiler; None if there is none."""
    return next((path for name in COMPILERS if (path := shutil.which(name)) is not None), None)


@functools.cache
def _recipe(folder: Path) -> Recipe:
    return msgspec.json.decode((folder / "recipe.json").read_bytes(), type=Recipe)


@functools.cache
def _digest(folder: Path) -> str:
    whole = hashlib.sha256(" ".join(OPTIONS).encode())
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        whole.update(f"{path.name} {len(content)}\n".encode() + content)
    return whole.hexdigest()


def _one(site: Path, pattern: str) -> Path:
    found = sorted(site.glob(pattern))
    if len(found) != 1:
        raise CannotCompile(f"the environment has {len(found)} files {pattern}, and one is needed")
    return found[0]
