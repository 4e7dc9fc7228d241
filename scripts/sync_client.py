"""Generate what follows from other code in the client: `python -m scripts.sync_client [--check]`.

`cli/windtunnel/_async` is written by hand; `cli/windtunnel/_sync` is the same without `async` and `await`, by unasync,
as in httpcore and elasticsearch-py. `built_in_datasets.py` has the names of the catalogue, and `submission_fields.py`
the fields that the class of submissions declares; the client imports neither. The web page, which is a client too, has
the same fields. `step_memory.py` is that of the harness, with which the client shares memory. `make lint` fails if they
differ.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

from datasets.catalogue import datasets
from scripts import submission_fields

PACKAGE = Path("cli/windtunnel")
NAMES = {
    "_async": "_sync",
    "asyncio": "time",  # its `sleep`
    "aread": "read",
    "aclose": "close",
    "aiter_lines": "iter_lines",
    "aiter_bytes": "iter_bytes",
    "aiter_sse": "iter_sse",
    **{
        f"Async{name}": name
        for name in (
            "Attempts",
            "Audit",
            "Client",
            "Comparisons",
            "Datasets",
            "Looks",
            "Members",
            "Models",
            "Pipelines",
            "Projects",
            "Results",
            "Services",
            "Simulations",
            "Tokens",
            "Transport",
            "Uploads",
            "Users",
            "Webhooks",
        )
    },
}
DATASETS = PACKAGE / "built_in_datasets.py"
SUBMISSION_FIELDS, PAGE_FIELDS = PACKAGE / "submission_fields.py", Path("web/submission_fields.py")
HARNESS = Path("runtimes/harness/session")
#: A module of the harness that imports nothing of it.
STEP_MEMORY = "step_memory.py"
NAMES_OF_DATASETS = '''# Generated from the catalogue of datasets by scripts/sync_client.py.
"""Built-in datasets: the names of those with scenarios to step through."""

DATASETS = (
{})
'''
NOTE = "# Generated from {} by scripts/sync_client.py; change that file.\n"


def generated(folder: Path) -> dict[Path, str]:
    """Return the text of each generated file by its path."""
    sources = sorted((PACKAGE / "_async").glob("*.py"))
    target = folder / "_sync"
    rule = unasync.Rule(fromdir=f"{PACKAGE / '_async'}/", todir=f"{target}/", additional_replacements=NAMES)
    unasync.unasync_files([str(source) for source in sources], rules=[rule])
    for source in sources:
        file = target / source.name
        text = file.read_text().replace("\nimport time\nimport time\n", "\nimport time\n")
        file.write_text(NOTE.format(f"{PACKAGE.name}/_async/{source.name}") + text)
    ruff, config = Path(sys.executable).with_name("ruff"), ("--quiet", "--config", "pyproject.toml")
    subprocess.run([ruff, "check", *config, "--select", "I", "--fix", target], check=True)
    subprocess.run([ruff, "format", *config, target], check=True)
    sync = {PACKAGE / "_sync" / source.name: (target / source.name).read_text() for source in sources}
    fields = {SUBMISSION_FIELDS: submission_fields.client_module(), PAGE_FIELDS: submission_fields.page_module()}
    note = NOTE.format(HARNESS / STEP_MEMORY)
    return (
        sync
        | {DATASETS: built_in_datasets(), PACKAGE / STEP_MEMORY: note + (HARNESS / STEP_MEMORY).read_text()}
        | fields
    )


def built_in_datasets() -> str:
    """Return the module with the names of the datasets whose scenarios can be stepped through."""
    definitions = {name: dataset.definition for name, dataset in datasets().items()}
    names = [name for name, value in definitions.items() if not value.get("gang") and not value.get("template")]
    return NAMES_OF_DATASETS.format("".join(f'    "{name}",\n' for name in names))


def main() -> int:
    """Write the files, or with `--check` say which differ."""
    with tempfile.TemporaryDirectory() as folder:
        files = generated(Path(folder))
    stale = set((PACKAGE / "_sync").glob("*.py")) - set(files)
    if "--check" in sys.argv:
        differing = sorted(
            stale | {path for path, text in files.items() if not path.exists() or path.read_text() != text}
        )
        for path in differing:
            print(f"{path} is not what scripts/sync_client.py generates: run `make sync-client`")
        return 1 if differing else 0
    (PACKAGE / "_sync").mkdir(exist_ok=True)
    for path, text in files.items():
        path.write_text(text)
    for path in stale:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
