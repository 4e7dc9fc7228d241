"""The cache service as a role of this machine: its configuration, its token, and whether its port is free."""

import json
import os
import secrets
from dataclasses import replace
from pathlib import Path

from datasets import scs
from datasets.scs import __main__ as service
from datasets.scs.config import Config, load, parse

#: What a laptop's cache is told, but for its token.
LAPTOP = Path(scs.__file__).parent / "laptop.json"


def configure(home: Path, run_dir: Path, port: int, file: str) -> Config:
    """Return what the role is told: all of an operator's file, or a laptop's configuration with a token of its own."""
    if file:
        return load(Path(file))
    known = {"TokenFile": str(token_file(run_dir)), "Namespace": "laptop"}
    document = json.loads(LAPTOP.read_text()) | {"Reviewer": {"Kind": "static", "Tokens": [known]}}
    return replace(parse(document, base=LAPTOP.parent), directory=home / "scs", port=port)


def token_file(run_dir: Path) -> Path:
    """Return the file with the token of this machine's cache, made where there is none yet."""
    path = run_dir / "scs.token"
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with open(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32))  # no line end: some clients would send it along
    return path


def free(config: Config) -> bool:
    """Tell whether the port can be had."""
    try:
        service.listen(config.host, config.port, share=False).close()
    except OSError:
        return False
    return True
