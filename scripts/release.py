"""Release: set the version, cut the unreleased part of CHANGELOG.md, and say which results move.

    python -m scripts.release 0.3.0

The unreleased part has sections, `### Kind: title` or `#### Kind: title` below a `### Subject`, each of which may begin
with a sentence. They go to docs/releases/VERSION.md, and CHANGELOG.md keeps a line for each. Entries that begin with
`Results move:` say which, beside the digests of all built-in datasets: a release in which that of a published version
differs or is gone is refused without such an entry that names the dataset. Nothing is committed.
"""

import argparse
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

from common.version import VERSION
from datasets.catalogue import versions

CHANGELOG, NAVIGATION, RELEASES = Path("CHANGELOG.md"), Path("mkdocs.yml"), Path("docs/releases")
UNRELEASED = "## [Unreleased]\n"
RELEASES_ENTRY = "      - Releases:\n"
#: Files that have the version, and the text around it. The chart's own version is raised with the chart.
PLACES: Sequence[tuple[str, str]] = (
    ("common/version.py", 'VERSION = "{}"'),
    ("cli/pyproject.toml", '\nversion = "{}"'),
    ("halo/pyproject.toml", '\nversion = "{}"'),
    ("pyproject.toml", '"windtunnel=={}"'),
    ("uv.lock", 'name = "windtunnel"\nversion = "{}"'),
    ("helm/Chart.yaml", "appVersion: {}"),
    ("api/examples/responses.json", '"windtunnel": "{}"'),
)
GENERATORS = ("scripts.openapi",)
KIND = re.compile(r"(?:Added|Changed|Deprecated|Removed|Fixed|Security)(?::|$)")
HEADING = re.compile(r"^(#{3,4}) (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:|#)([^)]+)\)")
#: What an entry begins with that says which results move.
RESULTS = "- Results move:"
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| `(?P<digest>sha256:[0-9a-f]{64})` \|", re.MULTILINE)


class Refused(Exception):
    """The release cannot be cut; the text has the next step."""


@dataclass(frozen=True, slots=True)
class Section:
    """Section of the unreleased part. ``subject``: the heading above it, or none; ``lead``: its first sentence."""

    subject: str
    title: str
    lead: str
    entries: str

    @property
    def anchor(self) -> str:
        """Return the anchor that the documentation site gives its heading."""
        return re.sub(r"[^\w -]", "", self.title).strip().lower().replace(" ", "-")


def sections(text: str) -> Iterator[Section]:
    """Yield the sections of a part of the changelog."""
    before, *pieces = HEADING.split(text)
    subject = ""
    for level, title, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        if level == "###" and not KIND.match(title):
            subject, before = title, before + body
            continue
        subject = subject if level == "####" else ""
        lead, blank, entries = body.strip("\n").partition("\n\n")
        if not blank or lead.startswith(("- ", "|", "[")):
            lead, entries = "", body.strip("\n")
        yield Section(subject, title, " ".join(lead.split()), entries)
    if before.strip():
        raise Refused(f"{CHANGELOG}: these entries are below no `### Kind: title`: {before.strip().splitlines()[0]}")


def split(changelog: str) -> tuple[str, str, str]:
    """Return what is before the unreleased entries, these, and the releases before."""
    head, found, rest = changelog.partition(UNRELEASED)
    if not found:
        raise Refused(f"{CHANGELOG} has no line {UNRELEASED.strip()}.")
    index = rest.find("\n## ")
    unreleased, released = (rest, "") if index < 0 else (rest[: index + 1], rest[index + 1 :])
    if not unreleased.strip():
        raise Refused(f"{CHANGELOG} has nothing that is unreleased: there is nothing to release.")
    return head + UNRELEASED, unreleased, released


def summary(version: str, date: str, found: Sequence[Section]) -> str:
    """Return what CHANGELOG.md keeps: a line for each section."""
    page = RELEASES / f"{version}.md"
    lines = [f"## [{version}] - {date}", "", f"[All entries]({page}), [which results move]({page}#results).", ""]
    subject = ""
    for section in found:
        if section.subject != subject:
            subject = section.subject
            lines += ["", f"### {subject}"]
        kind, colon, title = section.title.partition(": ")
        linked = f"[{title or kind}]({page}#{section.anchor})"
        lines.append(
            f"- {kind}: {linked}. {section.lead}".rstrip() if colon else f"- {linked}. {section.lead}".rstrip()
        )
    return "\n".join(lines) + "\n"


def page(version: str, date: str, found: Sequence[Section], digests: Mapping[str, str], before: "Published") -> str:
    """Return the page of a release: which results move, the datasets, and all entries."""
    parts = [
        f"# {version}\n\n{date}. [The changelog](../../{CHANGELOG}) has a line for each section.\n\n## Results\n\n"
    ]
    moved = list(moves(found))
    parts += [relinked(f"-{entry.removeprefix(RESULTS)}\n") for entry in moved]
    if not moved:
        parts.append("No entry says that a result moves.\n")
    parts.append(f"\n| dataset | digest | since {before.version} |\n|---|---|---|\n")
    parts += [f"| `{name}` | `{digest}` | {before.compared(name, digest)} |\n" for name, digest in digests.items()]
    parts += [f"| `{name}` | | **gone** |\n" for name in before.digests if name not in digests]
    subject = ""
    for section in found:
        if section.subject != subject:
            subject = section.subject
            parts.append(f"\n## {subject}\n")
        lead = f"{section.lead}\n\n" if section.lead else ""
        parts.append(relinked(f"\n{'###' if subject else '##'} {section.title}\n\n{lead}{section.entries}\n"))
    return "".join(parts)


def moves(found: Sequence[Section]) -> Iterator[str]:
    """Yield the entries that say that results move."""
    for section in found:
        for entry in re.split(r"\n(?=- )", section.entries):
            if entry.startswith(RESULTS):
                yield entry


def relinked(text: str) -> str:
    """Return a text of CHANGELOG.md with its links as they are from the folder of releases."""
    return LINK.sub(lambda match: f"]({posixpath.relpath(match[1], RELEASES)})", text)


@dataclass(frozen=True, slots=True)
class Published:
    """The release before, and the digests of its datasets by NAME@VERSION."""

    version: str
    digests: Mapping[str, str]

    @classmethod
    def read(cls, version: str, text: str) -> "Published":
        """Read the page of a release."""
        return cls(version, {row["name"]: row["digest"] for row in ROW.finditer(text)})

    def compared(self, name: str, digest: str) -> str:
        """Return what became of a dataset since."""
        if name not in self.digests:
            return "new"
        return "equal" if self.digests[name] == digest else "**changed**"


def current_digests() -> dict[str, str]:
    """Return the digests of all versions of the built-in datasets."""
    return {f"{each.name}@{each.version}": each.digest for of_name in versions().values() for each in of_name}


def checked_version(text: str) -> str:
    """Return the version if it is one of three numbers and higher than the present one."""
    try:
        version = Version(text)
    except InvalidVersion:
        version = None
    if version is None or not re.fullmatch(r"\d+\.\d+\.\d+", text):
        raise Refused(f"{text!r} is not a version; write three numbers, such as 1.2.3.")
    if version <= Version(VERSION):
        raise Refused(f"{text} is not higher than {VERSION}, which is the present version.")
    return text


def check_results(found: Sequence[Section], digests: Mapping[str, str], before: Published) -> None:
    """Refuse a release whose published datasets have changed or gone while no entry says so of each."""
    said = "\n".join(moves(found))
    unsaid = [
        name
        for name, digest in before.digests.items()
        if digests.get(name) != digest and not re.search(rf"`{re.escape(name.partition('@')[0])}[@`]", said)
    ]
    if unsaid:
        raise Refused(
            f"The definition of {', '.join(unsaid)} differs from that of {before.version}, or is gone, and with it all"
            f" seeds and results, and no entry that begins with `{RESULTS}` names the dataset. Make it a new version,"
            " or say in such an entry which results move."
        )


def check_tree() -> None:
    """Refuse files that differ from the last commit: a release is a commit of its own."""
    status = subprocess.run(["git", "status", "--porcelain"], check=True, capture_output=True, text=True).stdout
    if status:
        raise Refused(f"There are changes that are not committed: commit or stash them first.\n{status.rstrip()}")


def replaced(path: str, pattern: str, version: str) -> str:
    """Return the text of a file with the new version in the place of the present one."""
    text = Path(path).read_text()
    if pattern.format(VERSION) not in text:
        raise Refused(f"{path} has no {pattern.format(VERSION).strip()!r}; scripts/release.py lists the places.")
    return text.replace(pattern.format(VERSION), pattern.format(version))


def cut(version: str, date: str) -> None:
    """Cut a release in the current folder; nothing is written if it is refused."""
    check_tree()
    checked_version(version)
    head, unreleased, released = split(CHANGELOG.read_text())
    found, digests = list(sections(unreleased)), current_digests()
    before = Published.read(VERSION, (RELEASES / f"{VERSION}.md").read_text())
    check_results(found, digests, before)
    texts = {Path(path): replaced(path, pattern, version) for path, pattern in PLACES}
    texts[RELEASES / f"{version}.md"] = page(version, date, found, digests, before)
    texts[CHANGELOG] = f"{head}\n{summary(version, date, found)}\n{released}"
    entry = f"          - {RELEASES / f'{version}.md'}\n"
    texts[NAVIGATION] = NAVIGATION.read_text().replace(RELEASES_ENTRY, RELEASES_ENTRY + entry)
    for path, text in texts.items():
        path.write_text(text)
    for generator in GENERATORS:
        subprocess.run([sys.executable, "-m", generator], check=True)


def main() -> int:
    """Cut the release that the command line names, and say what is next."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release", description="Cut a release.")
    parser.add_argument("version", help="the new version, such as 1.2.3")
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat(), help="its date; today by default")
    options = parser.parse_args()
    try:
        cut(options.version, options.date)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 1
    page_path = RELEASES / f"{options.version}.md"
    print(f"{options.version} is cut, and not committed. Read {page_path}, run `scripts/uv sync` and `make lint`,")
    print(f"commit everything as one commit, and tag it v{options.version}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
