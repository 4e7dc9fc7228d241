"""Model folder: a folder that model servers see read-only from their start; a launch's model is placed in it later.

A model server is confined before its launch is known. The runner makes the model's files appear in the folder as hard
links, so that the files that a node keeps are shared by all runners and cost nothing to place.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable

#: The model's own folder in a model folder.
MODEL = "model"


def create(path: str) -> None:
    """Create an empty model folder, which every user may pass: model servers have users of their own."""
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o755)


def lock(path: str) -> int:
    """Show that a runner uses a model folder, until the returned descriptor is closed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def place(tree: str, path: str) -> str:
    """Link a tree's files into a model folder; return the model's folder. A tree that lies there already stays."""
    target = os.path.join(path, MODEL)
    if os.path.realpath(tree) == os.path.realpath(target):
        return target
    for above, _, files in os.walk(tree):
        folder = os.path.normpath(os.path.join(target, os.path.relpath(above, tree)))
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        for name in files:
            link(os.path.join(above, name), os.path.join(folder, name))
    return target


def remove_abandoned(folders: Iterable[str]) -> None:
    """Remove the model folders that no runner uses."""
    for folder in folders:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def link(source: str, target: str) -> None:
    """Make a file appear at another path; it is copied if the file system has no hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copyfile(source, target)
        os.chmod(target, 0o555)
