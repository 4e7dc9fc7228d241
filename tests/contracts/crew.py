"""A courier's part in a few lines: starts a player and its hosts, and talks to them."""

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
from runtimes.harness.runner.processes import Host, Kit, Player

HARNESS = Path(harness.__file__).parent
#: The server's own packages have all that the python format and the noop world need.
SITE = sysconfig.get_paths()["purelib"]
PYTHON = os.path.realpath(sys.executable)


def kit(dataset: str = "noop", **changes: Any) -> Kit:
    """Return how to start a crew for a dataset, unconfined unless told."""
    values: dict[str, Any] = {
        "python": PYTHON,
        "harness": str(HARNESS),
        "dataset": str(datasets()[dataset].folder),
        "player_site": SITE,
        "host_site": SITE,
        "format": "python",
        "isolation": "launch",
        "sandbox": None,
    }
    return Kit(**(values | changes))


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


class Crew:
    """One player, and hosts as it needs them."""

    def __init__(self, kit: Kit, model: bytes) -> None:
        self.kit = kit
        self.player: Player = processes.spawn_player(kit, "player-0")
        self.hosts: list[Host] = []
        self._model = tempfile.TemporaryFile()
        self._model.write(model)
        self._model.flush()
        self.needs: list[str] = []
        self.sketches: list[Mapping[str, Any]] = []
        self.artifacts: dict[int, bytes] = {}

    def set_up(self, play: Mapping[str, Any]) -> framed_socket.Message:
        """Give the player its simulation."""
        self.player.channel.send({"type": "setup", "play": play})
        return self.player.channel.receive(30)

    def give_host(self) -> framed_socket.Message:
        """Give the player a new host with the model."""
        host = processes.spawn_host(self.kit, f"host-{len(self.hosts)}")
        self.hosts.append(host)
        self.player.channel.send({"type": "host"}, (host.socket.fileno(), self._model.fileno()))
        host.socket.close()
        return self.player.channel.receive(60)

    def play(self, start: int, stop: int, **how: Any) -> list[dict[str, Any]]:
        """Have a range played; return its results."""
        return [json.loads(line) for line in self.play_raw(start, stop, **how).splitlines()]

    def play_raw(self, start: int, stop: int, *, flush: float = 1.0, careful_until: int = -1) -> bytes:
        """Have a range played; return its lines."""
        page, channel_ = self.player.page, self.player.channel
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
            elif isinstance(message, framed_socket.NeedHost):
                self.needs.append(message.reason)
                assert isinstance(self.give_host(), framed_socket.Loaded)
            else:
                raise AssertionError(message)
        return lines

    def output(self) -> str:
        """Return what everybody printed."""
        text = ""
        for process in (self.player.process, *(host.process for host in self.hosts)):
            try:
                while piece := os.read(process.output, 1 << 16):
                    text += piece.decode(errors="replace")
            except BlockingIOError:
                continue
        return text

    def end(self) -> None:
        """End the processes that were started here."""
        self._model.close()
        for one in (self.player, *self.hosts):
            one.dismiss()
            if one.process.how is None:
                one.process.reap()


@contextmanager
def crew(kit: Kit, model: bytes | str, play: Mapping[str, Any]) -> Iterator[Crew]:
    """Start a crew that is ready to play."""
    made = Crew(kit, model.encode() if isinstance(model, str) else model)
    try:
        ready = made.set_up(play)
        assert isinstance(ready, framed_socket.Ready), ready
        loaded = made.give_host()
        assert isinstance(loaded, framed_socket.Loaded), loaded
        yield made
    except (AssertionError, framed_socket.Closed) as error:
        error.add_note(made.output())
        raise
    finally:
        made.end()
