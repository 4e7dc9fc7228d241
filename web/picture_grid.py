"""Pictures among the artifacts of tasks: all of one task, and one of each task of a sweep side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from web.reruns import results

#: Suffixes of what a page asks for as a picture; the API then judges by the content.
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".svg")
#: Pictures that the page of a task shows, and tasks of which a simulation's page shows one.
PICTURES_OF_TASK, TASKS_OF_GRID = 12, 100


class ArtifactName(msgspec.Struct):
    """An artifact of a result."""

    name: str


class SweptScenario(msgspec.Struct):
    """The scenario of a result, with the parameters of its task, if it has any."""

    params: Mapping[str, object] | None = None


class PicturedTask(msgspec.Struct):
    """A result with what its task has left."""

    task: int
    scenario: SweptScenario
    artifacts: Sequence[ArtifactName] = ()

    @property
    def pictures(self) -> Sequence[str]:
        """The names of the pictures among its artifacts."""
        return [file.name for file in self.artifacts if file.name.lower().endswith(SUFFIXES)]


class ProgramSpec(msgspec.Struct):
    """A submission, with the gang that runs its program."""

    gang: object = None


class ProgramSimulation(msgspec.Struct):
    """A simulation that may be a program's, the only ones that leave files of their own."""

    id: str
    spec: ProgramSpec


class PictureChoice(msgspec.Struct):
    """The choice of a page's address: the name of the picture that is shown."""

    picture: str = ""


@dataclass(frozen=True, slots=True)
class PictureTable:
    """Tasks by the values of two parameters: a row for each value of the first, a column for each of the second."""

    parameters: tuple[str, str]
    columns: Sequence[object]
    rows: Sequence[tuple[object, Sequence[int | None]]]


@dataclass(frozen=True, slots=True)
class PictureGrid:
    """Pictures of the same ``name``, one of each task, with the task's parameters that differ between them.

    ``names``: of all pictures of these tasks. ``table``: the tasks, if two parameters place each of them.
    """

    name: str
    names: Sequence[str]
    tasks: Sequence[tuple[int, Mapping[str, object]]]
    table: PictureTable | None


def pictures_of(result: Mapping[str, object] | None) -> Sequence[str]:
    """Return the names of the pictures that the page of a task shows."""
    return [] if result is None else msgspec.convert(result, PicturedTask).pictures[:PICTURES_OF_TASK]


def picture_grid(simulation: Mapping[str, object], address: Mapping[str, str]) -> PictureGrid | None:
    """Return pictures of a simulation's first tasks side by side; None if there are not two of a name.

    ``address``: the arguments of the page's address, with a PictureChoice; without a picture of that name the first
    one of the first task is shown.
    """
    program = msgspec.convert(simulation, ProgramSimulation)
    if program.spec.gang is None:
        return None
    first = msgspec.convert(results(program.id, {"limit": TASKS_OF_GRID}), list[PicturedTask])
    names = list(dict.fromkeys(name for task in first for name in task.pictures))
    chosen = msgspec.convert(address, PictureChoice).picture
    name = chosen if chosen in names else next(iter(names), "")
    shown = [task for task in first if name in task.pictures]
    if len(shown) < 2:
        return None
    values = [task.scenario.params or {} for task in shown]
    differing = [key for key, value in values[0].items() if any(other.get(key) != value for other in values)]
    tasks = [(task.task, {key: own.get(key) for key in differing}) for task, own in zip(shown, values, strict=True)]
    return PictureGrid(name, names, tasks, picture_table(tasks))


def picture_table(tasks: Sequence[tuple[int, Mapping[str, object]]]) -> PictureTable | None:
    """Return tasks as a table by their two parameters; None if these are not two, or less than half of it is filled.

    Values are in the order in which they come first.
    """
    parameters = tuple(tasks[0][1])
    placed = {tuple(map(repr, values.values())): task for task, values in tasks}
    if len(parameters) != 2 or len(placed) != len(tasks):
        return None
    rows, columns = ({repr(values[key]): values[key] for _, values in tasks} for key in parameters)
    if len(rows) * len(columns) > 2 * len(tasks):
        return None
    cells = [(row, [placed.get((text, column)) for column in columns]) for text, row in rows.items()]
    return PictureTable((parameters[0], parameters[1]), list(columns.values()), cells)
