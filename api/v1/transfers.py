"""/v1/transfers: addresses in the object store, for what is large."""

from flask.views import MethodView

from api.blueprint import Blueprint
from api.context import services
from api.schemas.transfers import TransferSchema
from core.services.uploads.transfers import Invitation
from errors import NoDirectTransfer, StoreUnavailable

blueprint = Blueprint(
    "transfers", __name__, url_prefix="/v1/transfers", description="Bytes that go straight to the object store."
)


@blueprint.at("")
class Transfers(MethodView):
    """Addresses to send bytes to."""

    @blueprint.operation(
        "begin_transfer",
        TransferSchema,
        status=201,
        description="Send the bytes there.",
        fails=[NoDirectTransfer, StoreUnavailable],
    )
    def post(self) -> Invitation:
        """Ask for an address to send a large file to

        `PUT` the bytes to `url`, then make a model of them: `POST /v1/models` with `{"transfer": key, "filename":
        "policy.onnx"}`. What nothing was made of for a day is deleted.
        """
        return services().transfers.invite()
