"""netconvert, SUMO's converter of maps, run confined: its options for each format, and its messages in plain words."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runtimes.converters import confined_converter
from runtimes.converters.confined_converter import ConverterLimits
from runtimes.dependencies.untrusted_folders import read_text

#: Only roads for cars are kept, in the plane. Everything is fixed, so that equal files give equal networks.
COMMON = (
    *("--keep-edges.by-vclass", "passenger", "--flatten", "true", "--geometry.remove", "true", "--seed", "1"),
    *("--no-turnarounds.except-deadend", "true", "--tls.default-type", "static", "--tls.cycle.time", "40"),
    *("--aggregate-warnings", "3", "--xml-validation", "never", "--xml-validation.net", "never"),
)
#: Of OpenStreetMap, junctions and lights are many nodes each, which are joined; ramps and roundabouts are found.
_OSM = (
    *("--remove-edges.isolated", "true", "--junctions.join", "true", "--roundabouts.guess", "true"),
    *("--ramps.guess", "true", "--tls.guess-signals", "true", "--tls.discard-simple", "true", "--tls.join", "true"),
)
#: The option of each input, and the further options, by format. Plain XML keeps its coordinates.
INPUTS: Mapping[str, str] = {
    "opendrive": "--opendrive-files",
    "osm": "--osm-files",
    "sumo": "--sumo-net-file",
    "nodes": "--node-files",
    "edges": "--edge-files",
    "connections": "--connection-files",
}
FURTHER: Mapping[str, tuple[str, ...]] = {"osm": _OSM, "nodes": ("--offset.disable-normalization", "true")}
#: Comments with time, machine and paths, removed so that equal maps give equal bytes.
_HEADER = re.compile(r"<!--.*?-->\s*", re.DOTALL)

#: netconvert's messages in plain words; a message that matches none is quoted.
_PLAIN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"(Edge|Lane) '(?P<example>[^']*)' .*not connected from any incoming", "lanes that no road leads onto"),
        (r"Edge '(?P<example>[^']*)' has no lanes", "roads without a lane for cars"),
        (r"Removed a road without junctions: (?P<example>.*?)\.?$", "roads without junctions"),
        (r"Found sharp turn with radius [\d.]+ at .* of edge '(?P<example>[^']*)'", "sharp turns"),
        (r"Found angle of [\d.]+ degrees at edge '(?P<example>[^']*)'", "sharp bends"),
        (r"Speed of .*connection '(?P<example>[^']*)' reduced", "turns whose speed is reduced for their radius"),
        (r".*geoReference|.*projection|.*transformation|.*proj", "the geographic reference, which was not understood"),
        (r"Guessing signalID|.*signal.* has no valid|.*could not find signal", "signals whose lanes were guessed"),
        (r"PT (line|stop)|Stop ", "lines and stops of public transport"),
        (r"No way found for reference|Ignoring restriction", "turn restrictions that refer to roads outside"),
        (r"Could not set loaded (signal )?program|.*tlLogic|.*[Tt]raffic light", "plans of traffic lights"),
        (r"Discarding (way|unusable type|unknown|unused)|.*type '.*' .*(unknown|discard)", "types of ways"),
        (r"Almost duplicate s-value", "sections of lanes that are shorter than the resolution"),
        (r"Edge '(?P<example>[^']*)' has to be split", "roads that were split"),
    )
)
_LEVEL = re.compile(r"^(?P<level>Warning|Error):\s*(?P<text>.*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """netconvert's warnings of one type, in plain words: how many, and the first roads or ways."""

    what: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A converted map: the text of the SUMO network, and the warnings."""

    text: str
    messages: tuple[Message, ...]


class CannotConvert(Exception):
    """netconvert refuses the map, or exceeds a limit; the text is for the owner of the map."""


def convert(
    sources: Mapping[str, Path], *, site: Path, folder: Path, limits: ConverterLimits, report: Callable[[], None]
) -> Network:
    """Convert a map that lies in ``folder``: its files by format. Raises CannotConvert.

    ``site``: netconvert's environment.

    ``report`` is called several times a second, and ends the conversion if it raises.
    """
    package = site / "sumo"
    output = folder / "converted.net.xml"
    data = str(package / "data" / "proj")
    result = confined_converter.run(
        [
            str(package / "bin" / "netconvert"),
            *(text for format, path in sources.items() for text in (INPUTS[format], str(path))),
            *(option for format in sources for option in FURTHER.get(format, ())),
            *COMMON,
            *("--output-file", str(output)),
        ],
        folder=folder,
        readonly=(site,),
        environ={"SUMO_HOME": str(package), "PROJ_DATA": data, "PROJ_LIB": data},
        limits=limits,
        report=report,
    )
    if result.timed_out:
        raise CannotConvert(f"netconvert took more than {limits.seconds:.0f} s. Register a smaller part of the map.")
    if result.code:
        raise CannotConvert(_reason(result.code, result.lines, limits))
    try:
        text = read_text(output, largest=limits.largest_file)
    except (OSError, ValueError) as error:
        raise CannotConvert(f"netconvert wrote no network: {error}") from None
    return Network(text=_HEADER.sub("", text), messages=summarized(result.lines))


def _reason(code: int, lines: tuple[str, ...], limits: ConverterLimits) -> str:
    """Return why a conversion failed: netconvert's errors, or the limit that it probably met."""
    errors = []
    for line in lines:
        if (match := _LEVEL.match(line)) and match["level"] == "Error":
            errors.append(printable(match["text"]))
    distinct = list(dict.fromkeys(errors))
    if distinct:
        more = f" (and {len(distinct) - 3} further errors)" if len(distinct) > 3 else ""
        return f"netconvert refuses it: {' '.join(distinct[:3])}{more}"
    if any("bad_alloc" in line or "out of memory" in line.lower() for line in lines) or code < 0 or code > 128:
        last = f" Its last line was: {printable(lines[-1])}" if lines else ""
        return (
            f"netconvert crashed, or needed more than {limits.memory >> 20:,} MiB of memory or"
            f" {limits.largest_file >> 20:,} MiB for the network. Register a smaller part of the map.{last}"
        )
    return f"netconvert ended with code {code}: {printable(lines[-1]) if lines else 'no message'}"


def summarized(lines: tuple[str, ...]) -> tuple[Message, ...]:
    """Return the warnings by what they are about, in the order of their first lines."""
    counts: dict[str, int] = {}
    examples: dict[str, list[str]] = {}
    last = ""
    for line in lines:
        match = _LEVEL.match(line)
        if match is None:
            continue
        if total := re.match(r"(\d+) total messages of type", match["text"]):
            # Lines of a type beyond the third are only counted.
            counts[last] = counts.get(last, 3) + max(0, int(total[1]) - 3)
            continue
        what, example = _in_plain_words(match["text"])
        last = what
        counts[what] = counts.get(what, 0) + 1
        if example and len(examples.setdefault(what, [])) < 3:
            examples[what].append(example)
    return tuple(
        Message(what=what, count=count, examples=tuple(examples.get(what, ())))
        for what, count in counts.items()
        if what
    )


def _in_plain_words(text: str) -> tuple[str, str]:
    for pattern, plain in _PLAIN:
        if match := pattern.match(text):
            return plain, printable(match.groupdict().get("example") or "")[:60]
    return f"netconvert: {printable(text)}", ""


def printable(text: str) -> str:
    """Return a text of netconvert, which may quote the map, without control characters and of bounded length."""
    return "".join(character if character.isprintable() else "?" for character in text)[:200]
