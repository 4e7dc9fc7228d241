"""Schemas of shares: what a project lets another one read."""

from api.schemas.fields import Open
from api.schemas.members import documents, moment, string
from api.schemas.pages import PageSchema
from core.domain.access.shared_kinds import SharedKind


class ShareSchema(Open):
    """A model, a dataset or a simulation that another project may read."""

    owner = string("The project that has it.")
    shared_with = string("The project that may read it.")
    kind = string("What it is.", enum=[kind.value for kind in SharedKind])
    name = string("Its name in the project that has it; of a simulation, its id.")
    version = string("Id of the version that is shared; null: all of the name, or a simulation.", allow_none=True)
    reference = string("How it is named where it may be read.")
    shared_by = string("The user who shares it.")
    created_at = moment("Since when it is shared.")


class SharePageSchema(PageSchema):
    """A page of shares."""

    items = documents(ShareSchema, "The shares, newest first.")
