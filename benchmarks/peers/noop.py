"""The task itself, in a module that workers of any kind can import."""


def noop(task: int) -> int:
    """Do nothing, and say for which task."""
    return task
