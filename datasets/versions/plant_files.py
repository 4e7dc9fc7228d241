"""Files of a plant: what of an FMU is unpacked for its simulations, and the reading of its description."""

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from common.printable import printable
from datasets.versions import fmu_description
from datasets.versions.archives import zip
from datasets.versions.archives.decompression import ByteSource, detect_format
from datasets.versions.archives.extraction import extract
from datasets.versions.fmu_description import DESCRIPTION, PLATFORMS, FmuDescription
from datasets.versions.packs import SourceFile
from datasets.versions.xml_scan import BadXml

#: Bytes of an FMU at most, packed, and of the files of it that are unpacked; and of its description.
LARGEST, LARGEST_DESCRIPTION = 256 << 20, 64 << 20
#: The folder of the unpacked files among those that an evaluator reads.
FOLDER = "plant"
#: The start of a shared library for Linux on x86-64: the magic number, 64 bits, little-endian; type and machine.
_ELF, _KIND = b"\x7fELF\x02\x01", struct.Struct("<HH")
_SHARED, _X86_64 = 3, 62


def is_needed(path: str) -> bool:
    """Return whether a file of an FMU is unpacked: its description, its libraries for Linux, and its resources."""
    return path == DESCRIPTION or path.startswith(
        ("resources/", *(f"binaries/{platform}/" for platform in PLATFORMS.values()))
    )


def describe(fmu: ByteSource) -> FmuDescription:
    """Read the description of an FMU. Raises BadXml, BadArchive or BadName with the reason if it cannot be a plant."""
    if detect_format(fmu) != "zip":
        raise BadXml("it is not an FMU, which is a zip")
    sizes = {path: entry.size for path, entry in zip.members(fmu)}
    if DESCRIPTION not in sizes:
        raise BadXml(f"it has no {DESCRIPTION} at its top; export it again")
    if sizes[DESCRIPTION] > LARGEST_DESCRIPTION:
        raise BadXml(f"its {DESCRIPTION} has more than {LARGEST_DESCRIPTION:,} bytes")
    if (whole := sum(size for path, size in sizes.items() if is_needed(path))) > LARGEST:
        raise BadXml(f"its libraries and resources unpack to {whole:,} bytes; the limit is {LARGEST:,}")
    description = fmu_description.read(_member(fmu, DESCRIPTION))
    if description.library not in sizes:
        others = sorted({path.split("/")[1] for path in sizes if path.startswith("binaries/") and path.count("/") > 1})
        found = f", only for {', '.join(map(printable, others[:9]))}" if others else ""
        raise BadXml(
            f"it has no library {description.library}{found}; export it for Linux on x86-64, or compile its sources"
            " with `fmpy compile`"
        )
    head = b"".join(islice(_member(fmu, description.library), 1))[:20]
    if len(head) < 20 or not head.startswith(_ELF) or _KIND.unpack_from(head, 16) != (_SHARED, _X86_64):
        raise BadXml(f"its {description.library} is not a shared library for Linux on x86-64; export it again")
    return description


def _member(fmu: ByteSource, name: str) -> Iterator[bytes]:
    """Yield a file of the FMU."""
    wanted: SourceFile | None = next((file for file in zip.files(fmu) if file.path == name), None)
    yield from wanted.chunks if wanted is not None else ()


def unpack(fmu: Path, folder: Path) -> None:
    """Write the files that simulations need below an empty folder. Raises BadArchive, BadName or TooLarge."""
    extract(fmu, folder, largest=LARGEST, wanted=is_needed, limit="a plant's limit")
