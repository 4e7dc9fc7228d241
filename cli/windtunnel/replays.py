"""Replay of a task: an animated SVG that notebooks show and files keep."""

from dataclasses import dataclass, field
from html import escape
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Replay:
    """The last seconds of a task as an animation."""

    simulation: str
    task: int
    svg: str = field(repr=False)

    def save(self, target: str | Path) -> Path:
        """Write the animation to a file, which browsers play."""
        file = Path(target)
        file.write_text(self.svg, encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        # In a frame of its own without rights: identifiers of two animations in a page do not meet.
        return (
            f'<iframe sandbox srcdoc="{escape(self.svg)}" style="width:100%;height:480px;border:0"'
            f' title="task {self.task} of {escape(self.simulation)}"></iframe>'
        )
