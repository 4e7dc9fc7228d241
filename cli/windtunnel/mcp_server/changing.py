"""Tools that upload, submit, compare, repeat and cancel; offered if changes are allowed."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from windtunnel import AsyncClient, WindtunnelError
from windtunnel.mcp_server.documents import Id, Tool, brief, named, with_submission_fields
from windtunnel.records import FINAL
from windtunnel.visible_text import visible


class Changing:
    """Tools that submit, upload, cancel or repeat. ``folder``: files outside of it are not read.

    An agent acts on texts that others have written: one that names a file of the user must not send it away.
    """

    def __init__(self, client: AsyncClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    def _model(self, model: str) -> str:
        """Return a model as the client takes it: the path of a file in the folder, or the name of a stored model."""
        path = Path(model).expanduser()
        inside = self._folder / path
        if not model or not (os.path.lexists(inside) or path.exists()):
            return model
        if not inside.resolve().is_relative_to(self._folder):
            raise WindtunnelError(
                f"{visible(model)} is not in {self._folder}, the folder whose files this server reads. `windtunnel mcp"
                " --folder` names another."
            )
        return str(inside)

    def tools(self) -> list[tuple[Tool, bool]]:
        """Return the tools, each with whether it destroys something."""
        return [
            (self.upload_model, False),
            (self.check_model, False),
            (with_submission_fields(self.run_simulation), False),
            (self.compare_models, False),
            (self.retry_simulation, False),
            (self.cancel_simulation, True),
        ]

    async def upload_model(
        self,
        path: Annotated[str, Field(description="A model file, or a folder, on this machine.")],
        name: str | None = None,
    ) -> dict[str, Any]:
        """Upload a model file; nothing is sent if the platform has it."""
        model = await self._client.models.upload(self._model(path), name=name)
        return {"name": model.name, "version": model.version, "format": model.format, "digest": model.digest}

    async def check_model(
        self, model: Annotated[str, Field(description="A file on this machine, or a stored model.")], dataset: str
    ) -> dict[str, Any]:
        """Say whether a model loads and fits a dataset, after a few real steps, before it is simulated."""
        return (await self._client.simulations.check(self._model(model), named(dataset))).raw

    async def run_simulation(
        self,
        model: Annotated[str, Field(description="A file on this machine, or a stored model.")],
        dataset: str,
        scenarios: Annotated[str | None, Field(description="Only these, such as 0-49,60; all if left out.")] = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Simulate a model on a dataset; returns at once. Follow it with wait_for_simulation."""
        simulation = await self._client.submit(self._model(model), named(dataset), scenarios=scenarios, **options)
        return {**brief(simulation), "page": f"{self._client.server.url}/simulations/{simulation.id}"}

    async def compare_models(
        self,
        models: Annotated[list[str], Field(min_length=2, max_length=9, description="Files or stored models.")],
        dataset: str,
        reference: Annotated[str | None, Field(description="One of `models`; the last if left out.")] = None,
        metric: str | None = None,
        kind: Annotated[
            Literal["population", "list", "exact"],
            Field(
                description="population: the scenarios are a sample of all that there could be; list: these, whatever"
                " their seeds; exact: these with these seeds."
            ),
        ] = "population",
        margin: Annotated[
            float | None,
            Field(ge=0, description="Difference, in the metric's unit, that does not matter; 2 % of its range."),
        ] = None,
    ) -> dict[str, Any]:
        """Play models on the same scenarios until it is known whether one is better, or as good. See get_comparison."""
        names = {model: await self._client.models.stored(self._model(model)) for model in models}
        comparison = await self._client.comparisons.create(
            list(names.values()),
            named(dataset),
            reference=names.get(reference, reference) if reference else None,
            metric=metric,
            design=kind,
            margin=margin,
        )
        return {"id": comparison.id, "page": f"{self._client.server.url}/comparisons/{comparison.id}"}

    async def retry_simulation(self, simulation: Id, all_tasks: bool = False) -> dict[str, Any]:
        """Repeat the tasks of a simulation that are not ok, or all, as a new simulation with the same digests."""
        id = await self._client.simulations.find(simulation)
        return brief(await self._client.simulations.retry(id, all_tasks=all_tasks))

    async def cancel_simulation(self, simulation: Id) -> dict[str, Any]:
        """Cancel a simulation; its results so far are kept."""
        id = await self._client.simulations.find(simulation)
        current = await self._client.simulations.get(id)
        return brief(current if current.state in FINAL else await self._client.simulations.cancel(id))
