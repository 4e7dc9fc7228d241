"""Outline of a street network: the shapes that a map of a scenario draws, from a SUMO network file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from datasets.catalogue.car_street.street_network import permits_cars

#: The networks of the built-in streets.
NETS = Path(__file__).parent / "nets"
#: Metres: the width of a lane without one (SUMO's default).
LANE_WIDTH = 3.2

Shape = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """A strip of ground: its middle line and its width, in metres."""

    shape: Shape
    width: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StreetOutline:
    """Shapes in metres, y to the north. ``lanes``: of each edge for cars, from the right."""

    lanes: Mapping[str, tuple[Strip, ...]]
    junctions: tuple[Shape, ...]
    crossings: tuple[Strip, ...]
    pavements: tuple[Strip, ...]


def points(text: str) -> Shape:
    """Parse a shape, "x,y x,y"; heights are left out."""
    pairs = (pair.split(",") for pair in text.split())
    return tuple((float(pair[0]), float(pair[1])) for pair in pairs)


def read(source: Path | IO[bytes]) -> StreetOutline:
    """Read a network file, an element at a time: networks of towns are large."""
    lanes: dict[str, tuple[Strip, ...]] = {}
    junctions: list[Shape] = []
    crossings: list[Strip] = []
    pavements: list[Strip] = []
    for _, element in ElementTree.iterparse(source):
        if element.tag == "edge":
            function = element.get("function")
            for_cars = [_strip(lane.attrib) for lane in element.iter("lane") if permits_cars(lane.attrib)]
            if function == "crossing":
                crossings += [_strip(lane.attrib) for lane in element.iter("lane")]
            elif function is None:
                if for_cars:
                    lanes[element.attrib["id"]] = tuple(for_cars)
                pavements += [
                    _strip(lane.attrib)
                    for lane in element.iter("lane")
                    if not permits_cars(lane.attrib) and "pedestrian" in lane.get("allow", "").split()
                ]
        elif element.tag == "junction" and element.get("type") != "internal" and (text := element.get("shape")):
            if len(shape := points(text)) > 2:
                junctions.append(shape)
        if element.tag != "lane":
            element.clear()
    return StreetOutline(
        lanes=lanes, junctions=tuple(junctions), crossings=tuple(crossings), pavements=tuple(pavements)
    )


def _strip(lane: Mapping[str, str]) -> Strip:
    return Strip(points(lane["shape"]), float(lane.get("width", LANE_WIDTH)))
