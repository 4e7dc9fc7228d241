"""Model faults: exceptions with which a model or its model server ends a scenario; each has a result status."""

from typing import ClassVar


class ModelFault(Exception):
    """The model ended a scenario. ``fatal``: its model server must be replaced."""

    status: ClassVar[str] = "failed"
    fatal: ClassVar[bool] = True


class Failed(ModelFault):
    """The model raised an exception; the model server reports its text."""

    fatal = False


class WrongAnswer(ModelFault):
    """The model's answer is not an action: it has another shape, or an entry is not finite."""

    status = "invalid"
    fatal = False


class Garbage(ModelFault):
    """The model server violated the protocol."""

    status = "invalid"


class Crashed(ModelFault):
    """The model server's process ended, which closed its socket."""

    status = "crashed"


class TimedOut(ModelFault):
    """The model server did not answer within the deadline."""

    status = "timed_out"


class Interrupted(ModelFault):
    """The model server ended by no fault of the scenario, which is run again with another one, a few times."""

    status = "crashed"


class NotStarted(Interrupted):
    """The model server ended between two scenarios: the next one has not begun."""


class Killed(Interrupted):
    """The model server was killed from outside: by no signal of its own, and by no limit that it exceeded."""
