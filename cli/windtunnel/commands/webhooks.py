"""`windtunnel webhooks`: list, create, test, change and remove webhooks, and show what was delivered to them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import output_option, with_client
from windtunnel.webhook_records import EVENT_TYPES, ProjectWebhook, SentEvent

if TYPE_CHECKING:
    from windtunnel import Client

COLUMNS: Sequence[outputs.RecordColumn[ProjectWebhook]] = (
    ("id", lambda webhook: webhook.id),
    ("state", lambda webhook: webhook.state),
    ("url", lambda webhook: webhook.url),
    ("types", lambda webhook: ", ".join(webhook.types)),
    ("labels", lambda webhook: ", ".join(f"{name}={value}" for name, value in webhook.labels.items())),
    ("delivered", lambda webhook: webhook.delivered),
    ("failed", lambda webhook: webhook.failed),
    ("failing since", lambda webhook: figures.minute(webhook.failing_since)),
    ("reason", lambda webhook: webhook.reason),
)
DELIVERY_COLUMNS: Sequence[outputs.RecordColumn[SentEvent]] = (
    ("id", lambda delivery: delivery.id),
    ("at", lambda delivery: figures.minute(delivery.created_at)),
    ("type", lambda delivery: delivery.type),
    ("subject", lambda delivery: delivery.subject),
    ("state", lambda delivery: delivery.state),
    ("attempts", lambda delivery: delivery.attempts),
    ("status", lambda delivery: delivery.status),
    ("next", lambda delivery: figures.minute(delivery.next_attempt_at)),
    ("error", lambda delivery: delivery.error),
)


class LabelPair(click.ParamType[tuple[str, str]]):
    """Option such as `suite=nightly`, as the name and the value of a label."""

    name = "label"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the name and the value; fail for another text."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not NAME=VALUE.", param, ctx)
        return name, text


@click.group(cls=NounGroup)
def command() -> None:
    """Send events of the project to an address, signed: ends of simulations, verdicts, quotas."""


@command.command("list")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@output_option()
@with_client
def list_(client: "Client", limit: int, output: str) -> None:
    """List webhooks, newest first, and since when each fails."""
    outputs.show_records([*client.webhooks.list(limit=limit)], COLUMNS, output)


@command.command()
@click.argument("address", metavar="URL")
@click.option(
    *("--type", "types"),
    multiple=True,
    required=True,
    type=click.Choice(EVENT_TYPES),
    help="Type of events; may be repeated.",
)
@click.option("--label", "labels", multiple=True, type=LabelPair(), metavar="NAME=VALUE", help="Only with this label.")
@click.option("--description", default="", metavar="TEXT", help="What it is for.")
@output_option()
@with_client
def create(
    client: "Client",
    address: str,
    types: Sequence[str],
    labels: Sequence[tuple[str, str]],
    description: str,
    output: str,
) -> None:
    """Make a webhook, and print its secret, which is done this once; `-o name` prints the secret alone.

    \b
    windtunnel webhooks create https://ci.example.com/hooks/1 --type simulation.failed --type comparison.decided
    """
    _show_secret(client.webhooks.create(address, types, labels=dict(labels), description=description), output)


@command.command()
@click.argument("id")
@output_option()
@with_client
def rotate(client: "Client", id: str, output: str) -> None:
    """Make a new secret, and print it; for a day the one before signs as well."""
    _show_secret(client.webhooks.rotate(id), output)


def _show_secret(webhook: ProjectWebhook, output: str) -> None:
    columns = (*COLUMNS[:5], ("secret", lambda webhook: webhook.secret))
    outputs.show_records([webhook], columns, output, named=True, name="secret")
    if output == "table":
        click.echo("It is shown this once. Receivers check signatures with it (Standard Webhooks).", err=True)


@command.command()
@click.argument("id")
@with_client
def ping(client: "Client", id: str) -> None:
    """Send a test; `windtunnel webhooks deliveries ID` says how it went."""
    click.echo(client.webhooks.ping(id).id)


@command.command()
@click.argument("id")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most this many.")
@output_option()
@with_client
def deliveries(client: "Client", id: str, limit: int, output: str) -> None:
    """List what was sent to a webhook, newest first, and why it failed."""
    outputs.show_records([*client.webhooks.deliveries(id, limit=limit)], DELIVERY_COLUMNS, output)


@command.command()
@click.argument("id")
@click.argument("delivery")
@with_client
def retry(client: "Client", id: str, delivery: str) -> None:
    """Send a delivery again, at once."""
    click.echo(client.webhooks.retry(id, delivery).id)


@command.command()
@click.argument("id")
@with_client
def pause(client: "Client", id: str) -> None:
    """Send nothing to a webhook; no event of that time is kept for it."""
    click.echo(client.webhooks.change(id, state="paused").state)


@command.command()
@click.argument("id")
@with_client
def resume(client: "Client", id: str) -> None:
    """Send events to a webhook again that was paused or disabled."""
    click.echo(client.webhooks.change(id, state="active").state)


@command.command()
@click.argument("id")
@with_client
def remove(client: "Client", id: str) -> None:
    """Delete a webhook; what waits is not sent."""
    client.webhooks.remove(id)
    click.echo(id)
