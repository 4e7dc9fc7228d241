"""Pagination: cursor and page size of a request, cursor of the next page in an answer."""

from api.schemas.fields import LARGEST_COUNTED, REFERENCE, Open, Strict, Text, Whole
from api.schemas.members import integer, string


class PageQuery(Strict):
    """Pagination of a list."""

    after = Text(REFERENCE, description="Cursor: the `next` of the previous page.")
    limit = Whole(1, 200, text=True, load_default=50, description="Most items per page.")


class NumberedPageQuery(Strict):
    """Pagination of a numbered list."""

    after = Whole(0, LARGEST_COUNTED, text=True, load_default=0, description="Cursor: the `next` of the previous page.")
    limit = Whole(1, 1000, text=True, load_default=100, description="Most items per page.")


class PageSchema(Open):
    """A page of a list."""

    next = string("Pass as `after` for the next page; null at the end.", allow_none=True)


class NumberedPageSchema(Open):
    """A page of a numbered list."""

    next = integer("Pass as `after` for the next page; null at the end.", allow_none=True)
