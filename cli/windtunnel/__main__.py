"""The command line: `windtunnel`, or `python -m windtunnel`."""

import os
import re
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

    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # httpx's own command line, half of its import
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    try:
        code = cli.main(sys.argv[1:] or ["--help"], standalone_mode=False, color=False if plain else None)
    except click.exceptions.Exit as exit:
        code = exit.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        code = 130
    except WindtunnelError as error:
        click.echo(f"Error: {visible(explained(error))}", err=True)
        code = 2
    except SystemExit as exit:
        if not isinstance(exit.__context__, BrokenPipeError):
            raise
        # The reader has enough, such as `head`: click would exit with 1, which says that the model failed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        click.echo(f"Error: {visible(str(error))}", err=True)
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def explained(error: Exception) -> str:
    """Return the text of an error with what to do next: the command that lists what there is, and a description."""
    from windtunnel.errors import Refused

    text = str(error)
    if not isinstance(error, Refused):
        return text
    if error.type in LISTS:  # the platform names the request that lists them
        step = f"`windtunnel {LISTS[error.type]}` lists them."
        text, replaced = re.subn(r"`GET /v1/\w+` lists them\.", step, text)
        if not replaced and text.startswith("There is no"):
            text = f"{text} {step}"
    if error.type == "unknown-model":
        text += " A model file is named by its path, and there is none at this one."
    return f"{text}\nSee {error.about}" if error.about else text


if __name__ == "__main__":
    main()
