"""Route /v1/transfers: presigned URLs for uploads directly to the object store."""

from api.blueprint import Blueprint, Success
from api.context import caller
from api.context import file_services as services
from api.schemas.transfers import TransferSchema
from common.errors import NoDirectTransfer, StoreUnavailable
from core.domain.access.roles import Verb
from core.services.uploads.transfers import PresignedUpload

blueprint = Blueprint(
    "transfers", __name__, url_prefix="/v1/transfers", description="Uploads directly to the object store."
)


@blueprint.operation(
    "POST",
    Success(schema=TransferSchema, status=201, description="The transfer, with its URL."),
    errors=[NoDirectTransfer, StoreUnavailable],
    verb=Verb.UPLOAD,
)
def create_transfer() -> PresignedUpload:
    """Create a transfer: a presigned URL for a large file

    `PUT` the bytes to `url`, then create a model from them: `POST /v1/models` with `{"transfer": key, "filename":
    "policy.onnx"}`. Bytes from which no model was created within a day are deleted.
    """
    return services().transfers.presign(caller().scope)
