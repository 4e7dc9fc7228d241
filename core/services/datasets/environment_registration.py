"""Environment registration: the packages of a dataset's OpenEnv environment locked, and its fields learnt from it.

The lock and the fields become files of the version, so that its digest covers both. The environment is run for this
once, confined as it is beside an evaluator.
"""

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from common import plain_yaml
from common.errors import BadScenario, OriginFailed, StorageFull
from core.services.datasets import environment_files
from core.services.datasets.environment_files import Files
from datasets.nodecache.node_cache import NodeCache
from datasets.versions import openenv_environment, scenarios
from datasets.versions.openenv_environment import OpenEnv, ProbedEnvironment
from datasets.versions.packs import SourceFile
from datasets.versions.scenarios import Description
from runtimes import catalogue, confined_program, environments, harness
from runtimes.dependencies import confined_uv
from runtimes.dependencies.installer import Installer
from runtimes.dependencies.untrusted_folders import workspace
from runtimes.environments import Environment
from runtimes.harness.python_process import ending
from runtimes.harness.runner.process_spec import Installation, ProcessSpec, start_process
from runtimes.harness.sandbox.allowances import MEMORY
from runtimes.harness.visible_text import visible

#: Seconds of a first episode at most, with the import of the environment, and bytes of its report and of its output.
PROBE, REPORT, OUTPUT = 300.0, 1 << 20, 16 << 10
#: Seconds in which its process exits after its report.
EXIT = 5.0
#: Module of an environment that names none, in its openenv.yaml or in its dataset.json.
APP = "server.app:app"

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RegisteredEnvironment:
    """The files that a version gets, and the JSON form with which it keeps its environment."""

    files: list[SourceFile]
    kept: dict[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Probe:
    """The end of a first episode: its report, the last printed line, how it ended; ``killed``: from outside."""

    text: bytes
    printed: str
    how: str
    killed: bool


class EnvironmentRegistration:
    """Registers environments. ``home``: with the environments of simulators, and scratch files."""

    def __init__(self, installer: Installer, cache: NodeCache, home: Path) -> None:
        self._installer = installer
        self._cache = cache
        self.home = home
        self._environments = home / "environments"
        self._scratch = home / "scratch"

    def registered(self, id: str, description: Description, files: Files, report: Report) -> RegisteredEnvironment:
        """Lock the packages of a version's environment, play a first episode, and return what the version keeps.

        ``id``: of the version. Raises BadScenario or BadRequirements with the reason and the next step.
        """
        declared = description.openenv or OpenEnv()
        texts = environment_files.texts(files)
        package, app = _names(texts, declared)
        lock = self._locked(texts, report)
        holder = f"registration-{id}"

        def say(message: str, fraction: float | None) -> None:
            report(f"installing the environment's packages: {message[:200]}")

        try:
            with environments_translated():
                installed = self._cache.derived(
                    f"sha256:{Environment('', lock).digest}",
                    lambda target, _: self._installer.install(lock, target, say),
                    size=0,
                    holder=holder,
                )
            with environments_translated(), workspace(self._scratch, "environment-") as folder:
                environment_files.write(files, folder, package, installed)
                described = msgspec.to_builtins(declared) | {"package": package, "app": app}
                probed = self._probed(folder, described, report)
        finally:
            self._cache.release(holder)
        kept = openenv_environment.completed(declared, probed, package=package, app=app, target=environments.target())
        made = [
            SourceFile(environment_files.LOCK, [lock.encode()]),
            SourceFile(environment_files.DESCRIPTION, [json.dumps(kept, indent=1).encode() + b"\n"]),
        ]
        if description.generate is not None:
            lines = (b'{"index": %d}\n' % index for index in range(description.generate.count))
            made.append(SourceFile(scenarios.GENERATED, [b"".join(lines)]))
        return RegisteredEnvironment(made, kept)

    def _locked(self, texts: Mapping[str, str], report: Report) -> str:
        declaration = environment_files.declaration(texts)

        def say(message: str, fraction: float | None) -> None:
            report(f"resolving the environment's packages: {message[:200]}")

        with environments_translated():
            return self._installer.resolve(declaration, "", say)

    def _probed(self, folder: Path, described: Mapping[str, object], report: Report) -> ProbedEnvironment:
        """Play a first episode in a confined process; return its checked report."""
        site = environments.prepare(
            catalogue.simulators()[openenv_environment.TEMPLATE],
            self._environments,
            lambda message, fraction: report(f"preparing the simulator: {message[:200]}"),
        )
        for _ in range(confined_program.ATTEMPTS):
            probe = self._run(folder, site, described, lambda: report("playing a first episode"))
            if not probe.killed:
                break
        try:
            answer = msgspec.json.decode(probe.text, type=dict[str, object])
        except msgspec.MsgspecError:
            raise BadScenario(
                f"The environment cannot be used: its first episode was not played ({probe.how}). {probe.printed}"
            ) from None
        if isinstance(reason := answer.get("error"), str):
            raise BadScenario(f"The environment cannot be used: {visible(reason[:1000]).removesuffix('.')}.")
        try:
            return msgspec.convert(answer, ProbedEnvironment)
        except msgspec.ValidationError as error:
            raise BadScenario(f"The environment cannot be used: its schema is not understood ({error}).") from None

    def _run(self, folder: Path, site: Path, described: Mapping[str, object], report: Callable[[], None]) -> _Probe:
        """Run the probe to its end."""
        spec = ProcessSpec(
            name="environment-probe",
            module="environment_probe",
            options={"dataset": str(folder), "openenv": dict(described)},
            confined=self._installer.options.sandbox,
            memory=MEMORY,
            readonly=(str(folder),),
        )
        installation = Installation(
            python=confined_uv.PYTHON, harness=str(Path(harness.__file__).parent), site=str(site), level=None
        )
        reading, writing = os.pipe()
        printed, output = os.pipe()
        try:
            process = start_process(spec, installation, {"report": writing}, output)
        finally:
            os.close(writing)
            os.close(output)
        try:
            text, lines, ended = _drained(reading, printed, report)
            if ended:  # it is about to exit, or has been killed
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(EXIT)
        finally:
            process.kill()
            code = process.wait()
        last = lines.decode(errors="replace").strip().splitlines()
        return _Probe(
            text=text,
            printed=visible(last[-1])[:300] if last else "",
            how=ending(code),
            killed=ended and not text and confined_program.killed(code) is not None,
        )


def _drained(reading: int, printed: int, report: Callable[[], None]) -> tuple[bytes, bytes, bool]:
    """Return what is written to the two pipes until the first is closed, or the time is over; both are closed then.

    The last value: whether the first was closed.
    """
    text, lines, until = b"", b"", time.monotonic() + PROBE
    try:
        with selectors.DefaultSelector() as selector:  # select() takes no descriptor above 1,023
            selector.register(reading, selectors.EVENT_READ)
            selector.register(printed, selectors.EVENT_READ)
            while len(text) <= REPORT and time.monotonic() < until and reading in selector.get_map():
                report()
                for key, _ in selector.select(0.5):
                    if not (piece := os.read(key.fd, 1 << 16)):
                        selector.unregister(key.fd)
                    elif key.fd == reading:
                        text += piece
                    else:
                        lines = (lines + piece)[-OUTPUT:]
            ended = reading not in selector.get_map()
    finally:
        os.close(reading)
        os.close(printed)
    return text, lines, ended


def _names(texts: Mapping[str, str], declared: OpenEnv) -> tuple[str, str]:
    """Return the environment's name as a package, and the module of its application."""
    manifest: object = {}
    if environment_files.MANIFEST in texts:
        try:
            manifest = plain_yaml.load(texts[environment_files.MANIFEST]) or {}
        except plain_yaml.BadYaml as error:
            raise BadScenario(f"{environment_files.MANIFEST} cannot be read: {error}.") from None
    if not isinstance(manifest, dict):
        raise BadScenario(f"{environment_files.MANIFEST} is not a YAML mapping.")
    package = environment_files.package_of(texts) or manifest.get("name")
    if not isinstance(package, str) or not package.isidentifier() or len(package) > 100:
        package = "environment"
    app = declared.app or manifest.get("app") or APP
    if not isinstance(app, str):
        raise BadScenario(f"{environment_files.MANIFEST}: `app` is a module and a name in it, such as `{APP}`.")
    openenv_environment.check(msgspec.structs.replace(declared, app=app))
    return package, app


@contextlib.contextmanager
def environments_translated() -> Iterator[None]:
    """Translate errors of preparation into those of registrations."""
    try:
        yield
    except environments.OutOfSpace as error:
        raise StorageFull(f"The environment's packages could not be installed: {error}") from None
    except environments.CannotPrepare as error:
        raise OriginFailed(f"The environment's packages could not be installed: {error}") from None
