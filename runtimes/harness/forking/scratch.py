"""Scratch folder: what a scenario's process has written there is removed before the next one starts.

The removal assumes nothing of the names and depths that a user's code has chosen, and leaves none of them in the
memory of the zygote, from which the next scenario's process is forked.
"""

import contextlib
import os
import secrets
import shutil
from pathlib import Path

#: The writable folder of a confined process: a mount of its own, not the machine's /tmp.
TMP = Path("/tmp")


class Scratch:
    """The folder that a user's code may write to. Create it before the first process is forked.

    In a sandbox it is /tmp; otherwise it is a folder of the zygote in the machine's temporary folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._confined = folder == TMP
        self._path, self._marker = str(folder), f"{folder}/cleared"
        if self._confined:
            empty(folder)  # libraries may have written there: nothing in it may be the first scenario's to change
            self._size = os.stat(folder).st_size

    def remove_contents(self) -> None:
        """In a scenario's own process, at its end: spare the zygote the fork in `clear`."""
        with contextlib.suppress(Exception):  # the code may have replaced any function
            if self._confined and self._is_dirty():
                empty(self._folder)

    def reset(self) -> None:
        """In a process that serves all scenarios, before each of them: remove what the one before has left."""
        if self._confined:
            if self._is_dirty():
                empty(self._folder)
        elif self._folder.exists():
            shutil.rmtree(self._folder, ignore_errors=True)

    def clear(self) -> None:
        """In the zygote: remove what a scenario has left. Raises OSError if something remains."""
        if not self._confined:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        if self._is_dirty():
            # In a process of its own: the names would stay in freed memory, which the next scenario's process inherits.
            cleaner = os.fork()
            if cleaner == 0:
                with contextlib.suppress(BaseException):
                    empty(self._folder)
                os._exit(0)
            os.waitpid(cleaner, 0)
            if self._is_dirty():
                raise OSError(f"{self._folder} cannot be emptied")
        # The time of the folder's last change is the same whether or not the scenario wrote to it.
        os.mkdir(self._marker)
        os.rmdir(self._marker)

    def _is_dirty(self) -> bool:
        """Tell whether the folder has entries besides mount points: a tmpfs folder's size is that of its entries."""
        return os.stat(self._path).st_size != self._size


def empty(folder: Path) -> None:
    """Remove everything in a folder but mounts.

    Subfolders are moved up before they are removed, so that no depth exceeds a path, a stack or the open descriptors.
    """
    device = os.stat(folder).st_dev
    moved = 0
    deeper = True
    while deeper:
        deeper = False
        for entry in list(os.scandir(folder)):
            if entry.stat(follow_symlinks=False).st_dev != device:
                continue  # a mount point
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):
                    os.rename(inner.path, folder / f"{secrets.token_hex(8)}-{moved}")
                    moved, deeper = moved + 1, True
                else:
                    os.unlink(inner.path)
            os.rmdir(entry.path)
