"""Models whose bytes were sent before: in pieces as an upload, or straight to the object store as a transfer."""

from typing import Any

from api import tus
from api.body import base_name
from api.context import context, services
from core.domain.records import Model


def of_upload(reference: str, filename: str | None = None, **said: Any) -> Model:
    """Make a model of a finished upload, named by its id or address; the upload stays as it is."""
    uploads = services().uploads
    upload = uploads.hold(tus.upload_id(reference))
    try:
        filename = base_name(filename or tus.metadata(upload.metadata).get("filename"))
        return services().models.add(uploads.content(upload.id), filename=filename, **said)
    finally:
        uploads.let_go(upload.id)


def of_transfer(key: str, filename: str | None = None, **said: Any) -> Model:
    """Make a model of what was transferred; that is gone afterwards."""
    transfers = services().transfers
    model = services().models.add(transfers.content(key, context().max_upload), filename=base_name(filename), **said)
    transfers.forget(key)
    return model
