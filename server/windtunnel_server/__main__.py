"""Command `windtunnel-server`: the platform on this machine, each of its roles, and the servers beside it."""

from . import code_folder  # in the wheel this package is windtunnel_server, in a checkout server.windtunnel_server


def main() -> None:
    """Run the command line."""
    code_folder.activate()
    from server.local.commands import main

    main()


if __name__ == "__main__":
    main()
