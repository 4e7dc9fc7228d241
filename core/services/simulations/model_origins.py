"""Model origins: what a model reference may name here, by the operator's connections, and how it is read."""

from core.domain import model_references
from core.domain.model_references import Address, BucketObject, Reference
from core.services.datasets.file_sources import Sources
from datasets.model_origins.base import OpenedModel
from datasets.model_origins.config import OriginConfig
from datasets.model_origins.web import WebReader
from errors import Invalid


class ModelOrigins:
    """Reads models by reference. ``largest``: most bytes of a model."""

    def __init__(self, sources: Sources, config: OriginConfig, *, largest: int) -> None:
        self._sources = sources
        self._web = WebReader(config.addresses)
        self._largest = largest

    def check(self, text: str, connection: str | None) -> tuple[Reference, str]:
        """Return a reference, and the connection by which it is read; raise Invalid if it may not be read.

        Asks no origin: whether the model exists is found out by the import.
        """
        reference = model_references.parse(text)
        match reference:
            case BucketObject():
                return reference, self._sources.connection(connection, reference.bucket).name
            case Address():
                if connection is not None:
                    raise Invalid("An address has no `connection`: the operator allows it by its origin.")
                self._web.check(reference.url)
                return reference, ""
        raise Invalid(f"References like {text[:80]!r} cannot be read here. There are {model_references.FORMS}.")

    def open(self, text: str, connection: str) -> OpenedModel:
        """Open a model at its origin, as it is now.

        Raise OriginRefused if it is not there or may not be read, OriginFailed while its origin does not answer.
        """
        reference, connection = self.check(text, connection or None)
        match reference:
            case BucketObject():
                return self._object(reference, connection)
            case Address():
                return self._web.open(reference.url)
        raise AssertionError("unreachable")

    def _object(self, reference: BucketObject, connection: str) -> OpenedModel:
        bucket, key = reference.bucket, reference.key
        reader = self._sources.reader(self._sources.connection(connection, bucket))
        found = reader.find(bucket, key)
        resolved = {"uri": f"s3://{bucket}/{key}", "etag": found.etag, "size": found.size}
        chunks = reader.read(bucket, key, found.etag)  # the bytes of this version, also if the download is resumed
        return OpenedModel(filename=reference.name, chunks=chunks, size=found.size, resolved=resolved)
