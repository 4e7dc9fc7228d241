"""Bare zygote: of a model whose packages include numpy or msgspec as other files than the platform's own.

It imports nothing but the standard library, and does not read what the evaluator sends: each scenario's process imports
the model's packages, and with them the rest of the model server, once it is sealed.
"""

import os
import platform
import socket
import struct
from typing import Any

from ..forking import zygote
from ..forking.scratch import Scratch
from .start import Start

LENGTH = struct.Struct("<I")
#: Packages of the harness's own that a zygote imports, unless it is a bare one.
NEEDED = ("numpy", "msgspec")


def serve(start: Start) -> None:
    """Seal the sandbox, greet the evaluator, and fork a process per scenario until it closes."""
    start.seal(may_fork=True)
    control = socket.socket(fileno=start.options["socket"])
    control.sendall(greeting(start.options["format"]))
    loading = _load_of(control)
    if loading is None:
        return
    frame, source, first_socket = loading

    def serve_scenario(connected: socket.socket, first: bool) -> None:
        start.extend_path()
        from .model_server import serve_loaded  # imports numpy and msgspec, which are the model's

        serve_loaded(start, frame, source, connected, first)

    plan = zygote.ScenarioPlan(
        start=lambda: None,
        serve=serve_scenario,
        announce=lambda code: framed(packed(["socket"])),
        report=lambda code: framed(packed(["ended", code])),
        sealed=start.sealed,
        scratch=Scratch(start.scratch) if start.scratch is not None else None,
        only_libraries=True,
    )
    zygote.run(control, plan, first_socket)


def greeting(format: str) -> bytes:
    """Return the `hello` of a model server (model_protocol.py)."""
    description = {
        "model_server": "python",
        "version": platform.python_version(),
        "format": format,
        "process_per_scenario": True,
    }
    return framed(packed(["hello", 1, description]))


def packed(value: Any) -> bytes:
    """Return msgpack of what a zygote says: small integers, booleans, short texts, lists and mappings of them."""
    match value:
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int() if -32 <= value <= 127:
            return struct.pack("b", value)
        case int():  # an exit code, or the negative number of a signal
            return struct.pack("BB", 0xCC, value) if value > 0 else struct.pack("Bb", 0xD0, value)
        case str():
            return bytes([0xA0 + len(value.encode())]) + value.encode()
        case list():
            return bytes([0x90 + len(value)]) + b"".join(map(packed, value))
        case dict():
            return bytes([0x80 + len(value)]) + b"".join(packed(key) + packed(item) for key, item in value.items())
    raise TypeError(f"a zygote does not say {type(value).__name__}")


def framed(payload: bytes) -> bytes:
    """Return a message as a frame."""
    return LENGTH.pack(len(payload)) + payload


def _load_of(control: socket.socket) -> tuple[bytes, bytes | None, socket.socket] | None:
    """Receive `load`; return its frame, the model's bytes if its descriptor came along, and the first process's socket.

    The descriptor is closed here: processes of scenarios would share it.
    """
    frame, descriptors, _, _ = socket.recv_fds(control, LENGTH.size, 2)
    if len(frame) < LENGTH.size or not descriptors:
        return None
    length = LENGTH.size + LENGTH.unpack(frame)[0]
    while len(frame) < length:
        if not (piece := control.recv(length - len(frame))):
            return None
        frame += piece
    source = read_model(descriptors[0]) if len(descriptors) > 1 else None
    return frame, source, socket.socket(fileno=descriptors[-1])


def read_model(descriptor: int) -> bytes:
    """Return a model's bytes, and close its descriptor, whose position other model servers may share."""
    try:
        parts, offset = [], 0
        while part := os.pread(descriptor, 1 << 24, offset):
            parts.append(part)
            offset += len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def is_needed(site: str) -> bool:
    """Return whether the platform's own packages of an environment lack one that an ordinary zygote imports."""
    return not all(os.path.isdir(os.path.join(site, name)) for name in NEEDED)
