"""A runner's part in a few lines: starts an evaluator and its model servers, and talks to them."""

import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from datasets.catalogue import datasets
from runtimes import harness
from runtimes.harness.runner import framed_socket, processes
from runtimes.harness.runner.processes import EvaluatorProcess, ModelServerProcess, WorkerSpec

HARNESS = Path(harness.__file__).parent
#: The server's own packages have all that the python format and the noop world need.
SITE = sysconfig.get_paths()["purelib"]
PYTHON = os.path.realpath(sys.executable)


def kit(dataset: str = "noop", **changes: Any) -> WorkerSpec:
    """Return how to start an evaluator and a model server for a dataset, unconfined unless told."""
    values: dict[str, Any] = {
        "python": PYTHON,
        "harness": str(HARNESS),
        "dataset": str(datasets()[dataset].folder),
        "evaluator_site": SITE,
        "model_server_site": SITE,
        "format": "python",
        "isolation": "launch",
        "sandbox": None,
    }
    return WorkerSpec(**(values | changes))


def play_of(dataset: str = "noop", **changes: Any) -> dict[str, Any]:
    """Return a simulation's set-up over a hundred scenarios."""
    found = datasets()[dataset]
    params = changes.pop("params", {})
    plan = {
        "seed": changes.pop("seed", 0),
        "dataset": found.digest,
        "total_scenarios": found.tasks or found.definition["max_tasks"],
        "select": changes.pop("select", {"range": [0, 100]}),
        "sweep": changes.pop("sweep", {}),
        "repeat": changes.pop("repeat", 1),
        "params": params,
    }
    play = {
        "definition": dict(found.definition),
        "tasks": plan,
        "params": params,
        "record": "none",
        "deadline": found.definition["deadline"],
        "dry_run": False,
        "isolation": "launch",
        "batch": params.get("batch", 1),
    }
    return play | changes


class EvaluatorPair:
    """One evaluator, and model servers as it needs them."""

    def __init__(self, kit: WorkerSpec, model: bytes) -> None:
        self.kit = kit
        self.evaluator: EvaluatorProcess = processes.spawn_evaluator(kit, "evaluator-0")
        self.model_servers: list[ModelServerProcess] = []
        self._model = tempfile.TemporaryFile()
        self._model.write(model)
        self._model.flush()
        self.needs: list[str] = []
        self.sketches: list[Mapping[str, Any]] = []
        self.artifacts: dict[int, bytes] = {}

    def set_up(self, play: Mapping[str, Any]) -> framed_socket.Message:
        """Give the evaluator its simulation."""
        self.evaluator.channel.send({"type": "setup", "play": play})
        return self.evaluator.channel.receive(30)

    def give_model_server(self) -> framed_socket.Message:
        """Give the evaluator a new model server with the model."""
        model_server = processes.spawn_model_server(self.kit, f"model-server-{len(self.model_servers)}")
        self.model_servers.append(model_server)
        self.evaluator.channel.send({"type": "model_server"}, (model_server.socket.fileno(), self._model.fileno()))
        model_server.socket.close()
        return self.evaluator.channel.receive(60)

    def play(self, start: int, stop: int, **how: Any) -> list[dict[str, Any]]:
        """Have a range played; return its results."""
        return [json.loads(line) for line in self.play_raw(start, stop, **how).splitlines()]

    def play_raw(self, start: int, stop: int, *, flush: float = 1.0, careful_until: int = -1) -> bytes:
        """Have a range played; return its lines."""
        page, channel_ = self.evaluator.page, self.evaluator.channel
        page.stop = stop
        order = {"type": "play", "start": start, "stop": stop, "flush": flush, "careful_until": careful_until}
        channel_.send(order)
        lines = b""
        mark = start
        while not isinstance(message := channel_.receive(60), framed_socket.Idle):
            if isinstance(message, framed_socket.Batch):
                assert message.since == mark
                mark = message.to
                lines += bytes(message.lines)
                self.sketches.append(message.sketch)
                at = 0
                for task, _, _, size in message.artifacts:
                    self.artifacts[task] = bytes(message.blobs[at : at + size])
                    at += size
            elif isinstance(message, framed_socket.NeedModelServer):
                self.needs.append(message.reason)
                assert isinstance(self.give_model_server(), framed_socket.ModelLoaded)
            else:
                raise AssertionError(message)
        return lines

    def output(self) -> str:
        """Return what everybody printed."""
        text = ""
        for process in (self.evaluator.process, *(model_server.process for model_server in self.model_servers)):
            try:
                while piece := os.read(process.output, 1 << 16):
                    text += piece.decode(errors="replace")
            except BlockingIOError:
                continue
        return text

    def end(self) -> None:
        """End the processes that were started here."""
        self._model.close()
        for one in (self.evaluator, *self.model_servers):
            one.dismiss()
            if one.process.how is None:
                one.process.reap()


@contextmanager
def evaluator_pair(kit: WorkerSpec, model: bytes | str, play: Mapping[str, Any]) -> Iterator[EvaluatorPair]:
    """Start an evaluator and a model server that are ready to play."""
    made = EvaluatorPair(kit, model.encode() if isinstance(model, str) else model)
    try:
        ready = made.set_up(play)
        assert isinstance(ready, framed_socket.Ready), ready
        loaded = made.give_model_server()
        assert isinstance(loaded, framed_socket.ModelLoaded), loaded
        yield made
    except (AssertionError, framed_socket.PeerClosed) as error:
        error.add_note(made.output())
        raise
    finally:
        made.end()
