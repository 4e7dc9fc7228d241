"""Second version of car_street: the first one's files, tasks and seeds, and a metric more.

Run `python -m datasets.catalogue.car_street.second_version` to write its folder. Metrics of both have equal values.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from datasets.catalogue.car_street.definition import MIN_TTC_ANY

FIRST = Path(__file__).parent
SECOND = FIRST.parent / "car_street_2"


def definition() -> dict[str, Any]:
    """Return the definition; `seeds` is the digest of the version whose seeds the tasks have."""
    raw = (FIRST / "dataset.json").read_bytes()
    first: dict[str, Any] = json.loads(raw)
    metrics = list(first["metrics"])
    place = next(place for place, metric in enumerate(metrics) if metric["name"] == "min_ttc") + 1
    return first | {
        "version": "2",
        "seeds": "sha256:" + hashlib.sha256(raw).hexdigest(),
        "metrics": [*metrics[:place], MIN_TTC_ANY.describe(), *metrics[place:]],
    }


def generate(folder: Path) -> None:
    """Write the dataset's files to a folder."""
    described = definition()
    for entry in described["files"]:
        (folder / entry["path"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(FIRST / entry["path"], folder / entry["path"])
    (folder / "dataset.json").write_text(json.dumps(described, indent=2) + "\n")


if __name__ == "__main__":
    generate(SECOND)
