"""Pipelines: submissions and comparisons whose outputs are the inputs of the next; created, followed, run again."""

import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from windtunnel import submissions
from windtunnel._async.events import events
from windtunnel._async.models import AsyncModels
from windtunnel._async.pages import pages
from windtunnel._async.transport import AsyncTransport, path
from windtunnel.errors import WindtunnelError
from windtunnel.gang_programs import sent_model
from windtunnel.pipeline_records import Pipeline
from windtunnel.records import Event, read
from windtunnel.short_ids import PIPELINES, WHOLE_LENGTH


class AsyncPipelines:
    """Pipelines of one platform."""

    def __init__(self, transport: AsyncTransport, models: AsyncModels) -> None:
        self._transport = transport
        self._models = models

    async def create(
        self,
        steps: Sequence[Mapping[str, object]],
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        fresh: bool = False,
        folder: str | os.PathLike[str] = ".",
        idempotency_key: str | None = None,
    ) -> Pipeline:
        """Start a pipeline of steps, each a mapping as `POST /v1/pipelines` takes it, its scenarios as `submit` does.

        A model that is a file in ``folder``, or a folder there whose name is written with a slash, is uploaded.
        ``fresh``: run every step although equal ones were complete.
        """
        if not isinstance(steps, Sequence) or not all(isinstance(step, Mapping) for step in steps):
            raise WindtunnelError("`steps` is a list of mappings, each with a `name` and a submission or comparison.")
        sent = {"steps": [await self._with_models(step, Path(folder)) for step in steps], "fresh": fresh}
        given = {"name": name, "labels": dict(labels) if labels else None}
        body = sent | {key: value for key, value in given.items() if value is not None}
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return read(Pipeline, await self._transport.json("POST", path("pipelines"), json=body, headers=headers))

    async def _with_models(self, step: Mapping[str, object], folder: Path) -> dict[str, object]:
        """Return a step with the names of models in place of files, after their upload."""
        sent = dict(step)
        for kind in ("submission", "comparison"):
            document = sent.get(kind)
            if isinstance(document, Mapping):
                replaced, uploaded = dict(document), False
                for member, value in document.items():
                    if member == "models" and isinstance(value, list):
                        replaced[member] = [await self._name_of(item, folder, document) for item in value]
                    elif member in {"model", "reference"}:
                        replaced[member] = await self._name_of(value, folder, document)
                        uploaded |= replaced[member] != value
                    elif member == "scenarios" and not isinstance(value, str | Mapping | None):
                        replaced[member] = submissions.scenarios(value)
                # What is uploaded has its format then.
                left = {name: value for name, value in replaced.items() if name != "format" or not uploaded}
                sent[kind] = submissions.plain(left)
        return sent

    async def _name_of(self, model: object, folder: Path, document: Mapping[str, object]) -> object:
        """Return the name of a model that is a file, after its upload; all else as it is.

        ``document``: the submission or comparison of the model. If it has a gang, then the file is its program.
        """
        if not isinstance(model, str) or not self._is_sent(model, folder):
            return model
        file = folder / model
        sent = sent_model(file, document)
        return await self._models.stored(file, format=sent.format, packed=sent.packed)

    @staticmethod
    def _is_sent(model: str, folder: Path) -> bool:
        """Return whether a model is a file; a folder only if it is named as one, with a slash: names have none."""
        path = folder / model
        return path.is_file() or ("/" in model and path.is_dir())

    async def list(self, *, limit: int | None = None) -> AsyncIterator[Pipeline]:
        """Yield pipelines without their steps, the newest first."""
        async for document in pages(self._transport, path("pipelines"), {}, limit):
            yield read(Pipeline, document)

    async def get(self, id: str) -> Pipeline:
        """Return a pipeline with its steps."""
        return read(Pipeline, await self._transport.json("GET", path("pipelines", id)))

    async def find(self, reference: str) -> str:
        """Return the id of a pipeline: of the newest one for `last`, or of the only one whose id begins so."""
        beginning = PIPELINES.beginning(reference)
        if len(beginning) == WHOLE_LENGTH:
            return beginning
        listed = self.list(limit=200 if beginning else 1)
        return PIPELINES.only(beginning, [pipeline.id async for pipeline in listed])

    async def cancel(self, id: str) -> Pipeline:
        """Cancel a pipeline, with its simulations and comparisons; steps that are complete stay so."""
        return read(Pipeline, await self._transport.json("POST", path("pipelines", id, "cancel"), repeatable=True))

    async def retry(self, id: str, *, first: str | None = None, fresh: bool = False) -> Pipeline:
        """Run steps again: those that are not complete, or ``first`` and all that wait for it; ``fresh``: skip none."""
        body = {"fresh": fresh} | ({"from": first} if first is not None else {})
        return read(Pipeline, await self._transport.json("POST", path("pipelines", id, "retry"), json=body))

    async def delete(self, id: str) -> None:
        """Delete a pipeline that has ended; its simulations, models and datasets are kept."""
        await self._transport.request("DELETE", path("pipelines", id), repeatable=True)

    async def events(self, id: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield the events after number ``after`` until the last one."""
        async for event in events(self._transport, path("pipelines", id, "events"), after):
            yield event

    async def wait(self, id: str, on_event: Callable[[Event], object] | None = None) -> Pipeline:
        """Follow a pipeline to its end and return it."""
        async for event in self.events(id):
            if on_event is not None:
                on_event(event)
        return await self.get(id)
