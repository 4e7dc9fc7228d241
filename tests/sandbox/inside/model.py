"""An attacking model: confines and seals itself like a model server, then runs attacks and prints their outcomes.

Its argument is a JSON object: the import path, the confinement (null: unconfined), the names of the attacks (empty:
all attacks) and the attacks' targets.
"""

import importlib
import json
import os
import signal
import sys
from typing import Any

#: Inherited descriptors and environment come first, before attacks open descriptors themselves.
MODULES = ("on_resources", "on_files", "on_network", "on_kernel", "on_processes")


def prepare(plan: dict[str, Any]) -> dict[str, Any]:
    """Confine, load the attacks and seal, in a model server's order; return the attacks by name."""
    sandbox = None
    if plan["confinement"] is not None:
        sandbox = importlib.import_module("sandbox")
        sandbox.confine(sandbox.Confinement(**plan["confinement"]))
    for module in MODULES:
        importlib.import_module(module)
    attacks: dict[str, Any] = importlib.import_module("registry").ATTACKS
    if sandbox is not None and not plan["confinement"].get("hosts"):  # the ranks of a coupled program are not sealed
        sandbox.seal()
    return attacks


def outcome(attack: Any, targets: dict[str, Any]) -> tuple[str, str]:
    """Run an attack once; a true value that it returns describes its success."""
    try:
        achieved = attack(targets)
    except Exception as error:
        return "contained", f"{type(error).__name__}: {error}"
    return ("escaped", str(achieved)) if achieved else ("contained", "nothing came of it")


def write_line(*values: str) -> None:
    os.write(1, (json.dumps(values) + "\n").encode())


def main(plan: dict[str, Any]) -> None:
    """Print the attacks' names, then a line per outcome: the first attack without a line has killed the process."""
    signal.signal(signal.SIGWINCH, signal.SIG_IGN)
    attacks = prepare(plan)
    names = plan["attacks"] or list(attacks)
    write_line(*names)
    for name in names:
        result, how = outcome(attacks[name], plan["targets"])
        write_line(name, result, how[:100], attacks[name].__doc__)
        os.closerange(3, 4096)


if __name__ == "__main__":
    plan = json.loads(sys.argv[1])
    sys.path[:0] = plan["path"]
    main(plan)
