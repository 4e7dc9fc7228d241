"""Entry point of the server's roles, one process per role."""

import os
import sys

from core.settings import Settings
from datasets.objectstore import check_url
from server.home import UMASK
from server.roles import ROLES, run_role
from server.whole_platform import run


def main() -> int:
    """Read the settings and run the role that the command line names."""
    os.umask(UMASK)  # every role, and every process that a role starts
    if len(sys.argv) != 2 or sys.argv[1] not in ("run", *ROLES):
        print(f"usage: python -m server {{{'|'.join(('run', *ROLES))}}}", file=sys.stderr)
        return 2
    try:
        settings = Settings.from_env(os.environ)
        check_url(settings.objects)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return run(settings) if sys.argv[1] == "run" else run_role(sys.argv[1], settings)


if __name__ == "__main__":
    sys.exit(main())
