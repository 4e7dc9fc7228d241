"""Local gangs: what the gang of a launch needs on the machines that it is on, and the process that runs its tasks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from common.errors import Unsafe
from core.domain.scheduling.communications.members import GangMembers, ReplicaPosition
from core.domain.scheduling.launches import PACKAGED, Launch
from datasets.versions.program_files import files_of
from runtimes import catalogue, environments
from runtimes.harness.gang.attempts import NOT_LISTENING
from runtimes.harness.gang.gang_task import LaunchedProgram, LocalGangSpec
from runtimes.harness.runner.process_spec import ENTRIES, ENVIRONMENT_FOLDERS
from runtimes.packages.package_case import PackageCase, read_case
from runtimes.packages.package_installer import BESIDE, ROOT, library_folders
from workers.executors.kubernetes.gang_pods import members_of
from workers.runner_processes import StartedProcess
from workers.warm_runners import HARNESS, ControlledRunner, PreparedFolders, base_interpreter, own_environment

#: The library that measures how ranks communicate, where a communication model's environment has it.
RANK_TIMES = "libwindtunnel_mpi_times.so"
#: The communication model whose environment has that library.
MPI = "mpi"
#: Folder of the package for decomposed grids, which programs with the platform's MPI have without declaring it.
HALO = HARNESS.parents[1] / "halo"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramFiles:
    """Files that a gang's program finds on a machine besides its model: folders of Python packages, the first one
    first; or for a packaged simulator the ``root`` of its packages, and its ``case``. ``times``: the library that
    measures how ranks communicate, if it is there; ``data``: the folder of its dataset's files, if it has one.
    """

    packages: Sequence[Path] = ()
    times: Path | None = None
    root: Path | None = None
    case: PackageCase | None = None
    data: Path | None = None


def local_gang_spec(launch: Launch, folders: PreparedFolders, sandbox: int | None, model: Path) -> LocalGangSpec | None:
    """Return the gang of a launch on this machine; None if what its program needs is not prepared here.

    ``model``: its files. Raise Unsafe for a packaged simulator that would not be confined.
    ``sandbox``: the level to confine it at; None: not at all. Hosts have the names that they have on Kubernetes.
    """
    environment = own_environment(launch.environment, folders.cache) if launch.environment else None
    if launch.environment and environment is None:
        return None
    files = program_files(launch, folders.environments, environment, sandbox, model)
    data = files_of(folders.plays, launch.play) if launch.play else None
    if files is None or (launch.play and data is None):
        return None
    files = replace(files, data=data)
    return whole_gang_spec(launch, members_of(launch), files, sandbox)


def whole_gang_spec(launch: Launch, members: GangMembers, files: ProgramFiles, sandbox: int | None) -> LocalGangSpec:
    """Return a gang that is on one machine."""
    positions = _positions(members)
    alone = members.communication.alone
    if alone is not None:
        programs, ranks = [_program(members, ReplicaPosition(), list(alone(members)))], members.ranks
    else:
        programs, ranks = [_program(members, position, []) for position in positions], len(positions)
    hosts = [*map(members.host, positions), members.leader]
    spec = _spec(launch, files, sandbox)
    return replace(spec, programs=programs, hosts=hosts, ranks=ranks, memory=spec.memory * len(positions))


def gang_spec_of_node(
    launch: Launch, members: GangMembers, files: ProgramFiles, sandbox: int | None, number: int
) -> LocalGangSpec:
    """Return the part of a gang on one of several nodes, each of which has a replica, slice by slice."""
    slice, index = divmod(number, members.gang.size)
    position, communication = ReplicaPosition(slice=str(slice), index=str(index)), members.communication
    programs = []
    if communication.lead is None or communication.follow is None:
        ranks, programs = 1, [_program(members, position, [])]
    else:
        ranks = members.gang.slots
        proxy = [base_interpreter(), "-S", "-E", "-B", str(HARNESS / "gang/attempts.py"), str(NOT_LISTENING)]
        follow = _program(members, position, [*proxy, *communication.follow(members, position)])
        lead = [_program(members, position, list(communication.lead(members)))] if index == 0 else []
        programs = [*lead, replace(follow, complete=True)]
    return replace(
        _spec(launch, files, sandbox),
        programs=programs,
        hosts=[members.host(position)],
        first=ranks * number,
        ranks=ranks,
    )


def _positions(members: GangMembers) -> list[ReplicaPosition]:
    return [
        ReplicaPosition(slice=str(slice), index=str(index))
        for slice in range(members.gang.slices)
        for index in range(members.gang.size)
    ]


def _spec(launch: Launch, files: ProgramFiles, sandbox: int | None) -> LocalGangSpec:
    """Return what is the same wherever a gang is. ``memory``: of one replica."""
    gang, case = members_of(launch).gang, files.case
    return LocalGangSpec(
        python=base_interpreter(),
        harness=str(HARNESS),
        packages=list(map(str, files.packages)),
        programs=[],
        command=gang.command,
        hosts=[],
        ranks=0,
        memory=launch.placement.memory,
        name="model.py" if launch.format == "python" else "model",
        level=sandbox,
        start=gang.start,
        build=gang.build,
        root=None if files.root is None else str(files.root),
        libraries=[] if files.root is None else library_folders(files.root),
        rules={} if case is None else case.rules,
        templates=[] if case is None else case.templates,
        environ={} if case is None else case.environ,
        contents={} if case is None else case.files,
        times=None if files.times is None else str(files.times),
        data=None if files.data is None else str(files.data),
    )


def _program(members: GangMembers, position: ReplicaPosition, launcher: Sequence[str]) -> LaunchedProgram:
    """Return a program that the gang starts, with its environment."""
    place = {"WINDTUNNEL_GANG_SLICE": position.slice, "WINDTUNNEL_GANG_INDEX": position.index}
    place |= {"WINDTUNNEL_RANK": str(int(position.slice) * members.gang.size + int(position.index))}
    return LaunchedProgram(launcher=launcher, environ={**place, **members.environment(position)})


def program_files(
    launch: Launch,
    prepared: Path,
    environment: Path | None,
    sandbox: int | None,
    model: Path,
    site: Path | None = None,
) -> ProgramFiles | None:
    """Return what a gang's program needs here, None if it is not prepared.

    ``environment``: the folder of the packages that the model declares, if it does; ``model``: its files; ``site``: the
    packages of its format, where they are not prepared in a folder. Raise Unsafe for a packaged simulator that would
    not be confined.
    """
    if launch.gang is None or launch.gang.communication != PACKAGED:
        packages = gang_packages(launch, prepared, environment, site)
        return None if packages is None else ProgramFiles(packages=packages, times=_rank_times(packages))
    if sandbox is None:
        raise Unsafe(
            "A packaged simulator runs in a sandbox whose root its packages are; WINDTUNNEL_SANDBOX=none has none."
        )
    if environment is None:
        return None
    mpi = environments.ready(catalogue.communications()[MPI], prepared)  # where coupled programs have run before
    times = _rank_times([environment / BESIDE, *([] if mpi is None else [mpi])])
    return ProgramFiles(root=environment / ROOT, case=read_case(model), times=times)


def _rank_times(folders: Sequence[Path]) -> Path | None:
    return next((path for folder in folders if (path := folder / RANK_TIMES).is_file()), None)


def gang_packages(
    launch: Launch, prepared: Path, environment: Path | None, site: Path | None = None
) -> Sequence[Path] | None:
    """Return the folders of a program's packages, None if they are not prepared.

    After those that it declares, or else those of its format, come those of its communication model, and with MPI the
    halo package, last, so that a program which declares a version of it has that. The environment of a framework takes
    the place of both: versions of two resolutions do not fit together.
    """
    communication = catalogue.communications().get(launch.gang.communication) if launch.gang is not None else None
    framework = communication is not None and communication.name in catalogue.FRAMEWORKS
    if environment is not None:
        own = [environment / name for name in ENVIRONMENT_FOLDERS]
    elif framework:
        own = []
    elif (of_format := site or _packages_of_format(launch, prepared)) is None:
        return None
    else:
        own = [of_format]
    if communication is None or (framework and own):
        return own
    brought = environments.ready(communication, prepared)
    if brought is None:
        return None
    return [*own, brought, HALO] if communication.name == MPI else [*own, brought]


def _packages_of_format(launch: Launch, prepared: Path) -> Path | None:
    runtime = catalogue.runtimes().get(launch.runtime)
    if runtime is None or launch.format not in runtime.formats:
        return None
    return environments.ready(runtime.formats[launch.format].environment, prepared)


class GangProcess(ControlledRunner):
    """A gang's runner. It starts nothing before its launch arrives."""

    def __init__(self, gang: LocalGangSpec, log: Path) -> None:
        super().__init__(log)
        with open(log, "wb") as output, self.remote as remote:
            descriptors = {"control": remote.fileno()}
            self._process = StartedProcess(gang.python, ENTRIES["gang"], {"gang": asdict(gang)}, descriptors, output)
