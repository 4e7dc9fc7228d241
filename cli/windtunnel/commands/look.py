"""`windtunnel look`: the folders, growing files and ranks' logs of a task of a program while it runs."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from windtunnel import output as outputs
from windtunnel.commands.options import output_option, simulation_ids, with_client
from windtunnel.figures import age, size
from windtunnel.look_records import TaskEntry, TaskLook
from windtunnel.record import read
from windtunnel.visible_text import visible

if TYPE_CHECKING:
    from windtunnel import Client

#: Bytes of the end of a file that `--follow` begins with.
TAIL = 10_000


class _FolderEntries(msgspec.Struct):
    """A folder, of which each entry stays the document that it is."""

    entries: list[dict[str, object]]


def _entry(document: outputs.Document) -> TaskEntry:
    return read(TaskEntry, dict(document))


def _name(document: outputs.Document) -> str:
    entry = _entry(document)
    return f"{entry.name}/" if entry.kind == "folder" else entry.name


def _size(document: outputs.Document) -> str:
    entry = _entry(document)
    return size(entry.bytes) if entry.kind == "file" else ""


COLUMNS: Sequence[outputs.Column] = (
    ("name", _name),
    ("size", _size),
    ("changed", lambda document: f"{age(_entry(document).changed_at)} ago"),
    ("", lambda document: "is not shown" if _entry(document).kind == "other" else ""),
)
RECORDS: Sequence[outputs.Column] = (
    ("task", "task"),
    ("kind", "kind"),
    ("path", "path"),
    ("by", "looked_by"),
    ("times", "times"),
    ("bytes", "bytes"),
    ("last", lambda document: f"{age(read(TaskLook, dict(document)).last_at)} ago"),
)


@click.command()
@click.argument("id", shell_complete=simulation_ids)
@click.argument("task", type=click.IntRange(0), default=0)
@click.argument("path", default="")
@click.option("-f", "--follow", is_flag=True, help="The end of a file, and what is added until the task ends.")
@click.option("--records", is_flag=True, help="Who has looked at what in this simulation, instead.")
@output_option()
@with_client
def command(client: "Client", id: str, task: int, path: str, follow: bool, records: bool, output: str) -> None:
    """Look into a TASK of a program (by default the first) while it runs.

    Without PATH: its folders. PATH is a folder (`output`, `model`, `checkpoints`, `logs`), or a file in one, which is
    printed: `logs/0` has what rank 0 prints. The operator allows it, and each look is recorded.
    """
    id = client.simulations.find(id)
    path = path.strip("/")
    if records:
        outputs.show_list([look.raw for look in client.looks.records(id)], RECORDS, output, name="path")
    elif path and (follow or _is_file(client, id, task, path)):
        _print(client, id, task, path, follow=follow)
    else:
        folder = client.looks.list(id, task, path)
        outputs.show_list(msgspec.convert(folder.raw, _FolderEntries).entries, COLUMNS, output, name="name")
        if folder.more:
            click.echo("There are more; these were changed last.", err=True)


def _is_file(client: "Client", id: str, task: int, path: str) -> bool:
    """Return whether a path is one of a file, by the folder that it is in; what is not there is taken for a file."""
    folder, _, name = path.rpartition("/")
    if not folder:
        return False
    kinds = {entry.name: entry.kind for entry in client.looks.list(id, task, folder).entries}
    return kinds.get(name) != "folder"


def _print(client: "Client", id: str, task: int, path: str, *, follow: bool) -> None:
    """Print a file: to a terminal with escapes for control characters, else as it is."""
    begun = b""
    for piece in client.looks.pieces(id, task, path, offset=-TAIL if follow else 0, follow=follow):
        if not sys.stdout.isatty():
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            continue
        *lines, begun = (begun + piece).split(b"\n")
        for line in lines:
            click.echo(visible(line.decode(errors="replace")))
    if begun:
        click.echo(visible(begun.decode(errors="replace")))
