"""Direct exchange: what a simulator shares whose compiled code asks a model for actions by itself."""

import ctypes
from enum import IntEnum
from typing import ClassVar


class Pause(IntEnum):
    """Why the compiled code has paused."""

    #: The scenario is over.
    OVER = 1
    #: Latencies and actions fill their arrays, or no drawn number is left.
    FULL = 2
    #: The reply is not the expected one, or not whole; a model in this process has failed.
    UNUSUAL = 3
    #: The reply came after the deadline.
    LATE = 4
    NOT_FINITE = 5
    #: A callback of the simulator has raised an exception.
    FAILED = 6


#: Lets a model in this process put its action where the reply is; returns 0 if it has not.
ANSWER = ctypes.CFUNCTYPE(ctypes.c_int)


class Exchange(ctypes.Structure):
    """The members of `Exchange` in simulators/sumo/compiled/exchange.h, in the same order."""

    _fields_: ClassVar = [
        *(
            (name, ctypes.c_void_p)
            for name in ("request", "observed", "head", "reply", "numbers", "latencies", "actions")
        ),
        *(
            (name, ctypes.c_size_t)
            for name in ("request_size", "seq_in_request", "head_size", "seq_in_reply", "expected", "room")
        ),
        *((name, ctypes.c_ssize_t) for name in ("sent", "received")),
        *((name, ctypes.c_double) for name in ("deadline", "started", "latency")),
        *(
            (name, ctypes.c_int)
            for name in ("socket", "numbers_left", "seq", "error", "settled", "capacity", "answered", "applied")
        ),
        ("answer", ANSWER),
    ]
