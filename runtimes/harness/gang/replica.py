"""Replica of a gang, and its leader: together they run one program, once per task.

``python -m runtimes.harness.gang.replica follow|lead [COMMAND...]``

A follower connects to the leader by its DNS name, sends its position, and runs COMMAND for every task. The leader
waits until all followers have connected, starts a task on all of them, and runs its own COMMAND meanwhile if it has
one (the launcher of an MPI program). A task has failed as soon as one replica fails or is lost; the leader then ends
the program on the other replicas, because they would wait for the failed one forever. The program runs in the folder
of the unpacked model. Its scenario, a JSON document, is in the file that WINDTUNNEL_SCENARIO names; the first replica
writes the result to the file that WINDTUNNEL_RESULT names.

With a runner beside it (``--tasks SOCKET``, see workers/gang_runner.py), the leader receives tasks and their time
limits until the runner closes the connection; without a runner, the program runs once and the leader exits with its
status.

Leader and followers prove to each other that they know the gang's key. Messages are lines of JSON. The module uses one
thread and only the standard library.
"""

import argparse
import base64
import contextlib
import hmac
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from .gang_transport import (
    RESULT,
    GangConnection,
    GangProgram,
    Message,
    ReplicaLost,
    adopt_orphans,
    lay_out,
    proof,
    unstarted,
)

#: Exit codes: success; a replica failed or was lost; the leader or the runner was never reached; stopped (SIGTERM).
DONE, FAILED, ALONE, STOPPED = 0, 1, 75, 143
#: Exit status of a program that exceeded its time limit, as of `timeout` (GNU coreutils).
LATE = 124
#: Seconds to wait for the other replicas, whose images may have to be pulled; and between two attempts to connect.
PATIENCE, RETRY = 900.0, 0.1
#: Exit status of MPI's proxy if its launcher does not listen yet; number of restarts, and seconds before each.
NOT_LISTENING, TRIES, PAUSE = 5, 600, 0.1
#: Seconds that a replica may take to end its program.
ENDING = 60.0
#: Bytes of the model per message.
PIECE = 512 << 10
FOLDER = Path("/tmp/windtunnel")


# -- followers


class Follower:
    """Runs the program when the leader sends a task. ``again``: the exit status with which it is started again."""

    def __init__(self, leader: GangConnection, command: Sequence[str], folder: Path, again: int | None = None) -> None:
        self._leader = leader
        self._command = command
        self._folder = folder
        self._again = again
        self._tries = 0
        self._run = 0
        self._program: GangProgram | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(leader.connection, selectors.EVENT_READ, None)

    def serve(self, messages: Sequence[Message]) -> int:
        """Carry out the leader's messages, beginning with those received already; return this process's exit code."""
        try:
            while True:
                for message in messages:
                    if "run" in message:
                        self._prepare(message)
                        self._start()
                    elif "piece" in message:
                        self._append_model(message)
                    elif "stop" in message:
                        self._end()
                        self._leader.send(run=self._run, stopped=True)
                    elif "over" in message:
                        return DONE
                messages = []
                for key, _ in self._selector.select():
                    if key.data is None:
                        messages = self._leader.receive()
                    else:
                        self._on_exit(key.data)
        except ReplicaLost as error:
            print(f"the gang's leader is lost: {error}", file=sys.stderr)
            return FAILED
        finally:
            self._end()

    def _append_model(self, message: Message) -> None:
        """Append a piece of the model; after the last piece, place the model in its folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        packed = self._folder / "model.part"
        with open(packed, "ab") as file:
            file.write(base64.b64decode(message["piece"]))
        if message["last"]:
            lay_out(packed, self._folder / "model", str(message["name"]))

    def _prepare(self, message: Message) -> None:
        self._end()
        self._run = int(message["run"])
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "scenario.json").write_text(json.dumps(message["scenario"]))
        (self._folder / "result.json").unlink(missing_ok=True)
        self._tries = 0

    def _start(self) -> None:
        try:
            self._program = GangProgram(self._command, self._folder)
        except OSError as error:  # counts as the task's failure: another gang would fail likewise
            self._leader.send(run=self._run, exit=unstarted(error), result=None)
            return
        self._selector.register(self._program.pidfd, selectors.EVENT_READ, self._program)

    def _on_exit(self, program: GangProgram) -> None:
        self._selector.unregister(program.pidfd)
        self._program = None
        code = program.exit()
        if code == self._again and self._tries < TRIES:
            self._tries += 1
            time.sleep(PAUSE)
            self._start()
            return
        self._leader.send(run=self._run, exit=code, result=self._result())

    def _result(self) -> str | None:
        """Return the program's result file (of a too long one RESULT + 1 characters), or None."""
        path = self._folder / "result.json"
        if not path.is_file():
            return None
        with open(path, errors="replace") as file:
            return file.read(RESULT + 1)

    def _end(self) -> None:
        if self._program is not None:
            self._selector.unregister(self._program.pidfd)
            self._program.end()
            self._program = None


def join(
    address: tuple[str, int], key: str, place: tuple[int, int], patience: float
) -> tuple[GangConnection, list[Message]]:
    """Connect to the leader, with retries, and verify its proof; also return the messages received after the proof."""
    until = time.monotonic() + patience
    nonce = secrets.token_hex(16)
    while True:
        try:
            connection = socket.create_connection(address, timeout=5.0)
            if connection.getsockname() != connection.getpeername():
                break
            # On one machine the kernel may assign the destination port as the source port, and TCP then connects the
            # socket to itself (RFC 9293, 3.5, simultaneous open); the leader could not listen there meanwhile.
            connection.close()
            raise ConnectionRefusedError("no process listens")
        except OSError as error:  # the name does not resolve yet, or the leader does not listen yet
            if time.monotonic() > until:
                raise ReplicaLost(f"the leader at {address[0]}:{address[1]} does not answer: {error}") from None
            time.sleep(RETRY)
    leader = GangConnection(connection)
    connection.settimeout(patience)
    leader.send(place=place, nonce=nonce, proof=proof(key, "follow", *place, nonce))
    messages: list[Message] = []
    while not messages:
        messages = leader.receive()
    connection.settimeout(None)
    if not hmac.compare_digest(str(messages[0].get("proof")), proof(key, "lead", nonce)):
        raise ReplicaLost(f"the process at {address[0]}:{address[1]} does not know the gang's key")
    return leader, messages[1:]


# -- the leader


class Leader:
    """Gathers the followers, starts every task on all of them, and collects how they ended."""

    def __init__(self, listener: socket.socket, key: str, places: Sequence[tuple[int, int]]) -> None:
        self._listener = listener
        self._key = key
        self._missing = set(places)
        self._runs = 0
        self._followers: dict[tuple[int, int], GangConnection] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, None)

    def gather(self, patience: float) -> None:
        """Wait until every position is taken; raise ReplicaLost if some are not within ``patience`` seconds."""
        until = time.monotonic() + patience
        while self._missing:
            ready = self._selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                raise ReplicaLost(
                    f"{len(self._missing)} replicas did not connect, the first of them {min(self._missing)}"
                )
            for key, _ in ready:
                if key.data is None:
                    connection, _ = self._listener.accept()
                    connection.settimeout(30.0)
                    self._selector.register(connection, selectors.EVENT_READ, GangConnection(connection))
                else:
                    self._admit(key.data)
        self._selector.unregister(self._listener)

    def _admit(self, follower: GangConnection) -> None:
        self._selector.unregister(follower.connection)
        try:
            [greeting] = follower.receive()
            place = (int(greeting["place"][0]), int(greeting["place"][1]))
            known = hmac.compare_digest(str(greeting["proof"]), proof(self._key, "follow", *place, greeting["nonce"]))
            if not known or place not in self._missing:
                raise ReplicaLost("its proof is wrong, or its position is taken")
            follower.send(proof=proof(self._key, "lead", greeting["nonce"]))
        except (ReplicaLost, ValueError, KeyError, TypeError, IndexError):
            follower.connection.close()
            return
        self._missing.remove(place)
        self._followers[place] = follower

    @property
    def followers(self) -> Sequence[GangConnection]:
        """The followers' connections, by their positions."""
        return [self._followers[place] for place in sorted(self._followers)]

    def share(self, model: Path, name: str) -> None:
        """Send the model to all followers."""
        size, sent = model.stat().st_size, 0
        with open(model, "rb") as file:
            while sent < size:
                piece = file.read(PIECE)
                sent += len(piece)
                message = {"piece": base64.b64encode(piece).decode(), "last": sent >= size, "name": name}
                for follower in self._followers.values():
                    follower.send(**message)

    def run(
        self, scenario: object, command: Sequence[str], folder: Path, patience: float | None
    ) -> tuple[int, str | None]:
        """Run a task on all replicas; return the first exit status that is not 0 (else 0), and replica 0's result."""
        self._runs += 1
        try:
            own = GangProgram(command, folder) if command else None
        except OSError as error:
            return unstarted(error), None
        until = None if patience is None else time.monotonic() + patience
        selector = selectors.DefaultSelector()
        waiting: dict[tuple[int, int], GangConnection] = dict(self._followers)
        code, result = 0, None
        try:
            if own is not None:
                selector.register(own.pidfd, selectors.EVENT_READ, None)
            for place, follower in self._followers.items():
                selector.register(follower.connection, selectors.EVENT_READ, place)
                follower.send(run=self._runs, scenario=scenario)
            while (waiting or own is not None) and code == 0:
                ready = selector.select(None if until is None else max(0.0, until - time.monotonic()))
                code = LATE if not ready else code
                for key, _ in ready:
                    if key.data is None and own is not None:
                        selector.unregister(own.pidfd)
                        code, own = code or own.exit(), None
                        continue
                    for ended in self._followers[key.data].receive():
                        if ended["run"] == self._runs and waiting.pop(key.data, None) is not None:
                            code = code or int(ended["exit"])
                            result = ended["result"] if key.data == min(self._followers) else result
            if own is not None:
                own.end()
                own = None
            self._stop(waiting)
        except (ValueError, KeyError, TypeError) as error:
            raise ReplicaLost(f"a replica sent an invalid message: {error}") from None
        finally:
            selector.close()
            if own is not None:
                own.end()
        return code, result

    def _stop(self, waiting: Mapping[tuple[int, int], GangConnection]) -> None:
        """End the programs that still run and wait for their ends: they would interfere with the next task."""
        left = dict(waiting)
        with selectors.DefaultSelector() as selector:
            for place, follower in waiting.items():
                follower.send(stop=True)
                selector.register(follower.connection, selectors.EVENT_READ, place)
            until = time.monotonic() + ENDING
            while left:
                ready = selector.select(max(0.0, until - time.monotonic()))
                if not ready:
                    raise ReplicaLost(f"{len(left)} replicas do not stop, the first of them {min(left)}")
                for key, _ in ready:
                    for answer in self._followers[key.data].receive():
                        if answer["run"] == self._runs and answer.get("stopped"):
                            left.pop(key.data, None)

    def dismiss(self, code: int) -> None:
        """Tell all followers to exit; the gang's exit code goes with it."""
        for follower in self._followers.values():
            with contextlib.suppress(ReplicaLost):
                follower.send(over=code)
            follower.connection.close()


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """Follow or lead; leader's address, position and size of the gang come from the environment."""
    parser = argparse.ArgumentParser(prog="gang", description="A replica of a gang, or its leader.")
    parser.add_argument("role", choices=("follow", "lead"))
    parser.add_argument("--tasks", type=Path, help="the runner's socket; without it, the program runs once")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    adopt_orphans()
    name, _, port = os.environ["WINDTUNNEL_GANG_LEADER"].rpartition(":")
    key = os.environ["WINDTUNNEL_GANG_KEY"]
    if options.role == "follow":
        place = (int(os.environ["WINDTUNNEL_GANG_SLICE"]), int(os.environ["WINDTUNNEL_GANG_INDEX"]))
        again = NOT_LISTENING if options.command[:1] == ["hydra_pmi_proxy"] else None
        leader, messages = join((name, int(port)), key, place, PATIENCE)
        return Follower(leader, options.command, folder, again).serve(messages)
    slices, size = int(os.environ["WINDTUNNEL_GANG_SLICES"]), int(os.environ["WINDTUNNEL_GANG_SIZE"])
    places = [(slice, index) for slice in range(slices) for index in range(size)]
    with socket.create_server(("", int(port)), backlog=1024) as listener:
        leading = Leader(listener, key, places)
        leading.gather(PATIENCE)
    code = FAILED
    try:
        if options.tasks:
            code = serve(leading, options.tasks, options.command, folder)
        else:
            code = once(leading, options.command, folder)
    except ReplicaLost as error:
        print(f"the gang is lost: {error}", file=sys.stderr)
    finally:
        leading.dismiss(code)
    return code


def once(leader: Leader, command: Sequence[str], folder: Path) -> int:
    """Run the program once on all replicas, and print the result."""
    scenario = json.loads(os.environ.get("WINDTUNNEL_SCENARIO", "null"))
    code, result = leader.run(scenario, command, folder, None)
    if result is not None:
        print(result, flush=True)
    return code


def serve(leader: Leader, tasks: Path, command: Sequence[str], folder: Path) -> int:
    """Run the runner's tasks until it closes the connection."""
    runner = connect_to_runner(tasks, PATIENCE)
    runner.send(ready=True)
    while True:
        try:
            orders = runner.receive()
        except ReplicaLost:
            return DONE
        for order in orders:
            if "model" in order:
                leader.share(Path(order["model"]), str(order["name"]))
            else:
                code, result = leader.run(order["scenario"], command, folder, order["patience"])
                runner.send(exit=code, result=result)


def connect_to_runner(tasks: Path, patience: float) -> GangConnection:
    """Connect to the runner's socket, with retries."""
    until = time.monotonic() + patience
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(tasks))
            return GangConnection(connection)
        except OSError as error:
            connection.close()
            if time.monotonic() > until:
                raise ReplicaLost(f"the runner does not listen on {tasks}: {error}") from None
            time.sleep(RETRY)


def stop(*_: object) -> NoReturn:
    """Signal handler: exit with ``STOPPED``."""
    raise SystemExit(STOPPED)


if __name__ == "__main__":
    # The first process of a container ignores SIGTERM without a handler; an exception ends the programs first.
    signal.signal(signal.SIGTERM, stop)
    try:
        sys.exit(main(sys.argv[1:]))
    except ReplicaLost as error:
        print(error, file=sys.stderr)
        sys.exit(ALONE)
