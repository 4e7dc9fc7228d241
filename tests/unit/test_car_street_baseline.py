"""Trained baseline of car_street: its files match the digests in its training record, and its score is good."""

import hashlib
import json
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "runtimes/harness/simulators/sumo/baselines"


def test_the_digests_in_the_training_record_match_the_files() -> None:
    record = json.loads((FOLDER / "car_street.json").read_text())
    assert set(record["files"]) == {"car_street.keras", "car_street.onnx", "car_street.tflite"}
    for name, digest in record["files"].items():
        content = (FOLDER / name).read_bytes()
        assert "sha256:" + hashlib.sha256(content).hexdigest() == digest, name
        # A smaller file cannot contain the network's 20,000 weights.
        assert 80_000 < len(content) < 200_000, name


def test_the_formats_agree_and_the_score_is_near_the_score_of_the_teacher() -> None:
    record = json.loads((FOLDER / "car_street.json").read_text())
    assert record["differs"] < 1e-4
    assert record["examined"]["score"] > 80
    assert sum(record["examined"]["outcomes"].values()) == 288


def test_the_baseline_was_evaluated_on_traffic_outside_its_training_seeds() -> None:
    seeds = json.loads((FOLDER / "car_street.json").read_text())["seeds"]
    first, last = seeds["trained"]
    assert not first <= seeds["examined"] <= last
    assert not first <= seeds["chosen_by"] <= last
