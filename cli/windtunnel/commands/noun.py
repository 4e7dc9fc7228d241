"""Group of the commands of a noun; without a command it lists: `windtunnel models` is `windtunnel models list`."""

import re

import click


class NounGroup(click.Group):
    """Group whose command `list` is called when none is named; its help has the first sentence of each command."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, with whole sentences."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, _first_sentence(self.commands[name].help or "")) for name in self.list_commands(ctx)]
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list` where no command is named."""
        if not args or (args[0].startswith("-") and args[0] not in {"-h", "--help"}):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was named; list all for an unknown one."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            known = ", ".join(self.commands)
            ctx.fail(f"There is no command {args[0]!r} of `{ctx.command_path}`; there are: {known}.")
        return super().resolve_command(ctx, args)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0]
