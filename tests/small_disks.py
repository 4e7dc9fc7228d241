"""Small disks: file systems of a few megabytes (tmpfs), which tests fill and empty."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SmallDisk:
    """A disk that holds nothing but a folder of a test."""

    folder: Path

    @property
    def _filler(self) -> Path:
        return self.folder / "other-program"

    def fill(self, *, spare: int = 0) -> None:
        """Write until the disk is full, then leave ``spare`` bytes free."""
        with open(self._filler, "wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 20)):
                    pass
            except OSError:
                file.truncate(file.tell() - spare)

    def refuse_writes(self) -> None:
        """Let the disk be read only, as after an error of its file system."""
        subprocess.run(["mount", "-o", "remount,ro", self.folder], check=True)

    def accept_writes(self) -> None:
        """End what ``refuse_writes`` began."""
        subprocess.run(["mount", "-o", "remount,rw", self.folder], check=True)

    def empty(self) -> None:
        """Remove what ``fill`` wrote."""
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a disk of a size as tmpfs understands it (`64m`) at a new folder, until the end."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
