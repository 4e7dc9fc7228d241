"""Street network, read from a SUMO network file: lanes, paths through junctions, right of way, crossings, lights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

Shape = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane for cars; ``rank`` is its index from the right, not counting pavements; lengths in metres."""

    id: str
    edge: str
    rank: int
    count: int
    length: float
    width: float
    shape: Shape
    internal: bool


@dataclass(frozen=True, slots=True)
class JunctionPath:
    """A path through a junction, from the end of a lane to the edge ``onto``."""

    lane: str
    onto: str
    junction: str
    #: Index of the path's row in the junction's right-of-way matrix.
    link: int
    #: Internal lanes in driving order, each with its distance in metres from the path's start.
    pieces: tuple[tuple[str, float], ...]
    length: float
    shape: Shape
    direction: str
    light: str | None
    light_index: int


@dataclass(frozen=True, slots=True)
class Crosswalk:
    """A pedestrian crossing, from kerb to kerb, and the walking areas at its ends."""

    id: str
    junction: str
    edges: tuple[str, ...]
    shape: Shape
    width: float
    kerbs: tuple[str, ...]


@dataclass(frozen=True)
class Street:
    """The parts of a network that the simulator uses; immutable, read once."""

    lanes: Mapping[str, Lane]
    #: Edges for cars, each with its lanes from right to left.
    edges: Mapping[str, tuple[str, ...]]
    following: Mapping[str, tuple[str, ...]]
    paths: Mapping[tuple[str, str], JunctionPath]
    #: Junction -> link -> links it must yield to.
    yields: Mapping[str, Mapping[int, frozenset[int]]]
    #: Junction -> link -> links with a conflicting path.
    foes: Mapping[str, Mapping[int, frozenset[int]]]
    crosswalks: tuple[Crosswalk, ...]
    pavements: Mapping[str, tuple[str, Shape, float]]
    lights: tuple[str, ...]
    junctions: Mapping[str, Shape]
    #: Further paths between a lane and an edge, onto other lanes of it; `paths` has the first.
    alternatives: tuple[JunctionPath, ...] = ()

    @cached_property
    def inside(self) -> Mapping[str, tuple[JunctionPath, float]]:
        """Internal lane -> its path, and its distance in metres from the path's start."""
        known = (*self.alternatives, *self.paths.values())
        return {lane: (path, before) for path in known for lane, before in path.pieces}

    def around(self, route: tuple[str, ...], radius: float) -> "Surroundings":
        """Return the part of the street within ``radius`` metres of the bounding box of a route."""
        shapes = [self.lanes[lane].shape for edge in route for lane in self.edges[edge]]
        xs, ys = [x for shape in shapes for x, _ in shape], [y for shape in shapes for _, y in shape]
        west, south, east, north = min(xs) - radius, min(ys) - radius, max(xs) + radius, max(ys) + radius

        def within(shape: Shape) -> bool:
            return (
                min(x for x, _ in shape) <= east
                and max(x for x, _ in shape) >= west
                and min(y for _, y in shape) <= north
                and max(y for _, y in shape) >= south
            )

        near = {edge: within(self.lanes[lanes[0]].shape) for edge, lanes in self.edges.items()}
        paths = {key: path for key, path in self.paths.items() if near[self.lanes[key[0]].edge]}
        street = replace(
            self,
            lanes={lane.id: lane for lane in self.lanes.values() if lane.internal or near[lane.edge]},
            paths=paths,
            crosswalks=tuple(crosswalk for crosswalk in self.crosswalks if within(crosswalk.shape)),
            pavements={name: pavement for name, pavement in self.pavements.items() if within(pavement[1])},
            lights=tuple(sorted({path.light for path in paths.values() if path.light})),
            junctions={name: shape for name, shape in self.junctions.items() if within(shape)},
        )
        return Surroundings(tuple(edge for edge in self.edges if near[edge]), street)

    def path(self, lane: str, onto: str) -> JunctionPath | None:
        """Return the path from a lane onto an edge; if there is none, the path from another lane of the same edge."""
        path = self.paths.get((lane, onto))
        if path is None and lane in self.lanes:
            for other in self.edges.get(self.lanes[lane].edge, ()):
                path = path or self.paths.get((other, onto))
        return path

    def leading(self, edge: str, onto: str | None) -> tuple[str, ...]:
        """Return the lanes of an edge that lead onto the next edge, right to left; all lanes if ``onto`` is None."""
        lanes = self.edges[edge]
        return lanes if onto is None else tuple(lane for lane in lanes if (lane, onto) in self.paths)

    def place(self, route: tuple[str, ...], distance: float) -> tuple[int, float]:
        """Return the index of the route's edge, and the position on it, ``distance`` metres after the route's start."""
        for index, edge in enumerate(route):
            length = self.lanes[self.edges[edge][0]].length
            if distance <= length or index == len(route) - 1:
                return index, min(distance, length)
            distance -= length
            if index + 1 < len(route):
                path = self.path(self.edges[edge][-1], route[index + 1])
                distance = max(0.0, distance - (path.length if path else 0.0))
        raise ValueError("an empty route has no positions")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The part of a large street around a route: its edges, and a street that has its shapes only, for replays."""

    edges: tuple[str, ...]
    street: Street


def points(text: str) -> Shape:
    """Parse "x,y x,y"; a z coordinate is ignored."""
    return tuple((float(pair.split(",")[0]), float(pair.split(",")[1])) for pair in text.split())


def bits(row: str) -> frozenset[int]:
    """Parse a right-of-way row, whose rightmost character is link 0."""
    return frozenset(index for index, bit in enumerate(reversed(row)) if bit == "1")


def link_of(internal: str) -> int:
    """Return the link index of an internal lane: ``:j_4_1`` is the second lane of link 4, so link 5."""
    _, link, lane = internal.rsplit("_", 2)
    return int(link) + int(lane)


def permits_cars(lane: Mapping[str, str]) -> bool:
    """Return whether a lane's `allow` and `disallow` permit passenger cars."""
    if (allowed := lane.get("allow")) is not None:
        return bool({"passenger", "all"}.intersection(allowed.split()))
    return not {"passenger", "all"}.intersection(lane.get("disallow", "").split())


def read(network: Path) -> Street:
    """Read a network file."""
    root = ElementTree.parse(network).getroot()
    lanes, edges, pavements = _lanes(root)
    paths, alternatives = _paths(root, lanes)
    following: dict[str, dict[str, None]] = {edge: {} for edge in edges}
    for path in paths.values():
        following[lanes[path.lane].edge][path.onto] = None
    yields, foes, shapes = {}, {}, {}
    for junction in root.iter("junction"):
        name = junction.attrib["id"]
        rows = {int(row.attrib["index"]): row.attrib for row in junction.iter("request")}
        yields[name] = {index: bits(row["response"]) for index, row in rows.items()}
        foes[name] = {index: bits(row["foes"]) for index, row in rows.items()}
        if junction.attrib["type"] != "internal" and junction.get("shape"):
            shapes[name] = points(junction.attrib["shape"])
    return Street(
        lanes=lanes,
        edges=edges,
        following={edge: tuple(sorted(onto)) for edge, onto in following.items()},
        paths=paths,
        yields=yields,
        foes=foes,
        crosswalks=_crosswalks(root),
        pavements=pavements,
        lights=tuple(sorted({path.light for path in paths.values() if path.light})),
        junctions=shapes,
        alternatives=alternatives,
    )


def _lanes(
    root: ElementTree.Element,
) -> tuple[dict[str, Lane], dict[str, tuple[str, ...]], dict[str, tuple[str, Shape, float]]]:
    lanes: dict[str, Lane] = {}
    edges: dict[str, tuple[str, ...]] = {}
    pavements: dict[str, tuple[str, Shape, float]] = {}
    for edge in root.iter("edge"):
        internal = edge.get("function") == "internal"
        if edge.get("function") not in (None, "internal"):
            continue
        name = edge.attrib["id"]
        drivable = [lane.attrib for lane in edge.iter("lane") if permits_cars(lane.attrib)]
        for lane in edge.iter("lane"):
            if lane.get("allow") == "pedestrian":
                shape = points(lane.attrib["shape"])
                pavements[name] = (lane.attrib["id"], shape, float(lane.get("width", "2")))
        for rank, attributes in enumerate(drivable):
            lanes[attributes["id"]] = Lane(
                id=attributes["id"],
                edge=name,
                rank=rank,
                count=len(drivable),
                length=float(attributes["length"]),
                width=float(attributes.get("width", "3.2")),
                shape=points(attributes["shape"]),
                internal=internal,
            )
        if not internal and drivable:
            edges[name] = tuple(attributes["id"] for attributes in drivable)
    return lanes, edges, pavements


def _paths(
    root: ElementTree.Element, lanes: Mapping[str, Lane]
) -> tuple[dict[tuple[str, str], JunctionPath], tuple[JunctionPath, ...]]:
    next_internal: dict[str, str] = {}  # of an internal lane
    entering = []  # connections from an edge's lane into a junction
    for connection in root.iter("connection"):
        attributes = connection.attrib
        start = f"{attributes['from']}_{attributes['fromLane']}"
        if attributes["from"].startswith(":"):
            if "via" in attributes and start in lanes:
                next_internal[start] = attributes["via"]
        elif start in lanes and "via" in attributes and f"{attributes['to']}_{attributes['toLane']}" in lanes:
            entering.append((start, attributes))
    paths: dict[tuple[str, str], JunctionPath] = {}
    alternatives = []
    for start, attributes in entering:
        if attributes["via"] not in lanes:  # of a connection that cars may not use
            continue
        pieces: list[tuple[str, float]] = []
        shape: list[tuple[float, float]] = []
        length = 0.0
        piece = attributes["via"]
        while piece in lanes:
            pieces.append((piece, length))
            shape += lanes[piece].shape if not shape else lanes[piece].shape[1:]
            length += lanes[piece].length
            piece = next_internal.get(piece, "")
        found = JunctionPath(
            lane=start,
            onto=attributes["to"],
            junction=attributes["via"][1:].rsplit("_", 2)[0],
            link=link_of(attributes["via"]),
            pieces=tuple(pieces),
            length=length,
            shape=tuple(shape),
            direction=attributes["dir"],
            light=attributes.get("tl"),
            light_index=int(attributes.get("linkIndex", "-1")),
        )
        if paths.setdefault((start, attributes["to"]), found) is not found:
            alternatives.append(found)
    return paths, tuple(alternatives)


def _crosswalks(root: ElementTree.Element) -> tuple[Crosswalk, ...]:
    kerbs: dict[str, list[str]] = {}
    for connection in root.iter("connection"):
        start, end = connection.attrib["from"], connection.attrib["to"]
        for crosswalk, kerb in ((start, end), (end, start)):
            if "_c" in crosswalk and "_w" in kerb:
                kerbs.setdefault(crosswalk, []).append(kerb)
    crosswalks = []
    for edge in root.iter("edge"):
        if edge.get("function") == "crossing":
            name = edge.attrib["id"]
            lane = next(edge.iter("lane"))
            crosswalks.append(
                Crosswalk(
                    id=name,
                    junction=name[1:].rsplit("_", 1)[0],
                    edges=tuple(edge.attrib["crossingEdges"].split()),
                    shape=points(lane.attrib["shape"]),
                    width=float(lane.get("width", "4")),
                    kerbs=tuple(dict.fromkeys(kerbs.get(name, ()))),
                )
            )
    return tuple(crosswalks)
