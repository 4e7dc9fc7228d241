"""What may stand in an address: ids and names of bounded shape, so that nothing else ever reaches a query."""

from collections.abc import Mapping
from typing import Any

from flask import Flask
from werkzeug.routing import BaseConverter, IntegerConverter

from api.schemas.fields import NAME, REFERENCE
from api.schemas.results import SIMULATION_ID


class IdConverter(BaseConverter):
    """A simulation's id."""

    regex = SIMULATION_ID.strip("^$")


class NameConverter(BaseConverter):
    """A plain name."""

    regex = NAME.strip("^$")


class ReferenceConverter(BaseConverter):
    """A name, ``name@version``, an id or a digest."""

    regex = REFERENCE.strip("^$")


class TaskConverter(IntegerConverter):
    """A task's number; -1 is the simulation as a whole."""

    regex = r"-1|\d{1,9}"

    def __init__(self, map: Any) -> None:
        super().__init__(map, signed=True)


class FileConverter(BaseConverter):
    """An artifact's name; it may have folders, and never climbs."""

    part_isolating = False
    regex = r"(?!.*(?:^|/)\.{1,2}(?:/|$))[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,254}"


class PathConverter(FileConverter):
    """A path in a dataset."""

    regex = r"(?!.*(?:^|/)\.{1,2}(?:/|$))[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,1023}"


SCHEMAS: Mapping[type[BaseConverter], Mapping[str, Any]] = {
    IdConverter: {"type": "string", "pattern": SIMULATION_ID, "example": "01jd0000000000000000000000"},
    NameConverter: {"type": "string", "pattern": NAME, "example": "car_street"},
    ReferenceConverter: {"type": "string", "pattern": REFERENCE, "example": "idm"},
    TaskConverter: {"type": "integer", "minimum": -1, "maximum": 999_999_999, "example": 0},
    FileConverter: {"type": "string", "minLength": 1, "maxLength": 255, "example": "trace.npz"},
    PathConverter: {"type": "string", "minLength": 1, "maxLength": 1024, "example": "dataset.json"},
}


def register(app: Flask) -> None:
    """Make the converters known to an application's addresses."""
    app.url_map.converters.update(
        id=IdConverter,
        name=NameConverter,
        ref=ReferenceConverter,
        task=TaskConverter,
        file=FileConverter,
        path=PathConverter,
    )
