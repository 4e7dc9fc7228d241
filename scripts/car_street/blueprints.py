"""Street templates: options and plain XML files from which netgenerate and netconvert build the six street networks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import cos, pi, sin

from datasets.catalogue.car_street.map_scenarios import CYCLE

#: Speed limits in m/s: 50 km/h in town, 30 on the roundabout, 100 on the motorway and 60 on its ramp.
TOWN, RING, MOTORWAY, RAMP = 13.9, 8.3, 27.8, 16.7

# U-turns only at dead ends: traffic stays in the street, and no vehicle makes a U-turn in front of the ego.
COMMON = ("--no-turnarounds.except-deadend", "true", "--tls.default-type", "static", "--tls.cycle.time", str(CYCLE))


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkTemplate:
    """A street: the tool that builds it, its options, and the text of its input files by option name."""

    tool: str
    options: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def xml(kind: str, *lines: str) -> str:
    """Return a plain XML file: lines within their root element."""
    return f"<{kind}>\n" + "\n".join(lines) + f"\n</{kind}>\n"


def node(name: str, x: float, y: float, kind: str = "priority") -> str:
    """Return a node element."""
    return f'<node id="{name}" x="{x:g}" y="{y:g}" type="{kind}"/>'


def edge(start: str, end: str, *, lanes: int, speed: float, priority: int, extra: str = "") -> str:
    """Return an edge element, named after its two nodes."""
    return (
        f'<edge id="{start}{end}" from="{start}" to="{end}" numLanes="{lanes}" speed="{speed:g}"'
        f' priority="{priority}" {extra}/>'
    )


def signal_grid() -> NetworkTemplate:
    """Nine junctions, 150 m apart, two lanes each way; five of them have lights."""
    return NetworkTemplate(
        tool="netgenerate",
        options=(
            *("--grid", "--grid.x-number", "3", "--grid.y-number", "3", "--grid.length", "150"),
            *("--default.lanenumber", "2", "--default.speed", f"{TOWN:g}", "--tls.guess", *COMMON),
        ),
    )


def arterial() -> NetworkTemplate:
    """One main road through four lights 200 m apart, with side streets."""
    return NetworkTemplate(
        tool="netgenerate",
        options=(
            *("--grid", "--grid.x-number", "4", "--grid.y-number", "1", "--grid.x-length", "200"),
            *("--grid.attach-length", "150", "--default.lanenumber", "2", "--default.speed", f"{TOWN:g}"),
            *("--tls.guess", *COMMON),
        ),
    )


def roundabout() -> NetworkTemplate:
    """Four arms of one lane that lead into a ring of 20 m radius; the ring has priority."""
    radius, arm = 20.0, 170.0
    names = ("e", "n", "w", "s")
    angles = {name: i * pi / 2 for i, name in enumerate(names)}
    nodes, edges = [], []
    for i, name in enumerate(names):
        x, y = cos(angles[name]), sin(angles[name])
        nodes += [node(f"r{name}", radius * x, radius * y), node(f"a{name}", arm * x, arm * y)]
        edges += [
            edge(f"a{name}", f"r{name}", lanes=1, speed=TOWN, priority=1),
            edge(f"r{name}", f"a{name}", lanes=1, speed=TOWN, priority=1),
        ]
        following = names[(i + 1) % 4]
        arc = [angles[name] + step * pi / 16 for step in range(9)]
        shape = " ".join(f"{radius * cos(angle):.2f},{radius * sin(angle):.2f}" for angle in arc)
        edges.append(edge(f"r{name}", f"r{following}", lanes=1, speed=RING, priority=3, extra=f'shape="{shape}"'))
    ring = " ".join(f"r{name}r{names[(i + 1) % 4]}" for i, name in enumerate(names))
    edges.append(f'<roundabout nodes="{" ".join(f"r{name}" for name in names)}" edges="{ring}"/>')
    return NetworkTemplate(
        tool="netconvert",
        options=COMMON,
        files={"--node-files": xml("nodes", *nodes), "--edge-files": xml("edges", *edges)},
    )


def ramp_merge() -> NetworkTemplate:
    """A motorway of two lanes with a ramp and a merging section of 250 m."""
    nodes = [node("a", 0, 60), node("b", 400, 60), node("c", 650, 60), node("d", 850, 60), node("r", 170, 0)]
    edges = [
        edge("a", "b", lanes=2, speed=MOTORWAY, priority=3),
        edge("b", "c", lanes=3, speed=MOTORWAY, priority=3),
        edge("c", "d", lanes=2, speed=MOTORWAY, priority=3),
        edge("r", "b", lanes=1, speed=RAMP, priority=2),
    ]
    joins = [("ab", "bc", 0, 1), ("ab", "bc", 1, 2), ("rb", "bc", 0, 0), ("bc", "cd", 1, 0), ("bc", "cd", 2, 1)]
    connections = [
        f'<connection from="{start}" to="{end}" fromLane="{lane}" toLane="{onto}"/>' for start, end, lane, onto in joins
    ]
    return NetworkTemplate(
        tool="netconvert",
        options=COMMON,
        files={
            "--node-files": xml("nodes", *nodes),
            "--edge-files": xml("edges", *edges),
            "--connection-files": xml("connections", *connections),
        },
    )


def priority_junction() -> NetworkTemplate:
    """A side street of one lane crosses a main road of two lanes, without lights."""
    nodes = [node("j", 0, 0), node("w", -190, 0), node("e", 190, 0), node("s", 0, -160), node("n", 0, 160)]
    edges = []
    for arm, lanes, priority in (("w", 2, 5), ("e", 2, 5), ("s", 1, 1), ("n", 1, 1)):
        edges += [
            edge(arm, "j", lanes=lanes, speed=TOWN, priority=priority),
            edge("j", arm, lanes=lanes, speed=TOWN, priority=priority),
        ]
    return NetworkTemplate(
        tool="netconvert",
        options=COMMON,
        files={"--node-files": xml("nodes", *nodes), "--edge-files": xml("edges", *edges)},
    )


def crosswalk() -> NetworkTemplate:
    """A main road with pavements and three zebra crossings, 110 m apart."""
    names = ("w", "k", "l", "m", "e")
    nodes = [node(name, 110.0 * i, 0) for i, name in enumerate(names)]
    pavement = 'sidewalkWidth="2"'
    edges = []
    for start, end in pairwise(names):
        edges += [
            edge(start, end, lanes=2, speed=TOWN, priority=3, extra=pavement),
            edge(end, start, lanes=2, speed=TOWN, priority=3, extra=pavement),
        ]
    zebras = [
        f'<crossing node="{here}" edges="{before}{here} {here}{before}" priority="true" width="4"/>'
        for before, here in pairwise(names[:4])
    ]
    return NetworkTemplate(
        tool="netconvert",
        options=COMMON,
        files={
            "--node-files": xml("nodes", *nodes),
            "--edge-files": xml("edges", *edges),
            "--connection-files": xml("connections", *zebras),
        },
    )


BLUEPRINTS: Mapping[str, NetworkTemplate] = {
    "signal_grid": signal_grid(),
    "arterial": arterial(),
    "roundabout": roundabout(),
    "ramp_merge": ramp_merge(),
    "priority_junction": priority_junction(),
    "crosswalk": crosswalk(),
}
