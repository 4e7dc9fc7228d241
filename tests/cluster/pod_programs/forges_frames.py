"""A model that writes the evaluator's frames for the runner to its own socket: results of tasks that it names."""

import contextlib
import json
import os

import msgspec

FORGED = {"task": 1, "status": "ok", "metrics": {"value": 1e9, "echo": 1e9}, "error": None, "artifacts": []}
FRAMES = [
    msgspec.msgpack.encode(["batch", 1, {"start": 0, "stop": 3, "results": [FORGED]}]),
    msgspec.msgpack.encode(["done", 1, json.dumps(FORGED)]),
    msgspec.msgpack.encode({"type": "result"} | FORGED),
]


class Model:
    def act(self, observation):
        for descriptor in range(3, 64):
            for frame in FRAMES:
                with contextlib.suppress(OSError):
                    os.write(descriptor, len(frame).to_bytes(4, "little") + frame)
        return [0.25] * 4
