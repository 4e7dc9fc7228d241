"""Program files: the files of a registered dataset on a machine, as the tasks of a program find them."""

import os
import shutil
from pathlib import Path

#: Their folder in that of the dataset (scenario_folder.py).
FILES = "files"


def add_files(tree: Path, folder: Path) -> None:
    """Make the files of a version appear in the folder of its dataset, as hard links, or copies where none can be."""
    for above, folders, names in os.walk(tree):
        target = folder / FILES / os.path.relpath(above, tree)
        target.mkdir(exist_ok=True)
        target.chmod(0o755)  # a sandbox has a user of its own
        folders.sort()
        for name in names:
            source = os.path.join(above, name)
            try:
                os.link(source, target / name)
            except OSError:
                shutil.copyfile(source, target / name)
            (target / name).chmod(0o444)


def files_of(plays: Path, name: str) -> Path | None:
    """Return the folder of the files of a dataset, by the name of its folder; None: it is not there."""
    folder = plays / name / FILES
    return folder if folder.is_dir() else None
