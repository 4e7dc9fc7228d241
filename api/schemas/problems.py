"""Schemas of problems (RFC 9457)."""

from marshmallow import fields

from api.schemas.fields import Open
from api.schemas.members import array, integer, string


class ProblemSchema(Open):
    """A problem (RFC 9457): the error and how to resolve it; some problem types have further members."""

    type = string("Problem type: the address of its description.")
    title = string("Name of the problem type, for display.")
    status = integer("The HTTP status.")
    detail = string("The error of this request, and how to resolve it.")
    errors = array(fields.String(), "One line for each field that is not valid.", required=False)


class ProblemKindSchema(Open):
    """Description of a problem type, at the address that its `type` names."""

    type = string("Problem type: this address.")
    title = string("Name of the problem type, for display.")
    status = integer("Its usual HTTP status.")
    detail = string("Meaning of the problem type, and how to resolve it.")
