"""The ways in which a model breaks a scenario off: each has a status, and is final at once."""

from typing import ClassVar


class ModelFault(Exception):
    """The model broke a scenario off. ``fatal``: its model server cannot be spoken to any more."""

    status: ClassVar[str] = "failed"
    fatal: ClassVar[bool] = True


class Failed(ModelFault):
    """The model raised; its model server says what."""

    fatal = False


class WrongAnswer(ModelFault):
    """The model answered what is no action: another shape, or a number that is not finite."""

    status = "invalid"
    fatal = False


class Garbage(ModelFault):
    """The model server sent what is no reply."""

    status = "invalid"


class Crashed(ModelFault):
    """The model server's end was closed."""

    status = "crashed"


class TimedOut(ModelFault):
    """The answer came too late, or not at all."""

    status = "timed_out"
