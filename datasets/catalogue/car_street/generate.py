"""Make the data set again: networks, scenarios, `dataset.json`. Run: `python -m
datasets.catalogue.car_street.generate`.

Needs requirements.lock beside it. Equal versions make equal bytes; `--into` writes elsewhere, to compare.
"""

import argparse
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from datasets.catalogue.car_street.blueprints import BLUEPRINTS, NetworkTemplate
from datasets.catalogue.car_street.definition import DEFINITION
from datasets.catalogue.car_street.scenarios import scenarios

HERE = Path(__file__).parent
#: Names time, machine and folders of the making: nothing that a street is.
HEADER = re.compile(r"<!--.*?-->\s*", re.DOTALL)


def program(name: str) -> str:
    """Return the path of one of SUMO's programs."""
    package = importlib.util.find_spec("sumo")
    beside = Path(package.origin).parent / "bin" / name if package and package.origin else None
    found = str(beside) if beside and beside.exists() else shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed: see requirements.lock")
    return found


def network(blueprint: NetworkTemplate) -> str:
    """Build one street and return the text of its network file."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.net.xml"
        arguments = [program(blueprint.tool), *blueprint.options, "--seed", "1", "--output-file", str(made)]
        for option, text in blueprint.files.items():
            file = Path(folder) / f"{option.strip('-')}.xml"
            file.write_text(text)
            arguments += [option, str(file)]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
        return HEADER.sub("", made.read_text())


def compact(value: object) -> str:
    """Return JSON on one line."""
    return json.dumps(value, separators=(",", ":"))


def generate(folder: Path) -> None:
    """Write the whole data set into a folder."""
    texts = {street: network(blueprint) for street, blueprint in BLUEPRINTS.items()}
    lines = scenarios(texts)
    made = {f"nets/{street}.net.xml": text for street, text in texts.items()}
    made["scenarios.ndjson"] = "".join(compact(line) + "\n" for line in lines)
    made["types.add.xml"] = (HERE / "types.add.xml").read_text()
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    files = [
        {
            "path": name,
            "digest": "sha256:" + hashlib.sha256(made[name].encode()).hexdigest(),
            "size": len(made[name].encode()),
        }
        for name in sorted(made)
    ]
    definition = DEFINITION | {"tasks": len(lines), "streets": list(BLUEPRINTS), "files": files}
    (folder / "dataset.json").write_text(json.dumps(definition, indent=2) + "\n")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=HERE)
    generate(parser.parse_args().into)


if __name__ == "__main__":
    main()
