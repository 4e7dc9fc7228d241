"""The table of attacks in docs/sandbox.md: what each tries, and whether it succeeds, by kind, user and level."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "sandbox.md"

#: The table's columns, in its order.
COLUMNS = (
    *(("model", 3, "root"), ("model", 3, "user"), ("model", 2, "root"), ("model", 2, "user")),
    *(("rank", 3, "root"), ("rank", 3, "user"), ("node", 3, "root"), ("node", 3, "user")),
    ("pod", 2, "user"),
)


def documented(kind: str, user: str, level: int) -> dict[str, str]:
    """Read one column of the table."""
    row = re.compile(r"\| `(\w+)` \|[^|]*" + r"\| (contained|escaped) " * len(COLUMNS) + r"\|")
    column = COLUMNS.index((kind, level, user)) + 2
    return {match[1]: match[column] for match in map(row.fullmatch, DOCUMENT.read_text().splitlines()) if match}


def described() -> dict[str, str]:
    """Read the second column of the table."""
    row = re.compile(r"\| `(\w+)` \| ([^|]*) " + r"\| (?:contained|escaped) " * len(COLUMNS) + r"\|")
    return {match[1]: match[2] for match in map(row.fullmatch, DOCUMENT.read_text().splitlines()) if match}
