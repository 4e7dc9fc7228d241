"""URL converters: ids and names of bounded length and pattern, so that no other text reaches a database query."""

from collections.abc import Mapping
from typing import Any

from flask import Flask
from werkzeug.routing import BaseConverter, IntegerConverter

from api.schemas.accounts import ACCOUNT_NAME
from api.schemas.fields import NAME, REFERENCE
from api.schemas.results import SIMULATION_ID
from core.domain.access.identities import NAME as LABEL
from core.domain.access.identities import UNUSABLE_NAMES


class IdConverter(BaseConverter):
    """Id of a simulation or an upload."""

    regex = SIMULATION_ID.strip("^$")


class NameConverter(BaseConverter):
    """Name, such as that of a runtime."""

    regex = NAME.strip("^$")


class ReferenceConverter(BaseConverter):
    """Reference to a model or a dataset: name, ``name@version``, ``name@tag``, id or digest, or ``project/`` and that.

    Where a path can be read in two ways, such as ``x/content``, its last part is not a name.
    """

    part_isolating = False
    weight = 200
    regex = REFERENCE.strip("^$")


class AccountConverter(BaseConverter):
    """Name of a user, or of a service account: its own, or that of its project, ``/`` and its own."""

    part_isolating = False
    weight = 150
    # `team-a/quotas` is a part of what the user `team-a` has.
    regex = rf"(?:{LABEL.pattern}/(?!(?:{'|'.join(sorted(UNUSABLE_NAMES))})(?:/|$)))?{LABEL.pattern}"


class TaskConverter(IntegerConverter):
    """Number of a task; -1 is the simulation as a whole."""

    regex = r"-1|\d{1,9}"

    def __init__(self, map: Any) -> None:
        super().__init__(map, signed=True)


class FileConverter(BaseConverter):
    """Name of an artifact, which may contain folders, but neither ``.`` nor ``..``."""

    part_isolating = False
    regex = r"(?!.*(?:^|/)\.{1,2}(?:/|$))[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,254}"


class PathConverter(FileConverter):
    """Path of a file in a dataset."""

    regex = r"(?!.*(?:^|/)\.{1,2}(?:/|$))[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,1023}"


SCHEMAS: Mapping[type[BaseConverter], Mapping[str, Any]] = {
    IdConverter: {"type": "string", "pattern": SIMULATION_ID},
    NameConverter: {"type": "string", "pattern": NAME},
    ReferenceConverter: {"type": "string", "pattern": REFERENCE},
    AccountConverter: {"type": "string", "pattern": ACCOUNT_NAME},
    TaskConverter: {"type": "integer", "minimum": -1, "maximum": 999_999_999},
    FileConverter: {"type": "string", "minLength": 1, "maxLength": 255},
    PathConverter: {"type": "string", "minLength": 1, "maxLength": 1024},
}


def register(app: Flask) -> None:
    """Add the converters to the URL map of an application."""
    app.url_map.converters.update(
        id=IdConverter,
        name=NameConverter,
        ref=ReferenceConverter,
        account=AccountConverter,
        task=TaskConverter,
        file=FileConverter,
        path=PathConverter,
    )
