"""Progress of a run: bars of the upload and of the tasks, on terminals by rich and in notebooks as HTML."""

import sys
from html import escape
from typing import Any

from windtunnel.descriptions import event_text
from windtunnel.figures import size
from windtunnel.records import Event, Simulation


class Bars:
    """Progress of one run. ``show`` None: in notebooks and on terminals."""

    def __init__(self, show: bool | None = None) -> None:
        notebook = _in_notebook()
        wanted = (notebook or sys.stderr.isatty()) if show is None else show
        self._view: _NotebookView | _TerminalView | None = None
        if wanted:
            self._view = _NotebookView() if notebook else _TerminalView()
        self._total = 0

    def __enter__(self) -> "Bars":
        return self

    def __exit__(self, *_: object) -> None:
        if self._view is not None:
            self._view.close()

    def upload(self, sent: int, total: int) -> None:
        """Show the progress of the upload, in bytes."""
        if self._view is not None:
            self._view.show("upload", sent, total, f"{size(sent)} of {size(total)}")

    def begin(self, simulation: Simulation) -> None:
        """Show a simulation that was submitted."""
        self._total = simulation.tasks.total
        if self._view is not None:
            self._view.show("tasks", 0, self._total, simulation.reason or simulation.state)

    def event(self, event: Event) -> None:
        """Show an event of the simulation."""
        if self._view is None:
            return
        if event.type == "progress":
            self._view.show("tasks", event["done"], event["total"], event_text(event))
        elif event.type == "state":
            done = self._total if event["state"] == "succeeded" else None
            self._view.show("tasks", done, self._total, event_text(event))


class _TerminalView:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description:<10}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._progress.start()
        self._bars: dict[str, Any] = {}

    def show(self, name: str, done: int | None, total: int, note: str) -> None:
        from rich.markup import escape as escape_markup

        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=total or 1, note="")
        self._progress.update(self._bars[name], completed=done, total=total or 1, note=escape_markup(note))

    def close(self) -> None:
        self._progress.stop()


class _NotebookView:
    """A display that is replaced as the run goes on; needs no widgets."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._handle = display(HTML(""), display_id=True)
        self._done = 0

    def show(self, name: str, done: int | None, total: int, note: str) -> None:
        self._done = self._done if done is None else done
        bar = f'<progress value="{self._done}" max="{total or 1}" style="width:20em"></progress>'
        self._handle.update(self._html(f"{escape(name)} {bar} {escape(note)}"))

    def close(self) -> None:
        pass


def _in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and hasattr(shell, "kernel")
