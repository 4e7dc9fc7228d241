"""Comparisons of models on the same scenarios: created, followed to their verdict, cancelled."""

import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from windtunnel import submissions
from windtunnel._async.events import events
from windtunnel._async.models import AsyncModels
from windtunnel._async.pages import pages
from windtunnel._async.transport import AsyncTransport, path
from windtunnel.records import Event, ModelComparison, read


class AsyncComparisons:
    """Comparisons of models of one platform."""

    def __init__(self, transport: AsyncTransport, models: AsyncModels) -> None:
        self._transport = transport
        self._models = models

    async def create(
        self,
        models: Sequence[str | os.PathLike[str]],
        dataset: str,
        *,
        reference: str | os.PathLike[str] | None = None,
        metric: str | None = None,
        error_rate: float | None = None,
        design: str | None = None,
        bound: float | None = None,
        margin: float | None = None,
        until: str | None = None,
        play_all: bool | None = None,
        scenarios: submissions.Scenarios | None = None,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> ModelComparison:
        """Start a comparison of models, after the upload of those that are files.

        ``members``: further ones of the request, such as ``workers``.

        ``margin``: difference, in the unit of the metric, within which models are equivalent; 2 % of the declared range
        if left out. ``until``: claim at which it ends, `not_worse`, `better` or `equivalent`.
        """
        body = submissions.document(
            dataset,
            scenarios_=scenarios,
            models=[await self._models.stored(model) for model in models],
            reference=None if reference is None else await self._models.stored(reference),
            metric=metric,
            error_rate=error_rate,
            design=design,
            bound=bound,
            margin=margin,
            until=until,
            play_all=play_all,
            labels=dict(labels or {}),
            **members,
        )
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return read(
            ModelComparison, await self._transport.json("POST", path("comparisons"), json=body, headers=headers)
        )

    async def list(self, *, limit: int | None = None) -> AsyncIterator[ModelComparison]:
        """Yield comparisons, the newest first."""
        async for document in pages(self._transport, path("comparisons"), {}, limit):
            yield read(ModelComparison, document)

    async def get(self, id: str) -> ModelComparison:
        """Return a comparison, with the verdicts so far."""
        return read(ModelComparison, await self._transport.json("GET", path("comparisons", id)))

    async def flips(self, id: str, model: int = 0, *, direction: str = "broke") -> AsyncIterator[dict[str, Any]]:
        """Yield the scenarios that a model fails and the reference does not; ``direction``: `broke`, or `fixed`.

        ``model``: its number among those compared, from 0.
        """
        query = {"model": str(model), "direction": direction}
        async for flip in pages(self._transport, path("comparisons", id, "flips"), query, None):
            yield flip

    async def cancel(self, id: str) -> None:
        """Cancel a comparison; verdicts that hold are kept."""
        await self._transport.request("POST", path("comparisons", id, "cancel"), repeatable=True)

    async def events(self, id: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield the events after number ``after`` until the last one."""
        async for event in events(self._transport, path("comparisons", id, "events"), after):
            yield event

    async def wait(self, id: str, on_event: Callable[[Event], object] | None = None) -> ModelComparison:
        """Follow a comparison to its end and return it."""
        async for event in self.events(id):
            if on_event is not None:
                on_event(event)
        return await self.get(id)
