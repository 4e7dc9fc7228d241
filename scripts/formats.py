"""Write the table of formats in docs/model-formats.md: `python -m scripts.formats`."""

from pathlib import Path

from runtimes import formats

PAGE = Path("docs/model-formats.md")
START, END = "<!-- table -->\n", "<!-- end of table -->\n"
HEAD = """| format | runtime | files | a zip with | at most | environment | packages |
|---|---|---|---|---|---|---|
"""


def page(text: str) -> str:
    """Return the page with the table of all formats."""
    before, _, tail = text.partition(START)
    _, _, after = tail.partition(END)
    return f"{before}{START}{table()}{END}{after}"


def table() -> str:
    """Return one row per format."""
    rows = []
    for name, format in formats.formats().items():
        suffixes = ", ".join(f"`{suffix}`" for suffix in format.suffixes)
        size = f"{format.max_size:,} bytes" if format.max_size is not None else ""
        cells = (
            name,
            format.runtime,
            suffixes,
            format.zip_contents,
            size,
            format.environment,
            ", ".join((*format.packages, *(f"{line} (per model)" for line in format.requirements))),
        )
        rows.append("| " + " | ".join(cells) + " |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
