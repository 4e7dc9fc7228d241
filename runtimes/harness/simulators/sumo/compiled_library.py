"""Compiled code of the SUMO simulator, loaded through ctypes: its functions, its state's members, its errors."""

import ctypes
import functools
from pathlib import Path
from typing import ClassVar

from .engine import sumo

#: Numbers that calls return: the scenario goes on or has ended, SUMO refused a command or failed, own code failed.
GOES_ON, ENDED, SUMO_REFUSED, SUMO_FAILED, STEP_FAILED = 0, 1, -1, -2, -3
LOAD_PATH = ctypes.CFUNCTYPE(None, ctypes.c_int)
#: Commands an event's actors; returns GOES_ON, ENDED if it has nothing more to do, or STEP_FAILED.
EVENT = ctypes.CFUNCTYPE(ctypes.c_int)
#: The compiled code's file, in the folder of the environment's packages: it is built for the libsumo beside it.
FILE = "windtunnel_sumo_step.so"


class State(ctypes.Structure):
    """The members of `State` in compiled/episode.h, in the same order."""

    _fields_: ClassVar = [
        *(
            (name, ctypes.c_double)
            for name in (
                *("position", "speed", "accel", "limit", "stop_line", "route_length", "odometer", "time_limit"),
                *("driven", "min_ttc", "max_drac", "min_headway", "min_pet", "min_ttc_pedestrian"),
                *("speeding", "max_speeding", "jerk_squares", "max_decel", "co2", "last_accel"),
            )
        ),
        *(
            (name, ctypes.c_int)
            for name in (
                *("steps", "ttc_exposed", "unsafe", "red_lights", "comfortable", "lane_changes", "clipped"),
                *("moves", "lane", "path", "light", "entered_on", "changing", "outcome", "actor_arrived"),
                "pedestrians",
            )
        ),
    ]


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled code that belongs to the imported libsumo; None if it was not built for it."""
    path = Path(sumo.__file__).parents[1] / FILE
    try:
        loaded = ctypes.CDLL(str(path), use_errno=False)
    except OSError:
        return None
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double
    for name, result, arguments in (
        ("street_new", pointer, [text]),
        ("street_path", ctypes.c_int, [pointer, ctypes.c_int, text]),
        ("episode_new", pointer, [pointer, text, number, number, LOAD_PATH, pointer]),
        ("episode_delete", None, [pointer]),
        ("episode_state", ctypes.POINTER(State), [pointer]),
        ("episode_step", ctypes.c_int, [pointer, number, number, pointer]),
        ("episode_drive", ctypes.c_int, [pointer, pointer, EVENT, pointer]),
        ("actor_gap", number, [text, number]),
        ("hold_xml_parser", None, []),
        ("step_status", ctypes.c_int, []),
        ("step_error", text, []),
    ):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    loaded.hold_xml_parser()
    return loaded


def check(code: int, compiled: ctypes.CDLL) -> None:
    """Raise the exception for a negative result of a call, as libsumo's own module would."""
    if code >= 0:
        return
    message = compiled.step_error().decode(errors="replace")
    raise {SUMO_REFUSED: sumo.TraCIException, SUMO_FAILED: sumo.FatalTraCIError}.get(code, RuntimeError)(message)
