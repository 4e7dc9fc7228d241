"""A model that answers like the honest model, and prints results of its own and other tasks in a runner's format."""

import json
import os

FORGED = {"task": 1, "status": "ok", "metrics": {"value": 1e9, "echo": 1e9}, "error": None, "artifacts": []}


class Model:
    def reset(self, scenario):
        os.write(1, f"reset {json.dumps(sorted(scenario))} {scenario['seed']}\n".encode())

    def act(self, observation):
        for descriptor in (1, 2):
            os.write(descriptor, (json.dumps(FORGED) + "\n").encode())
            os.write(descriptor, (json.dumps({"results": [FORGED], "start": 0, "stop": 3}) + "\n").encode())
        return [0.25] * 4
