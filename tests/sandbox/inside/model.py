"""The attacker: confines and seals itself as a host does, then tries each attack it is told to and says how it went.

Its argument is a JSON object: the import path, the confinement (null: none at all), the names of the attacks (empty:
every one) and the stage they play on.
"""

import importlib
import json
import os
import signal
import sys
from typing import Any

#: What was left lying about comes first, before the attacks leave something themselves.
BOOKS = ("on_resources", "on_files", "on_network", "on_kernel", "on_processes")


def prepare(plan: dict[str, Any]) -> dict[str, Any]:
    """Confine, load the attacks, seal, in the order of a host; and return the attacks by name."""
    sandbox = None
    if plan["confinement"] is not None:
        sandbox = importlib.import_module("sandbox")
        sandbox.confine(sandbox.Confinement(**plan["confinement"]))
    for book in BOOKS:
        importlib.import_module(book)
    attacks: dict[str, Any] = importlib.import_module("registry").ATTACKS
    if sandbox is not None:
        sandbox.seal()
    return attacks


def outcome(attack: Any, stage: dict[str, Any]) -> tuple[str, str]:
    """Try it once: what it returns that is true is what it achieved."""
    try:
        achieved = attack(stage)
    except Exception as error:
        return "contained", f"{type(error).__name__}: {error}"
    return ("escaped", str(achieved)) if achieved else ("contained", "nothing came of it")


def say(*words: str) -> None:
    os.write(1, (json.dumps(words) + "\n").encode())


def main(plan: dict[str, Any]) -> None:
    """Say which attacks are to come, then each one's result: a death between two lines is the next one's."""
    signal.signal(signal.SIGWINCH, signal.SIG_IGN)
    attacks = prepare(plan)
    names = plan["attacks"] or list(attacks)
    say(*names)
    for name in names:
        result, how = outcome(attacks[name], plan["stage"])
        say(name, result, how[:100], attacks[name].__doc__)
        os.closerange(3, 4096)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    sys.path[:0] = given["path"]
    main(given)
