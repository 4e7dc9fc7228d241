"""Live view of a simulation on a terminal: a bar of its tasks, and its metrics so far."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from windtunnel import figures
from windtunnel.commands.events import line, told
from windtunnel.records import Event, Metric, Simulation
from windtunnel.visible_text import visible

if TYPE_CHECKING:
    from windtunnel import Client

#: Metrics that are shown; a terminal has few lines.
MOST_METRICS = 8


class LiveView:
    """View of one simulation on stderr: live on a terminal, a line for each change of state elsewhere."""

    def __init__(self, client: "Client", simulation: Simulation, *, show: bool) -> None:
        self._show = show
        self._simulation = simulation
        self._done, self._total, self._failed = 0, simulation.tasks.total, 0
        self._state, self._note = simulation.state, simulation.reason or ""
        self._means: dict[str, Any] = {}
        self._live: Live | None = None
        self._metrics: list[Metric] = []
        self._terminal = show and sys.stderr.isatty()
        if self._terminal:
            dataset = client.datasets.get(f"{simulation.dataset.name}@{simulation.dataset.version}")
            self._metrics = dataset.score_first

    def __enter__(self) -> "LiveView":
        if self._terminal:
            self._live = Live(
                console=Console(stderr=True), refresh_per_second=8, transient=True, get_renderable=self._rendered
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def event(self, event: Event) -> None:
        """Show an event."""
        members = event.raw
        if event.type == "progress":
            self._done, self._total, self._failed = members["done"], members["total"], members["failed"]
            self._means = members.get("metrics") or {}
            self._note = told("progress", members)
        elif event.type == "state":
            self._state, self._note = members["state"], members.get("reason") or ""
        else:
            self._note = told(event.type, members)
        if self._show and not self._terminal and event.type != "progress":
            print(line(event), file=sys.stderr, flush=True)

    def _rendered(self) -> RenderableType:
        simulation = self._simulation
        title = f"{simulation.model.name} on {simulation.dataset.name}"
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(self._total, 1), completed=self._done, width=40)
        head.add_row(f"[bold]{_text(title)}[/]", self._state, bar, figures.percent(self._done, self._total))
        metrics = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("metric", "mean so far", "min", "max", "unit", "better"):
            metrics.add_column(name, justify="right" if name in {"mean so far", "min", "max"} else "left")
        for metric in [metric for metric in self._metrics if metric.name in self._means][:MOST_METRICS]:
            values = self._means[metric.name]
            numbers = (figures.number(values.get(key)) for key in ("mean", "min", "max"))
            metrics.add_row(_text(metric.title or metric.name), *numbers, _text(metric.unit), metric.better or "")
        return Group(head, _text(self._note), metrics if metrics.row_count else "")


def _text(text: str) -> str:
    return escape(visible(text))
