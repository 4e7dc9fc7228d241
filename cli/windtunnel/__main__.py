"""The command line: `windtunnel`, or `python -m windtunnel`."""

import os
import re
import signal
import sys
import traceback

#: Command that lists what a problem says is unknown, by the problem's type.
LISTS = {
    "unknown-dataset": "datasets",
    "unknown-model": "models",
    "unknown-runtime": "runtimes",
    "unknown-executor": "executors",
}


#: What messages of the platform say about its requests -> the same as a command.
COMMANDS = (
    (r"register it again under the same name: `POST /v1/datasets`", "push it again"),
    (r"`GET /v1/datasets/([^`/]+)/scenarios`", r"`windtunnel datasets scenarios \1`"),
    (
        r"Name one: `Windtunnel-Project: <project>`, or `\?project=`\.",
        "Name one: `--project NAME`, or WINDTUNNEL_PROJECT. `windtunnel whoami` lists yours.",
    ),
    (r"`GET /v1/session` lists", "`windtunnel whoami` lists"),
    (r"`GET /v1/projects/\{project\}/tokens` lists", "`windtunnel tokens` lists"),
    (r"(The project \S+ has no member '[^']*'\.)", r"\1 `windtunnel members` lists them."),
    (
        r"There is no user '([^']*)'\.",
        r"There is no user '\1'. An operator lists them with `windtunnel users`, and adds one with"
        r" `windtunnel users invite NAME`.",
    ),
)
#: Shows the cursor again, which a bar has hidden (DECTCEM).
SHOW_CURSOR = "\x1b[?25h"


def main() -> None:
    """Run the command line. Exit codes: 0; 1 the model failed; 2 it could not be done; 130 after Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: drafts are deleted, terminals restored
    try:
        code = _run()
    except KeyboardInterrupt:  # also while modules are imported
        if sys.stderr is not None:
            sys.stderr.write((SHOW_CURSOR if sys.stderr.isatty() else "") + "Interrupted.\n")
        code = 130
    sys.exit(code)


def _run() -> int:
    import click

    from windtunnel.commands import cli
    from windtunnel.errors import WindtunnelError
    from windtunnel.visible_text import visible

    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # httpx's own command line, half of its import
    if sys.stdout is None:  # closed by the caller (`>&-`)
        sys.stdout = open(os.devnull, "w")
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    try:
        code = cli.main(sys.argv[1:] or ["--help"], standalone_mode=False, color=False if plain else None)
    except click.exceptions.Exit as exit:
        code = exit.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except click.Abort:
        raise KeyboardInterrupt from None
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
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        click.echo(f"Error: {visible(where + (error.strerror or str(error)))}.", err=True)
        code = 2
    except UnicodeEncodeError as error:
        click.echo(f"Error: {visible(str(error.object))} is not UTF-8; write it in UTF-8.", err=True)
        code = 2
    except Exception:
        traceback.print_exc()
        click.echo("Error: this is a defect of windtunnel; please report it with the lines above.", err=True)
        code = 2  # 1 says that the model failed
    return code if isinstance(code, int) else 0


def explained(error: Exception) -> str:
    """Return the text of an error with what to do next: the command that lists what there is, and a description."""
    from windtunnel.errors import Refused

    text = str(error)
    if not isinstance(error, Refused):
        return text
    for request, command in COMMANDS:
        text = re.sub(request, command, text)
    if error.type in LISTS:  # the platform names the request that lists them
        step = f"`windtunnel {LISTS[error.type]}` lists them."
        text, replaced = re.subn(r"`GET /v1/\w+` lists them\.", step, text)
        if not replaced and text.startswith("There is no"):
            text = f"{text} {step}"
    return f"{text}\nSee {error.about}" if error.about else text


if __name__ == "__main__":
    main()
