"""Group of the commands of a noun; without a command it lists: `windtunnel models` is `windtunnel models list`."""

import click


class NounGroup(click.Group):
    """Group whose command `list` is called when none is named."""

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
