"""Train the baseline of car_street: it learns to drive as the yardstick does, from where it gets itself (DAgger).

Ross, Gordon, Bagnell, AISTATS 2011. Run by hand, in an environment of its own: see docs/car-street.md.

    python -m runtimes.training.car_street.train
"""

import argparse
import hashlib
import json
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

# libsumo first: after TensorFlow it would find that one's libraries instead of its own.
from runtimes.harness.simulators.sumo.world import World  # isort: skip
from runtimes.harness.simulators.base import Metric, Scenario
from runtimes.harness.simulators.sumo.standalone import scenarios
from runtimes.training.car_street.network import (
    HIDDEN,
    Array,
    PolicyNetwork,
    keras_model,
    taken,
    write_onnx,
    write_tflite,
)

ROOT = Path(__file__).parents[3]
DATASET = ROOT / "datasets/catalogue/car_street"
#: Where the teacher lies, and where the trained models go.
BASELINES = ROOT / "runtimes/baselines/car_street"
TEACHER = "idm_mobil"
#: The simulation seeds of the training traffic; the data set's own default is 0.
SEEDS = range(1001, 1100)


class Lessons:
    """What has been seen, with what the teacher would have done."""

    def __init__(self) -> None:
        self.seen: list[Array] = []
        self.done: list[Array] = []

    def add(self, seen: list[Array], done: list[tuple[float, float]]) -> None:
        """Keep a scenario's rows."""
        self.seen.append(np.array(seen, dtype=np.float32))
        self.done.append(np.array(done, dtype=np.float32))

    def all(self) -> tuple[Array, Array]:
        """Return all rows."""
        return np.concatenate(self.seen), np.concatenate(self.done)


def teacher() -> Any:
    """Return the yardstick without its memory, which a network could not see."""
    made = runpy.run_path(str(BASELINES / f"{TEACHER}.py"))["Model"]()

    class Reflex:
        def act(self, observation: Array) -> tuple[float, float]:
            made.wait = 0
            accel, lane = made.act(observation)
            return float(accel), float(lane)

    return Reflex()


def lesson(
    world: World, scenario: Scenario, pupil: PolicyNetwork | None, share: float, rng: Any, lessons: Lessons
) -> None:
    """Play a scenario, by the pupil or (with a chance of ``share``) by the teacher, and note the teacher's answers."""
    master = teacher()
    observation, over = world.reset(scenario), False
    seen, done = [], []
    drives = pupil is None or rng.random() < share
    while not over:
        wanted = master.act(observation)
        seen.append(observation)
        done.append(wanted)
        action = np.array(wanted, dtype=np.float32)
        if not drives and pupil is not None:
            action = pupil(observation[None, :])[0]
        observation, over = world.step(action)
    lessons.add(seen, done)


def fit(model: Any, lessons: Lessons, epochs: int, rate: float) -> None:
    """Train on everything seen so far; braking and lane changes weigh more than rolling along."""
    import keras

    seen, done = lessons.all()
    accel, lane = done[:, :1], np.eye(3, dtype=np.float32)[np.rint(done[:, 1]).astype(int) + 1]
    weight = 1.0 + 2.0 * (accel[:, 0] < -1.5)
    turns = 1.0 + 3.0 * (np.abs(done[:, 1]) > 0.5)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(rate, epochs * len(seen) // 2048 + 1, alpha=0.05)),
        loss={"accel": keras.losses.Huber(0.5), "lane_odds": "categorical_crossentropy"},
        loss_weights={"accel": 1.0, "lane_odds": 0.5},
    )
    model.fit(
        seen,
        {"accel": accel, "lane_odds": lane},
        sample_weight={"accel": weight, "lane_odds": turns},
        batch_size=2048,
        epochs=epochs,
        verbose=0,
    )


def examine(world: World, network: PolicyNetwork, seed: int, count: int | None = None) -> dict[str, Any]:
    """Drive the data set and return how it went."""
    told: list[dict[str, Metric]] = []
    for scenario in scenarios(DATASET, count, seed, {}):
        observation, over = world.reset(scenario), False
        while not over:
            observation, over = world.step(network(observation[None, :])[0])
        told.append(world.outcome(None))
    return {
        "score": round(float(np.mean([float(one["score"] or 0) for one in told])), 2),
        "outcomes": dict(Counter(str(one["outcome"]) for one in told)),
        "at_fault": sum(int(one["at_fault"] or 0) for one in told),
        "red_lights": sum(int(one["red_lights"] or 0) for one in told),
    }


def chosen(history: list[dict[str, Any]]) -> int:
    """Return the safest of the rounds that are within a point of the best score."""
    top = max(told["score"] for told in history)
    good = [number for number, told in enumerate(history) if told["score"] >= top - 1.0]
    return min(good, key=lambda number: (history[number]["at_fault"] + history[number]["red_lights"], -number))


def rounds(world: World, model: Any, count: int, epochs: int) -> Iterator[PolicyNetwork]:
    """Yield the pupil after each round of driving and learning."""
    rng = np.random.default_rng(7)
    lessons, pupil = Lessons(), None
    for number in range(count):
        begun = perf_counter()
        share = 1.0 if number == 0 else 0.15
        for scenario in scenarios(DATASET, None, SEEDS[number], {}):
            lesson(world, scenario, pupil, share, rng, lessons)
        fit(model, lessons, epochs if number < count - 1 else 3 * epochs, 2e-3 if number == 0 else 1e-3)
        pupil = taken(model)
        rows = sum(map(len, lessons.seen))
        print(f"round {number}: {rows} rows, {perf_counter() - begun:.0f} s", flush=True)
        yield pupil


def agree(network: PolicyNetwork, publish: Any, folder: Path) -> float:
    """Return by how much the written files differ from the network on random observations."""
    import onnxruntime
    import tensorflow as tf

    definition = json.loads((DATASET / "dataset.json").read_text())["interface"]["observation"]
    rng = np.random.default_rng(1)
    seen = rng.uniform(definition["low"], definition["high"], (256, 32)).astype(np.float32)
    wanted = network(seen)
    session = onnxruntime.InferenceSession(folder / "car_street.onnx", providers=["CPUExecutionProvider"])
    lite = tf.lite.Interpreter(str(folder / "car_street.tflite")).get_signature_runner("serving_default")
    found = [
        session.run(["action"], {"observation": seen})[0],
        np.concatenate([lite(observation=row[None, :])["action"] for row in seen]),
        publish.predict(seen, verbose=0),
    ]
    return float(max(np.abs(one - wanted).max() for one in found))


def main() -> None:
    """Read the command line, train, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--into", type=Path, default=BASELINES)
    given = parser.parse_args()
    world = World(DATASET, json.loads((DATASET / "dataset.json").read_text()))
    world.reset(next(iter(scenarios(DATASET, 1, 0, {}))))
    import keras

    keras.utils.set_random_seed(7)
    model, publish = keras_model()
    history, pupils = [], []
    for network in rounds(world, model, given.rounds, given.epochs):
        # Chosen by traffic that is neither trained on nor the data set's own.
        told = examine(world, network, 2001)
        history.append(told)
        pupils.append((network, model.get_weights()))
        print(told, flush=True)
    best = chosen(history)
    network, weights = pupils[best]
    model.set_weights(weights)
    publish.save(given.into / "car_street.keras")
    write_onnx(network, given.into / "car_street.onnx")
    write_tflite(network, given.into / "car_street.tflite")
    told = {
        "teacher": TEACHER,
        "method": "DAgger: imitation from the pupil's own drives",
        "rounds": history,
        "chosen": best,
        "seeds": {"trained": [SEEDS[0], SEEDS[given.rounds - 1]], "chosen_by": 2001, "examined": 0},
        "hidden": list(HIDDEN),
        "differs": agree(network, publish, given.into),
        "examined": examine(world, network, 0),
        "files": {
            name: "sha256:" + hashlib.sha256((given.into / name).read_bytes()).hexdigest()
            for name in ("car_street.keras", "car_street.onnx", "car_street.tflite")
        },
    }
    (given.into / "car_street.json").write_text(json.dumps(told, indent=2) + "\n")
    print(json.dumps(told["examined"]))


if __name__ == "__main__":
    main()
