"""Map conversion: a user's map becomes a SUMO network, once, in the registration job, with a report of what is missing.

Maps and netconvert's output are untrusted: maps are scanned within limits, netconvert runs confined, and its network is
scanned again before it is read.
"""

import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path

from common.errors import BadScenario, OriginFailed, StorageFull
from datasets.catalogue.car_street import map_scenarios, planned_scenarios
from datasets.catalogue.car_street.street_network import StreetNetwork
from datasets.versions import commonroad, file_names, map_files
from datasets.versions.commonroad import CommonRoadScenario
from datasets.versions.map_files import TITLES, Dropped, Losses, SourceMap
from datasets.versions.scenarios import MapFile
from datasets.versions.xml_scan import BadXml
from runtimes import catalogue, environments
from runtimes.converters import netconvert
from runtimes.converters.confined_converter import ConverterLimits
from runtimes.converters.netconvert import CannotConvert, Message, Network
from runtimes.dependencies.untrusted_folders import workspace

#: Bytes of a map at most, unpacked, and edges for cars of its network.
LARGEST, EDGES = 64 << 20, 20_000
#: The largest coordinate and the longest edge in metres: beyond, simulations lose precision.
EXTENT, LONGEST_EDGE = 1_000_000.0, 100_000.0
#: The first bytes of gzip and of other files that are sent for maps.
GZIP = b"\x1f\x8b"
_OTHERS = (
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd; send it plain or as .gz"),
    (b"BZh", "is compressed by bzip2; send it plain or as .gz"),
    (b"\xfd7zXZ", "is compressed by xz; send it plain or as .gz"),
    (b"PK\x03\x04", "is a zip archive; send the map inside it"),
)

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class MapLimits:
    """Limits of maps: ``largest`` in bytes, unpacked; ``edges`` for cars; and those of netconvert."""

    largest: int = LARGEST
    edges: int = EDGES
    converter: ConverterLimits = field(default_factory=ConverterLimits)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvertedMap:
    """A converted map: its network as a SUMO network file and as routes see it, and the report for its owner.

    ``planned``: the scenarios of its planning problems; None for a map that has none.
    """

    network: StreetNetwork
    text: bytes
    report: dict[str, object]
    planned: list[dict[str, object]] | None


class MapConversion:
    """Converts maps. ``environments_folder``: where netconvert's environment is prepared on first use."""

    def __init__(self, environments_folder: Path, scratch: Path, limits: MapLimits | None = None) -> None:
        self._environments = environments_folder
        self._scratch = scratch
        self._limits = limits or MapLimits()

    def convert(self, entry: MapFile, chunks: Iterable[bytes], report: Report) -> ConvertedMap:
        """Convert a map. Raises BadScenario with the reason and the next step.

        ``report`` gets what is being done, several times a second; the conversion ends if it raises.
        """
        name = f"The map {entry.name} ({file_names.printable(entry.file)})"
        site = self._site(report)
        with workspace(self._scratch, "map-") as folder:
            source = folder / "map.xml"
            try:
                with open(source, "wb") as file:
                    for chunk in self._unpacked(chunks):
                        file.write(chunk)
                message = f"reading the map {entry.name}"
                report(message)
                surveyed = map_files.read(self._pieces(source, lambda: report(message)))
                if entry.format and entry.format != surveyed.format:
                    raise BadXml(
                        f"it is {TITLES[surveyed.format]}, not `{entry.format[:40]}`; correct or omit `format`"
                    )
                if surveyed.left_hand:
                    raise BadXml(
                        "traffic drives on the left there; observations and scenarios of car_street count lanes from"
                        " the right, so that only right-hand traffic is supported"
                    )
                sources, scenario = {surveyed.format: source}, None
                if surveyed.format == "commonroad":
                    scenario = commonroad.read(source)
                    sources = {kind: folder / f"map.{kind}.xml" for kind in scenario.files}
                    for kind, text in scenario.files.items():
                        sources[kind].write_text(text)
                message = f"converting the map {entry.name} ({TITLES[surveyed.format]})"
                converted = netconvert.convert(
                    sources,
                    site=site,
                    folder=folder,
                    limits=self._limits.converter,
                    report=lambda: report(message),
                )
                content = converted.text.encode()
                network = self._checked(content, keep_lanes=scenario is not None and bool(scenario.problems))
                planned, changes = _planned(entry, network, scenario)
            except (BadXml, CannotConvert) as error:
                raise BadScenario(f"{name} cannot be converted: {str(error).removesuffix('.')}.") from None
        return ConvertedMap(
            network=network,
            text=content,
            report=_report(entry, surveyed, converted, network, (*(scenario.dropped if scenario else ()), *changes)),
            planned=planned,
        )

    def _site(self, report: Report) -> Path:
        """Return netconvert's environment; it is downloaded first, if necessary."""

        def progress(message: str, fraction: float | None) -> None:
            report(f"preparing netconvert: {message[:200]}")

        try:
            return environments.prepare(catalogue.converters()["netconvert"], self._environments, progress)
        except environments.OutOfSpace as error:
            raise StorageFull(f"netconvert could not be installed: {error}") from None
        except environments.CannotPrepare as error:
            raise OriginFailed(f"netconvert could not be installed: {error}") from None

    def _unpacked(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield a map's bytes, unpacked if they are gzip. Raises BadXml beyond the limit."""
        total, first, unpacker = 0, True, None
        for chunk in chunks:
            if first and chunk:
                first = False
                if chunk.startswith(GZIP):
                    unpacker = zlib.decompressobj(wbits=31)
                for magic, reason in _OTHERS:
                    if chunk.startswith(magic):
                        raise BadXml(f"it {reason}")
                if b"OSMHeader" in chunk[:64]:
                    raise BadXml("it is a .pbf file; convert it first: `osmium cat map.osm.pbf -o map.osm.gz`")
            for piece in _inflated(unpacker, chunk) if unpacker is not None else (chunk,):
                total += len(piece)
                if total > self._limits.largest:
                    raise BadXml(
                        f"it has more than {self._limits.largest:,} bytes (WINDTUNNEL_MAX_MAP); cut out the part"
                        " that you need, for instance with `osmium extract` or netconvert's `--keep-edges.in-boundary`"
                    )
                yield piece
        if unpacker is not None and not unpacker.eof:
            raise BadXml("it is gzip that ends too early; upload it again")

    @staticmethod
    def _pieces(path: Path, report: Callable[[], None]) -> Iterator[bytes]:
        """Yield a file's bytes, and report several times a second."""
        reported = time.monotonic()
        with open(path, "rb") as file:
            while piece := file.read(256 << 10):
                yield piece
                if time.monotonic() - reported > 0.2:
                    reported = time.monotonic()
                    report()

    def _checked(self, text: bytes, *, keep_lanes: bool) -> StreetNetwork:
        """Read a network, which is the output of a program that read untrusted bytes. Raises CannotConvert."""
        try:
            if map_files.read([text]).format != "sumo":
                raise CannotConvert("netconvert wrote something else than a network")
            network = StreetNetwork.read(BytesIO(text), keep_lanes=keep_lanes)
        except (BadXml, KeyError, ValueError, IndexError) as error:
            raise CannotConvert(f"netconvert wrote a network that cannot be read: {error}") from None
        count = len(network.lengths)
        if count == 0:
            raise CannotConvert(
                "it has no road for cars; see whether its lanes have the type `driving` (OpenDRIVE) or its ways a"
                " `highway` for cars (OpenStreetMap)"
            )
        if count > self._limits.edges:
            raise CannotConvert(
                f"its network has {count:,} edges for cars, more than {self._limits.edges:,}"
                " (WINDTUNNEL_MAX_MAP_EDGES); cut out the part that you need"
            )
        numbers = [*network.lengths.values(), *network.limits.values()]
        if not all(map(math.isfinite, numbers)) or max(network.lengths.values()) > LONGEST_EDGE:
            raise CannotConvert(f"a road is longer than {LONGEST_EDGE / 1000:g} km, or its length is not a number")
        if not all(abs(edge) <= EXTENT for box in network.boxes.values() for edge in box):  # NaN fails too
            raise CannotConvert(f"it spans more than {EXTENT / 1000:g} km, or a coordinate is not a number")
        if network.left_hand:
            raise CannotConvert("its network is for left-hand traffic, which is not supported")
        return network


def _inflated(unpacker: "zlib._Decompress", chunk: bytes) -> Iterator[bytes]:
    """Yield the unpacked bytes of a piece of gzip, at most 1 MiB at a time."""
    try:
        while chunk and not unpacker.eof:
            yield unpacker.decompress(chunk, 1 << 20)
            chunk = unpacker.unconsumed_tail
    except zlib.error as error:
        raise BadXml(f"it is damaged gzip: {error}") from None


def _planned(
    entry: MapFile, network: StreetNetwork, scenario: CommonRoadScenario | None
) -> tuple[list[dict[str, object]] | None, tuple[Dropped, ...]]:
    """Return the scenarios of the planning problems of a CommonRoad file, and their changes. Raises CannotConvert."""
    if scenario is None or not scenario.problems:
        return None, ()
    lanes = planned_scenarios.lane_shapes(network)
    lines, losses = [], Losses()
    for problem in scenario.problems:
        try:
            planned = planned_scenarios.planned(entry.name, network, lanes, problem, scenario.vehicles)
        except planned_scenarios.NoDrive as error:
            raise CannotConvert(f"of its planning problem {problem.id[:40]}, {error}") from None
        label = "".join(c for c in problem.id if c.isalnum() and c.isascii())[:40]
        lines.append(planned.scenario | {"name": f"{entry.name}-{label}"})
        for change in planned.changes:
            losses.add(change, f"planning problem {problem.id}")
    return lines, losses.listed()


def _report(
    entry: MapFile,
    surveyed: SourceMap,
    converted: Network,
    network: StreetNetwork,
    further: Iterable[Dropped],
) -> dict[str, object]:
    """Return the report of a conversion: what the network has, what of the map it lacks, netconvert's warnings."""
    dropped = [*surveyed.dropped, *further]
    many = [edge for edge, lanes in network.lanes.items() if lanes > map_scenarios.LANES]
    if many:
        what = f"roads of more than {map_scenarios.LANES} lanes, from the routes that are drawn"
        dropped.append(Dropped(what=what, count=len(many), examples=tuple(sorted(many)[:3])))
    if surveyed.format in {"osm", "opendrive"} and network.signalled:
        dropped.append(Dropped(what="plans of traffic lights: netconvert made them", count=len(network.signalled)))
    return {
        "name": entry.name,
        "file": entry.file,
        "format": surveyed.format,
        "edges": len(network.lengths),
        "kilometres": round(sum(network.lengths.values()) / 1000.0, 2),
        "traffic_lights": len(network.signalled),
        "dropped": [_plain(item) for item in dropped],
        "warnings": [_plain(item) for item in converted.messages],
    }


def _plain(item: Dropped | Message) -> dict[str, object]:
    return {name: value for name, value in asdict(item).items() if value is not None and value != ()}
