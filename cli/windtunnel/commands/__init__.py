"""Commands of `windtunnel`, a module each, imported when they are called."""

from importlib import import_module

import click

#: Commands in the order of the help: name -> what it does. The module of the same name has the command as `command`.
COMMANDS = {
    "new": "Begin a project: a model in Python, ONNX or C, or a program of MPI; with a test.",
    "check": "Does a model fit a dataset? On this machine, before any upload.",
    "run": "Simulate a model on a dataset and show how it did.",
    "estimate": "Estimate what a simulation will need: tasks, core hours, cost.",
    "simulations": "List, show and delete simulations.",
    "results": "Show or save the results of a simulation.",
    "events": "Follow the events of a simulation.",
    "logs": "Show the logs of models and simulators.",
    "look": "Look into a task of a program while it runs: its folders, growing files and ranks' logs.",
    "forward": "Forward a port of a program that runs, such as TensorBoard's, to this machine.",
    "cancel": "Cancel simulations.",
    "retry": "Repeat the tasks of a simulation that are not ok.",
    "sweep": "Show how a model did with each value of a sweep.",
    "sensitivity": "Show which parameters go with failure, or with a metric.",
    "compare": "Compare two simulations, or models, pair by pair.",
    "pipeline": "Run steps whose outputs are the inputs of the next, and follow them.",
    "gate": "Let a candidate through, or not, by a comparison; for CI.",
    "replay": "Save a task of a simulation as an animation.",
    "models": "List, upload, download and delete models.",
    "datasets": "List and show datasets, their scenarios and files.",
    "runtimes": "List runtimes and the formats of models that they load.",
    "executors": "List and drain the machines and clusters that simulations run on.",
    "mcp": "Serve the platform to a coding agent (Model Context Protocol).",
    "up": "Start a platform on this machine, and serve it until Ctrl-C.",
    "login": "Sign in to a platform, with a token or an invitation.",
    "logout": "Revoke the token of a context, and forget it.",
    "whoami": "Show who you are to the platform, your projects, and what you may do.",
    "projects": "List, create, close and delete projects.",
    "users": "List, invite and remove users.",
    "members": "List, set and remove the members of a project.",
    "services": "Create service accounts of a project.",
    "tokens": "List, create and revoke tokens.",
    "shares": "List, add and remove what projects let each other read.",
    "webhooks": "Send events of the project to an address, signed, and see how that went.",
    "quotas": "Show and set limits of a project, of a user in it, or of every project.",
    "retention": "Show, try and set the rules by which a project deletes what is old.",
    "bin": "List and restore what was deleted, or delete it for good.",
    "audit": "Show who did what to what, from where, and what was refused.",
    "usage": "Show what the project has used, by day, user or label, and what that cost.",
    "context": "Name platforms, and choose the one to talk to.",
    "completion": "Print the completion script of a shell.",
}


class LazyGroup(click.Group):
    """Group whose commands are imported when they are called, so that the help needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"windtunnel.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was named; suggest similar names for an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=3, cutoff=0.7)
            hint = f"Did you mean {' or '.join(near)}?" if near else "`windtunnel --help` lists them."
            ctx.fail(f"There is no command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="windtunnel", message="windtunnel %(version)s")
@click.option("--context", metavar="NAME", help="Context instead of the current one; also after the command.")
@click.option("--url", metavar="URL", help="Address of the platform, instead of a context; also after the command.")
@click.option("--project", metavar="NAME", help="Project to act in, for a user of several; also after the command.")
def cli(context: str | None, url: str | None, project: str | None) -> None:
    """Put your model in the wind tunnel: thousands of simulations of a model, by one command.

    \b
    windtunnel run policy.onnx car_street          # upload, simulate, watch, report
    windtunnel run idm car_street --scenarios 0-49 # a model that the platform has

    The platform is that of WINDTUNNEL_URL, of the current context (`windtunnel login`), or the one of this machine; its
    token is in the context or in WINDTUNNEL_TOKEN. Exit codes: 0; 1 the model failed; 2 it could not be done.
    """
