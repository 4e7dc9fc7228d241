"""Package case format: a simulator of Debian packages with its input files, which a gang runs; nothing loads it."""

import re

from .base import Assignment, Certainty, LoadedModel, Misfit, ModelFormat, Recognition, Sample

PAGE = "docs/packages.md"
#: Members that every description has; no other file that a person sends as a model begins with both.
MEMBERS = (re.compile(rb'"packages"\s*:\s*\['), re.compile(rb'"command"\s*:\s*\['))


def is_case(sample: Sample) -> bool:
    """Whether a file begins as a description of a case: an object that has packages and a command."""
    return sample.head.lstrip().startswith(b"{") and all(member.search(sample.head) for member in MEMBERS)


def recognise(sample: Sample) -> Recognition | None:
    return Recognition(Certainty.CONTENT) if is_case(sample) else None


def load(assignment: Assignment) -> LoadedModel:
    """Refuse: such a case has no actions."""
    raise Misfit(f"it is a case of a packaged simulator, which answers no observations ({PAGE})")


FORMAT = ModelFormat(
    title="Packaged simulator",
    description=(
        "A case of a simulator that Debian has: a zip or tar of input files with package.json, which names the"
        " packages, the command, and how progress and metrics are read from the log; or that alone, as a .case file."
    ),
    runtime="package",
    environment="python",
    isolation="scenario",
    suffixes=(".case",),
    recognise=recognise,
    unpacked=True,
    zip_contents="`package.json` at its top",
    manifest="package.json",
    load=load,
)
