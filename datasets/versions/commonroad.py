"""CommonRoad scenarios (formats 2018b and 2020a): lanelets as plain SUMO edges, and planning problems.

Lanelets side by side become an edge, lanelets of an intersection connections through a junction.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, isfinite
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from datasets.catalogue.car_street.planned_scenarios import PlanningProblem, Point
from datasets.versions.map_files import Dropped
from datasets.versions.xml_scan import BadXml

#: m/s where no sign limits the speed: 50 km/h.
DEFAULT_LIMIT = 13.89
#: Signs of a speed limit, whose additional value is in m/s: those of most countries, of the USA and of Spain.
_LIMITS = frozenset({"274", "274.1", "r2-1", "R2-1", "r301", "maxspeed"})
#: The most lanelets and planning problems of a file.
LANELETS, PROBLEMS = 20_000, 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Lanelet:
    """A lanelet; neighbours are those that lead the same way."""

    id: str
    left: tuple[Point, ...]
    right: tuple[Point, ...]
    successors: tuple[str, ...]
    left_neighbour: str | None
    right_neighbour: str | None
    limit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CommonRoadScenario:
    """A scenario: nodes, edges and connections as plain XML, its planning problems, and what of it is dropped.

    ``vehicles``: the number of its dynamic obstacles.
    """

    files: Mapping[str, str]
    problems: tuple[PlanningProblem, ...]
    vehicles: int
    dropped: tuple[Dropped, ...]


def read(path: Path) -> CommonRoadScenario:
    """Read a scenario that `map_files` has scanned. Raises BadXml."""
    try:
        root = ElementTree.parse(path).getroot()
        limits = _limits(root)
        lanelets = {lanelet.id: lanelet for lanelet in (_lanelet(e, limits) for e in root.iterfind("lanelet"))}
        inner = {
            element.attrib["ref"]
            for incoming in root.iterfind("intersection/incoming")
            for element in incoming
            if element.tag.startswith("successors")
        }
        problems = tuple(_problem(element, lanelets) for element in root.iterfind("planningProblem"))
        if not 1 <= len(lanelets) <= LANELETS or len(problems) > PROBLEMS:
            raise BadXml(
                f"it has {len(lanelets):,} lanelets and {len(problems):,} planning problems; 1 to {LANELETS:,} lanelets"
                f" and up to {PROBLEMS:,} problems can be converted"
            )
        files, lost = _plain(lanelets, inner & lanelets.keys())
    except (LookupError, ValueError) as error:
        raise BadXml(f"its CommonRoad elements cannot be read: {type(error).__name__}: {str(error)[:100]}") from None
    dynamic, dropped = _losses(root)
    dropped.update(lost)
    return CommonRoadScenario(
        files=files,
        problems=problems,
        vehicles=dynamic,
        dropped=tuple(Dropped(what=what, count=count) for what, count in dropped.items() if count),
    )


def _limits(root: ElementTree.Element) -> Mapping[str, float]:
    """Return the speed limits in m/s by sign."""
    limits = {}
    for sign in root.iterfind("trafficSign"):
        for part in sign.iterfind("trafficSignElement"):
            kind, value = (part.findtext("trafficSignID") or "").strip(), part.findtext("additionalValue")
            if kind in _LIMITS and value is not None:
                limits[sign.attrib["id"]] = float(value)
    return limits


def _lanelet(element: ElementTree.Element, limits: Mapping[str, float]) -> Lanelet:
    def neighbour(tag: str) -> str | None:
        found = element.find(tag)
        return found.attrib["ref"] if found is not None and found.get("drivingDir") == "same" else None

    own = element.findtext("speedLimit")
    known = [limits[sign.attrib["ref"]] for sign in element.iterfind("trafficSignRef") if sign.get("ref") in limits]
    return Lanelet(
        id=element.attrib["id"],
        left=_points(element.find("leftBound")),
        right=_points(element.find("rightBound")),
        successors=tuple(successor.attrib["ref"] for successor in element.iterfind("successor")),
        left_neighbour=neighbour("adjacentLeft"),
        right_neighbour=neighbour("adjacentRight"),
        limit=float(own) if own is not None else min(known, default=DEFAULT_LIMIT),
    )


def _points(bound: ElementTree.Element | None) -> tuple[Point, ...]:
    if bound is None:
        raise ValueError("a lanelet lacks a bound")
    points = tuple(_point(point) for point in bound.iterfind("point"))
    if len(points) < 2:
        raise ValueError("a bound of a lanelet has fewer than two points")
    return points


def _point(element: ElementTree.Element) -> Point:
    x, y = float(element.findtext("x", "")), float(element.findtext("y", ""))
    if not hypot(x, y) < 1e7:  # NaN fails too
        raise ValueError(f"the point {x:g}, {y:g} is too far away")
    return x, y


def _exact(element: ElementTree.Element | None, default: float) -> float:
    """Return a value that is exact or an interval, of which the middle is taken."""
    if element is None:
        return default
    exact = element.findtext("exact")
    ends = [exact] if exact is not None else [element.findtext(f"interval{end}", "") for end in ("Start", "End")]
    value = sum(map(float, ends)) / len(ends)
    if not isfinite(value):
        raise ValueError(f"the value {value} of a state is not a number")
    return value


def _problem(element: ElementTree.Element, lanelets: Mapping[str, Lanelet]) -> PlanningProblem:
    initial = element.find("initialState")
    if initial is None:
        raise ValueError("a planning problem lacks its initial state")
    position = _place(initial.find("position"), lanelets)
    if position is None:
        raise ValueError("an initial state lacks its position")
    goals = (_place(goal.find("position"), lanelets) for goal in element.iterfind("goalState"))
    return PlanningProblem(
        id=element.get("id", "0"),
        position=position,
        orientation=_exact(initial.find("orientation"), 0.0),
        speed=_exact(initial.find("velocity"), 0.0),
        goal=next((goal for goal in goals if goal is not None), None),
    )


def _place(element: ElementTree.Element | None, lanelets: Mapping[str, Lanelet]) -> Point | None:
    """Return the middle of a position: a point, the centre of a shape, the mean of a polygon, or of a lanelet."""
    if element is None:
        return None
    for lanelet in element.iterfind("lanelet"):
        return _middle(lanelets[lanelet.attrib["ref"]])
    for centre in element.iter("center"):
        return _point(centre)
    points = [_point(point) for point in element.iter("point")]
    if not points:
        return None
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)


def _middle(lanelet: Lanelet) -> Point:
    (ax, ay), (bx, by) = (bound[len(bound) // 2] for bound in (lanelet.left, lanelet.right))
    return (ax + bx) / 2, (ay + by) / 2


def _losses(root: ElementTree.Element) -> tuple[int, Counter[str]]:
    """Return the number of dynamic obstacles, and what of a scenario has no counterpart."""
    dropped: Counter[str] = Counter()
    # In 2018b, the role is an element.
    roles = [obstacle.findtext("role", "dynamic") for obstacle in root.iterfind("obstacle")]
    dynamic = len(root.findall("dynamicObstacle")) + roles.count("dynamic")
    dropped["recorded motions of obstacles: as many vehicles drive by themselves, from random places"] = dynamic
    dropped["static obstacles"] = len(root.findall("staticObstacle")) + roles.count("static")
    dropped["obstacles of the environment and phantoms"] = sum(
        len(root.findall(tag)) for tag in ("environmentObstacle", "phantomObstacle")
    )
    dropped["traffic signs other than speed limits"] = sum(
        (part.findtext("trafficSignID") or "").strip() not in _LIMITS
        for part in root.iterfind("trafficSign/trafficSignElement")
    )
    dropped["traffic lights"] = len(root.findall("trafficLight"))
    dropped["stop lines"] = sum(1 for _ in root.iterfind("lanelet/stopLine"))
    for tag, what in (("time", "times"), ("velocity", "velocities"), ("orientation", "orientations")):
        dropped[f"{what} of goals"] = sum(1 for _ in root.iterfind(f"planningProblem/goalState/{tag}"))
    dropped["exact places of goals: a drive ends at the end of the goal's road"] = sum(
        1 for _ in root.iterfind("planningProblem/goalState/position")
    )
    return dynamic, dropped


def _plain(lanelets: Mapping[str, Lanelet], inner: set[str]) -> tuple[Mapping[str, str], Counter[str]]:
    """Return nodes, edges and connections as plain XML, and what had to be dropped."""
    groups = _groups(lanelets)
    edge_of = {id: (f"e{group[0]}", index) for group in groups for index, id in enumerate(group)}
    ends = _Union()
    for group in groups:
        edge = edge_of[group[0]][0]
        if inner.intersection(group):
            ends.join((edge, "start"), (edge, "end"))
        for id in group:
            for successor in lanelets[id].successors:
                if successor in edge_of:
                    ends.join((edge, "end"), (edge_of[successor][0], "start"))
    lost: Counter[str] = Counter()
    edges: list[str] = []
    places: dict[Any, list[Point]] = {}
    kept: set[str] = set()
    for group in groups:
        edge = edge_of[group[0]][0]
        start, end = ends.find((edge, "start")), ends.find((edge, "end"))
        if inner.intersection(group):
            continue
        shape = _centre(lanelets[group[-1]].left, lanelets[group[0]].right)
        if start == end or len(shape) < 2:
            lost["lanelets that begin and end at the same junction"] += len(group)
            continue
        kept.add(edge)
        places.setdefault(start, []).append(shape[0])
        places.setdefault(end, []).append(shape[-1])
        lanes = "".join(
            f'<lane index="{index}" width="{_width(lanelets[id]):.2f}" speed="{lanelets[id].limit:.2f}"/>'
            for index, id in enumerate(group)
        )
        points = " ".join(f"{x:.3f},{y:.3f}" for x, y in shape)
        edges.append(
            f"<edge id={quoteattr(edge)} from={quoteattr(_name(start))} to={quoteattr(_name(end))}"
            f' numLanes="{len(group)}" spreadType="center" shape="{points}">{lanes}</edge>'
        )
    nodes = [
        f'<node id={quoteattr(_name(node))} x="{_mean(points, 0):.3f}" y="{_mean(points, 1):.3f}" type="priority"/>'
        for node, points in places.items()
    ]
    connections = []
    for id, (edge, lane) in edge_of.items():
        for target in dict.fromkeys(_onward(lanelets, id, inner)):
            onto, landing = edge_of[target]
            if edge in kept and onto in kept:
                connections.append(
                    f'<connection from={quoteattr(edge)} to={quoteattr(onto)} fromLane="{lane}" toLane="{landing}"/>'
                )
    files = {"nodes": nodes, "edges": edges, "connections": connections}
    return {kind: f"<{kind}>\n" + "\n".join(lines) + f"\n</{kind}>\n" for kind, lines in files.items()}, lost


def _onward(lanelets: Mapping[str, Lanelet], id: str, inner: set[str]) -> Iterable[str]:
    """Yield the lanelets behind a lanelet, across those of an intersection."""
    pending = list(lanelets[id].successors)
    seen: set[str] = set()
    while pending:
        successor = pending.pop(0)
        if successor in seen or successor not in lanelets:
            continue
        seen.add(successor)
        if successor in inner:
            pending += lanelets[successor].successors
        else:
            yield successor


def _groups(lanelets: Mapping[str, Lanelet]) -> list[list[str]]:
    """Return the lanelets that lie side by side, each group from right to left."""
    groups: list[list[str]] = []
    seen: set[str] = set()
    for id in lanelets:
        if id in seen:
            continue
        first, passed = id, {id}
        while (right := lanelets[first].right_neighbour) in lanelets and right not in passed and right not in seen:
            first = str(right)
            passed.add(first)
        group, members, current = [first], {first}, first
        while (left := lanelets[current].left_neighbour) in lanelets and left not in seen and left not in members:
            current = str(left)
            group.append(current)
            members.add(current)
        seen.update(group)
        groups.append(group)
    return groups


def _centre(left: Sequence[Point], right: Sequence[Point]) -> list[Point]:
    """Return the line in the middle of two bounds, which may have different numbers of points."""
    count = max(len(left), len(right))
    if min(len(left), len(right)) < 2:
        return []
    return [
        ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2)
        for a, b in ((_at(left, step / (count - 1)), _at(right, step / (count - 1))) for step in range(count))
    ]


def _at(line: Sequence[Point], share: float) -> Point:
    """Return the point of a polyline at a share of its points."""
    place = share * (len(line) - 1)
    index = min(int(place), len(line) - 2)
    rest = place - index
    (ax, ay), (bx, by) = line[index], line[index + 1]
    return ax + rest * (bx - ax), ay + rest * (by - ay)


def _width(lanelet: Lanelet) -> float:
    """Return the mean width of a lanelet in metres, within what netconvert takes."""
    shares = (0.0, 0.5, 1.0)
    pairs = ((_at(lanelet.left, share), _at(lanelet.right, share)) for share in shares)
    return min(10.0, max(2.0, sum(hypot(a[0] - b[0], a[1] - b[1]) for a, b in pairs) / len(shares)))


def _mean(points: Sequence[Point], axis: int) -> float:
    return sum(point[axis] for point in points) / len(points)


def _name(end: tuple[str, str]) -> str:
    return f"n{end[0][1:]}{end[1][0]}"


class _Union:
    """Ends of edges that are one node (union-find)."""

    def __init__(self) -> None:
        self._above: dict[Any, Any] = {}

    def find(self, end: Any) -> Any:
        while (above := self._above.get(end, end)) != end:
            self._above[end] = self._above.get(above, above)
            end = above
        return end

    def join(self, first: Any, second: Any) -> None:
        first, second = sorted((self.find(first), self.find(second)))
        if first != second:
            self._above[second] = first
