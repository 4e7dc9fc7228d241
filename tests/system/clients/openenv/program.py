"""A program of OpenEnv's own client: executes the orders on its standard input, one JSON object per line.

`{"reset": {...}}`, `{"step": {...}}`, `{"state": {}}`; `{"play": {"source", "dtype", "shape", "reset"}}` plays a model
of the platform to the end of a scenario. The answers are lines of JSON, with the text of the error if there was one.
"""

import json
import os
import sys

import numpy as np
from openenv import GenericEnvClient


def play(env, source, dtype, shape, reset):
    names = {}
    exec(source, names)
    model = names["Model"]()
    result, total = env.reset(**reset), 0.0
    if hasattr(model, "reset"):
        model.reset({"seed": 0})
    while not result.done:
        action = np.asarray(model.act(np.array(result.observation["values"], dtype).reshape(shape)), np.float32)
        result = env.step({"values": action.reshape(-1).tolist()})
        total += result.reward or 0.0
    return {"metadata": result.metadata, "total": total}


def answer(env, order):
    ((verb, value),) = order.items()
    if verb == "play":
        return play(env, **value)
    if verb == "state":
        return env.state()
    result = env.reset(**value) if verb == "reset" else env.step(value)
    return {
        "observation": result.observation,
        "reward": result.reward,
        "done": result.done,
        "metadata": result.metadata,
    }


def main():
    headers = {"Authorization": f"Bearer {sys.argv[2]}"} if len(sys.argv) > 2 else None
    with GenericEnvClient(base_url=sys.argv[1], headers=headers).sync() as env:
        for line in sys.stdin:
            try:
                print(json.dumps(answer(env, json.loads(line))), flush=True)
            except Exception as error:
                print(json.dumps({"error": str(error)}), flush=True)


try:
    main()
except Exception as error:
    print(json.dumps({"error": str(error)}), flush=True)
    os._exit(1)  # the client's thread would go on
