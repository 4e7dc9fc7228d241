"""Server of the Model Context Protocol: the platform's verbs as tools of a coding agent, read-only unless allowed.

https://modelcontextprotocol.io; the package `mcp` speaks the protocol. Documents are shortened to what an agent can
use: the context of a language model is small, and the whole is one more call away.
"""

import asyncio
import functools
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field, ValidationError

from windtunnel import AsyncClient, WindtunnelError
from windtunnel.records import FINAL, Simulation
from windtunnel.visible_text import visible

INSTRUCTIONS = """\
Windtunnel simulates a model (a controller, a policy, a neural network) in many scenarios of a dataset and scores it.
Begin with list_datasets and get_dataset, which has the observations and actions of a model, its metrics and their
units. A simulation is named by its id, by the first letters of it, or as `last`, the newest one: after a
comparison, that of any of its models.
"""
CHANGES = """\
run_simulation uploads a model file and simulates it; read its state with wait_for_simulation. worst_tasks says where a
model fails, compare_models whether one is better than another, with a bounded error rate.
"""
READ_ONLY = (
    "This server is read-only: it was started without --allow-changes, so it submits, cancels and uploads nothing.\n"
)
#: Most items that a tool returns, and most characters of a log.
MOST_ITEMS, MOST_CHARACTERS = 100, 20_000

#: Names of datasets, with a version or a tag, and ids of comparisons, or their first letters.
DATASET, COMPARISON = (
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(@[A-Za-z0-9._-]{1,99})?"),
    re.compile(r"[0-9A-Za-z]{1,26}"),
)
#: How the client and the platform name the ways to a list, whose tools here are named after them.
LISTS = re.compile(r"`(?:GET /v1/(\w+)|windtunnel (\w+) list)` lists them")

Id = Annotated[str, Field(description="Id of a simulation, its first letters, or `last`.")]
Limit = Annotated[int, Field(ge=1, le=MOST_ITEMS, description="Most items.")]
Tool = Callable[..., Awaitable[Any]]


class Server(MCPServer[Any]):
    """A server that answers wrong arguments with a sentence."""

    async def call_tool(self, name: str, *rest: Any, **options: Any) -> Any:
        """Call a tool."""
        try:
            return await super().call_tool(name, *rest, **options)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            faults = [
                f"{'.'.join(map(str, fault['loc']))}: {fault['msg'][:1].lower()}{fault['msg'][1:]}"
                for fault in error.__cause__.errors()
            ]
            raise ToolError(visible(f"The arguments of {name} are not valid: {'; '.join(faults)}.")) from None


def server(client: AsyncClient, *, changes: bool, folder: Path) -> MCPServer[Any]:
    """Return a server with the tools of a platform; with ``changes`` also those that change something.

    ``folder``: the files that tools read are in it.
    """
    made = Server(
        "windtunnel",
        title="Windtunnel",
        instructions=INSTRUCTIONS + (CHANGES if changes else READ_ONLY),
        log_level="WARNING",
    )
    reading, changing = Reading(client), Changing(client, folder.resolve())
    for tool in reading.tools():
        made.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))(answering(tool))
    for tool, destructive in changing.tools() if changes else ():
        annotations = ToolAnnotations(read_only_hint=False, destructive_hint=destructive, open_world_hint=False)
        made.tool(annotations=annotations)(answering(tool))
    return made


def answering(tool: Tool) -> Tool:
    """Return a tool whose errors tell the agent what to do next."""

    @functools.wraps(tool)
    async def answer(*args: Any, **options: Any) -> Any:
        try:
            return await tool(*args, **options)
        except (WindtunnelError, OSError) as error:
            raise ToolError(LISTS.sub(lambda match: f"list_{match[1] or match[2]} lists them", str(error))) from None

    return answer


def named(dataset: str) -> str:
    """Return the name of a dataset; raise WindtunnelError for what cannot be one, which no address could have."""
    if not DATASET.fullmatch(dataset):
        raise WindtunnelError(f"There is no dataset {visible(repr(dataset))[:200]}. list_datasets lists them.")
    return dataset


def brief(simulation: Simulation) -> dict[str, Any]:
    """Return what a list says of a simulation."""
    return {
        "id": simulation.id,
        "state": simulation.state,
        "reason": simulation.reason,
        "model": simulation.model.name,
        "dataset": f"{simulation.dataset.name}@{simulation.dataset.version}",
        "tasks": {
            "total": simulation.tasks.total,
            "done": simulation.tasks.done,
            "not_ok": simulation.tasks.failed,
        },
        "score": simulation.score.mean if simulation.score else None,
        "labels": simulation.labels,
    }


def detailed(simulation: Simulation) -> dict[str, Any]:
    """Return a simulation with the means of its metrics and their 95 % intervals."""
    metrics = {
        name: {"mean": metric.mean, "low": metric.low, "high": metric.high, "min": metric.min, "max": metric.max}
        for name, metric in simulation.metrics.items()
    }
    return {**brief(simulation), "seconds_remaining": simulation.eta, "metrics": metrics}


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
        """Describe a simulation: state, progress, the mean of every metric with its 95 % interval."""
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
        sort: Annotated[str | None, Field(description="A column: metrics.score, or -metrics.score.")] = None,
        limit: Limit = 20,
    ) -> list[dict[str, Any]]:
        """Read results of a simulation, one for each task: scenario, metrics, error."""
        id = await self._client.simulations.find(simulation)
        statuses = [status] if status else []
        results = self._client.simulations.results(id, statuses=statuses, sort=sort, limit=limit)
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
        document: dict[str, Any] = await self._client.get(f"/v1/simulations/{id}/sensitivity", metric=metric)
        for parameter in document.get("parameters", document.get("items", [])):
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

    async def compare_simulations(self, first: Id, second: Id, metric: str | None = None) -> dict[str, Any]:
        """Compare two simulations of the same scenarios, pair by pair: the verdict, and where they differ most."""
        ids = [await self._client.simulations.find(simulation) for simulation in (first, second)]
        document = await self._client.simulations.compare(*ids, metric=metric)
        regressed = {
            grouping: [group for group in groups if group.get("verdict") in {"regressed", "suspect", "improved"}]
            for grouping, groups in (document.get("groups") or {}).items()
        }
        members = ("models", "verdict", "metrics", "unpaired", "scenarios")
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
        """Describe a comparison of models: state, and for each model the verdict, and where it is better or worse."""
        id = await self._comparison(comparison)
        try:
            async with asyncio.timeout(seconds):
                found = await self._client.comparisons.wait(id)
        except TimeoutError:
            found = await self._client.comparisons.get(id)
        members = ("name", "state", "reason", "played", "verdict", "scenarios")
        models = [{name: model.get(name) for name in members} for model in found.raw["models"]]
        page = f"{self._client.server.url}/comparisons/{found.id}"
        return {"id": found.id, "state": found.state, "reason": found.reason, "models": models, "page": page}

    async def _comparison(self, reference: str) -> str:
        """Return the id of a comparison: of the newest one for `last`, or of the only one whose id begins so."""
        unknown = WindtunnelError(
            f"There is no comparison {visible(repr(reference))[:200]}. list_comparisons lists them."
        )
        if not COMPARISON.fullmatch(reference):
            raise unknown
        start = "" if reference == "last" else reference.lower()
        if len(start) == 26:
            return start
        listed = self._client.comparisons.list(limit=200 if start else 1)
        found = [comparison.id async for comparison in listed if comparison.id.startswith(start)]
        if not found:
            raise unknown
        if len(found) > 1:
            raise WindtunnelError(f"{len(found)} comparisons begin with {reference!r}. Write more of the id.")
        return found[0]


class Changing:
    """Tools that submit, upload, cancel or repeat. ``folder``: files outside of it are not read, whoever names them.

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
            (self.run_simulation, False),
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
        params: Annotated[dict[str, Any] | None, Field(description="Parameters of the dataset.")] = None,
        sweep: Annotated[
            dict[str, list[Any]] | None, Field(description="Every combination of these values is simulated.")
        ] = None,
        repeat: int | None = None,
        seed: int | None = None,
        labels: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Simulate a model on a dataset; returns at once. Follow it with wait_for_simulation."""
        simulation = await self._client.submit(
            self._model(model),
            named(dataset),
            scenarios=scenarios,
            params=params,
            sweep=sweep,
            repeat=repeat,
            seed=seed,
            labels=labels,
        )
        return {**brief(simulation), "page": f"{self._client.server.url}/simulations/{simulation.id}"}

    async def compare_models(
        self,
        models: Annotated[list[str], Field(min_length=2, max_length=9, description="Files or stored models.")],
        dataset: str,
        reference: Annotated[str | None, Field(description="One of `models`; the last if left out.")] = None,
        metric: str | None = None,
        kind: Annotated[
            Literal["list", "population"],
            Field(description="list: about these scenarios; population: they are a sample of all that there could be."),
        ] = "list",
    ) -> dict[str, Any]:
        """Play models on the same scenarios until it is known which is better. Read it with get_comparison."""
        names = {model: await self._client.models.stored(self._model(model)) for model in models}
        comparison = await self._client.comparisons.create(
            list(names.values()),
            named(dataset),
            reference=names.get(reference, reference) if reference else None,
            metric=metric,
            design=kind,
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
