"""Route /v1/simulations/{id}/sweep: swept parameters against metrics, as JSON or as a table."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from flask import Response

from api.blueprint import BINARY, Blueprint, Success
from api.byte_ranges import read_ahead
from api.context import analysis_services as services
from api.context import caller, context
from api.negotiation import choose
from api.schemas.results import SweepQuery, SweepSchema
from api.tabular import PARQUET, csv_of, flat_document, kinds_of
from common.errors import NotAcceptable, NotFinished, UnknownSimulation

blueprint = Blueprint(
    "sweeps", __name__, url_prefix="/v1/simulations/<id:id>", description="Swept parameters against metrics."
)

CSV = "text/csv"
FORMATS: Mapping[str, str] = {"json": "application/json", "csv": CSV, "parquet": PARQUET}
#: Rows of a row group of Parquet: a row has a column for each statistic of each metric.
ROWS = 1000
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def as_json(parameters: list[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield a document with all rows, a row at a time."""
    comma = b'{"parameters":' + msgspec.json.encode(parameters) + b',"rows":['
    for row in rows:
        yield comma + msgspec.json.encode(row)
        comma = b","
    yield b"]}" if comma == b"," else comma + b"]}"


def as_table(rows: Iterable[Mapping[str, Any]], format: str) -> Iterator[bytes]:
    """Yield rows as CSV or Parquet, in constant memory: the columns are known when all rows are in a file."""
    with tempfile.TemporaryFile("w+b", dir=context().spool) as file:
        file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)

        def table_rows() -> Iterator[dict[str, Any]]:
            file.seek(0)
            return (flat_document(_decode(line)) for line in file)

        kinds = {name: kind or "str" for name, kind in kinds_of(table_rows(), {}).items()}
        if format == "csv":
            yield from csv_of(table_rows(), kinds)
            return
        from api.parquet import schema_of, table_of, written  # imported at the first use: pyarrow is large

        remaining = table_rows()
        groups = iter(lambda: list(islice(remaining, ROWS)), [])
        yield from written((table_of(group, kinds) for group in groups), schema_of(kinds))


@blueprint.operation(
    "GET /sweep",
    Success(
        description="A row for each combination of the swept parameters.",
        media={"application/json": SweepSchema, CSV: BINARY, PARQUET: BINARY},
    ),
    errors=[UnknownSimulation, NotFinished, NotAcceptable],
)
@blueprint.takes(SweepQuery)
def get_simulation_sweep(query: dict[str, Any], id: str) -> Response:
    """Get the statistics of each combination of a sweep

    The rows have the parameters, and for their tasks what a summary has for all; intervals of means are of the
    normal approximation, not of the bootstrap. Tables have the columns `params.*`, `tasks.*`, `statuses.*`,
    `outcomes.*` and `metrics.*`.
    """
    format = choose(FORMATS, query.get("format"))
    parameters, rows = services().sweeps.sweep(caller(), id)
    if format == "json":
        body = read_ahead(as_json(parameters, rows))
        return Response(body, content_type="application/json", direct_passthrough=True)
    headers = {"Content-Disposition": f'attachment; filename="{id}-sweep.{format}"'}
    type = f"{CSV}; charset=utf-8" if format == "csv" else PARQUET
    body = read_ahead(as_table(rows, format))
    return Response(body, headers=headers, content_type=type, direct_passthrough=True)
