"""Commits of pages: changes of many simulations in one transaction, because each commit waits for the disk."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from common.errors import PlatformError, StoreUnavailable
from core.store.database import Connection, Database

T = TypeVar("T")
#: Writes the changes of these simulations, and returns the outcome of each.
WritePage = Callable[[Connection, Sequence[str]], Mapping[str, T]]


def commit_page(database: Database, ids: Sequence[str], write: WritePage[T]) -> dict[str, T | PlatformError]:
    """Write the changes of simulations in one transaction; return the outcome of each, or why it was not changed.

    A change that is refused, because another transaction came before it, undoes the transaction: then the simulations
    are written in halves, so that the others cost a few commits. Once the store does not answer, no other is tried.
    """
    # In order of their ids, so that two such transactions wait for each other in one direction only.
    pages = [sorted(ids)] if ids else []
    outcomes: dict[str, T | PlatformError] = {}
    while pages:
        page = pages.pop()
        try:
            outcomes |= database.write(lambda c, page=page: write(c, page))  # type: ignore[misc]
        except StoreUnavailable as outage:
            return outcomes | dict.fromkeys([id for rest in (page, *pages) for id in rest], outage)
        except PlatformError as error:
            if len(page) == 1:
                outcomes[page[0]] = error
            else:
                pages += [page[len(page) // 2 :], page[: len(page) // 2]]
    return outcomes
