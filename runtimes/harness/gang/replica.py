"""A gang's pods: one leads, the others follow; together they run a program, once for each task.

``python -m runtimes.harness.gang.replica follow|lead [COMMAND...]``

A replica follows: it looks for its leader by name, says where it stands, and runs COMMAND when told to. The leader
waits until all are there, has them run, runs its own COMMAND meanwhile if it has one (what starts an MPI program), and
counts the whole as failed as soon as one fails or is lost: then the others are ended, for they would wait for it for
ever. The program runs in the folder of the model, unpacked; it finds its scenario, a JSON document, in the file that
WINDTUNNEL_SCENARIO names, and the first replica leaves its result in the one that WINDTUNNEL_RESULT names.

With a runner beside it (``--tasks SOCKET``, see workers/gang_runner.py) the leader is told what to run, and for how
long at most, until the runner hangs up; without one, all run once, and how that ended is how the leader does.

All that follow prove that they know the gang's key, and so does the leader; it opens nothing else. Lines of JSON, one
thread, and no library.
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
from typing import Any, NoReturn

from .gang_transport import Line, Lost, Message, Program, adopt_orphans, lay_out, proof, unstarted

#: Exit codes: all went well; a replica failed or was lost; somebody never came; told to stop.
DONE, FAILED, ALONE, STOPPED = 0, 1, 75, 143
#: A program's exit, as `timeout` has it, where it took longer than it may.
LATE = 124
#: The most characters of a program's result. Of a longer one so many are told, and one more.
RESULT = 64 << 10
#: Seconds to wait for the others, whose images may still be on their way; and between two looks for the leader.
PATIENCE, LOOK = 900.0, 0.1
#: An MPI proxy's exit for a launcher that does not listen yet; how often and after how long it is started again.
NOT_YET, TRIES, PAUSE = 5, 600, 0.1
#: Seconds that a replica may take to end what it runs.
ENDING = 60.0
#: How much of the model goes into a line.
PIECE = 512 << 10
FOLDER = Path("/tmp/windtunnel")


# -- who follows


class Follower:
    """One replica. ``again``: how a program ends that only came too early."""

    def __init__(self, leader: Line, command: Sequence[str], folder: Path, again: int | None = None) -> None:
        self._leader = leader
        self._command = command
        self._folder = folder
        self._again = again
        self._tries = 0
        self._run = 0
        self._program: Program | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(leader.connection, selectors.EVENT_READ, None)

    def serve(self, heard: Sequence[Message]) -> int:
        """Run what it is told to until all is over; return what to exit with."""
        try:
            while True:
                for message in heard:
                    if "run" in message:
                        self._prepare(message)
                        self._start()
                    elif "piece" in message:
                        self._take(message)
                    elif "stop" in message:
                        self._end()
                        self._leader.say(run=self._run, stopped=True)
                    elif "over" in message:
                        return DONE
                heard = []
                for key, _ in self._selector.select():
                    if key.data is None:
                        heard = self._leader.hear()
                    else:
                        self._ended(key.data)
        except Lost as error:
            print(f"the gang's leader is lost: {error}", file=sys.stderr)
            return FAILED
        finally:
            self._end()

    def _take(self, message: Message) -> None:
        """Add a piece of the model; after the last one, lay it out."""
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
            self._program = Program(self._command, self._folder)
        except OSError as error:  # the task's own fault: a gang begun again would find the same
            self._leader.say(run=self._run, exit=unstarted(error), result=None)
            return
        self._selector.register(self._program.pidfd, selectors.EVENT_READ, self._program)

    def _ended(self, program: Program) -> None:
        self._selector.unregister(program.pidfd)
        self._program = None
        code = program.exit()
        if code == self._again and self._tries < TRIES:
            self._tries += 1
            time.sleep(PAUSE)
            self._start()
            return
        self._leader.say(run=self._run, exit=code, result=self._result())

    def _result(self) -> str | None:
        """Return what the program left, or as much of it as shows that it is too long for a line."""
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


def join(address: tuple[str, int], key: str, place: tuple[int, int], patience: float) -> tuple[Line, list[Message]]:
    """Look for the leader until it is there and has proved to be it; also return what it said thereafter."""
    until = time.monotonic() + patience
    nonce = secrets.token_hex(16)
    while True:
        try:
            connection = socket.create_connection(address, timeout=5.0)
            if connection.getsockname() != connection.getpeername():
                break
            # On its own machine it may be given the port it asks for, and so be answered by itself, as TCP allows
            # (RFC 9293, 3.5, simultaneous open); the leader could not listen there as long as this lasts.
            connection.close()
            raise ConnectionRefusedError("nobody listens")
        except OSError as error:  # its name is not known yet, or it does not listen
            if time.monotonic() > until:
                raise Lost(f"nobody answers at {address[0]}:{address[1]}: {error}") from None
            time.sleep(LOOK)
    leader = Line(connection)
    connection.settimeout(patience)
    leader.say(place=place, nonce=nonce, proof=proof(key, "follow", *place, nonce))
    heard: list[Message] = []
    while not heard:
        heard = leader.hear()
    connection.settimeout(None)
    if not hmac.compare_digest(str(heard[0].get("proof")), proof(key, "lead", nonce)):
        raise Lost("who answers there does not know the gang's key")
    return leader, heard[1:]


# -- who leads


class Leader:
    """The one that knows whether all are there, and whether all went well."""

    def __init__(self, listener: socket.socket, key: str, places: Sequence[tuple[int, int]]) -> None:
        self._listener = listener
        self._key = key
        self._missing = set(places)
        self._runs = 0
        self._followers: dict[tuple[int, int], Line] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, None)

    def gather(self, patience: float) -> None:
        """Wait until every place is taken; raise Lost if one remains empty."""
        until = time.monotonic() + patience
        while self._missing:
            ready = self._selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                raise Lost(f"{len(self._missing)} replicas never came, the first of them {min(self._missing)}")
            for key, _ in ready:
                if key.data is None:
                    connection, _ = self._listener.accept()
                    connection.settimeout(30.0)
                    self._selector.register(connection, selectors.EVENT_READ, Line(connection))
                else:
                    self._greet(key.data)
        self._selector.unregister(self._listener)

    def _greet(self, line: Line) -> None:
        self._selector.unregister(line.connection)
        try:
            [said] = line.hear()
            place = (int(said["place"][0]), int(said["place"][1]))
            known = hmac.compare_digest(str(said["proof"]), proof(self._key, "follow", *place, said["nonce"]))
            if not known or place not in self._missing:
                raise Lost("a stranger, or a second one")
            line.say(proof=proof(self._key, "lead", said["nonce"]))
        except (Lost, ValueError, KeyError, TypeError, IndexError):
            line.connection.close()
            return
        self._missing.remove(place)
        self._followers[place] = line

    def share(self, model: Path, name: str) -> None:
        """Give all of them the model."""
        size, sent = model.stat().st_size, 0
        with open(model, "rb") as file:
            while sent < size:
                piece = file.read(PIECE)
                sent += len(piece)
                told = {"piece": base64.b64encode(piece).decode(), "last": sent >= size, "name": name}
                for line in self._followers.values():
                    line.say(**told)

    def run(
        self, scenario: Any, command: Sequence[str], folder: Path, patience: float | None
    ) -> tuple[int, str | None]:
        """Have all run once; return the first bad exit, or 0, and the first replica's result. Raise Lost if one is."""
        self._runs += 1
        try:
            own = Program(command, folder) if command else None
        except OSError as error:
            return unstarted(error), None
        until = None if patience is None else time.monotonic() + patience
        selector = selectors.DefaultSelector()
        waiting: dict[tuple[int, int], Line] = dict(self._followers)
        code, result = 0, None
        try:
            if own is not None:
                selector.register(own.pidfd, selectors.EVENT_READ, None)
            for place, line in self._followers.items():
                selector.register(line.connection, selectors.EVENT_READ, place)
                line.say(run=self._runs, scenario=scenario)
            while (waiting or own is not None) and code == 0:
                ready = selector.select(None if until is None else max(0.0, until - time.monotonic()))
                code = LATE if not ready else code
                for key, _ in ready:
                    if key.data is None and own is not None:
                        selector.unregister(own.pidfd)
                        code, own = code or own.exit(), None
                        continue
                    for said in self._followers[key.data].hear():
                        if said["run"] == self._runs and waiting.pop(key.data, None) is not None:
                            code = code or int(said["exit"])
                            result = said["result"] if key.data == min(self._followers) else result
            if own is not None:
                own.end()
                own = None
            self._stop(waiting)
        except (ValueError, KeyError, TypeError) as error:
            raise Lost(f"a replica does not speak our language: {error}") from None
        finally:
            selector.close()
            if own is not None:
                own.end()
        return code, result

    def _stop(self, waiting: Mapping[tuple[int, int], Line]) -> None:
        """End what still runs, and wait until it has: what is left of one task would meddle with the next."""
        left = dict(waiting)
        with selectors.DefaultSelector() as selector:
            for place, line in waiting.items():
                line.say(stop=True)
                selector.register(line.connection, selectors.EVENT_READ, place)
            until = time.monotonic() + ENDING
            while left:
                ready = selector.select(max(0.0, until - time.monotonic()))
                if not ready:
                    raise Lost(f"{len(left)} replicas do not stop, the first of them {min(left)}")
                for key, _ in ready:
                    for said in self._followers[key.data].hear():
                        if said["run"] == self._runs and said.get("stopped"):
                            left.pop(key.data, None)

    def dismiss(self, code: int) -> None:
        """Send all home."""
        for line in self._followers.values():
            with contextlib.suppress(Lost):
                line.say(over=code)
            line.connection.close()


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """Follow or lead, as the pod's environment tells where and with how many."""
    parser = argparse.ArgumentParser(prog="gang", description="A replica of a gang, or the one that leads it.")
    parser.add_argument("role", choices=("follow", "lead"))
    parser.add_argument("--tasks", type=Path, help="the runner's socket; without it, all run once")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    adopt_orphans()
    told = os.environ
    name, _, port = told["WINDTUNNEL_GANG_LEADER"].rpartition(":")
    key = told["WINDTUNNEL_GANG_KEY"]
    if given.role == "follow":
        place = (int(told["WINDTUNNEL_GANG_SLICE"]), int(told["WINDTUNNEL_GANG_INDEX"]))
        again = NOT_YET if given.command[:1] == ["hydra_pmi_proxy"] else None
        leader, heard = join((name, int(port)), key, place, PATIENCE)
        return Follower(leader, given.command, folder, again).serve(heard)
    slices, size = int(told["WINDTUNNEL_GANG_SLICES"]), int(told["WINDTUNNEL_GANG_SIZE"])
    places = [(slice, index) for slice in range(slices) for index in range(size)]
    with socket.create_server(("", int(port)), backlog=1024) as listener:
        leading = Leader(listener, key, places)
        leading.gather(PATIENCE)
    code = FAILED
    try:
        if given.tasks:
            code = serve(leading, given.tasks, given.command, folder)
        else:
            code = once(leading, given.command, folder)
    except Lost as error:
        print(f"the gang is lost: {error}", file=sys.stderr)
    finally:
        leading.dismiss(code)
    return code


def once(leader: Leader, command: Sequence[str], folder: Path) -> int:
    """Have all run once, and print the result."""
    scenario = json.loads(os.environ.get("WINDTUNNEL_SCENARIO", "null"))
    code, result = leader.run(scenario, command, folder, None)
    if result is not None:
        print(result, flush=True)
    return code


def serve(leader: Leader, tasks: Path, command: Sequence[str], folder: Path) -> int:
    """Have all run as the runner says, until it hangs up."""
    runner = call(tasks, PATIENCE)
    runner.say(ready=True)
    while True:
        try:
            heard = runner.hear()
        except Lost:
            return DONE
        for order in heard:
            if "model" in order:
                leader.share(Path(order["model"]), str(order["name"]))
            else:
                code, result = leader.run(order["scenario"], command, folder, order["patience"])
                runner.say(exit=code, result=result)


def call(tasks: Path, patience: float) -> Line:
    """Look for the runner until it is there."""
    until = time.monotonic() + patience
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(tasks))
            return Line(connection)
        except OSError as error:
            connection.close()
            if time.monotonic() > until:
                raise Lost(f"there is no runner: {error}") from None
            time.sleep(LOOK)


def stop(*_: object) -> NoReturn:
    """Signal handler: end the program with ``STOPPED``."""
    raise SystemExit(STOPPED)


if __name__ == "__main__":
    # As the first process of a container it would ignore this; raised, so that what it started is ended first.
    signal.signal(signal.SIGTERM, stop)
    try:
        sys.exit(main(sys.argv[1:]))
    except Lost as error:
        print(error, file=sys.stderr)
        sys.exit(ALONE)
