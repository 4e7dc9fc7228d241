"""A street as its network file describes it: lanes, the ways through junctions, crossings, lights."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

Shape = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane for cars; ``rank`` counts from the right, without pavements."""

    id: str
    edge: str
    rank: int
    count: int
    length: float
    width: float
    shape: Shape
    internal: bool


@dataclass(frozen=True, slots=True)
class Way:
    """A way through a junction, from the end of one lane to the start of another."""

    lane: str
    onto: str
    junction: str
    #: The row of the junction's right of way.
    link: int
    #: Internal lanes in driving order, each with the metres driven on the path before it.
    pieces: tuple[tuple[str, float], ...]
    length: float
    shape: Shape
    direction: str
    light: str | None
    light_index: int


@dataclass(frozen=True, slots=True)
class Zebra:
    """A pedestrian crossing, from kerb to kerb, and the waiting areas at its ends."""

    id: str
    junction: str
    edges: tuple[str, ...]
    shape: Shape
    width: float
    kerbs: tuple[str, ...]


@dataclass(frozen=True)
class Street:
    """Everything of a network that the world asks for; immutable, read once."""

    lanes: Mapping[str, Lane]
    #: Edges for cars with their lanes, right to left.
    edges: Mapping[str, tuple[str, ...]]
    following: Mapping[str, tuple[str, ...]]
    paths: Mapping[tuple[str, str], Way]
    #: junction -> link -> links it must yield to.
    yields: Mapping[str, Mapping[int, frozenset[int]]]
    #: junction -> link -> links whose way it meets.
    meets: Mapping[str, Mapping[int, frozenset[int]]]
    zebras: tuple[Zebra, ...]
    pavements: Mapping[str, tuple[str, Shape, float]]
    lights: tuple[str, ...]
    junctions: Mapping[str, Shape]

    @cached_property
    def inside(self) -> Mapping[str, tuple[Way, float]]:
        """Internal lane -> the path it belongs to, and the metres before it."""
        return {lane: (path, before) for path in self.paths.values() for lane, before in path.pieces}

    def path(self, lane: str, onto: str) -> Way | None:
        """Return the way from a lane onto an edge; from a lane that does not lead there, its neighbour's way."""
        found = self.paths.get((lane, onto))
        if found is None and lane in self.lanes:
            for other in self.edges.get(self.lanes[lane].edge, ()):
                found = found or self.paths.get((other, onto))
        return found

    def leading(self, edge: str, onto: str | None) -> tuple[str, ...]:
        """Return the lanes of an edge from which a route goes on, right to left."""
        lanes = self.edges[edge]
        return lanes if onto is None else tuple(lane for lane in lanes if (lane, onto) in self.paths)

    def place(self, route: tuple[str, ...], distance: float) -> tuple[int, float]:
        """Return which edge of a route lies ``distance`` metres after its start, and where on that edge."""
        for index, edge in enumerate(route):
            length = self.lanes[self.edges[edge][0]].length
            if distance <= length or index == len(route) - 1:
                return index, min(distance, length)
            distance -= length
            if index + 1 < len(route):
                way = self.path(self.edges[edge][-1], route[index + 1])
                distance = max(0.0, distance - (way.length if way else 0.0))
        raise ValueError("an empty route has no places")


def points(text: str) -> Shape:
    """Read "x,y x,y"; a height, if any, is left out."""
    return tuple((float(pair.split(",")[0]), float(pair.split(",")[1])) for pair in text.split())


def bits(row: str) -> frozenset[int]:
    """Read a right-of-way row, whose rightmost character is link 0."""
    return frozenset(index for index, bit in enumerate(reversed(row)) if bit == "1")


def link_of(internal: str) -> int:
    """Return the link number in an internal lane's name: ``:j_4_1`` is the second lane of link 4, so link 5."""
    _, link, lane = internal.rsplit("_", 2)
    return int(link) + int(lane)


def read(network: Path) -> Street:
    """Read a network file."""
    root = ElementTree.parse(network).getroot()
    lanes, edges, pavements = _lanes(root)
    paths = _paths(root, lanes)
    following: dict[str, dict[str, None]] = {edge: {} for edge in edges}
    for path in paths.values():
        following[lanes[path.lane].edge][path.onto] = None
    yields, meets, shapes = {}, {}, {}
    for junction in root.iter("junction"):
        name = junction.attrib["id"]
        rows = {int(row.attrib["index"]): row.attrib for row in junction.iter("request")}
        yields[name] = {index: bits(row["response"]) for index, row in rows.items()}
        meets[name] = {index: bits(row["foes"]) for index, row in rows.items()}
        if junction.attrib["type"] != "internal" and junction.get("shape"):
            shapes[name] = points(junction.attrib["shape"])
    return Street(
        lanes=lanes,
        edges=edges,
        following={edge: tuple(sorted(onto)) for edge, onto in following.items()},
        paths=paths,
        yields=yields,
        meets=meets,
        zebras=_zebras(root),
        pavements=pavements,
        lights=tuple(sorted({path.light for path in paths.values() if path.light})),
        junctions=shapes,
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
        drivable = [lane.attrib for lane in edge.iter("lane") if lane.get("allow") != "pedestrian"]
        for lane in edge.iter("lane"):
            if lane.get("allow") == "pedestrian":
                shape = points(lane.attrib["shape"])
                pavements[name] = (lane.attrib["id"], shape, float(lane.get("width", "2")))
        for rank, given in enumerate(drivable):
            lanes[given["id"]] = Lane(
                given["id"],
                name,
                rank,
                len(drivable),
                float(given["length"]),
                float(given.get("width", "3.2")),
                points(given["shape"]),
                internal,
            )
        if not internal and drivable:
            edges[name] = tuple(given["id"] for given in drivable)
    return lanes, edges, pavements


def _paths(root: ElementTree.Element, lanes: Mapping[str, Lane]) -> dict[tuple[str, str], Way]:
    inner: dict[str, str] = {}
    outer = []
    for connection in root.iter("connection"):
        given = connection.attrib
        start = f"{given['from']}_{given['fromLane']}"
        if given["from"].startswith(":"):
            if "via" in given and start in lanes:
                inner[start] = given["via"]
        elif start in lanes and "via" in given and f"{given['to']}_{given['toLane']}" in lanes:
            outer.append((start, given))
    paths: dict[tuple[str, str], Way] = {}
    for start, given in outer:
        pieces: list[tuple[str, float]] = []
        shape: list[tuple[float, float]] = []
        length = 0.0
        piece: str | None = given["via"]
        while piece is not None:
            pieces.append((piece, length))
            shape += lanes[piece].shape if not shape else lanes[piece].shape[1:]
            length += lanes[piece].length
            piece = inner.get(piece)
        paths.setdefault(
            (start, given["to"]),
            Way(
                start,
                given["to"],
                given["via"][1:].rsplit("_", 2)[0],
                link_of(given["via"]),
                tuple(pieces),
                length,
                tuple(shape),
                given["dir"],
                given.get("tl"),
                int(given.get("linkIndex", "-1")),
            ),
        )
    return paths


def _zebras(root: ElementTree.Element) -> tuple[Zebra, ...]:
    kerbs: dict[str, list[str]] = {}
    for connection in root.iter("connection"):
        start, end = connection.attrib["from"], connection.attrib["to"]
        for zebra, kerb in ((start, end), (end, start)):
            if "_c" in zebra and "_w" in kerb:
                kerbs.setdefault(zebra, []).append(kerb)
    found = []
    for edge in root.iter("edge"):
        if edge.get("function") == "crossing":
            name = edge.attrib["id"]
            lane = next(edge.iter("lane"))
            found.append(
                Zebra(
                    name,
                    name[1:].rsplit("_", 1)[0],
                    tuple(edge.attrib["crossingEdges"].split()),
                    points(lane.attrib["shape"]),
                    float(lane.get("width", "4")),
                    tuple(dict.fromkeys(kerbs.get(name, ()))),
                )
            )
    return tuple(found)
