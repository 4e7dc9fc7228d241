"""Pages: where to begin, how much to give, and where the next one is."""

from marshmallow import fields

from api.schemas.fields import REFERENCE, Open, Strict, Text, Whole


class PageQuery(Strict):
    """Which part of a list is meant."""

    after = Text(REFERENCE, metadata={"description": "Begin behind this one: the `next` of the page before."})
    limit = Whole(1, 200, text=True, load_default=50, metadata={"description": "At most this many."})


class NumberedPageQuery(Strict):
    """Which part of a numbered list is meant."""

    after = Whole(0, text=True, load_default=0, metadata={"description": "The `next` of the page before."})
    limit = Whole(1, 1000, text=True, load_default=100, metadata={"description": "At most this many."})


class PageSchema(Open):
    """A part of a list."""

    next = fields.String(
        required=True, allow_none=True, metadata={"description": "Give this as `after` to go on; null at the end."}
    )


class NumberedPageSchema(Open):
    """A part of a numbered list."""

    next = fields.Integer(
        required=True, allow_none=True, metadata={"description": "Give this as `after` to go on; null at the end."}
    )
