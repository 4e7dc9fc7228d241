"""Reading of users' files: an error that no check of their content foresaw is a refusal, which names the file."""

import logging
import lzma
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import Invalid
from common.printable import printable

logger = logging.getLogger(__name__)

#: What code raises for content that it was not written for. No outage of a store, a database or a disk is among these.
_UNFORESEEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zlib.error,
)


@contextmanager
def refuse_unreadable(what: str, refusal: type[Invalid] = Invalid) -> Iterator[None]:
    """Translate these errors into a refusal: another attempt would read the same. ``what``: subject of the reason."""
    try:
        yield
    except MemoryError:
        logger.exception("%s needs more memory to be read than there is", what)
        raise refusal(f"{what} needs more memory to be read than there is; make it smaller, or split it.") from None
    except _UNFORESEEN as error:
        logger.exception("a defect: %s could not be read", what)
        raise refusal(
            f"{what} could not be read ({type(error).__name__}: {printable(str(error))}). This is a defect of the"
            " platform, whose log has the details; report it, or change what is unusual in the file."
        ) from None
