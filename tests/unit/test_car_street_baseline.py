"""The trained baseline's files are the ones its record speaks of, and the record says that it drives."""

import hashlib
import json
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "runtimes/baselines/car_street"


def test_the_record_names_the_files_that_lie_beside_it() -> None:
    record = json.loads((FOLDER / "car_street.json").read_text())
    assert set(record["files"]) == {"car_street.keras", "car_street.onnx", "car_street.tflite"}
    for name, digest in record["files"].items():
        content = (FOLDER / name).read_bytes()
        assert "sha256:" + hashlib.sha256(content).hexdigest() == digest, name
        # A file much smaller than its 20,000 weights has left them behind.
        assert 80_000 < len(content) < 200_000, name


def test_the_formats_agree_and_the_drive_is_near_the_yardsticks() -> None:
    record = json.loads((FOLDER / "car_street.json").read_text())
    assert record["differs"] < 1e-4
    assert record["examined"]["score"] > 80
    assert sum(record["examined"]["outcomes"].values()) == 288


def test_it_was_examined_on_traffic_that_it_had_not_seen() -> None:
    seeds = json.loads((FOLDER / "car_street.json").read_text())["seeds"]
    first, last = seeds["trained"]
    assert not first <= seeds["examined"] <= last
    assert not first <= seeds["chosen_by"] <= last
