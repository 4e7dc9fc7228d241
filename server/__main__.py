"""Entry point of the server's roles, one process per role."""

import os
import sys
from collections.abc import Sequence

from core.settings import Settings
from datasets.objectstore import check_url
from server.home import UMASK
from server.roles import ROLES, run_role
from server.whole_platform import run


def main(arguments: Sequence[str]) -> int:
    """Read the settings and run the role that the arguments name."""
    os.umask(UMASK)  # every role, and every process that a role starts
    if len(arguments) != 1 or arguments[0] not in ("run", *ROLES):
        print(f"usage: python -m server {{{'|'.join(('run', *ROLES))}}}", file=sys.stderr)
        return 2
    try:
        settings = Settings.from_env(os.environ)
        check_url(settings.objects)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return run(settings) if arguments[0] == "run" else run_role(arguments[0], settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
