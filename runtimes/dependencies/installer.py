"""Package installer: resolves declared dependencies to a lock, and installs locks; runs no code of packages.

What users send has been parsed before (declaration.py): uv reads files that the platform wrote, and only wheels are
used.
"""

import contextlib
import fcntl
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from packaging.specifiers import SpecifierSet

from common.errors import BadRequirements
from runtimes import catalogue, confined_program, environments
from runtimes.dependencies import confined_uv, installed_files
from runtimes.dependencies.confined_uv import UvOptions, UvResult
from runtimes.dependencies.declaration import Declaration
from runtimes.dependencies.index_proxy import Address, addresses
from runtimes.dependencies.lock import checked, divided, pins
from runtimes.dependencies.untrusted_folders import DEPTH, read_text, remove, usage_of
from runtimes.environments import (
    COMPILED,
    IndexUnavailable,
    OutOfSpace,
    ProgramKilled,
    Progress,
    preparation_error,
)
from runtimes.harness.runner.process_spec import ENVIRONMENT_FOLDERS

#: Packages that the harness itself imports in every environment.
HARNESS = ("msgspec", "numpy")
#: The index that is used unless the operator names others, and where its files are.
PUBLIC_INDEX, PUBLIC_FILES = "https://pypi.org/simple", "https://files.pythonhosted.org"
#: Seconds of a resolution and of an installation at most.
RESOLUTION, INSTALLATION = 300.0, 1800.0
#: The most bytes of a lock.
LARGEST_LOCK = 4 << 20

_WHEELS = ("--only-binary", ":all:", "--no-config", "--no-python-downloads", "--keyring-provider", "disabled")
#: What uv writes before its lines, and lines without a reason.
_MARKS = re.compile(r"^(error|cause|hint|[×╰├─▶·]+)\s*:?\s*")
_UNHELPFUL = ("sha256:", "warning:", "Using CPython", "No solution found when resolving dependencies")
_CREDENTIALS = re.compile(r"://[^/\s@]+@")


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallerOptions:
    """Where packages come from, and how much of them: all of it the operator's decision.

    ``indexes``: URLs; the first that has a package is used for it. Empty: nothing is installed. ``hosts``: further URLs
    that files of these indexes are downloaded from. ``packages``: patterns of the names that may be installed.
    ``largest``: most bytes of an environment. ``environ``: the server's, for its certificates and its proxy.
    ``own``: the platform's own locks, whose packages are as trusted as the platform.
    """

    indexes: tuple[str, ...] = (PUBLIC_INDEX,)
    hosts: tuple[str, ...] = (PUBLIC_FILES,)
    packages: tuple[str, ...] = ("*",)
    largest: int = 8 << 30
    sandbox: bool = True
    own: tuple[str, ...] = field(default_factory=catalogue.model_server_locks)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


class Installer:
    """Resolves and installs. ``folder``: for uv's cache and its files. Raises ValueError for a bad URL."""

    def __init__(self, folder: Path, options: InstallerOptions) -> None:
        self.options = options
        self._folder = folder
        self._cache = folder / "cache"
        certificates = _certificates(options.environ)
        self._uv = UvOptions(
            cache=self._cache,
            environ=_environ(options.indexes) | certificates | {"UV_CACHE_DIR": str(self._cache)},
            readonly=tuple(certificates.values()),
            allowed=addresses((*options.indexes, *options.hosts)),
            upstream=_upstream(options.environ),
            largest=options.largest,
            sandbox=options.sandbox,
        )

    def resolve(self, declaration: Declaration, preferred: str, progress: Progress) -> str:
        """Return the lock of a declaration: names, versions and hashes, as a requirements file.

        ``preferred`` is a lock whose versions are taken where they are possible. Raises BadRequirements with uv's
        reason, and IndexUnavailable or OutOfSpace where a later attempt may succeed.
        """
        if not self.options.indexes:
            raise BadRequirements(
                "This platform installs no packages (WINDTUNNEL_PACKAGE_INDEXES is empty);"
                " `GET /v1/runtimes/python` lists the packages that are there."
            )
        here = ".".join(map(str, sys.version_info[:3]))
        if not SpecifierSet(declaration.python).contains(here, prereleases=True):
            raise BadRequirements(f"{declaration.file} requires Python {declaration.python}; Python {here} runs here.")
        with self._workspace() as workspace:
            source, constraints, lock = (workspace / name for name in ("in.txt", "constraints.txt", "lock.txt"))
            source.write_text("\n".join((*declaration.requirements, *HARNESS)) + "\n")
            constraints.write_text("\n".join(declaration.constraints) + "\n")
            lock.write_text(preferred)
            source.chmod(0o644)
            constraints.chmod(0o644)
            arguments = ["pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate", *_WHEELS]
            arguments += ["--no-sources", "--index-strategy", "first-index", "--python", confined_uv.PYTHON]
            arguments += ["-c", str(constraints), "-o", str(lock), str(source)]
            progress(f"resolving {len(declaration.requirements)} requirements of {declaration.file}", None)
            result = confined_uv.run(arguments, self._uv, [workspace], RESOLUTION, progress)
            if result.code or result.limit:
                raise _error(result, f"The dependencies in {declaration.file} cannot be resolved.")
            try:
                text = read_text(lock, largest=LARGEST_LOCK)
            except (OSError, ValueError) as error:
                raise BadRequirements(f"The lock of {declaration.file} cannot be read: {error}.") from None
        return checked(text, declaration, self.options.packages)

    def install(self, lock: str, folder: Path, progress: Progress) -> None:
        """Install a lock's packages into folders of ``folder``; files are readable by all and writable by none.

        Those that are the platform's own, byte for byte, are installed into ``shared``, which nothing else can write
        to, and all others into ``site``. Raises as `resolve`.
        """
        progress(f"installing {len(pins(lock))} packages", 0.0)
        sites = []
        for name, part in zip(ENVIRONMENT_FOLDERS, divided(lock, self.options.own), strict=True):
            if part:
                self._install(part, folder, name, progress)
                sites.append(folder / name)
        (folder / ENVIRONMENT_FOLDERS[-1]).mkdir(mode=0o755, exist_ok=True)
        installed_files.check(sites)
        progress("ready", 1.0)

    def _install(self, lock: str, folder: Path, name: str, progress: Progress) -> None:
        """Install a lock's packages into the folder ``name`` of ``folder``."""
        filled = folder / "filled"
        with contextlib.ExitStack() as cleanup:
            workspace = cleanup.enter_context(self._workspace())
            source = workspace / "lock.txt"
            source.write_text(lock)
            source.chmod(0o644)
            filled.mkdir(mode=0o755)
            cleanup.callback(remove, filled)
            arguments = ["pip", "install", "--python", confined_uv.PYTHON, "--target", str(filled / "site")]
            arguments += ["--require-hashes", "--no-deps", "--link-mode=copy", "--compile-bytecode", *_WHEELS]
            result = confined_uv.run(
                [*arguments, "-r", str(source)], self._uv, [workspace, filled], INSTALLATION, progress
            )
            if result.code or result.limit:
                raise _error(result, "The model's packages cannot be installed.")
            site = filled / "site"
            if site.is_symlink() or not site.is_dir():
                raise BadRequirements("The model's packages cannot be installed: there is no folder of packages.")
            environments.freeze(filled, user=os.geteuid())
            site.rename(folder / name)

    def _cache_is_full(self) -> bool:
        """Return whether the cache has half of what it may take, or more."""
        most = confined_uv.CACHED // 2
        usage = usage_of(self._cache, most=most * confined_uv.ENTRIES)
        return (
            usage.bytes > most * self.options.largest
            or usage.entries > most * confined_uv.ENTRIES
            or usage.depth > DEPTH
        )

    @contextlib.contextmanager
    def _workspace(self) -> Iterator[Path]:
        """A folder for uv's files. The cache is shared by runs, and removed when it is too large and no run uses it."""
        self._cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        with open(self._folder / "lock", "w") as lock:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._cache_is_full():
                    remove(self._cache)
                    self._cache.mkdir(mode=0o755)
            fcntl.flock(lock, fcntl.LOCK_SH)
            workspace = Path(tempfile.mkdtemp(prefix=".uv-", dir=self._folder))
            workspace.chmod(0o755)
            try:
                yield workspace
            finally:
                remove(workspace)


def _environ(indexes: tuple[str, ...]) -> dict[str, str]:
    """Return uv's environment; credentials in the indexes' URLs stay out of its command line."""
    environ = {"UV_NO_PROGRESS": "1", "UV_LOCK_TIMEOUT": str(int(INSTALLATION)), **COMPILED}
    if indexes:
        environ |= {"UV_INDEX": " ".join(indexes[:-1]), "UV_DEFAULT_INDEX": indexes[-1]}
    return environ


def _certificates(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the operator's choice of certificates; of a file and a folder the file, whose links lead nowhere else."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        if path := environ.get(name):
            return {name: path}
    return {}


def _upstream(environ: Mapping[str, str]) -> Address | None:
    """Return the address of the operator's own proxy, if there is one."""
    url = environ.get("HTTPS_PROXY") or environ.get("https_proxy")
    if not url:
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return (parts.hostname or "", parts.port or 80)


def _error(result: UvResult, what: str) -> Exception:
    """Return the error for a run that failed, with uv's reason."""
    if result.limit:
        return BadRequirements(f"{what} {result.limit}")
    if result.refused:
        hosts = ", ".join(result.refused)
        return BadRequirements(f"{what} Files are on {hosts}, which the operator does not allow (PACKAGE_HOSTS).")
    if (how := confined_program.killed(result.code)) is not None:
        return ProgramKilled(f"{what} Its installer, uv, was {how}; it is tried again.")
    error = preparation_error(result.output)
    if isinstance(error, IndexUnavailable | OutOfSpace):
        return error
    return BadRequirements(f"{what} {reason_of(result.output)}")


def reason_of(output: str) -> str:
    """Return uv's reason in plain words, without its marks and without credentials."""
    lines = [_MARKS.sub("", line.strip()) for line in output.splitlines()]
    kept = [line for line in lines if line and not line.startswith(_UNHELPFUL) and "`--index-strategy" not in line]
    text = " ".join(line if line.endswith((".", ":", ",")) else f"{line}." for line in kept)
    text = text.replace(" (i.e., with `--no-build`)", "")
    return without_credentials(text)[:1500] or "uv ended without a reason."


def without_credentials(text: str) -> str:
    """Return a text whose URLs have no user and password."""
    return _CREDENTIALS.sub("://", text)
