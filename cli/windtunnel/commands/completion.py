"""`windtunnel completion`: the completion script of a shell."""

import click

#: How each shell loads the script.
INSTALL = {
    "bash": 'eval "$(windtunnel completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(windtunnel completion zsh)"  # in ~/.zshrc, after compinit',
    "fish": "windtunnel completion fish > ~/.config/fish/completions/windtunnel.fish",
}


@click.command(epilog="\b\n" + "\n".join(INSTALL.values()))
@click.argument("shell", type=click.Choice(list(INSTALL)))
def command(shell: str) -> None:
    """Print the completion script of SHELL: commands, options, and the names that the platform has."""
    from click.shell_completion import get_completion_class

    from windtunnel.commands import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "windtunnel", "_WINDTUNNEL_COMPLETE").source())
