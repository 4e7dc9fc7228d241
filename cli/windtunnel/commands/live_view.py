"""Live view of a simulation on a terminal: a bar of its tasks, its answer so far, and its metrics so far."""

import sys
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from windtunnel import figures
from windtunnel.answers import answer_lines
from windtunnel.commands.events import line
from windtunnel.descriptions import event_text
from windtunnel.records import Answer, Dataset, Event, Simulation, read
from windtunnel.visible_text import terminal_text

#: Metrics that are shown; a terminal has few lines.
MOST_METRICS = 8


class LiveView:
    """View of one simulation on stderr: live on a terminal, a line for each change of state elsewhere."""

    def __init__(self, simulation: Simulation, dataset: Dataset | None) -> None:
        """``dataset``: that of the simulation, whose metrics are shown; None: nothing is shown."""
        self._show = dataset is not None
        self._simulation = simulation
        self._done, self._total, self._failed = 0, simulation.tasks.total, 0
        self._state, self._note = simulation.state, simulation.reason or ""
        self._means: dict[str, Any] = {}
        self._answer: list[str] = []
        self._live: Live | None = None
        self._metrics = dataset.score_first if dataset is not None else []
        self._terminal = self._show and sys.stderr.isatty()

    def __enter__(self) -> "LiveView":
        if self._terminal:
            self._live = Live(
                console=Console(stderr=True), refresh_per_second=8, transient=True, get_renderable=self._rendered
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def event(self, event: Event) -> None:
        """Show an event."""
        members = event.raw
        if event.type == "progress":
            self._done, self._total, self._failed = members["done"], members["total"], members["failed"]
            self._means = members.get("metrics") or {}
            self._answer = answer_lines(read(Answer, members["answer"])) if members.get("answer") else []
        if event.type == "state":
            self._state, self._note = members["state"], members.get("reason") or ""
        else:
            self._note = event_text(event)
        if self._show and not self._terminal and event.type != "progress":
            print(line(event), file=sys.stderr, flush=True)

    def _rendered(self) -> RenderableType:
        simulation = self._simulation
        title = f"{simulation.model.name} on {simulation.dataset.name}"
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(self._total, 1), completed=self._done, width=40)
        head.add_row(f"[bold]{terminal_text(title)}[/]", self._state, bar, figures.percent(self._done, self._total))
        metrics = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("metric", "mean of ok tasks", "min", "max", "unit", "better"):
            metrics.add_column(name, justify="right" if name in {"mean of ok tasks", "min", "max"} else "left")
        for metric in [metric for metric in self._metrics if metric.name in self._means][:MOST_METRICS]:
            values = self._means[metric.name]
            numbers = (figures.number(values.get(key)) for key in ("mean", "min", "max"))
            metrics.add_row(
                terminal_text(metric.title or metric.name), *numbers, terminal_text(metric.unit), metric.better or ""
            )
        answer = [terminal_text(line) for line in self._answer]
        return Group(head, terminal_text(self._note), *answer, metrics if metrics.row_count else "")
