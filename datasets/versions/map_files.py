"""Maps that users register: their formats, known by the root element, and what of them a network of streets lacks."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from datasets.versions.xml_scan import BadXml, Visitor, scan

#: Format by root element, and the titles of formats.
ROOTS: Mapping[str, str] = {"OpenDRIVE": "opendrive", "osm": "osm", "commonRoad": "commonroad", "net": "sumo"}
TITLES: Mapping[str, str] = {
    "opendrive": "OpenDRIVE",
    "osm": "OpenStreetMap",
    "commonroad": "CommonRoad",
    "sumo": "SUMO network",
}
#: Examples of what was dropped that are kept.
EXAMPLES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """Something of a map that a scenario lacks: what, how much of it (None: all), and the first names."""

    what: str
    count: int | None = None
    examples: tuple[str, ...] = ()


class Losses:
    """Counts what a map has and a network of streets lacks."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}

    def add(self, what: str, example: str = "") -> None:
        """Count one thing."""
        self._counts[what] += 1
        if example and len(self._examples.setdefault(what, [])) < EXAMPLES:
            self._examples[what].append("".join(c if c.isprintable() else "?" for c in example)[:60])

    def listed(self) -> tuple[Dropped, ...]:
        """Return what was counted, the most frequent first."""
        return tuple(
            Dropped(what=what, count=count, examples=tuple(self._examples.get(what, ())))
            for what, count in sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceMap:
    """A map as it was sent: its format, and what of it is dropped. ``left_hand``: traffic drives on the left."""

    format: str
    dropped: tuple[Dropped, ...]
    left_hand: bool


def read(chunks: Iterable[bytes]) -> SourceMap:
    """Read a map once. Raises BadXml for anything that is not a map."""
    survey = _Survey()
    scan(chunks, survey)
    return SourceMap(format=survey.format, dropped=survey.visitor.losses.listed(), left_hand=survey.visitor.left_hand)


class _Survey:
    """Chooses the format's visitor by the root element."""

    def __init__(self) -> None:
        self.format = ""
        self.visitor: _MapVisitor = _MapVisitor()

    def start(self, name: str, attributes: Mapping[str, str], parents: list[str]) -> None:
        if not parents:
            self._choose(name)
        self.visitor.start(name, attributes, parents)

    def _choose(self, root: str) -> None:
        if root not in ROOTS:
            raise BadXml(
                f"its root element is <{root[:40]}>; maps are OpenDRIVE (<OpenDRIVE>), OpenStreetMap (<osm>),"
                " CommonRoad (<commonRoad>) and SUMO networks (<net>)"
            )
        self.format = ROOTS[root]
        self.visitor = VISITORS[self.format]()

    def end(self, name: str) -> None:
        self.visitor.end(name)


class _MapVisitor:
    """A map of which nothing is dropped."""

    def __init__(self) -> None:
        self.losses = Losses()
        self.left_hand = False

    def start(self, name: str, attributes: Mapping[str, str], parents: list[str]) -> None:
        """Take an element."""

    def end(self, name: str) -> None:
        """Take the end of an element."""


class _SumoVisitor(_MapVisitor):
    """A SUMO network."""

    def start(self, name: str, attributes: Mapping[str, str], parents: list[str]) -> None:
        if not parents:
            self.left_hand = attributes.get("lefthand") in {"true", "1"}
        elif name == "lane" and "pedestrian" in attributes.get("allow", "").split():
            self.losses.add("footways and crossings", attributes.get("id", ""))
        elif name == "edge" and "spreadType" in attributes and attributes.get("function") == "connector":
            self.losses.add("connectors", attributes.get("id", ""))


#: Lanes of OpenDRIVE that cars drive on; others are dropped.
_DRIVING = frozenset({"driving", "entry", "exit", "onRamp", "offRamp", "connectingRamp", "bidirectional", "none"})
_NOT_DRIVING: Mapping[str, str] = {
    "sidewalk": "pavements",
    "walking": "pavements",
    "biking": "cycle lanes",
    "tram": "tram lines",
    "rail": "railways",
    "bus": "bus lanes",
    "taxi": "taxi lanes",
    "HOV": "lanes for several occupants",
    "parking": "parking lanes",
    "shoulder": "hard shoulders",
    "border": "borders and kerbs",
    "curb": "borders and kerbs",
    "stop": "emergency lanes",
    "median": "medians",
    "restricted": "restricted lanes",
}


class _OpenDriveVisitor(_MapVisitor):
    """An OpenDRIVE map (ASAM OpenDRIVE 1.4 to 1.8)."""

    def __init__(self) -> None:
        super().__init__()
        self._road = ""

    def start(self, name: str, attributes: Mapping[str, str], parents: list[str]) -> None:
        match name:
            case "road":
                self._road = f"road {attributes.get('id', '?')}"
                self.left_hand = self.left_hand or attributes.get("rule") == "LHT"
            case "lane" if attributes.get("id") != "0":
                kind = attributes.get("type", "none")
                if kind not in _DRIVING:
                    self.losses.add(_NOT_DRIVING.get(kind, f"lanes of type {kind[:40]}"), self._road)
            case "elevation" | "superelevation" | "shape":
                if any(_nonzero(attributes.get(part, "0")) for part in "abcd"):
                    self.losses.add("slopes: the street is flat" if name == "elevation" else "cambers", self._road)
            case "object":
                kind = attributes.get("type", "")
                known = kind not in {"", "-1", "none"}
                self.losses.add(f"objects of type {kind[:40]}" if known else "objects", self._road)
            case "signal" if attributes.get("dynamic") != "yes":
                self.losses.add("traffic signs, except as limits and right of way that roads have", self._road)
            case "tunnel" | "bridge":
                self.losses.add(f"{name}s, as buildings", self._road)
            case "platform" | "switch":
                self.losses.add("railway equipment", self._road)

    def end(self, name: str) -> None:
        pass


def _nonzero(text: str) -> bool:
    try:
        return abs(float(text)) > 1e-6
    except ValueError:
        return False


_WAYS: Mapping[str, str] = {
    "footway": "footways and paths",
    "path": "footways and paths",
    "pedestrian": "footways and paths",
    "steps": "footways and paths",
    "corridor": "footways and paths",
    "bridleway": "footways and paths",
    "platform": "platforms of public transport",
    "cycleway": "cycle ways",
    "track": "tracks through fields and woods",
    "construction": "roads under construction",
    "proposed": "planned roads",
    "busway": "bus ways",
}
_RAILWAYS = frozenset({"tram", "rail", "light_rail", "subway", "narrow_gauge", "monorail", "funicular"})


class _OsmVisitor(_MapVisitor):
    """An OpenStreetMap extract."""

    def __init__(self) -> None:
        super().__init__()
        self._name = ""
        self._tags: dict[str, str] = {}

    def start(self, name: str, attributes: Mapping[str, str], parents: list[str]) -> None:
        if len(parents) == 1:
            self._name, self._tags = f"{name} {attributes.get('id', '?')}", {}
        elif name == "tag" and len(self._tags) < 200:
            self._tags[attributes.get("k", "")] = attributes.get("v", "")

    def end(self, name: str) -> None:
        if name in {"node", "way", "relation"} and self._tags:
            self._classify(name, self._tags)
            self._tags = {}

    def _classify(self, kind: str, tags: Mapping[str, str]) -> None:
        losses, highway = self.losses, tags.get("highway", "")
        if kind == "way":
            if highway in _WAYS:
                losses.add(_WAYS[highway], self._name)
            elif highway:
                self._road(tags)
            if tags.get("railway") in _RAILWAYS:
                losses.add("tram lines" if tags["railway"] == "tram" else "railways", self._name)
            elif "building" in tags:
                losses.add("buildings")
            elif "waterway" in tags or tags.get("natural") == "water":
                losses.add("water")
            elif not highway:
                losses.add("other ways and areas")
        elif kind == "node":
            if highway == "crossing":
                losses.add("pedestrian crossings", self._name)
            elif highway in {"stop", "give_way"}:
                losses.add("stop and give-way signs at single approaches", self._name)
            elif highway == "bus_stop" or "public_transport" in tags:
                losses.add("stops of public transport", self._name)
            elif "barrier" in tags:
                losses.add("barriers", self._name)
            elif "traffic_calming" in tags:
                losses.add("traffic calming", self._name)
        elif tags.get("route") in {"bus", "tram", "train", "subway", "trolleybus", "light_rail"}:
            losses.add("lines of public transport", self._name)

    def _road(self, tags: Mapping[str, str]) -> None:
        self.left_hand = self.left_hand or tags.get("driving_side") == "left"
        sides = ("", ":both", ":left", ":right")
        if any(tags.get(f"sidewalk{side}", "no") not in {"no", "none", "separate"} for side in sides):
            self.losses.add("pavements", self._name)
        if any(tags.get(f"cycleway{side}", "no") not in {"no", "none", "separate"} for side in sides):
            self.losses.add("cycle lanes", self._name)
        if any(name.startswith("parking:") for name in tags):
            self.losses.add("parking lanes", self._name)
        if any(name.startswith(("busway", "lanes:psv", "lanes:bus", "bus:lanes")) for name in tags):
            self.losses.add("bus lanes", self._name)
        if any(tags.get(name, "no") != "no" for name in ("bridge", "tunnel")) or tags.get("layer", "0") != "0":
            self.losses.add("heights of bridges and tunnels: the street is flat", self._name)


VISITORS: Mapping[str, type[_MapVisitor]] = {
    "opendrive": _OpenDriveVisitor,
    "osm": _OsmVisitor,
    "commonroad": _MapVisitor,
    "sumo": _SumoVisitor,
}
_: type[Visitor] = _Survey
