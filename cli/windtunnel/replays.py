"""Replay of a task: an animated SVG that notebooks show and files keep."""

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from windtunnel import received_files, tables
from windtunnel.errors import WindtunnelError


@dataclass(frozen=True, slots=True)
class Replay:
    """The last seconds of a task as an animation."""

    simulation: str
    task: int
    svg: str = field(repr=False)

    def save(self, target: str | Path | None = None) -> Path:
        """Write the animation to a file, which browsers play: ``SIMULATION-TASK.svg`` if ``target`` is left out.

        Only a file that ``target`` names is replaced. Raise WindtunnelError for the name of another kind of file.
        """
        if target and Path(target).suffix.lower() not in {"", ".svg"}:
            raise WindtunnelError(f"A replay is an SVG, which browsers play: name the file {Path(target).stem}.svg.")
        file = Path(target or received_files.name_of(f"{self.simulation}-{self.task}.svg"))
        content = self.svg.encode()
        if not target and file.is_file() and not file.is_symlink() and file.read_bytes() == content:
            return file
        with tables.draft_of(file, replace=bool(target)) as draft:
            draft.write(content)
        return file

    def _repr_html_(self) -> str:
        # In a frame of its own without rights: identifiers of two animations in a page do not meet.
        return (
            f'<iframe sandbox srcdoc="{escape(self.svg)}" style="width:100%;height:480px;border:0"'
            f' title="task {self.task} of {escape(self.simulation)}"></iframe>'
        )
