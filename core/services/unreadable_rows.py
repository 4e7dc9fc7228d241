"""Unreadable rows: a list leaves out the rows with a document that cannot be read, and the log says so once each."""

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Protocol, TypeVar

from common.errors import UnreadableRow

logger = logging.getLogger(__name__)


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_Identified)
T = TypeVar("T")


def readable(rows: Iterable[R], read: Callable[[R], T], what: str) -> list[T]:
    """Return what ``read`` makes of the rows that it can read; ``what``: "{what} {id}" names another in the log."""
    items: list[T] = []
    for row in rows:
        try:
            items.append(read(row))
        except UnreadableRow as error:
            _log(f"{what} {row.id}", error.detail or "")
    return items


@lru_cache(maxsize=1000)  # once each: lists are read again and again
def _log(name: str, problem: str) -> None:
    logger.error("%s is left out: %s", name, problem)
