"""Request bodies: JSON of bounded size and depth, forms whose files are spooled to disk, raw bytes in chunks."""

import io
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
from flask import Request, request
from marshmallow import Schema, ValidationError
from werkzeug.formparser import FormDataParser

from api import json_limits
from api.problems import invalid
from api.request_guard import needs_length
from common.errors import BadRequest, TooLarge, UnsupportedMedia
from common.printable import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CHUNK = 1 << 20


class SpooledFile(io.BufferedRandom):
    """File of a form, in a file without a name. ``received``: its bytes."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__(tempfile.TemporaryFile("w+b", buffering=0, dir=folder))
        self.received = 0

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write bytes; raise OSError if the disk is full."""
        self.received += memoryview(data).nbytes
        return super().write(data)

    def close(self) -> None:
        """Close the file. On a full disk its last bytes cannot be written, which `write` or `seek` has said already."""
        with suppress(OSError):
            super().close()


class SpooledRequest(Request):
    """Request whose uploaded files are spooled to ``spool``, and whose malformed forms are errors."""

    max_form_memory_size = json_limits.MOST_BYTES
    max_form_parts = 100
    #: Folder of spooled files, set by the composition root; the system's temporary folder is often memory.
    spool: Path | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._spooled: list[SpooledFile] = []

    def make_form_data_parser(self) -> FormDataParser:
        """Parse strictly: werkzeug's default accepts a truncated form as a form with fewer fields."""
        parser = super().make_form_data_parser()
        parser.silent = False
        return parser

    def _get_file_stream(
        self,
        total_content_length: int | None,
        content_type: str | None,
        filename: str | None = None,
        content_length: int | None = None,
    ) -> IO[bytes]:
        file = SpooledFile(self.spool)
        self._spooled.append(file)
        return file

    @property
    def spooled_bytes(self) -> int:
        """Bytes of this request's files that have been received."""
        return sum(file.received for file in self._spooled)

    def close(self) -> None:
        """Close every spooled file, also those of a malformed form."""
        super().close()
        for file in self._spooled:
            file.close()


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("Number out of range")
    return number


#: Numbers are read by Python, in a third of a microsecond each: msgspec itself takes ten for those above 1e292 or below
#: 1e-308, so that one body of them would stop the API for seconds.
_decode = msgspec.json.Decoder(float_hook=_finite).decode


def parse_json(raw: bytes) -> Any:
    """Parse JSON; NaN, lone surrogates, overlong numbers and too deep nesting raise BadRequest with the position.

    More values than `json_limits` allow raise TooLarge. Both limits are checked before the JSON is decoded.
    """
    if not raw.strip():
        raise BadRequest("The body is empty; send a JSON object.")
    if json_limits.too_deep(raw):
        raise BadRequest(f"The JSON is nested too deeply: more than {json_limits.MOST_LEVELS} levels.")
    if limit := json_limits.excess(raw):
        raise TooLarge(f"The JSON has more than {limit}. Send fewer, in several requests.")
    try:
        return _decode(raw)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from None
    except UnicodeDecodeError:
        raise BadRequest("The body is not valid JSON: it is not UTF-8.") from None


def raw_body() -> bytes:
    """Read a body of at most MOST_BYTES; a larger body is refused before it is in memory."""
    limit = min(json_limits.MOST_BYTES, request.max_content_length or json_limits.MOST_BYTES)
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    if request.content_length is None and "Transfer-Encoding" in request.headers:
        raw: bytes = request.environ["wsgi.input"].read(limit + 1)  # werkzeug would cut a longer body off
        if len(raw) > limit:
            raise _too_large(limit)
        return raw
    return request.get_data(cache=False)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body has more than {limit:,} bytes. Send files as a form or as a resumable upload.")


def _without_duplicates(pairs: list[tuple[str, object]]) -> None:
    if len(names := [name for name, _ in pairs]) > len(set(names)):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise BadRequest(f"The JSON has the member {printable(twice[:100])} twice; send it once.")


def json_object(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object; raise BadRequest for any other JSON value."""
    document = parse_json(raw)
    json.loads(raw, object_pairs_hook=_without_duplicates)  # msgspec would keep the last of equal names
    if not isinstance(document, dict):
        raise BadRequest('The body must be a JSON object, such as {"dataset": "car_street"}.')
    return document


def json_body(*, optional: bool = False) -> dict[str, Any]:
    """Read this request's JSON object; with ``optional``, an absent body is an empty object."""
    if optional and not request.content_length and "Transfer-Encoding" not in request.headers:
        return {}
    if request.mimetype != "application/json":
        raise UnsupportedMedia("Send JSON, with `Content-Type: application/json`.")
    return json_object(raw_body())


def validated(schema: Schema, document: Any) -> dict[str, Any]:
    """Return the values of a document; raise Invalid with a line for each field that the schema refuses."""
    try:
        values: dict[str, Any] = schema.load(document)
    except ValidationError as error:
        raise invalid(error.messages) from None
    return values


def read_form() -> None:
    """Parse this request's multipart form, spooling files to disk; raise BadRequest if it is malformed."""
    try:
        _ = request.form
    except ValueError as error:
        raise BadRequest(f"The multipart form is malformed: {str(error)[:200]}") from None


def chunks_of(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield a stream in chunks of CHUNK bytes."""
    while chunk := stream.read(CHUNK):
        yield chunk


def raw_chunks() -> Iterator[bytes]:
    """Yield this request's raw body in chunks; raise LengthRequired without a Content-Length."""
    needs_length(request.environ)
    return chunks_of(request.stream)


def base_name(filename: str | None) -> str | None:
    """Return the last part of an uploaded file's path, without non-printable characters; None if nothing remains."""
    if not filename:
        return None
    name = "".join(char for char in os.path.basename(filename.replace("\\", "/")) if char.isprintable())
    return name.strip()[:255] or None
