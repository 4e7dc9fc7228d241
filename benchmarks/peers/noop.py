"""The no-op task, in a module that workers of any kind can import."""


def noop(task: int) -> int:
    """Do nothing and return the task's number."""
    return task
