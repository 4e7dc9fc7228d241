# Generated from windtunnel/_async/client.py by scripts/sync_client.py; change that file.
"""The client: one platform, with its simulations, models, datasets, comparisons, runtimes, executors and accounts."""

import os
from collections.abc import Callable
from typing import Any, Unpack

from windtunnel import contexts
from windtunnel._sync.accounts import Members, Projects, Services, Tokens, Users
from windtunnel._sync.audit import Audit
from windtunnel._sync.comparisons import Comparisons
from windtunnel._sync.datasets import Datasets
from windtunnel._sync.looks import Looks
from windtunnel._sync.models import Models
from windtunnel._sync.pipelines import Pipelines
from windtunnel._sync.quotas import SyncQuotas
from windtunnel._sync.retention import SyncBin, SyncRetention
from windtunnel._sync.shares import SyncShares
from windtunnel._sync.simulations import Simulations
from windtunnel._sync.transport import Transport, path
from windtunnel._sync.uploads import Progress, Uploads
from windtunnel._sync.usage import SyncUsage
from windtunnel._sync.webhooks import Webhooks
from windtunnel.account_records import ClientIdentity
from windtunnel.progress import Bars
from windtunnel.records import Executor, Runtime, Simulation, read
from windtunnel.submissions import Options
from windtunnel.upload_records import UploadRecords


class Client:
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
        self._transport = Transport(self.server, patience=patience, timeout=timeout, on_wait=on_wait)
        records = UploadRecords(contexts.state_folder() / "uploads.json")
        uploads = Uploads(self._transport, records)
        self.models = Models(self._transport, uploads)
        self.simulations = Simulations(self._transport, self.models)
        self.looks = Looks(self._transport)
        self.datasets = Datasets(self._transport, uploads)
        self.comparisons = Comparisons(self._transport, self.models)
        self.pipelines = Pipelines(self._transport, self.models)
        self.projects = Projects(self._transport)
        self.users = Users(self._transport)
        self.members = Members(self._transport)
        self.services = Services(self._transport)
        self.tokens = Tokens(self._transport)
        self.quotas = SyncQuotas(self._transport)
        self.shares = SyncShares(self._transport)
        self.retention = SyncRetention(self._transport)
        self.bin = SyncBin(self._transport)
        self.audit = Audit(self._transport)
        self.usage = SyncUsage(self._transport)
        self.webhooks = Webhooks(self._transport)

    def __repr__(self) -> str:
        return f"Client({self.server.url!r})"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def run(
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
            simulation = self.submit(model, dataset, progress=bars.upload, **options)
            bars.begin(simulation)
            return self.simulations.wait(simulation.id, bars.event)

    def submit(
        self,
        model: str | os.PathLike[str] | None,
        dataset: str,
        *,
        progress: Progress | None = None,
        **options: Unpack[Options],
    ) -> Simulation:
        """Submit a simulation and return it at once, as ``simulations.submit``."""
        return self.simulations.submit(model, dataset, progress=progress, **options)

    def runtimes(self) -> list[Runtime]:
        """Return the runtimes, with the formats of models that they load."""
        document = self._transport.json("GET", path("runtimes"))
        return [read(Runtime, item) for item in document["items"]]

    def runtime(self, name: str) -> Runtime:
        """Return a runtime."""
        return read(Runtime, self._transport.json("GET", path("runtimes", name)))

    def executors(self) -> list[Executor]:
        """Return the executors: machines and clusters that simulations run on."""
        document = self._transport.json("GET", path("executors"))
        return [read(Executor, item) for item in document["items"]]

    def drain_executor(self, name: str, reason: str | None = None) -> Executor:
        """Give an executor no simulations until ``undrain_executor``, and return it; what it runs goes on."""
        body = {"reason": reason} if reason else None
        address = path("executors", name, "drain")
        return read(Executor, self._transport.json("POST", address, json=body, repeatable=True))

    def undrain_executor(self, name: str) -> Executor:
        """Give a drained executor simulations again, and return it."""
        return read(Executor, self._transport.json("POST", path("executors", name, "undrain"), repeatable=True))

    def whoami(self) -> ClientIdentity:
        """Return who this client is: its user, the projects that it may act in, and what it may do in its own."""
        return read(ClientIdentity, self._transport.json("GET", path("session")))

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON at a path of the API, for what has no method here."""
        return self._transport.json("GET", path, params=params)

    def read(self, path: str, **params: Any) -> bytes:
        """Return the bytes at a path of the API."""
        return (self._transport.request("GET", path, params=params)).content

    def page(self, path: str) -> bytes | None:
        """Return a page of the platform; None if it is still being made (202)."""
        response = self._transport.request("GET", path)
        return None if response.status_code == 202 else response.content
