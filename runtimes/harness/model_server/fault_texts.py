"""Fault texts: what people read of an exception that a model or its loader has raised.

Each is the text and the kind of an `error` frame (model_protocol.py): `invalid` for an answer or a model that does not
fit, `failed` for an exception of the model's own.
"""

import os
import traceback
from collections.abc import Callable
from functools import partial

from ..models.base import Assignment, Misfit, ModelFormat, NoAction, Unreadable
from .explanations import Surroundings, explain
from .model_protocol import MAX_ERROR_TEXT, FaultKind


def loading_fault(error: BaseException, format: ModelFormat, assignment: Assignment) -> tuple[str, FaultKind]:
    """Return text and kind for an exception of loading a model."""
    surroundings = partial(Surroundings.here, format, assignment)
    if not isinstance(error, Misfit):
        return describe_error(error, surroundings), "failed"
    explanation = explain(error, surroundings())
    if not explanation and isinstance(error, Unreadable):
        explanation = cut_off(assignment)
    return printable(". ".join(filter(None, (str(error), explanation)))), "invalid"


def calling_fault(error: BaseException, format: ModelFormat, assignment: Assignment) -> tuple[str, FaultKind]:
    """Return text and kind for an exception of a call of a loaded model."""
    if isinstance(error, NoAction):
        return printable(str(error)), "invalid"
    return describe_error(error, partial(Surroundings.here, format, assignment)), "failed"


def cut_off(assignment: Assignment) -> str:
    """Return how to find out whether a model that cannot be read is only a part of itself."""
    size = len(assignment.source)
    if assignment.files is not None:
        size = sum(path.stat().st_size for path in assignment.files.rglob("*") if path.is_file())
    return f"It has {size:,} bytes here; if it has more where it was written, a copy was cut off: send it again"


def describe_error(error: BaseException, surroundings: Callable[[], Surroundings]) -> str:
    """Return the text of a model's exception, the line in its file, and the limit that it met, if any.

    The traceback goes to the log.
    """
    try:
        explanation = explain(error, surroundings())
        if isinstance(error, MemoryError):
            traceback.clear_frames(error.__traceback__)  # what the model's functions hold is needed for the text
        traceback.print_exception(error)
        location = ""
        for frame in traceback.extract_tb(error.__traceback__):
            name = os.path.basename(frame.filename)
            if name == "model.py" or "/model/" in frame.filename:
                location = f" ({name}, line {frame.lineno})"
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        end = f"{location}. {explanation}" if explanation else location
        return printable(text[: MAX_ERROR_TEXT - len(end)] + end)
    except BaseException:  # the model's exception or its replaced stderr may raise when the text is formatted
        return printable(f"{type(error).__name__}, whose text cannot be formatted")


def printable(text: str) -> str:
    """Return a text that can be encoded as UTF-8, shortened to the limit."""
    return text.encode(errors="replace").decode()[:MAX_ERROR_TEXT]
