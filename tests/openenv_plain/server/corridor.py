"""A walk to a door, with what an honest environment should not do: state in a global, and faults on request."""

import mimetypes
import os
import random
import socket
import sys
import tempfile
import time

# As packages do when they are imported; at level 2 no folder can be written and no file of the machine can be read.
tempfile.gettempdir()
mimetypes.init()

#: Episodes of this process: 1, unless state outlives a scenario.
episodes = 0
SCHEMA = {
    "action": {
        "properties": {
            "metadata": {"type": "object"},
            "move": {"enum": ["stay", "left", "right"], "type": "string"},
            "stride": {"type": "number", "minimum": 0, "maximum": 2, "default": 1.0},
        },
        "required": ["move"],
    },
    "observation": {
        "$defs": {"Door": {"properties": {"position": {"type": "number"}, "open": {"type": "boolean"}}}},
        "properties": {
            "done": {"type": "boolean"},
            "reward": {"type": "number"},
            "position": {"type": "number", "minimum": -10, "maximum": 10},
            "door": {"$ref": "#/$defs/Door"},
            "walls": {"type": "array", "items": {"type": "number"}},
            "steps": {"type": "array", "items": {"type": "number"}},
            "episodes": {"type": "integer"},
            "left": {"type": "integer"},
            "text": {"type": "string"},
        },
    },
}


class Corridor:
    """One episode after the other."""

    def reset(self, parameters):
        """Start an episode."""
        global episodes
        episodes += 1
        self.position, self.steps, self.fault = 0.0, [], parameters.get("fault", "")
        self.left = left_files()
        self.door = parameters.get("door", random.randrange(-9, 10))
        if self.fault == "reset":
            raise ValueError("the corridor is closed")
        return self.seen(0.0, False)

    def step(self, action):
        """Walk."""
        self.steps.append(1.0)
        if self.fault and len(self.steps) > 1:
            self.fail()
        way = {"stay": 0.0, "left": -1.0, "right": 1.0}[action["move"]]
        self.position = max(-10.0, min(10.0, self.position + way * action.get("stride", 1.0)))
        found = abs(self.position - self.door) < 0.5
        return self.seen(1.0 if found else -0.1, found)

    def fail(self):
        """Do what the reset has asked for."""
        if self.fault == "crash":
            print("the floor gives way", file=sys.stderr, flush=True)
            os.abort()
        if self.fault == "exit":
            os._exit(3)
        if self.fault == "hang":
            time.sleep(1e6)
        if self.fault == "raise":
            raise RuntimeError("the light went out")
        if self.fault == "print":
            print("x" * 3_000_000, flush=True)
        if self.fault == "connect":
            socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if self.fault == "fork":
            os.fork()
        if self.fault == "signal":
            os.kill(os.getppid(), 9)

    def seen(self, reward, done):
        """Return an answer."""
        late = len(self.steps) > 1
        observation = {
            "position": "here" if late and self.fault == "text" else self.position,
            "door": {"position": self.door, "open": done},
            "walls": [self.position + 10.0]
            if late and self.fault == "shape"
            else [self.position + 10.0, 10.0 - self.position],
            "steps": self.steps,
            "episodes": episodes,
            "left": self.left,
            "text": "y" * 5_000_000 if late and self.fault == "long" else "walk on",
        }
        if late and self.fault == "nan":
            reward = float("nan")
        if late and self.fault == "garbage":
            return "garbage"
        return {"observation": observation, "reward": reward, "done": done}


def left_files():
    """Return how many files earlier episodes have left in the temporary folder, and leave one there."""
    try:
        count = len([name for name in os.listdir("/tmp") if name.startswith("left-")])
        os.close(tempfile.mkstemp(prefix="left-", dir="/tmp")[0])
    except OSError:
        return 0
    return count
