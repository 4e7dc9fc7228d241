"""Tools that change nothing: datasets, models, simulations, results, logs, comparisons."""

import asyncio
from typing import Annotated, Any

from pydantic import Field

from windtunnel import AsyncClient
from windtunnel.mcp_server.documents import Id, Limit, Tool, brief, detailed, named
from windtunnel.short_ids import COMPARISONS, WHOLE_LENGTH

#: Most characters of a log.
MOST_CHARACTERS = 20_000


class Reading:
    """Tools that change nothing."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def tools(self) -> list[Tool]:
        """Return the tools."""
        return [
            self.list_datasets,
            self.get_dataset,
            self.list_scenarios,
            self.list_models,
            self.list_runtimes,
            self.list_executors,
            self.list_simulations,
            self.get_simulation,
            self.wait_for_simulation,
            self.worst_tasks,
            self.read_results,
            self.what_goes_with_failure,
            self.read_logs,
            self.compare_simulations,
            self.list_comparisons,
            self.get_comparison,
        ]

    async def list_datasets(self) -> list[dict[str, Any]]:
        """List the datasets: sets of scenarios on which models are simulated."""
        members = ("name", "version", "state", "title", "tasks", "simulator", "tags")
        return [{name: item.raw.get(name) for name in members} async for item in self._client.datasets.list(limit=200)]

    async def get_dataset(self, dataset: Annotated[str, Field(description="Name, or name@version.")]) -> dict[str, Any]:
        """Describe a dataset: what a model observes and does, the metrics with units, the score, the parameters."""
        document = (await self._client.datasets.get(named(dataset))).raw
        members = ("name", "version", "title", "description", "tasks", "interface", "score", "params", "group_by")
        metrics = [
            {name: metric.get(name) for name in ("name", "title", "unit", "better", "formula")}
            for metric in document.get("metrics", [])
        ]
        return {**{name: document.get(name) for name in members}, "metrics": metrics}

    async def list_scenarios(self, dataset: str, limit: Limit = 20) -> list[dict[str, Any]]:
        """List scenarios of a dataset, in order."""
        return [scenario async for scenario in self._client.datasets.scenarios(named(dataset), limit=limit)]

    async def list_models(self, limit: Limit = 50) -> list[dict[str, Any]]:
        """List the models that the platform has, with their formats."""
        members = ("name", "version", "format", "digest", "size", "baseline")
        return [{name: item.raw.get(name) for name in members} async for item in self._client.models.list(limit=limit)]

    async def list_runtimes(self) -> list[dict[str, Any]]:
        """List the runtimes, and the formats and file suffixes of models that they load."""
        return [
            {
                "name": runtime.name,
                "formats": [
                    {name: format.get(name) for name in ("name", "suffixes", "description")}
                    for format in runtime.formats
                ],
            }
            for runtime in await self._client.runtimes()
        ]

    async def list_executors(self) -> list[dict[str, Any]]:
        """List the machines and clusters that simulations run on, with their workers and health."""
        return [executor.raw for executor in await self._client.executors()]

    async def list_simulations(
        self,
        query: Annotated[
            str | None, Field(description="Words in names or labels, or the first letters of an id.")
        ] = None,
        state: Annotated[str | None, Field(description="queued, running, succeeded, failed, ...")] = None,
        dataset: str | None = None,
        model: str | None = None,
        limit: Limit = 20,
    ) -> list[dict[str, Any]]:
        """List simulations, the newest first."""
        found = self._client.simulations.list(query=query, state=state, dataset=dataset, model=model, limit=limit)
        return [brief(simulation) async for simulation in found]

    async def get_simulation(self, simulation: Id) -> dict[str, Any]:
        """Describe a simulation: state and progress of the run, and how the model did.

        `answer` has the score over all tasks, in which a task that is not ok counts with the worst value, with its 95 %
        interval, and the failures. `metrics` has the mean of every metric over the tasks that are ok.
        """
        return detailed(await self._client.simulations.get(await self._client.simulations.find(simulation)))

    async def wait_for_simulation(
        self,
        simulation: Id,
        seconds: Annotated[float, Field(ge=1, le=300, description="Wait at most this long.")] = 60,
    ) -> dict[str, Any]:
        """Wait until a simulation has ended, or for some seconds, and describe it; call it again while it runs."""
        id = await self._client.simulations.find(simulation)
        try:
            async with asyncio.timeout(seconds):
                return detailed(await self._client.simulations.wait(id))
        except TimeoutError:
            return detailed(await self._client.simulations.get(id))

    async def worst_tasks(
        self,
        simulation: Id,
        limit: Limit = 10,
        groups: Annotated[
            dict[str, str] | None,
            Field(description="Only with these parameters, such as {'street': 'arterial'}."),
        ] = None,
    ) -> list[dict[str, Any]]:
        """List the worst tasks of a simulation: those that are not ok, then those with the worst score."""
        id = await self._client.simulations.find(simulation)
        found = await self._client.simulations.worst(id, limit=limit, groups=groups)
        page = f"{self._client.server.url}/simulations/{id}/tasks"
        return [{**result.raw, "replay": f"{page}/{result.task}"} for result in found]

    async def read_results(
        self,
        simulation: Id,
        status: Annotated[str | None, Field(description="ok, failed, crashed, timed_out or invalid.")] = None,
        sort: Annotated[
            str | None, Field(description="A column or a parameter: metrics.score, -metrics.score, street; or `worst`.")
        ] = None,
        where: Annotated[
            list[str] | None,
            Field(description="Conditions, all of which hold: failed=true, street=arterial, metrics.score<50."),
        ] = None,
        limit: Limit = 20,
    ) -> list[dict[str, Any]]:
        """Read results of a simulation, one for each task: scenario, metrics, error."""
        id = await self._client.simulations.find(simulation)
        statuses = [status] if status else []
        results = self._client.simulations.results(id, statuses=statuses, where=where or (), sort=sort, limit=limit)
        members = ("task", "status", "scenario", "metrics", "error")
        return [{name: result.raw.get(name) for name in members} async for result in results]

    async def what_goes_with_failure(
        self,
        simulation: Id,
        metric: Annotated[str | None, Field(description="A metric instead of failure, such as score.")] = None,
    ) -> dict[str, Any]:
        """Say which parameters of the scenarios go with failure, the strongest first. It proves no cause.

        Failures are the tasks that are not ok, and those that the dataset counts as failed by their outcome, such as a
        collision: there are more of them than `not_ok` of get_simulation.
        """
        id = await self._client.simulations.find(simulation)
        document = await self._client.simulations.sensitivity(id, metric=metric)
        for parameter in document["parameters"]:
            parameter.pop("plot", None)
        return document

    async def read_logs(self, simulation: Id) -> str:
        """Read the end of the logs of models and simulators: what they have printed."""
        id = await self._client.simulations.find(simulation)
        kept: list[str] = []
        size = 0
        async for line in self._client.simulations.logs(id):
            kept.append(line)
            size += len(line) + 1
            while size > MOST_CHARACTERS and len(kept) > 1:
                size -= len(kept.pop(0)) + 1
        text = "\n".join(kept)[-MOST_CHARACTERS:]
        return text if text.strip() else "The log is empty: neither the model nor the simulator has printed anything."

    async def compare_simulations(
        self, first: Id, second: Id, metric: str | None = None, margin: float | None = None
    ) -> dict[str, Any]:
        """Compare two simulations of the same scenarios: the verdict, where they differ most, and what broke.

        `margin`: difference in the unit of the metric that does not matter.
        """
        ids = [await self._client.simulations.find(simulation) for simulation in (first, second)]
        document = await self._client.simulations.compare(*ids, metric=metric, margin=margin)
        regressed = {
            grouping: [group for group in groups if group.get("verdict") in {"regressed", "suspect", "improved"}]
            for grouping, groups in (document.get("groups") or {}).items()
        }
        members = ("models", "verdict", "metrics", "unpaired", "scenarios", "flips")
        return {**{name: document.get(name) for name in members}, "groups": regressed}

    async def list_comparisons(self, limit: Limit = 20) -> list[dict[str, Any]]:
        """List comparisons of models, the newest first."""
        found = self._client.comparisons.list(limit=limit)
        return [
            {
                "id": comparison.id,
                "state": comparison.state,
                "dataset": comparison.dataset.name,
                "reference": comparison.reference.name,
                "models": [
                    {"name": model.name, "verdict": model.verdict.sentence if model.verdict else None}
                    for model in comparison.models
                ],
            }
            async for comparison in found
        ]

    async def get_comparison(
        self,
        comparison: Annotated[str, Field(description="Id of a comparison, its first letters, or `last`.")],
        seconds: Annotated[float, Field(ge=0, le=300, description="Wait for its end, at most this long.")] = 0,
    ) -> dict[str, Any]:
        """Describe a comparison of models: state, and for each model the verdict, and where it is better."""
        id = await self._comparison(comparison)
        try:
            async with asyncio.timeout(seconds):
                found = await self._client.comparisons.wait(id)
        except TimeoutError:
            found = await self._client.comparisons.get(id)
        members = ("name", "state", "reason", "played", "verdict", "scenarios", "flips")
        models = [{name: model.get(name) for name in members} for model in found.raw["models"]]
        page = f"{self._client.server.url}/comparisons/{found.id}"
        return {"id": found.id, "state": found.state, "reason": found.reason, "models": models, "page": page}

    async def _comparison(self, reference: str) -> str:
        """Return the id of a comparison: of the newest one for `last`, or of the only one whose id begins so."""
        beginning = COMPARISONS.beginning(reference)
        if len(beginning) == WHOLE_LENGTH:
            return beginning
        listed = self._client.comparisons.list(limit=200 if beginning else 1)
        return COMPARISONS.only(beginning, [comparison.id async for comparison in listed])
