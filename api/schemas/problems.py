"""A problem, as RFC 9457 has it."""

from marshmallow import fields

from api.schemas.fields import Open


class ProblemSchema(Open):
    """What is wrong and what to do about it; some problems carry further members."""

    type = fields.String(required=True, metadata={"description": "Names the kind of problem, and links to its page."})
    title = fields.String(required=True, metadata={"description": "The kind of problem in words."})
    status = fields.Integer(required=True, metadata={"description": "The HTTP status."})
    detail = fields.String(required=True, metadata={"description": "What is wrong here, and what to do."})
    errors = fields.List(fields.String(), metadata={"description": "Each field that does not hold what it should."})


class ProblemKindSchema(Open):
    """A kind of problem: what its `type` links to."""

    type = fields.String(required=True)
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    detail = fields.String(required=True)
