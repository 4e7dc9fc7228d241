"""Bars of transfers in bytes, on a terminal."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

Advance = Callable[[int, int | None], None]


@contextmanager
def transfer_bar(title: str, *, show: bool = True) -> Iterator[Advance | None]:
    """Yield a function that shows the bytes done and their total; None where the output is not a terminal."""
    with transfer_bars(title, show=show) as (advance,):
        yield advance


@contextmanager
def transfer_bars(*titles: str, show: bool = True) -> Iterator[Sequence[Advance | None]]:
    """Yield such a function for each title; a bar is shown from its first call on."""
    if not show or not sys.stderr.isatty():
        yield [None] * len(titles)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    title_and_bar = (TextColumn("{task.description}"), BarColumn())
    figures = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*title_and_bar, *figures, console=Console(stderr=True), transient=True) as progress:
        bars = [progress.add_task(title, total=None, visible=False) for title in titles]

        def advance(bar: Any, done: int, total: int | None) -> None:
            progress.update(bar, completed=done, total=total, visible=True)

        yield [partial(advance, bar) for bar in bars]
