"""Cache service role: configuration and token for this machine, and a check that its port is free."""

import json
import os
import secrets
from dataclasses import replace
from pathlib import Path

from datasets import scs
from datasets.scs import __main__ as service
from datasets.scs.config import Config, load, parse

#: Default configuration, whose token is replaced by one of this machine's own.
LAPTOP = Path(scs.__file__).parent / "laptop.json"


def configure(home: Path, run_dir: Path, port: int, file: str) -> Config:
    """Return the configuration: the operator's file, if there is one, or the default with a generated token."""
    if file:
        return load(Path(file))
    token = {"TokenFile": str(token_file(run_dir)), "Namespace": "laptop"}
    document = json.loads(LAPTOP.read_text()) | {"Reviewer": {"Kind": "static", "Tokens": [token]}}
    return replace(parse(document, base=LAPTOP.parent), directory=home / "scs", port=port)


def token_file(run_dir: Path) -> Path:
    """Return the path of the cache's token file; create the file if it does not exist."""
    path = run_dir / "scs.token"
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with open(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32))  # no newline: some clients would send it as part of the token
    return path


def free(config: Config) -> bool:
    """Tell whether the configured port is free."""
    try:
        service.listen(config.host, config.port, share=False).close()
    except OSError:
        return False
    return True
