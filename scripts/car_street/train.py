"""Training of the car_street baseline: imitation of a baseline driver on the network's own trajectories (DAgger).

Ross, Gordon, Bagnell, AISTATS 2011. Run by hand, in an environment of its own: see docs/car-street.md.

    python -m scripts.car_street.train
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

# libsumo first: after TensorFlow, the dynamic linker would give it TensorFlow's libraries.
from runtimes.harness.dataset_definition import read_definition

from runtimes.harness.simulators.sumo.simulator import SumoSimulator  # isort: skip
from runtimes.harness.simulators.base import Metric, Scenario
from scripts.car_street.network import (
    HIDDEN,
    Array,
    PolicyNetwork,
    keras_model,
    weights_of,
    write_onnx,
    write_tflite,
)
from scripts.car_street.standalone import scenarios

ROOT = Path(__file__).parents[2]
DATASET = ROOT / "datasets/catalogue/car_street"
#: Where the teacher lies, and where the trained models go.
BASELINES = ROOT / "runtimes/harness/simulators/sumo/baselines"
TEACHER = "idm_mobil"
#: The simulation seeds of the training traffic; a submission's default seed is 0.
SEEDS = range(1001, 1100)


class TrainingSet:
    """Observations, each with the teacher's action."""

    def __init__(self) -> None:
        self.observations: list[Array] = []
        self.actions: list[Array] = []

    def add(self, observations: list[Array], actions: list[tuple[float, float]]) -> None:
        """Add a scenario's rows."""
        self.observations.append(np.array(observations, dtype=np.float32))
        self.actions.append(np.array(actions, dtype=np.float32))

    def all(self) -> tuple[Array, Array]:
        """Return all observations and actions."""
        return np.concatenate(self.observations), np.concatenate(self.actions)


def teacher() -> Any:
    """Return the teacher without its state between steps, which the network cannot observe."""
    driver = runpy.run_path(str(BASELINES / f"{TEACHER}.py"))["Model"]()

    class StatelessDriver:
        def act(self, observation: Array) -> tuple[float, float]:
            driver.wait = 0
            accel, lane = driver.act(observation)
            return float(accel), float(lane)

    return StatelessDriver()


def collect(
    simulator: SumoSimulator,
    scenario: Scenario,
    pupil: PolicyNetwork | None,
    rng: Any,
    *,
    teacher_share: float,
    training_set: TrainingSet,
) -> None:
    """Run a scenario with the pupil, or with the teacher (probability ``teacher_share``); add the teacher's actions."""
    driver = teacher()
    observation, over = simulator.reset(scenario), False
    observations, actions = [], []
    teacher_drives = pupil is None or rng.random() < teacher_share
    while not over:
        teacher_action = driver.act(observation)
        observations.append(observation)
        actions.append(teacher_action)
        action = np.array(teacher_action, dtype=np.float32)
        if not teacher_drives and pupil is not None:
            action = pupil(observation[None, :])[0]
        observation, over = simulator.step(action)
    training_set.add(observations, actions)


def fit(model: Any, training_set: TrainingSet, epochs: int, rate: float) -> None:
    """Train on the whole training set; rows with braking and lane changes have larger weights."""
    import keras

    observations, actions = training_set.all()
    accel, lane = actions[:, :1], np.eye(3, dtype=np.float32)[np.rint(actions[:, 1]).astype(int) + 1]
    weight = 1.0 + 2.0 * (accel[:, 0] < -1.5)
    turns = 1.0 + 3.0 * (np.abs(actions[:, 1]) > 0.5)
    steps = epochs * len(observations) // 2048 + 1
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(rate, steps, alpha=0.05)),
        loss={"accel": keras.losses.Huber(0.5), "lane_odds": "categorical_crossentropy"},
        loss_weights={"accel": 1.0, "lane_odds": 0.5},
    )
    model.fit(
        observations,
        {"accel": accel, "lane_odds": lane},
        sample_weight={"accel": weight, "lane_odds": turns},
        batch_size=2048,
        epochs=epochs,
        verbose=0,
    )


def evaluate(simulator: SumoSimulator, network: PolicyNetwork, seed: int, count: int | None = None) -> dict[str, Any]:
    """Run the dataset's scenarios with the network; return mean score, outcomes and infractions."""
    results: list[dict[str, Metric]] = []
    for scenario in scenarios(DATASET, count, seed, {}):
        observation, over = simulator.reset(scenario), False
        while not over:
            observation, over = simulator.step(network(observation[None, :])[0])
        results.append(simulator.outcome(None))
    return {
        "score": round(float(np.mean([float(result["score"] or 0) for result in results])), 2),
        "outcomes": dict(Counter(str(result["outcome"]) for result in results)),
        "at_fault": sum(int(result["at_fault"] or 0) for result in results),
        "red_lights": sum(int(result["red_lights"] or 0) for result in results),
    }


def best_round(history: list[dict[str, Any]]) -> int:
    """Return the round with the fewest infractions among those within one point of the best score."""
    top = max(summary["score"] for summary in history)
    good = [number for number, summary in enumerate(history) if summary["score"] >= top - 1.0]
    return min(good, key=lambda number: (history[number]["at_fault"] + history[number]["red_lights"], -number))


def rounds(simulator: SumoSimulator, model: Any, count: int, epochs: int) -> Iterator[PolicyNetwork]:
    """Yield the pupil after each round of data collection and training."""
    rng = np.random.default_rng(7)
    training_set, pupil = TrainingSet(), None
    for number in range(count):
        started = perf_counter()
        teacher_share = 1.0 if number == 0 else 0.15
        for scenario in scenarios(DATASET, None, SEEDS[number], {}):
            collect(simulator, scenario, pupil, rng, teacher_share=teacher_share, training_set=training_set)
        fit(model, training_set, epochs if number < count - 1 else 3 * epochs, 2e-3 if number == 0 else 1e-3)
        pupil = weights_of(model)
        rows = sum(map(len, training_set.observations))
        print(f"round {number}: {rows} rows, {perf_counter() - started:.0f} s", flush=True)
        yield pupil


def largest_difference(network: PolicyNetwork, publish: Any, folder: Path) -> float:
    """Return the largest difference of the written files' actions from the network's, on random observations."""
    import onnxruntime
    import tensorflow as tf

    definition = json.loads((DATASET / "dataset.json").read_text())["interface"]["observation"]
    rng = np.random.default_rng(1)
    observations = rng.uniform(definition["low"], definition["high"], (256, 32)).astype(np.float32)
    expected = network(observations)
    session = onnxruntime.InferenceSession(folder / "car_street.onnx", providers=["CPUExecutionProvider"])
    lite = tf.lite.Interpreter(str(folder / "car_street.tflite")).get_signature_runner("serving_default")
    actions = [
        session.run(["action"], {"observation": observations})[0],
        np.concatenate([lite(observation=row[None, :])["action"] for row in observations]),
        publish.predict(observations, verbose=0),
    ]
    return float(max(np.abs(answer - expected).max() for answer in actions))


def main() -> None:
    """Parse the command line, train, write the best round's network in three formats."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--into", type=Path, default=BASELINES)
    options = parser.parse_args()
    simulator = SumoSimulator(DATASET, read_definition((DATASET / "dataset.json").read_bytes()))
    simulator.reset(next(iter(scenarios(DATASET, 1, 0, {}))))
    import keras

    keras.utils.set_random_seed(7)
    model, publish = keras_model()
    history, pupils = [], []
    for network in rounds(simulator, model, options.rounds, options.epochs):
        # The best round is chosen on traffic of a seed that is used neither for training nor for the final evaluation.
        summary = evaluate(simulator, network, 2001)
        history.append(summary)
        pupils.append((network, model.get_weights()))
        print(summary, flush=True)
    best = best_round(history)
    network, weights = pupils[best]
    model.set_weights(weights)
    publish.save(options.into / "car_street.keras")
    write_onnx(network, options.into / "car_street.onnx")
    write_tflite(network, options.into / "car_street.tflite")
    report = {
        "teacher": TEACHER,
        "method": "DAgger: imitation from the pupil's own drives",
        "rounds": history,
        "chosen": best,
        "seeds": {"trained": [SEEDS[0], SEEDS[options.rounds - 1]], "chosen_by": 2001, "examined": 0},
        "hidden": list(HIDDEN),
        "differs": largest_difference(network, publish, options.into),
        "examined": evaluate(simulator, network, 0),
        "files": {
            name: "sha256:" + hashlib.sha256((options.into / name).read_bytes()).hexdigest()
            for name in ("car_street.keras", "car_street.onnx", "car_street.tflite")
        },
    }
    (options.into / "car_street.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report["examined"]))


if __name__ == "__main__":
    main()
