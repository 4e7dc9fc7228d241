"""Code folder: where the server's modules are, and how this process and its children find them."""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

#: The modules in a wheel, away from the top level of site-packages: names like `api` and `core` belong to nobody there.
WHEEL = Path(__file__).parent / "src"
#: Folder of the modules: that of the wheel, or a checkout.
CODE = WHEEL if WHEEL.is_dir() else Path(__file__).parents[2]
IN_CHECKOUT = CODE != WHEEL


def activate(environ: MutableMapping[str, str] = os.environ) -> None:
    """Put the code first on this process's path and on its children's, and set the home folder if it is not set.

    Children are started by `python -m`, with the user's working directory: its modules must not take the places of the
    server's (PYTHONSAFEPATH).
    """
    if str(CODE) not in sys.path:
        sys.path.insert(0, str(CODE))
    paths = [str(CODE), *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    environ["PYTHONSAFEPATH"] = "1"
    if not IN_CHECKOUT:
        environ.setdefault("WINDTUNNEL_HOME", str(data_folder(environ)))


def data_folder(environ: MutableMapping[str, str]) -> Path:
    """Return the user's folder for this program's data (XDG Base Directory: a relative value is ignored)."""
    base = Path(environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "share") / "windtunnel"
