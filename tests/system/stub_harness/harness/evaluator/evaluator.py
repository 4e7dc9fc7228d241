"""Stub evaluator: speaks the runner's protocol without a simulator, and fails where the set-up says so.

``faults`` in the set-up: {"die": task, "hang": task, "refuse": text, "lose_model_server": task, "late": seconds per
task}.
"""

import json
import mmap
import os
import signal
import socket
import sys
import time
from typing import Any

import msgspec

from runtimes.harness.runner.framed_socket import FramedSocket


class StubEvaluator:
    def __init__(self, config: dict[str, Any]) -> None:
        self.socket = socket.socket(fileno=config["socket"])
        self.channel = FramedSocket(self.socket)
        self.position = memoryview(mmap.mmap(config["page"], 16)).cast("q")
        self.faults: dict[str, Any] = {}
        self.folder = config["dataset"]

    def receive(self) -> dict[str, Any]:
        header, rights, _, _ = socket.recv_fds(self.socket, 4, 4)
        if not header:
            os._exit(0)
        for right in rights[1:]:
            os.close(right)
        self.rights = rights
        length = int.from_bytes(header, "little")
        data = self.socket.recv(length, socket.MSG_WAITALL)
        message: dict[str, Any] = msgspec.msgpack.decode(data)
        return message

    def model_server(self) -> None:
        message = self.receive()
        while message["type"] != "model_server":
            message = self.receive()
        if "refuse" in self.faults:
            self.channel.send({"type": "refused", "status": "failed", "reason": self.faults["refuse"]})
        else:
            self.channel.send({"type": "loaded", "info": {"last": message.get("last")}})

    def once(self, task: int) -> bool:
        """Return whether a one-time fault has not happened yet in any stub evaluator of this launch."""
        try:
            os.close(os.open(f"{self.folder}/fault-{task}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def play(self, order: dict[str, Any]) -> None:
        since = task = order["start"]
        lines: list[bytes] = []
        flushed = time.monotonic()
        while task < min(order["stop"], self.position[1]):
            self.position[0] = task
            if task == self.faults.get("die") or (task == self.faults.get("die_once") and self.once(task)):
                os.kill(os.getpid(), signal.SIGKILL)
            if task == self.faults.get("lose_model_server") and self.once(task):
                self.channel.send({"type": "need_model_server", "reason": "crashed"})
                self.model_server()
            if task == self.faults.get("hang"):
                time.sleep(1000)
            if "late" in self.faults:
                time.sleep(self.faults["late"])
            lines.append(msgspec.json.encode({"task": task, "status": "ok", "timing": {}}) + b"\n")
            task += 1
            if time.monotonic() - flushed > min(0.1, order["flush"]) or task <= order["careful_until"] + 1:
                self.report(since, task, lines)
                since, lines, flushed = task, [], time.monotonic()
        if lines:
            self.report(since, task, lines)
        self.channel.send({"type": "idle"})

    def report(self, since: int, to: int, lines: list[bytes]) -> None:
        batch = {"type": "batch", "from": since, "to": to, "failed": 0, "lines": b"".join(lines)}
        self.channel.send(batch | {"artifacts": [], "blobs": b"", "sketch": {}})


def main() -> None:
    evaluator = StubEvaluator(json.loads(sys.argv[1]))
    evaluator.faults = evaluator.receive()["play"].get("faults", {})
    print("stub evaluator at work")
    evaluator.channel.send({"type": "ready"})
    evaluator.model_server()
    while True:
        order = evaluator.receive()
        if order["type"] == "play":
            evaluator.play(order)
