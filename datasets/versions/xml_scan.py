"""XML scan: one pass over a file of a user, within limits; document types and entities are refused."""

from collections.abc import Iterable, Mapping
from typing import Protocol
from xml.parsers import expat

#: The deepest nesting, the most attributes of an element and characters of one, and the most elements.
DEPTH, ATTRIBUTES, LONGEST, ELEMENTS = 64, 100, 1 << 20, 20_000_000


class BadXml(Exception):
    """The file is not XML, or exceeds a limit; the text is for its owner."""


class Visitor(Protocol):
    """Takes the elements of a file in order."""

    def start(self, name: str, attributes: Mapping[str, str], parents: list[str]) -> None:
        """An element begins; ``parents`` are the names of the elements around it."""

    def end(self, name: str) -> None:
        """An element ends."""


def scan(chunks: Iterable[bytes], visitor: Visitor) -> None:
    """Parse a file and pass its elements to the visitor. Raises BadXml."""
    parser = expat.ParserCreate()
    parents: list[str] = []
    count = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > ELEMENTS:
            raise BadXml(f"it has more than {ELEMENTS:,} elements")
        if len(parents) >= DEPTH:
            raise BadXml(f"its elements are nested more than {DEPTH} deep")
        if len(attributes) > ATTRIBUTES or any(len(value) > LONGEST for value in attributes.values()):
            raise BadXml(
                f"an element has more than {ATTRIBUTES} attributes, or one of more than {LONGEST:,} characters"
            )
        visitor.start(name, attributes, parents)
        parents.append(name)

    def end(name: str) -> None:
        parents.pop()
        visitor.end(name)

    def refuse(*_: object) -> None:
        raise BadXml("it declares a document type, which is not needed; remove the line `<!DOCTYPE ...>`")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        for chunk in chunks:
            parser.Parse(chunk, False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise BadXml(f"it is not XML: {error}") from None
    except UnicodeDecodeError as error:
        raise BadXml(f"it is not XML: {error}") from None
