"""Driver of model servers: plays pairs of scenarios, and prints what the second of each pair reports.

Its argument is a JSON object: the import path, the worker spec, the model's path, the observations of each pair, and
the seconds that a model has for an answer.
"""

import json
import os
import sys
import threading
from typing import Any


def main(plan: dict[str, Any]) -> None:
    """Print a line per pair: the outcome of its second scenario."""
    sys.path[:0] = plan["path"]
    import numpy as np
    from harness.model_server import model_faults, model_server_client
    from harness.runner import processes
    from harness.simulators.base import Interface, Space

    infinite = (float("inf"),) * 4
    space = Space(
        dtype="float32",
        shape=(4,),
        names=tuple("abcd"),
        units=("",) * 4,
        low=tuple(-value for value in infinite),
        high=infinite,
    )
    spec = processes.WorkerSpec(**plan["spec"])

    def connect() -> Any:
        started = processes.spawn_model_server(spec, "model-server")
        client = model_server_client.ModelServerClient(
            started.socket,
            Interface(observation=space, action=space),
            batch=1,
            deadline=plan["deadline"],
            **{plan.get("per_scenario", "per_scenario"): True},
        )
        reading = threading.Thread(target=collect, args=(started.process.output,))
        reading.start()
        readers.append(reading)
        client.hello()
        if os.path.isdir(plan["model"]):
            client.load(spec.format, {}, plan["model"])
        else:
            model = os.open(plan["model"], os.O_RDONLY)
            client.load(spec.format, {}, model)
            os.close(model)
        return started, client

    output: list[bytes] = []
    readers: list[threading.Thread] = []

    def collect(pipe: int) -> None:
        os.set_blocking(pipe, True)
        while chunk := os.read(pipe, 1 << 16):
            output.append(chunk)

    started, client = connect()
    replaced = 0
    for index, pair in enumerate(plan["pairs"]):
        outcome = "nothing"
        for scenario, observation in enumerate(pair):
            seed = 2 * index + scenario + 1
            try:
                try:
                    client.ready(seed)
                except getattr(model_faults, "NotStarted", ()):
                    started.dismiss()
                    started, client = connect()
                    replaced += 1
                    client.ready(seed)
                client.act(np.array(observation, np.float32))
                client.end(seed + 1)
            except model_faults.Failed as fault:
                outcome = str(fault)
                client.end(seed + 1)
            except model_faults.ModelFault as fault:
                outcome = f"{type(fault).__name__}: {fault} (in scenario {scenario})"
                started.dismiss()
                started, client = connect()
        print(json.dumps([outcome, replaced]), flush=True)
    client.close()
    for reading in readers:
        reading.join()
    print(json.dumps([b"".join(output).decode(errors="replace"), started.process.reap()]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
