"""The client: one platform, with its simulations, models, datasets, comparisons, runtimes, executors and accounts."""

import os
from collections.abc import Callable
from typing import Any, Unpack

from windtunnel import contexts
from windtunnel._async.accounts import AsyncMembers, AsyncProjects, AsyncServices, AsyncTokens, AsyncUsers
from windtunnel._async.audit import AsyncAudit
from windtunnel._async.comparisons import AsyncComparisons
from windtunnel._async.datasets import AsyncDatasets
from windtunnel._async.looks import AsyncLooks
from windtunnel._async.models import AsyncModels
from windtunnel._async.pipelines import AsyncPipelines
from windtunnel._async.quotas import AsyncQuotas
from windtunnel._async.retention import AsyncBin, AsyncRetention
from windtunnel._async.shares import AsyncShares
from windtunnel._async.simulations import AsyncSimulations
from windtunnel._async.transport import AsyncTransport, path
from windtunnel._async.uploads import AsyncUploads, Progress
from windtunnel._async.usage import AsyncUsage
from windtunnel._async.webhooks import AsyncWebhooks
from windtunnel.account_records import ClientIdentity
from windtunnel.progress import Bars
from windtunnel.records import Executor, Runtime, Simulation, read
from windtunnel.submissions import Options
from windtunnel.upload_records import UploadRecords


class AsyncClient:
    """Client of one platform.

    The address and the token are the arguments, or those of the environment, or of the context (`windtunnel.contexts`).
    ``project``: the one that requests act in, for who is in several; or that of ``WINDTUNNEL_PROJECT`` or of the
    context.
    ``patience``: seconds for which a request is repeated while a platform that had answered does not answer.
    ``timeout``: seconds without a byte after which a connection counts as broken. ``on_wait``: called with a text while
    requests are repeated.

    >>> with Client() as client:
    ...     simulation = client.run("policy.onnx", "car_street")
    ...     frame = client.simulations.results(simulation.id).to_pandas()
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        context: str | None = None,
        project: str | None = None,
        patience: float = 60.0,
        timeout: float = 60.0,
        on_wait: Callable[[str], object] | None = None,
    ) -> None:
        self.server = contexts.server(url, token, context, project=project)
        self._transport = AsyncTransport(self.server, patience=patience, timeout=timeout, on_wait=on_wait)
        records = UploadRecords(contexts.state_folder() / "uploads.json")
        uploads = AsyncUploads(self._transport, records)
        self.models = AsyncModels(self._transport, uploads)
        self.simulations = AsyncSimulations(self._transport, self.models)
        self.looks = AsyncLooks(self._transport)
        self.datasets = AsyncDatasets(self._transport, uploads)
        self.comparisons = AsyncComparisons(self._transport, self.models)
        self.pipelines = AsyncPipelines(self._transport, self.models)
        self.projects = AsyncProjects(self._transport)
        self.users = AsyncUsers(self._transport)
        self.members = AsyncMembers(self._transport)
        self.services = AsyncServices(self._transport)
        self.tokens = AsyncTokens(self._transport)
        self.quotas = AsyncQuotas(self._transport)
        self.shares = AsyncShares(self._transport)
        self.retention = AsyncRetention(self._transport)
        self.bin = AsyncBin(self._transport)
        self.audit = AsyncAudit(self._transport)
        self.usage = AsyncUsage(self._transport)
        self.webhooks = AsyncWebhooks(self._transport)

    def __repr__(self) -> str:
        return f"Client({self.server.url!r})"

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def run(
        self,
        model: str | os.PathLike[str] | None,
        dataset: str,
        *,
        progress: bool | None = None,
        **options: Unpack[Options],
    ) -> Simulation:
        """Submit a simulation, follow it to its end and return it; ``options`` are those of ``simulations.submit``.

        ``progress``: show bars of the upload and of the tasks; by default in notebooks and on terminals.
        """
        with Bars(show=progress) as bars:
            simulation = await self.submit(model, dataset, progress=bars.upload, **options)
            bars.begin(simulation)
            return await self.simulations.wait(simulation.id, bars.event)

    async def submit(
        self,
        model: str | os.PathLike[str] | None,
        dataset: str,
        *,
        progress: Progress | None = None,
        **options: Unpack[Options],
    ) -> Simulation:
        """Submit a simulation and return it at once, as ``simulations.submit``."""
        return await self.simulations.submit(model, dataset, progress=progress, **options)

    async def runtimes(self) -> list[Runtime]:
        """Return the runtimes, with the formats of models that they load."""
        document = await self._transport.json("GET", path("runtimes"))
        return [read(Runtime, item) for item in document["items"]]

    async def runtime(self, name: str) -> Runtime:
        """Return a runtime."""
        return read(Runtime, await self._transport.json("GET", path("runtimes", name)))

    async def executors(self) -> list[Executor]:
        """Return the executors: machines and clusters that simulations run on."""
        document = await self._transport.json("GET", path("executors"))
        return [read(Executor, item) for item in document["items"]]

    async def drain_executor(self, name: str, reason: str | None = None) -> Executor:
        """Give an executor no simulations until ``undrain_executor``, and return it; what it runs goes on."""
        body = {"reason": reason} if reason else None
        address = path("executors", name, "drain")
        return read(Executor, await self._transport.json("POST", address, json=body, repeatable=True))

    async def undrain_executor(self, name: str) -> Executor:
        """Give a drained executor simulations again, and return it."""
        return read(Executor, await self._transport.json("POST", path("executors", name, "undrain"), repeatable=True))

    async def whoami(self) -> ClientIdentity:
        """Return who this client is: its user, the projects that it may act in, and what it may do in its own."""
        return read(ClientIdentity, await self._transport.json("GET", path("session")))

    async def get(self, path: str, **params: Any) -> Any:
        """Return the JSON at a path of the API, for what has no method here."""
        return await self._transport.json("GET", path, params=params)

    async def read(self, path: str, **params: Any) -> bytes:
        """Return the bytes at a path of the API."""
        return (await self._transport.request("GET", path, params=params)).content

    async def page(self, path: str) -> bytes | None:
        """Return a page of the platform; None if it is still being made (202)."""
        response = await self._transport.request("GET", path)
        return None if response.status_code == 202 else response.content
