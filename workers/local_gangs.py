"""Local gangs: what the gang of a launch needs on this machine, and the process that runs its tasks."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from common.errors import Unsafe
from core.domain.scheduling.communications.members import GangMembers, ReplicaPosition
from core.domain.scheduling.launches import PACKAGED, Launch
from runtimes import catalogue, environments
from runtimes.harness.gang.gang_task import LaunchedProgram, LocalGangSpec
from runtimes.harness.runner.process_spec import ENTRIES, ENVIRONMENT_FOLDERS
from runtimes.packages.package_case import read_case
from runtimes.packages.package_installer import ROOT, library_folders
from workers.executors.kubernetes.gang_pods import members_of
from workers.runner_processes import StartedProcess
from workers.warm_runners import HARNESS, ControlledRunner, PreparedFolders, base_interpreter, own_environment

#: The library that measures how ranks communicate, where a communication model's environment has it.
RANK_TIMES = "libwindtunnel_mpi_times.so"
#: Folder of the package for decomposed grids, which programs with the platform's MPI have without declaring it.
HALO = HARNESS.parents[1] / "halo"


def local_gang_spec(launch: Launch, folders: PreparedFolders, sandbox: int | None, model: Path) -> LocalGangSpec | None:
    """Return the gang of a launch on this machine; None if the gang's packages are not prepared here.

    ``model``: its files. Raise Unsafe for a packaged simulator that would not be confined.
    ``sandbox``: the level to confine it at; None: not at all. Hosts have the names that they have on Kubernetes.
    """
    root = case = None
    if launch.gang is not None and launch.gang.communication == PACKAGED:
        if sandbox is None:
            raise Unsafe(
                "A packaged simulator runs in a sandbox whose root its packages are; WINDTUNNEL_SANDBOX=none has none."
            )
        environment, packages, case = own_environment(launch.environment, folders.cache), [], read_case(model)
        if environment is None:
            return None
        root = environment / ROOT
    elif (found := _packages(launch, folders)) is None:
        return None
    else:
        packages = found
    members = members_of(launch)
    positions = [
        ReplicaPosition(slice=str(slice), index=str(index))
        for slice in range(members.gang.slices)
        for index in range(members.gang.size)
    ]
    alone = members.communication.alone
    if alone is not None:
        programs, ranks = [_program(members, ReplicaPosition(), list(alone(members)))], members.ranks
    else:
        programs, ranks = [_program(members, position, []) for position in positions], len(positions)
    return LocalGangSpec(
        python=base_interpreter(),
        harness=str(HARNESS),
        packages=list(map(str, packages)),
        programs=programs,
        command=members.gang.command,
        hosts=[*map(members.host, positions), members.leader],
        ranks=ranks,
        memory=launch.placement.memory * len(positions),
        name="model.py" if launch.format == "python" else "model",
        level=sandbox,
        start=members.gang.start,
        build=members.gang.build,
        root=None if root is None else str(root),
        libraries=[] if root is None else library_folders(root),
        rules={} if case is None else case.rules,
        templates=[] if case is None else case.templates,
        environ={} if case is None else case.environ,
        contents={} if case is None else case.files,
        times=next((str(path) for folder in packages if (path := folder / RANK_TIMES).is_file()), None),
    )


def _program(members: GangMembers, position: ReplicaPosition, launcher: Sequence[str]) -> LaunchedProgram:
    """Return a program that the gang starts, with its environment."""
    place = {"WINDTUNNEL_GANG_SLICE": position.slice, "WINDTUNNEL_GANG_INDEX": position.index}
    return LaunchedProgram(launcher=launcher, environ={**place, **members.environment(position)})


def _packages(launch: Launch, folders: PreparedFolders) -> list[Path] | None:
    """Return the folders of a program's packages, None if they are not prepared.

    First those that it declares, or else those of its format; then those of its communication model, and with MPI the
    halo package, last, so that a program which declares a version of it has that.
    """
    own = _own_packages(launch, folders)
    communication = catalogue.communications().get(launch.gang.communication) if launch.gang is not None else None
    if own is None or communication is None:
        return own
    site = environments.ready(communication, folders.environments)
    if site is None:
        return None
    return [*own, site, HALO] if communication.name == "mpi" else [*own, site]


def _own_packages(launch: Launch, folders: PreparedFolders) -> list[Path] | None:
    if launch.environment:
        own = own_environment(launch.environment, folders.cache)
        return None if own is None else [own / name for name in ENVIRONMENT_FOLDERS]
    runtime = catalogue.runtimes().get(launch.runtime)
    if runtime is None or launch.format not in runtime.formats:
        return None
    site = environments.ready(runtime.formats[launch.format].environment, folders.environments)
    return None if site is None else [site]


class GangProcess(ControlledRunner):
    """A gang's runner. It starts nothing before its launch arrives."""

    def __init__(self, gang: LocalGangSpec, log: Path) -> None:
        super().__init__(log)
        with open(log, "wb") as output, self.remote as remote:
            descriptors = {"control": remote.fileno()}
            self._process = StartedProcess(gang.python, ENTRIES["gang"], {"gang": asdict(gang)}, descriptors, output)
