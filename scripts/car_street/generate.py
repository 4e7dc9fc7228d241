"""Generator of car_street: writes networks and scenarios, and their number and digests into `dataset.json`.

Run `python -m scripts.car_street.generate` with the packages of generate.lock. Equal versions of these
generate equal bytes; `--into` writes to another folder, for comparison.
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

from scripts.car_street.blueprints import BLUEPRINTS, NetworkTemplate
from scripts.car_street.scenarios import scenarios

DATASET = Path(__file__).parents[2] / "datasets/catalogue/car_street"
#: Comment of the tools with time, machine and paths, which is removed so that the bytes are reproducible.
HEADER = re.compile(r"<!--.*?-->\s*", re.DOTALL)


def program(name: str) -> str:
    """Return the path of one of SUMO's programs."""
    package = importlib.util.find_spec("sumo")
    packaged = Path(package.origin).parent / "bin" / name if package and package.origin else None
    path = str(packaged) if packaged and packaged.exists() else shutil.which(name)
    if path is None:
        raise SystemExit(f"SUMO's program {name} is not installed: install scripts/car_street/generate.lock")
    return path


def network(blueprint: NetworkTemplate) -> str:
    """Build one street and return the text of its network file."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "made.net.xml"
        arguments = [program(blueprint.tool), *blueprint.options, "--seed", "1", "--output-file", str(output)]
        for option, text in blueprint.files.items():
            file = Path(folder) / f"{option.strip('-')}.xml"
            file.write_text(text)
            arguments += [option, str(file)]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
        return HEADER.sub("", output.read_text())


def compact(value: object) -> str:
    """Return JSON on one line."""
    return json.dumps(value, separators=(",", ":"))


def generate(folder: Path) -> None:
    """Write the dataset's files to a folder."""
    texts = {street: network(blueprint) for street, blueprint in BLUEPRINTS.items()}
    lines = scenarios(texts)
    contents = {f"nets/{street}.net.xml": text for street, text in texts.items()}
    contents["scenarios.ndjson"] = "".join(compact(line) + "\n" for line in lines)
    contents["types.add.xml"] = (DATASET / "types.add.xml").read_text()
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    files = [
        {
            "path": name,
            "digest": "sha256:" + hashlib.sha256(contents[name].encode()).hexdigest(),
            "size": len(contents[name].encode()),
        }
        for name in sorted(contents)
    ]
    definition = json.loads((DATASET / "dataset.json").read_text())
    definition |= {"tasks": len(lines), "streets": list(BLUEPRINTS), "files": files}
    (folder / "dataset.json").write_text(json.dumps(definition, indent=2) + "\n")


def main() -> None:
    """Parse the command line and generate the dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=DATASET)
    generate(parser.parse_args().into)


if __name__ == "__main__":
    main()
