"""Package case: a simulator of Debian packages with its input files, as `package.json` describes it.

The description is in an archive of the input files; or it is the whole model, a file of the suffix `.case`, which has
the input files in it as text.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec
from msgspec import Meta

from common.errors import BadRequirements
from runtimes.harness.gang.task_folder import PARAMETER
from runtimes.packages.package_closure import REQUEST

#: The description's name in an archive, and the most bytes of it.
MANIFEST, LARGEST_MANIFEST = "package.json", 4 << 20
#: Most ranks, which a submission may exceed no more than a case.
MOST_RANKS = 4096
_Text = Annotated[str, Meta(min_length=1, max_length=1000)]
_Path = Annotated[str, Meta(min_length=1, max_length=200)]
_Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}\Z")]


class PackageCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case: the packages, the command that each rank runs, and what is read from the log of the first rank.

    ``templates``: files in which `{{name}}` becomes a parameter's value. ``progress``: an expression whose first group
    is the fraction that is done, or with a second group, how much of that. ``metrics``: an expression by metric, whose
    first group is the value. ``environ``: variables of the program. ``files``: further files, as text.
    """

    packages: Annotated[list[_Text], Meta(min_length=1, max_length=100)]
    command: Annotated[list[_Text], Meta(min_length=1, max_length=100)]
    ranks: Annotated[int, Meta(ge=1, le=MOST_RANKS)] = 1
    templates: Annotated[list[_Path], Meta(max_length=100)] = []
    progress: _Text | None = None
    metrics: Annotated[dict[_Text, _Text], Meta(max_length=200)] = {}
    environ: Annotated[dict[_Variable, str], Meta(max_length=100)] = {}
    files: Annotated[dict[_Path, str], Meta(max_length=500)] = {}

    @property
    def rules(self) -> Mapping[str, object]:
        """The rules of the log (`runtimes.harness.gang.rank.LogRules`)."""
        progress = {} if self.progress is None else {"progress": self.progress}
        return {**progress, **({"metrics": self.metrics} if self.metrics else {})}


def parse_case(text: str | bytes, where: str = MANIFEST) -> PackageCase:
    """Read a description. Raise BadRequirements with the member and the reason."""
    try:
        case = msgspec.json.decode(text, type=PackageCase)
    except msgspec.DecodeError as error:
        raise BadRequirements(f"{where}: {error}. docs/packages.md lists its members.") from None
    for request in case.packages:
        if REQUEST.fullmatch(request) is None:
            raise BadRequirements(
                f"{where}: `packages` has {request!r:.100}: each is a Debian package, or name=version."
            )
    for name, expression in {"progress": case.progress or "", **case.metrics}.items():
        try:
            re.compile(expression)
        except (re.error, OverflowError, RecursionError) as error:
            raise BadRequirements(f"{where}: the expression of {name} is not valid: {error}") from None
    for path in (*case.files, *case.templates):
        if path.startswith("/") or {"", ".", ".."} & {*path.split("/")} or not path.isprintable():
            raise BadRequirements(f"{where}: {path!r:.100} is not the path of a file in the case.")
    folders = {str(folder) for path in case.files for folder in PurePosixPath(path).parents}
    if both := sorted(folders & {*case.files}):
        raise BadRequirements(f"{where}: `files` has {both[0]!r:.100} and files in a folder of that name.")
    for word in (*case.command, *case.environ.values()):
        if "\0" in word:
            raise BadRequirements(f"{where}: `command` or `environ` has a NUL, which no program can be given.")
        if (parameter := PARAMETER.search(word)) is not None:
            raise BadRequirements(
                f"{where}: parameters are written into `templates`, not into the command or `environ`: move"
                f" {parameter[0]:.100} into a file, such as a script that the command runs, and name that in"
                " `templates`."
            )
    return case


def require_templates(case: PackageCase, paths: Collection[str] = ()) -> PackageCase:
    """Return a case. Raise BadRequirements for a template that is not among its files, with ``paths`` beside it."""
    for template in case.templates:
        if template not in case.files and template not in paths:
            raise BadRequirements(f"`templates` has {template!r:.100}, and the case has no such file.")
    return case


def read_case(model: Path) -> PackageCase:
    """Read the case of a stored model: the folder of its files, or its one file. Raise BadRequirements."""
    path = model / MANIFEST if model.is_dir() else model
    if not path.is_file() or path.stat().st_size > LARGEST_MANIFEST:
        raise BadRequirements(f"The case has no {MANIFEST}, or one of more than {LARGEST_MANIFEST:,} bytes.")
    return parse_case(path.read_bytes(), MANIFEST if model.is_dir() else "The case")
