# Generated from windtunnel/_async/retention.py by scripts/sync_client.py; change that file.
"""Retention: rules of the project that a client acts in, what they would take, and its bin."""

from collections.abc import Iterator, Mapping, Sequence

from windtunnel._sync.accounts import project_of
from windtunnel._sync.pages import pages
from windtunnel._sync.transport import Transport, path
from windtunnel.record import read
from windtunnel.retention_records import BinItem, RetentionDryRun, RetentionRules


class SyncRetention:
    """Rules by which the project that a client acts in deletes what is old. A rule is a document of the API."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self) -> RetentionRules:
        """Return what the project has decided."""
        return read(RetentionRules, self._transport.json("GET", self._address()))

    def set(self, *, rules: Sequence[Mapping[str, object]] | None = None, bin: bool | None = None) -> RetentionRules:
        """Replace the rules, and whether what people delete goes to the bin; None: as before."""
        before = self.get()
        body = {"rules": before.rules if rules is None else list(rules), "bin": before.bin if bin is None else bin}
        return read(RetentionRules, self._transport.json("PUT", self._address(), json=body))

    def dry_run(self, rules: Sequence[Mapping[str, object]] | None = None) -> RetentionDryRun:
        """Return what rules would take now; None: the project's own."""
        body = {} if rules is None else {"rules": list(rules)}
        return read(RetentionDryRun, self._transport.json("POST", self._address("dry-run"), json=body))

    def _address(self, *more: str) -> str:
        return path("projects", project_of(self._transport), "retention", *more)


class SyncBin:
    """The bin of the project that a client acts in."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None) -> Iterator[BinItem]:
        """Yield what is in the bin, the last deleted first."""
        for document in pages(self._transport, path("bin"), {}, limit):
            yield read(BinItem, document)

    def restore(self, id: str) -> None:
        """Take something back, as it was but for its shares."""
        self._transport.request("POST", path("bin", id, "restore"))

    def empty(self, id: str | None = None) -> None:
        """Delete something for good; None: all that is in the bin."""
        self._transport.request("DELETE", path("bin") if id is None else path("bin", id))
