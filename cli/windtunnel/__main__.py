"""The command line: `windtunnel`, or `python -m windtunnel`."""

import os
import sys

#: Command that lists what a problem says is unknown, by the problem's type.
LISTS = {
    "unknown-dataset": "datasets",
    "unknown-model": "models",
    "unknown-runtime": "runtimes",
    "unknown-executor": "executors",
}


def main() -> None:
    """Run the command line. Exit codes: 0; 1 the model failed; 2 it could not be done; 130 after Ctrl-C."""
    import click

    from windtunnel.commands import cli
    from windtunnel.errors import WindtunnelError
    from windtunnel.visible_text import visible

    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as exit:
        code = exit.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        code = 130
    except WindtunnelError as error:
        click.echo(f"Error: {visible(str(error))}", err=True)
        for line in next_steps(error):
            click.echo(line, err=True)
        code = 2
    except BrokenPipeError:  # the reader has enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        click.echo(f"Error: {visible(str(error))}", err=True)
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def next_steps(error: Exception) -> list[str]:
    """Return a line for each thing to do after a refusal: the command that lists what there is, and its description."""
    from windtunnel.errors import Refused

    if not isinstance(error, Refused):
        return []
    lists = f"`windtunnel {LISTS[error.type]}` lists them." if error.type in LISTS else ""
    return [line for line in (lists, f"See {error.about}" if error.about else "") if line]


if __name__ == "__main__":
    main()
