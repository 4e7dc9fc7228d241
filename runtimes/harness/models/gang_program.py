"""Gang program format: any file or archive that a gang runs by its command; nothing here loads it."""

from .base import Assignment, LoadedModel, Misfit, ModelFormat

PAGE = "docs/gangs.md"


def load(assignment: Assignment) -> LoadedModel:
    """Refuse: such a program has no actions."""
    raise Misfit(f"it is the program of a gang, which answers no observations; submit it with a `gang` ({PAGE})")


FORMAT = ModelFormat(
    title="Gang program",
    description=(
        "The program of a gang: any file, or a zip or tar of any files, of which the gang's `command` starts what it"
        " names. A file is of this format where it is named, or where a gang is submitted with a file of no other."
    ),
    runtime="native",
    environment="python",
    isolation="scenario",
    unpacked=True,
    dependencies=True,
    any_file=True,
    load=load,
)
