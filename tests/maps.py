"""Maps for tests, made here: a crossing as OpenDRIVE, a quarter as OpenStreetMap."""

from math import atan2, cos, hypot, pi, sin

#: Metres from the middle of the crossing to its roads, and of each road; of a lane and of a pavement.
INNER, ROAD = 20.0, 200.0
LANE, PAVEMENT = 3.5, 2.0


def _lane(id: int, kind: str, width: float, link: str = "") -> str:
    shape = f'<width sOffset="0" a="{width}" b="0" c="0" d="0"/>'
    return f'<lane id="{id}" type="{kind}" level="false"><link>{link}</link>{shape}</lane>'


def _line(x: float, y: float, heading: float, length: float) -> str:
    return f'<planView><geometry s="0" x="{x}" y="{y}" hdg="{heading}" length="{length}"><line/></geometry></planView>'


def _road(attributes: str, link: str, body: str, lanes: str, signals: str = "") -> str:
    limit = '<type s="0" type="town"><speed max="50" unit="km/h"/></type>'
    section = f'<lanes><laneSection s="0">{lanes}</laneSection></lanes>'
    return f'<road name="" {attributes}><link>{link}</link>{limit}{body}{section}<signals>{signals}</signals></road>'


def _arm(arm: int, rule: str, length: float) -> str:
    """Return a road that leads to the crossing, with its lights."""
    angle, far = arm * pi / 2, INNER + length
    kinds = ((1, "driving", LANE), (2, "driving", LANE), (3, "sidewalk", PAVEMENT))
    left = "".join(_lane(id, kind, width) for id, kind, width in reversed(kinds))
    right = "".join(_lane(-id, kind, width) for id, kind, width in kinds)
    slope = '<elevationProfile><elevation s="0" a="0" b="0.01" c="0" d="0"/></elevationProfile>'
    light = f's="{length - 2}" t="-8" id="{90 + arm}" dynamic="yes" orientation="+" zOffset="3" type="1000001"'
    return _road(
        f'id="{arm}" length="{length}" junction="-1"' + (f' rule="{rule}"' if rule else ""),
        '<successor elementType="junction" elementId="100"/>',
        _line(far * cos(angle), far * sin(angle), angle + pi, length) + slope,
        f'<left>{left}</left><center><lane id="0" type="none"/></center><right>{right}</right>',
        f'<signal {light} name="" country="OpenDRIVE" subtype="-1" value="-1"/>',
    )


def _turn(id: int, arm: int, out: int) -> str:
    """Return a road through the crossing."""
    x, y = INNER * cos(arm * pi / 2), INNER * sin(arm * pi / 2)
    dx, dy = INNER * cos(out * pi / 2) - x, INNER * sin(out * pi / 2) - y
    ends = (("predecessor", arm), ("successor", out))
    lanes = "".join(_lane(-n, "driving", LANE, f'<predecessor id="{-n}"/><successor id="{n}"/>') for n in (1, 2))
    return _road(
        f'id="{id}" length="{hypot(dx, dy)}" junction="100"',
        "".join(f'<{end} elementType="road" elementId="{road}" contactPoint="end"/>' for end, road in ends),
        _line(x, y, atan2(dy, dx), hypot(dx, dy)),
        f'<center><lane id="0" type="none"/></center><right>{lanes}</right>',
    )


def town(*, rule: str = "", length: float = ROAD) -> bytes:
    """Return a crossing of four roads of two lanes each way, with lights, pavements and a slope, as OpenDRIVE."""
    pairs = "".join(f'<laneLink from="{-n}" to="{-n}"/>' for n in (1, 2))
    turns = [(10 + 4 * arm + turn, arm, (arm + turn) % 4) for arm in range(4) for turn in (1, 2, 3)]
    roads = [*(_arm(arm, rule, length) for arm in range(4)), *(_turn(*turn) for turn in turns)]
    connections = (
        f'<connection id="{id}" incomingRoad="{arm}" connectingRoad="{id}" contactPoint="start">{pairs}</connection>'
        for id, arm, _ in turns
    )
    header = '<header revMajor="1" revMinor="6" name="town" version="1.0" north="0" south="0" east="0" west="0"/>'
    junction = f'<junction id="100" name="">{"".join(connections)}</junction>'
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<OpenDRIVE>{header}{"".join(roads)}{junction}</OpenDRIVE>\n'.encode()
    )


def _node(id: int, row: int, column: int, tags: str) -> str:
    return f'<node id="{id}" version="1" lat="{48 + row * 0.00135:.6f}" lon="{11 + column * 0.00202:.6f}">{tags}</node>'


def _way(id: int, refs: list[int], **tags: str) -> str:
    inner = "".join(f'<nd ref="{ref}"/>' for ref in refs)
    inner += "".join(f'<tag k="{key}" v="{value}"/>' for key, value in tags.items())
    return f'<way id="{id}" version="1">{inner}</way>'


def extract(size: int = 4) -> bytes:
    """Return a quarter of ``size`` x ``size`` junctions, 150 m apart, with tram, paths and houses, as OpenStreetMap."""
    light = '<tag k="highway" v="traffic_signals"/>'
    nodes = [
        _node(1 + row * size + column, row, column, light if row == 1 and 0 < column < size - 1 else "")
        for row in range(size)
        for column in range(size)
    ]
    ways = [
        _way(300, [1, 2 + size], highway="footway"),
        _way(301, [2, 2 + size], railway="tram"),
        _way(302, [1, 2, 2 + size, 1], building="yes"),
    ]
    for row in range(size):
        refs = [1 + row * size + column for column in range(size)]
        main = {"highway": "secondary", "lanes": "4", "maxspeed": "50", "sidewalk": "both"}
        ways.append(_way(100 + row, refs, **(main if row == 1 else {"highway": "residential", "maxspeed": "30"})))
    for column in range(size):
        refs = [1 + row * size + column for row in range(size)]
        ways.append(_way(200 + column, refs, highway="tertiary", maxspeed="50"))
    body = "".join(nodes) + "".join(ways)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<osm version="0.6">{body}</osm>\n'.encode()


def _bound(name: str, points: list[tuple[float, float]]) -> str:
    inner = "".join(f"<point><x>{x}</x><y>{y}</y></point>" for x, y in points)
    return f"<{name}>{inner}</{name}>"


def _lanelet(id: int, y: float, span: tuple[float, float], links: str) -> str:
    """Return a lanelet of 3.5 m that leads east."""
    left, right = [(x, y + LANE) for x in span], [(x, y) for x in span]
    return f'<lanelet id="{id}">{_bound("leftBound", left)}{_bound("rightBound", right)}{links}</lanelet>'


def planning_problem(*, goal: str = '<position><lanelet ref="3"/></position>', start: float = 20.0) -> bytes:
    """Return a motorway of two lanes and 400 m with a sign, obstacles and a planning problem, as CommonRoad 2020a."""
    sign = '<trafficSignRef ref="9"/>'
    lanelets = [
        _lanelet(1, 0.0, (1000.0, 1200.0), f'<successor ref="3"/><adjacentLeft ref="2" drivingDir="same"/>{sign}'),
        _lanelet(2, LANE, (1000.0, 1200.0), f'<successor ref="4"/><adjacentRight ref="1" drivingDir="same"/>{sign}'),
        _lanelet(3, 0.0, (1200.0, 1400.0), '<predecessor ref="1"/><adjacentLeft ref="4" drivingDir="same"/>'),
        _lanelet(4, LANE, (1200.0, 1400.0), '<predecessor ref="2"/><adjacentRight ref="3" drivingDir="same"/>'),
    ]
    limit = "<trafficSignElement><trafficSignID>274</trafficSignID><additionalValue>20.0</additionalValue>"
    state = f"<position><point><x>{1000.0 + start}</x><y>1.7</y></point></position>"
    state += "<orientation><exact>0.0</exact></orientation><velocity><exact>15.0</exact></velocity>"
    time = "<time><intervalStart>0</intervalStart><intervalEnd>80</intervalEnd></time>"
    return (
        '<?xml version="1.0"?><commonRoad commonRoadVersion="2020a" timeStepSize="0.1">'
        f'{"".join(lanelets)}<trafficSign id="9">{limit}</trafficSignElement></trafficSign>'
        '<dynamicObstacle id="20"/><dynamicObstacle id="21"/><staticObstacle id="22"/>'
        f'<planningProblem id="7"><initialState>{state}</initialState><goalState>{goal}{time}</goalState>'
        "</planningProblem></commonRoad>"
    ).encode()
