"""Models whose bytes were sent before: as a resumable upload, or as a transfer directly to the object store."""

from typing import Any

from api import tus
from api.body import base_name
from api.context import caller
from api.context import file_services as services
from core.domain.submissions.records import Model


def of_upload(reference: str, filename: str | None = None, **options: Any) -> Model:
    """Create a model from a finished upload, named by its id or address; the upload is kept."""
    uploads = services().uploads
    upload = uploads.hold(caller(), tus.upload_id(reference))
    try:
        services().models.check_size(upload.offset)  # before its bytes are read
        filename = base_name(filename or tus.metadata(upload.metadata).get("filename"))
        return services().models.add(caller(), uploads.content(caller(), upload.id), filename=filename, **options)
    finally:
        uploads.let_go(caller(), upload.id)


def of_transfer(key: str, filename: str | None = None, **options: Any) -> Model:
    """Create a model from a transfer; the transfer is deleted."""
    transfers, models = services().transfers, services().models
    scope = caller().scope
    model = models.add(caller(), transfers.content(scope, key, models.largest), filename=base_name(filename), **options)
    transfers.delete(scope, key)
    return model
