"""Schemas of transfers: uploads and downloads that bypass the API."""

from api.schemas.fields import Flag, Open, Strict
from api.schemas.members import moment, string


class TransferSchema(Open):
    """A presigned URL to upload bytes directly to the object store."""

    key = string("Key of the transfer, for `POST /v1/models`.")
    url = string("Presigned URL. Keep it secret: it needs no other credential.")
    method = string("`PUT`, with the bytes as the body.")
    expires_at = moment("When the URL expires; start the PUT before.")


class RedirectQuery(Strict):
    """Delivery of a file."""

    redirect = Flag(
        text=True,
        load_default=False,
        description="Answer 307 with a presigned URL, if the object store supports them, so that the bytes do not pass"
        " through this server. `curl -L` follows it, ranges included.",
    )
