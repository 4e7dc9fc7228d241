# Generated from windtunnel/_async/results.py by scripts/sync_client.py; change that file.
"""Results of a simulation: an iterator of records, and tables for pandas, polars and files."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import msgspec

from windtunnel import tables
from windtunnel._sync.transport import Attempts, Transport, lines_of, path
from windtunnel.errors import Interrupted, Refused
from windtunnel.records import Result, read

if TYPE_CHECKING:
    import pandas
    import polars


class _Numbered(msgspec.Struct):
    """The number of a result's task, without the rest of the result."""

    task: int


class Results:
    """Results of a simulation, read when they are asked for: in the order of the tasks, or as they arrive.

    ``statuses`` selects some (`ok`, `failed`, ...), ``where`` those that meet conditions (`failed=true`,
    `street=arterial`, `metrics.score<50`), ``sort`` orders by a column such as `-metrics.score`, a parameter, or
    `worst`; ``limit`` is the most. ``follow`` waits for the results of a simulation that runs, in the order of their
    arrival.
    """

    def __init__(
        self,
        transport: Transport,
        id: str,
        *,
        statuses: Sequence[str] = (),
        where: Sequence[str] = (),
        sort: str | None = None,
        limit: int | None = None,
        follow: bool = False,
    ) -> None:
        self._transport = transport
        self.id = id
        self._path = path("simulations", id, "results")
        self._params = {"status": list(statuses) or None, "where": list(where) or None, "sort": sort, "limit": limit}
        self._follow = follow

    def __repr__(self) -> str:
        return f"Results(simulation={self.id!r})"

    def __iter__(self) -> Iterator[Result]:
        for line in self.lines():
            yield read(Result, msgspec.json.decode(line))

    def lines(self) -> Iterator[str]:
        """Yield the results as lines of JSON, as the platform sent them; go on after a break without a duplicate."""
        done, next_task, plain = 0, 0, not any(self._params.values())
        attempts = Attempts(self._transport)
        while True:
            # Only the plain streams can be continued: by the number of lines, or by the number of the next task.
            position = {"follow": True, "skip": done} if self._follow else {"from": next_task or None}
            params = {**self._params, **position} if plain else self._params
            try:
                with self._transport.stream(
                    self._path, params=params, headers={"Accept": "application/x-ndjson"}
                ) as response:
                    if response.status_code == 204:
                        return
                    for line in lines_of(response):
                        attempts.succeeded()
                        if not line:
                            continue  # a heartbeat
                        if line.startswith('{"incomplete"'):
                            reason = msgspec.json.decode(line)["incomplete"]
                            raise Interrupted(f"The results are not complete: {reason}")
                        done += 1
                        if plain and not self._follow:  # tasks without a result yet leave gaps
                            next_task = msgspec.json.decode(line, type=_Numbered).task + 1
                        yield line
                return
            except (httpx.TransportError, Refused) as error:
                if done and not plain:
                    raise Interrupted("The connection broke amid selected results; read them again.") from None
                attempts.failed(error)

    def save(
        self,
        target: str | os.PathLike[str],
        *,
        format: str | None = None,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> Path:
        """Write all results to a file: NDJSON, CSV or Parquet by its suffix, or as ``format`` says.

        The file is complete or not there: bytes are written to a draft beside it.
        """
        file = Path(target)
        kind = format or tables.format_of(file)
        with tables.draft_of(file) as draft:
            self.write(draft.write, kind, rewind=lambda: tables.rewind(draft), progress=progress)
        return file

    def write(
        self,
        write: Callable[[bytes], object],
        format: str,
        *,
        rewind: Callable[[], object] | None = None,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> None:
        """Pass all results to a function as bytes of a `ndjson`, `csv` or `parquet` file.

        ``rewind`` is called if the file has to be sent from its beginning again; without it, that is an error.
        """
        if format != "ndjson":
            params = {**self._params, "format": format}
            return self._transport.save(self._path, write, params=params, rewind=rewind, progress=progress)
        done = 0
        for line in self.lines():
            done += len(data := line.encode() + b"\n")
            write(data)
            if progress is not None:
                progress(done, None)

    def parquet(self) -> bytes:
        """Return the results as a Parquet file, with the columns `scenario.*`, `metrics.*` and `timing.*`."""
        buffer = io.BytesIO()
        self.write(buffer.write, "parquet", rewind=lambda: tables.rewind(buffer))
        return buffer.getvalue()

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the results as a pandas frame, a row for each task; needs `windtunnel[pandas]`."""
        library = tables.library("pandas", "pandas")
        arrow = tables.library("pyarrow", "pandas")
        # Memory of Arrow's own: a thread that reads or releases a Python object may outlive the interpreter, which is
        # aborted then, with SIGABRT after a script's last line (https://github.com/apache/arrow/issues/34314).
        content = arrow.BufferOutputStream()
        content.write(self.parquet())
        frame: pandas.DataFrame = library.read_parquet(arrow.BufferReader(content.getvalue()))
        return frame

    def to_polars(self) -> "polars.DataFrame":
        """Return the results as a polars frame, a row for each task; needs `windtunnel[polars]`."""
        library = tables.library("polars", "polars")
        frame: polars.DataFrame = library.read_parquet(io.BytesIO(self.parquet()))
        return frame
