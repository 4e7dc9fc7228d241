"""Task page: four numbers that a runner shares with its evaluator, which reads the stop task and writes the others."""

import mmap
import os

#: What each number is: the task whose world works, the task to stop before, the first task without a result, and how
#: many tasks are played side by side.
TASK, STOP, FIRST_TASK, WORLDS = range(4)
SIZE = 8 * 4
#: The most tasks that are played side by side.
MOST_WORLDS = 64


class SharedPage:
    """The page as its runner has it; -1 is a task before there is one."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("page", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, SIZE)
        self._map = mmap.mmap(self.descriptor, SIZE)
        self._cells = memoryview(self._map).cast("q")  # aligned 64-bit words: reads are never torn
        self._cells[TASK] = self._cells[FIRST_TASK] = -1

    @property
    def task(self) -> int:
        """The task whose world works."""
        return self._cells[TASK]

    @property
    def first(self) -> int:
        """The first task without a result."""
        return self._cells[FIRST_TASK]

    @property
    def worlds(self) -> int:
        """How many tasks are played side by side."""
        return max(1, min(self._cells[WORLDS], MOST_WORLDS))

    @property
    def stop(self) -> int:
        """The task to stop before; lowered when another worker stole the rest of the range."""
        return self._cells[STOP]

    @stop.setter
    def stop(self, task: int) -> None:
        self._cells[STOP] = task

    def close(self) -> None:
        """Unmap the page and close its descriptor."""
        self._cells.release()
        self._map.close()
        os.close(self.descriptor)


def map_page(descriptor: int) -> memoryview:
    """Return the numbers as the evaluator has them."""
    return memoryview(mmap.mmap(descriptor, SIZE)).cast("q")
