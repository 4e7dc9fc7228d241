"""Schemas of problems (RFC 9457)."""

from marshmallow import fields

from api.schemas.fields import Open


class ProblemSchema(Open):
    """A problem (RFC 9457): the error and how to resolve it; some problem types have further members."""

    type = fields.String(required=True, metadata={"description": "Problem type: the address of its description."})
    title = fields.String(required=True, metadata={"description": "Name of the problem type, for display."})
    status = fields.Integer(required=True, metadata={"description": "The HTTP status."})
    detail = fields.String(required=True, metadata={"description": "The error of this request, and how to resolve it."})
    errors = fields.List(fields.String(), metadata={"description": "One line for each field that is not valid."})


class ProblemKindSchema(Open):
    """Description of a problem type, at the address that its `type` names."""

    type = fields.String(required=True, metadata={"description": "Problem type: this address."})
    title = fields.String(required=True, metadata={"description": "Name of the problem type, for display."})
    status = fields.Integer(required=True, metadata={"description": "Its usual HTTP status."})
    detail = fields.String(
        required=True, metadata={"description": "Meaning of the problem type, and how to resolve it."}
    )
