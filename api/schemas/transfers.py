"""Schemas of transfers: uploads and downloads that bypass the API."""

from marshmallow import fields

from api.schemas.fields import Flag, Open, Strict


class TransferSchema(Open):
    """A presigned URL to upload bytes directly to the object store."""

    key = fields.String(required=True, metadata={"description": "Key of the transfer, for `POST /v1/models`."})
    url = fields.String(
        required=True, metadata={"description": "Presigned URL. Keep it secret: it needs no other credential."}
    )
    method = fields.String(required=True, metadata={"description": "`PUT`, with the bytes as the body."})
    expires_at = fields.AwareDateTime(
        required=True, format="iso", metadata={"description": "When the URL expires; start the PUT before."}
    )


class RedirectQuery(Strict):
    """Delivery of a file."""

    redirect = Flag(
        text=True,
        load_default=False,
        metadata={
            "description": "Answer 307 with a presigned URL, if the object store supports them, so that the bytes do "
            "not pass through this server. `curl -L` follows it, ranges included."
        },
    )
