"""Simulations of a platform: submission, progress, results, replays."""

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from windtunnel import received_files, submissions, tables
from windtunnel._async.events import events
from windtunnel._async.models import AsyncModels
from windtunnel._async.pages import pages
from windtunnel._async.results import AsyncResults
from windtunnel._async.transport import AsyncTransport, lines_of, path
from windtunnel._async.uploads import Progress
from windtunnel.errors import Interrupted, Refused, WindtunnelError
from windtunnel.gang_programs import case_members, sent_model
from windtunnel.model_sources import LocalModel, ReferencedModel, StoredModel, file_digest, source_of
from windtunnel.records import Check, Event, Result, Simulation, read
from windtunnel.replays import Replay
from windtunnel.short_ids import SIMULATIONS, WHOLE_LENGTH
from windtunnel.submissions import Options
from windtunnel.usage_records import Estimate

#: Seconds between two looks whether a replay is drawn, or a summary written.
LOOK_INTERVAL = 0.2


class AsyncSimulations:
    """Simulations of one platform, named by their ids."""

    def __init__(self, transport: AsyncTransport, models: AsyncModels) -> None:
        self._transport = transport
        self._models = models

    async def submit(
        self,
        model: str | os.PathLike[str] | None,
        dataset: str,
        *,
        progress: Progress | None = None,
        **options: Unpack[Options],
    ) -> Simulation:
        """Submit a simulation of a model on a dataset and return it at once.

        ``model`` is a file, a folder, the name of a stored model, or a reference such as `s3://bucket/model.onnx`;
        None: the runtime's baseline model. A file is uploaded first, with ``progress`` called with the bytes sent and
        the total; a gang's program keeps its name there if the gang's commands have it. The options are the fields of
        a submission (`submission_fields.py` says what each is), and ``scenarios``, ``sample``, ``sample_seed`` and
        ``executor``. The request is repeated under an idempotency key: there is one simulation.
        """
        body, key, format = _document(dataset, options)
        if model is not None:
            sent = sent_model(model, body, format)
            body |= await self._model(model, sent.format, progress, packed=sent.packed)
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        return read(Simulation, await self._transport.json("POST", path("simulations"), json=body, headers=headers))

    async def run(
        self,
        model: str | os.PathLike[str] | None,
        dataset: str,
        *,
        on_event: Callable[[Event], object] | None = None,
        **options: Any,
    ) -> Simulation:
        """Submit a simulation, follow it to its end and return it; ``options`` are those of ``submit``."""
        simulation = await self.submit(model, dataset, **options)
        return await self.wait(simulation.id, on_event)

    async def check(
        self, model: str | os.PathLike[str], dataset: str, *, progress: Progress | None = None, **options: Any
    ) -> Check:
        """Load a model and act for a few real steps of a dataset; ``options`` are members of a submission."""
        body = submissions.document(dataset, **options) | await self._model(model, None, progress)
        document = await self._transport.json("POST", path("checks"), json=body, repeatable=True, timeout=600.0)
        return read(Check, document)

    async def estimate(
        self, model: str | os.PathLike[str] | None, dataset: str, **options: Unpack[Options]
    ) -> Estimate:
        """Return the needs of a simulation, from what tasks like its own took; ``options`` are those of ``submit``.

        Nothing is uploaded: of a file that the platform does not have, it knows the dataset alone.
        """
        body, _, format = _document(dataset, options)
        source = None if model is None else source_of(model)
        if isinstance(source, LocalModel):
            later = {"model_reference": f"file:{source.path.name}"} | case_members(source, body)
            if source.path.is_file() and format is None:
                try:
                    return await self._estimate(body | {"model": file_digest(source.path)})
                except Refused as refusal:
                    if refusal.type != "unknown-model":
                        raise
            return await self._estimate(body | later)
        if isinstance(source, ReferencedModel):
            body["model_reference"] = source.reference
        elif source is not None:
            body["model"] = source.name
        return await self._estimate(body)

    async def _estimate(self, body: Mapping[str, object]) -> Estimate:
        return read(Estimate, await self._transport.json("POST", path("estimates"), json=body, repeatable=True))

    async def _model(
        self, model: str | os.PathLike[str], format: str | None, progress: Progress | None, *, packed: bool = False
    ) -> dict[str, Any]:
        """Return the members of a submission that name a model; a reference is read by the platform, when it runs.

        ``packed``: a file is sent as an archive, in which it keeps its name.
        """
        source = source_of(model)
        if isinstance(source, StoredModel) and format is not None:
            raise WindtunnelError(f"{source.name} is stored with its format; name a format for a file only.")
        if isinstance(source, ReferencedModel):
            return {"model_reference": source.reference} | ({"format": format} if format else {})
        return {"model": await self._models.stored(model, format=format, packed=packed, progress=progress)}

    async def list(
        self,
        *,
        query: str | None = None,
        state: str | Sequence[str] | None = None,
        dataset: str | None = None,
        model: str | None = None,
        runtime: str | None = None,
        labels: Mapping[str, str] | None = None,
        comparison: str | None = None,
        include: Sequence[str] = (),
        limit: int | None = None,
    ) -> AsyncIterator[Simulation]:
        """Yield simulations that meet all filters, the newest first. ``query`` searches in names, labels and ids.

        ``comparison`` is the id of the one whose batches they are; `none` leaves out the batches of all comparisons.
        Without ``include``, they lack their large members, which are `metrics`, `provenance` and `spec`.
        """
        params = {
            "q": query,
            "state": [state] if isinstance(state, str) else list(state or ()) or None,
            "dataset": dataset,
            "model": model,
            "runtime": runtime,
            "label": [f"{name}={value}" for name, value in (labels or {}).items()] or None,
            "comparison": comparison,
            "include": list(include) or None,
        }
        async for document in pages(self._transport, path("simulations"), params, limit):
            yield read(Simulation, document)

    async def get(self, id: str) -> Simulation:
        """Return a simulation as it is now."""
        return read(Simulation, await self._transport.json("GET", path("simulations", id)))

    async def wait(self, id: str, on_event: Callable[[Event], object] | None = None) -> Simulation:
        """Follow a simulation to its end and return it."""
        async for event in self.events(id):
            if on_event is not None:
                on_event(event)
        return await self.get(id)

    async def events(self, id: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield the events after number ``after`` until the last one; go on after breaks."""
        async for event in events(self._transport, path("simulations", id, "events"), after):
            yield event

    async def logs(self, id: str, *, follow: bool = False) -> AsyncIterator[str]:
        """Yield the lines of the logs of models and simulators."""
        params = {"follow": follow or None}
        async with self._transport.stream(path("simulations", id, "logs"), params=params) as response:
            async for line in lines_of(response):
                yield line

    async def cancel(self, id: str) -> Simulation:
        """Cancel a simulation; its results so far are kept."""
        return read(Simulation, await self._transport.json("POST", path("simulations", id, "cancel"), repeatable=True))

    async def retry(self, id: str, *, all_tasks: bool = False) -> Simulation:
        """Start another simulation of the tasks that are not `ok`, or of all tasks, with the same digests.

        The request is repeated under an idempotency key: there is one simulation.
        """
        body, headers = {"only_failed": not all_tasks}, {"Idempotency-Key": str(uuid.uuid4())}
        document = await self._transport.json("POST", path("simulations", id, "retry"), json=body, headers=headers)
        return read(Simulation, document)

    async def delete(self, id: str) -> None:
        """Delete a simulation that has ended, with its results."""
        await self._transport.request("DELETE", path("simulations", id))

    async def summary(self, id: str) -> dict[str, Any]:
        """Return the summary of a simulation that has ended."""
        document: dict[str, Any] = await self._transport.json("GET", path("simulations", id, "summary"))
        return document

    def results(
        self,
        id: str,
        *,
        statuses: Sequence[str] = (),
        where: Sequence[str] = (),
        sort: str | None = None,
        limit: int | None = None,
        follow: bool = False,
    ) -> AsyncResults:
        """Return the results of a simulation, to iterate over or to save; nothing is read yet."""
        return AsyncResults(self._transport, id, statuses=statuses, where=where, sort=sort, limit=limit, follow=follow)

    async def worst(self, id: str, *, limit: int = 10, groups: Mapping[str, str] | None = None) -> Sequence[Result]:
        """Return the worst results so far: those that are not `ok`, then by the dataset's score."""
        params = {"limit": limit, "group": [f"{name}={value}" for name, value in (groups or {}).items()] or None}
        document = await self._transport.json("GET", path("simulations", id, "worst"), params=params)
        return [read(Result, item) for item in document["items"]]

    async def sweep(self, id: str) -> dict[str, Any]:
        """Return the statistics of each combination of a sweep that has ended: ``parameters``, and ``rows``."""
        document: dict[str, Any] = await self._transport.json("GET", path("simulations", id, "sweep"), timeout=300.0)
        return document

    async def sensitivity(self, id: str, *, metric: str | None = None) -> dict[str, Any]:
        """Return which parameters go with failure, or with a metric, the strongest first; it proves no cause."""
        document: dict[str, Any] = await self._transport.json(
            "GET", path("simulations", id, "sensitivity"), params={"metric": metric}, timeout=300.0
        )
        return document

    async def compare(
        self,
        id: str,
        to: str,
        *,
        metric: str | None = None,
        bound: float | None = None,
        margin: float | None = None,
        design: str | None = None,
    ) -> dict[str, Any]:
        """Return the paired differences of a simulation from another one on the same scenarios, and a verdict.

        ``margin``: difference, in the unit of the metric, that does not matter. ``design``: `population`, `list` or
        `exact`.
        """
        params = {"to": to, "metric": metric, "bound": bound, "margin": margin, "design": design}
        document: dict[str, Any] = await self._transport.json(
            "GET", path("simulations", id, "comparison"), params=params, timeout=300.0
        )
        return document

    async def replay(self, id: str, task: int, *, patience: float = 120.0) -> Replay:
        """Return the replay of a task as an animation; wait while it is computed, ``patience`` seconds at most."""
        deadline = time.monotonic() + patience
        address = path("simulations", id, "tasks", task, "replay")
        while True:
            response = await self._transport.request("GET", address, params={"format": "svg"})
            if response.status_code != 202:
                return Replay(simulation=id, task=task, svg=response.text)
            if time.monotonic() > deadline:
                raise Interrupted(f"The replay of task {task} is still computed; ask for it again later.")
            await asyncio.sleep(LOOK_INTERVAL)

    async def archive(
        self,
        id: str,
        target: str | os.PathLike[str] | None = None,
        *,
        model: bool = True,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> Path:
        """Write all of an ended simulation to a zip file: results, summary, traces, logs and, by default, the model.

        The file is ``ID.zip`` if ``target`` is left out, or is a folder; only one that ``target`` names is replaced.
        """
        file = Path(target or ".")
        named = not file.is_dir()
        if not named:
            file /= received_files.name_of(f"{id}.zip")
        params = {"model": None if model else False}
        with tables.draft_of(file, replace=named) as draft:
            await self._transport.save(
                path("simulations", id, "archive"),
                draft.write,
                params=params,
                rewind=lambda: tables.rewind(draft),
                progress=progress,
            )
        return file

    async def find(self, reference: str) -> str:
        """Return the id of a simulation: of the newest one for `last`, or of the only one whose id begins so."""
        beginning = SIMULATIONS.beginning(reference)
        if len(beginning) == WHOLE_LENGTH:
            return beginning
        listed = self.list(query=beginning or None, limit=200 if beginning else 1)
        return SIMULATIONS.only(beginning, [item.id async for item in listed])


def _document(dataset: str, options: Options) -> tuple[dict[str, object], str | None, str | None]:
    """Return the members of a submission, its idempotency key, and the format of its model."""
    key, format = options.pop("idempotency_key", None), options.pop("format", None)
    if executor := options.pop("executor", None):
        options["placement"] = {**(options.get("placement") or {}), "executor": executor}
    return submissions.document(dataset, scenarios_=options.pop("scenarios", None), **options), key, format
