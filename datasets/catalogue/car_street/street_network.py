"""Street network as far as routes depend on it: edges for cars, their lanes and connections, from a SUMO network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

#: West, south, east and north in metres.
Box = tuple[float, float, float, float]


def permits_cars(lane: Mapping[str, str]) -> bool:
    """Return whether a lane's `allow` and `disallow` permit passenger cars."""
    if (allowed := lane.get("allow")) is not None:
        return bool({"passenger", "all"}.intersection(allowed.split()))
    return not {"passenger", "all"}.intersection(lane.get("disallow", "").split())


@dataclass(frozen=True, kw_only=True)
class StreetNetwork:
    """A street network as far as routes depend on it, by edge. Only edges for cars are part of it."""

    #: Metres, m/s, the junction at the end, the number of lanes for cars.
    lengths: Mapping[str, float]
    limits: Mapping[str, float]
    ends: Mapping[str, str]
    lanes: Mapping[str, int]
    #: (Edge, lane from the right, next edge).
    connections: frozenset[tuple[str, int, str]]
    #: Junctions with traffic lights.
    signalled: frozenset[str]
    #: Metres of the path through the junction between two edges.
    crossings: Mapping[tuple[str, str], float] = field(default_factory=dict)
    boxes: Mapping[str, Box] = field(default_factory=dict)
    left_hand: bool = False
    #: The attributes of the lanes for cars, from the right, if they are kept.
    drivable: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> "StreetNetwork":
        """Parse a network file's text."""
        return cls.read(BytesIO(text.encode()))

    @classmethod
    def read(cls, source: Path | IO[bytes], *, keep_lanes: bool = False) -> "StreetNetwork":
        """Read a network file, an element at a time: networks of towns are large."""
        lengths, limits, ends, lanes, first, boxes = {}, {}, {}, {}, {}, {}
        inner: dict[str, float] = {}
        kept: dict[str, Sequence[Mapping[str, str]]] = {}
        turns: list[Mapping[str, str]] = []
        signalled = []
        left_hand = False
        for event, element in ElementTree.iterparse(source, ("start", "end")):
            if event == "start":
                left_hand = left_hand or (element.tag == "net" and element.get("lefthand") == "true")
                continue
            if element.tag == "edge":
                drivable = [lane.attrib for lane in element.iter("lane") if permits_cars(lane.attrib)]
                if element.get("function") == "internal":
                    inner |= {lane["id"]: float(lane["length"]) for lane in drivable}
                indexes = [int(lane["index"]) for lane in drivable]
                # Lanes between which there is a lane for others cannot be counted from the right.
                if element.get("function") is None and drivable and indexes[-1] - indexes[0] == len(indexes) - 1:
                    name = element.attrib["id"]
                    lengths[name] = float(drivable[0]["length"])
                    limits[name] = float(drivable[0]["speed"])
                    ends[name] = element.attrib["to"]
                    lanes[name] = len(drivable)
                    first[name] = indexes[0]
                    boxes[name] = box_of(drivable[0]["shape"])
                    if keep_lanes:
                        kept[name] = drivable
            elif element.tag == "connection":
                turns.append(dict(element.attrib))  # clear() below must not empty it
            elif element.tag == "junction" and element.get("type") == "traffic_light":
                signalled.append(element.attrib["id"])
            if element.tag != "lane":
                element.clear()
        connections = set()
        crossings: dict[tuple[str, str], float] = {}
        for turn in turns:
            start, onto = turn["from"], turn["to"]
            if start in lengths and onto in lengths and turn.get("dir") != "t":
                lane = int(turn["fromLane"]) - first[start]
                landing = int(turn["toLane"]) - first[onto]
                if 0 <= lane < lanes[start] and 0 <= landing < lanes[onto]:
                    connections.add((start, lane, onto))
                    crossings.setdefault((start, onto), inner.get(turn.get("via", ""), 0.0))
        return cls(
            lengths=lengths,
            limits=limits,
            ends=ends,
            lanes=lanes,
            connections=frozenset(connections),
            signalled=frozenset(signalled),
            crossings=crossings,
            boxes=boxes,
            left_hand=left_hand,
            drivable=kept,
        )

    @cached_property
    def _leading(self) -> Mapping[str, Mapping[str, list[int]]]:
        """Edge -> next edge -> the lanes that lead onto it."""
        leading: dict[str, dict[str, list[int]]] = {}
        for start, lane, onto in sorted(self.connections):
            leading.setdefault(start, {}).setdefault(onto, []).append(lane)
        return leading

    def onward(self, edge: str) -> list[str]:
        """Return the edges that follow an edge."""
        return sorted(self._leading.get(edge, ()))

    def leading(self, edge: str, onto: str) -> list[int]:
        """Return the lanes, from the right, that lead onto an edge."""
        return list(self._leading.get(edge, {}).get(onto, ()))


def box_of(shape: str) -> Box:
    """Return the bounds of a shape, "x,y x,y"."""
    points = [pair.split(",") for pair in shape.split()]
    xs, ys = [float(point[0]) for point in points], [float(point[1]) for point in points]
    return min(xs), min(ys), max(xs), max(ys)
