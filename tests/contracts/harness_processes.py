"""A minimal runner for tests: starts an evaluator and its model servers, and exchanges messages with them."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets.catalogue import datasets
from datasets.nodecache.model_files import is_archive, place
from datasets.versions.archives.extraction import extract
from runtimes import harness
from runtimes.formats import formats
from runtimes.harness import python_process
from runtimes.harness.models.base import CODE
from runtimes.harness.runner import framed_socket, processes
from runtimes.harness.runner.model_folder import MODEL
from runtimes.harness.runner.processes import EvaluatorProcess, ModelServerProcess, WorkerSpec
from runtimes.harness.runner.worker import EXIT_WAIT
from tests.waiting import until

HARNESS = Path(harness.__file__).parent
#: Seconds within which an answer comes: a component of WebAssembly is compiled for 25 s, on a busy machine for minutes.
ANSWER = 240.0
#: The server's own environment has the packages that the python format and the noop simulator need.
SITE = sysconfig.get_paths()["purelib"]
PYTHON = os.path.realpath(sys.executable)


def worker_spec(dataset: str = "noop", **changes: Any) -> WorkerSpec:
    """Return a worker spec for a dataset, by default without a sandbox."""
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
    """Return an evaluator's set-up for a simulation of a hundred scenarios."""
    built_in = datasets()[dataset]
    params = changes.pop("params", {})
    plan = {
        "seed": changes.pop("seed", 0),
        "dataset": built_in.digest,
        "total_scenarios": built_in.tasks or built_in.definition["max_tasks"],
        "select": changes.pop("select", {"range": [0, 100]}),
        "sweep": changes.pop("sweep", {}),
        "repeat": changes.pop("repeat", 1),
        "params": params,
    }
    play = {
        "definition": dict(built_in.definition),
        "tasks": plan,
        "params": params,
        "record": "none",
        "deadline": built_in.definition["deadline"],
        "dry_run": False,
        "isolation": "launch",
        "batch": params.get("batch", 1),
    }
    return play | changes


class EvaluatorPair:
    """An evaluator, and a model server for each of its requests."""

    def __init__(self, spec: WorkerSpec, model: bytes, code: bytes | None = None) -> None:
        self._model_folder = tempfile.mkdtemp(prefix="model-folder-")
        os.chmod(self._model_folder, 0o755)
        self.spec = replace(spec, model_folder=self._model_folder)
        self.evaluator: EvaluatorProcess = processes.spawn_evaluator(self.spec, "evaluator-0")
        self.model_servers: list[ModelServerProcess] = []
        self._model = tempfile.TemporaryFile()
        self._model.write(model)
        self._model.flush()
        path = Path(f"/proc/self/fd/{self._model.fileno()}")
        self._folder = ""
        format = formats()[spec.format]
        archive = format.unpacked and is_archive(path)
        if archive or format.placed:
            self._folder = f"{self._model_folder}/{MODEL}"
            if archive:
                extract(path, Path(self._folder), largest=4 << 30)
            else:
                os.mkdir(self._folder)
                place(path, Path(self._folder), format.placed)
            if code is not None:
                Path(self._folder, CODE).write_bytes(code)
            for above, _, _ in os.walk(self._folder):
                os.chmod(above, 0o755)
        self.needs: list[str] = []
        self.sketches: list[Mapping[str, Any]] = []
        self.artifacts: dict[int, bytes] = {}

    def set_up(self, play: Mapping[str, Any]) -> framed_socket.Message:
        """Send the evaluator its set-up; return the answer."""
        self.evaluator.channel.send({"type": "setup", "play": play})
        return self.evaluator.channel.receive(30)

    def give_model_server(self) -> framed_socket.Message:
        """Send the evaluator a new model server with the model; return the answer."""
        model_server = processes.spawn_model_server(self.spec, f"model-server-{len(self.model_servers)}")
        self.model_servers.append(model_server)
        order = {"type": "model_server"} | ({"folder": self._folder} if self._folder else {})
        descriptors = (model_server.socket.fileno(), *(() if self._folder else (self._model.fileno(),)))
        self.evaluator.channel.send(order, descriptors)
        model_server.socket.close()
        return self._receive()

    def _receive(self) -> framed_socket.Message:
        """Receive a message, after answering questions for the model server's times and for how it ended."""
        while True:
            message = self.evaluator.channel.receive(ANSWER)
            if isinstance(message, framed_socket.ServerTimesWanted):
                times = self.model_servers[-1].process.times()
                self.evaluator.channel.send({"type": "server_times", "times": times})
            elif isinstance(message, framed_socket.ModelServerEndWanted):
                self.evaluator.channel.send({"type": "model_server_end", "how": self._how_it_ended()})
            else:
                return message

    def _how_it_ended(self) -> str | None:
        process = self.model_servers[-1].process
        assert isinstance(process, processes.ChildProcess)
        try:
            return python_process.ending(process.popen.wait(EXIT_WAIT))
        except subprocess.TimeoutExpired:
            return None

    def run(self, start: int, stop: int, **options: Any) -> list[dict[str, Any]]:
        """Run tasks [start, stop); return their results."""
        return [json.loads(line) for line in self.run_lines(start, stop, **options).splitlines()]

    def run_lines(
        self,
        start: int,
        stop: int,
        *,
        flush: float = 1.0,
        careful_until: int = -1,
        reported: Callable[[framed_socket.Batch], object] = lambda batch: None,
    ) -> bytes:
        """Run tasks [start, stop); return their result lines. ``reported`` is called with each batch."""
        page, channel = self.evaluator.page, self.evaluator.channel
        page.stop = stop
        request = {"type": "play", "start": start, "stop": stop, "flush": flush, "careful_until": careful_until}
        channel.send(request)
        lines = b""
        cursor = start
        while not isinstance(message := self._receive(), framed_socket.Idle):
            if isinstance(message, framed_socket.Batch):
                assert message.since == cursor
                cursor = message.to
                lines += bytes(message.lines)
                reported(message)
                self.sketches.append(message.sketch)
                offset = 0
                for task, _, _, size in message.artifacts:
                    self.artifacts[task] = bytes(message.blobs[offset : offset + size])
                    offset += size
            elif isinstance(message, framed_socket.NeedModelServer):
                self.needs.append(message.reason)
                assert isinstance(self.give_model_server(), framed_socket.ModelLoaded)
            else:
                raise AssertionError(message)
        return lines

    def output(self) -> str:
        """Return the output of evaluator and model servers so far."""
        text = ""
        for process in (self.evaluator.process, *(model_server.process for model_server in self.model_servers)):
            try:
                while chunk := os.read(process.output, 1 << 16):
                    text += chunk.decode(errors="replace")
            except BlockingIOError:
                continue
        return text

    def output_with(self, text: str, count: int = 1) -> str:
        """Return the output when the text has been in it so often: it may be relayed after the scenario's end."""
        output = ""

        def is_there() -> bool:
            nonlocal output
            output += self.output()
            return output.count(text) >= count

        until(is_there, message=lambda: f"{text!r} is not {count} times in {output!r}")
        return output

    def end(self) -> None:
        """End the processes."""
        self._model.close()
        parts: tuple[EvaluatorProcess | ModelServerProcess, ...] = (self.evaluator, *self.model_servers)
        for part in parts:
            part.dismiss()
            if part.process.how is None:
                part.process.reap()
        shutil.rmtree(self._model_folder)


def refusal_of(spec: WorkerSpec, model: bytes, play: Mapping[str, Any]) -> str:
    """Return the reason for which a model server refuses a model."""
    pair = EvaluatorPair(spec, model)
    try:
        pair.set_up(play)
        answer = pair.give_model_server()
        assert isinstance(answer, framed_socket.ModelRefused), (answer, pair.output())
    finally:
        pair.end()
    return answer.reason


@contextmanager
def evaluator_pair(
    spec: WorkerSpec, model: bytes | str, play: Mapping[str, Any], code: bytes | None = None
) -> Iterator[EvaluatorPair]:
    """Start an evaluator and a model server that are ready to run tasks. ``code``: made from the model before."""
    pair = EvaluatorPair(spec, model.encode() if isinstance(model, str) else model, code)
    try:
        answer = pair.set_up(play)
        assert isinstance(answer, framed_socket.Ready), answer
        model_answer = pair.give_model_server()
        assert isinstance(model_answer, framed_socket.ModelLoaded), model_answer
        yield pair
    except (AssertionError, framed_socket.PeerClosed) as error:
        error.add_note(pair.output())
        raise
    finally:
        pair.end()
