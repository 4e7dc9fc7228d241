"""Transfers past the API on the wire."""

from marshmallow import fields

from api.schemas.fields import Flag, Open, Strict


class TransferSchema(Open):
    """An address to send bytes to, straight into the object store."""

    key = fields.String(required=True, metadata={"description": "What to call the bytes afterwards."})
    url = fields.String(required=True, metadata={"description": "Where to send them. Whoever has it may: a secret."})
    method = fields.String(required=True, metadata={"description": "How: `PUT`, the bytes as the body."})
    expires_at = fields.AwareDateTime(required=True, format="iso", metadata={"description": "Begin before."})


class RedirectQuery(Strict):
    """How a file is given."""

    redirect = Flag(
        text=True,
        load_default=False,
        metadata={
            "description": "Answer 307 to an address in the object store where it has one, so that the bytes do not "
            "pass through this server. `curl -L` follows it, ranges included."
        },
    )
