"""Schemas of looks into tasks that run: queries, the entries of folders, and the records of looks."""

from api.schemas.fields import LARGEST_INTEGER, Open, Strict, Text, Whole
from api.schemas.members import boolean, documents, integer, moment, string
from api.schemas.pages import NumberedPageSchema

#: Most characters of a path, most bytes of one answer, and most seconds that it waits for bytes.
LONGEST_PATH, LARGEST_PIECE, LONGEST_WAIT = 500, 512 << 10, 30
#: A path beneath the task's folders, and one that may be empty.
PATH = r"^[^\x00-\x1f\x7f/]+(/[^\x00-\x1f\x7f/]+)*$"
FOLDER = r"^([^\x00-\x1f\x7f/]+(/[^\x00-\x1f\x7f/]+)*)?$"


class TaskFolderQuery(Strict):
    """A folder of a task."""

    path = Text(
        FOLDER,
        shortest=0,
        longest=LONGEST_PATH,
        load_default="",
        description="Folder, such as `output` or `model/case`; without it, the folders that are shown.",
    )


class TaskFileQuery(Strict):
    """Bytes of a file of a task."""

    path = Text(PATH, longest=LONGEST_PATH, required=True, description="File, such as `logs/0` or `output/energy.csv`.")
    offset = Whole(
        -LARGEST_INTEGER,
        LARGEST_INTEGER,
        text=True,
        load_default=0,
        description="Where the bytes begin; counted from the end if it is negative.",
    )
    length = Whole(1, LARGEST_PIECE, text=True, load_default=LARGEST_PIECE, description="Most bytes that are sent.")
    wait_seconds = Whole(
        0,
        LONGEST_WAIT,
        text=True,
        load_default=0,
        description="Most seconds to wait for bytes, if the file has none from the offset on yet.",
    )


class TaskEntrySchema(Open):
    """A file or a folder of a task."""

    name = string("Name; one that cannot be printed has escapes, and cannot be asked for.")
    kind = string("`other`: a link, a pipe or anything else that is not shown.", enum=["file", "folder", "other"])
    bytes = integer("Bytes at this moment.")
    changed_at = moment("When it was changed last.")


class TaskFolderSchema(Open):
    """The entries of a folder of a task that runs."""

    task = integer("Number of the task, from 0.")
    path = string("The folder; empty: the folders that are shown.")
    entries = documents(TaskEntrySchema, "Its entries by name; of too many those that were changed last.")
    more = boolean("Whether it has more entries than these.")


class PortSchema(Strict):
    """A port of a program to connect to."""

    port = Whole(
        1,
        65535,
        required=True,
        description="Number of the port that the program listens at, at 127.0.0.1 in its sandbox.",
    )


class ConnectionSchema(Open):
    """A connection to a port of a program."""

    id = string("Id of the connection.")
    task = integer("Number of the task, from 0.")
    port = integer("The number of the port.")


class PieceQuerySchema(Strict):
    """A piece of the bytes of a connection."""

    number = Whole(0, LARGEST_INTEGER, text=True, required=True, description="Number of the piece, from 0.")


class PieceSchema(Open):
    """The fate of a piece."""

    accepted = boolean("Whether it is on its way; if not, and the connection is not over, send it again a bit later.")
    over = boolean("Whether the connection is over.")


class TaskLookSchema(Open):
    """Who has looked at what in a task."""

    task = integer("Number of the task, from 0.")
    kind = string(
        "Whether the entries of a folder were listed, bytes of a file read, or a port connected to.",
        enum=["list", "read", "connect"],
    )
    path = string("The folder, the file or the port.")
    looked_by = string("Caller, as of submissions.")
    times = integer("Number of requests.")
    bytes = integer("Bytes of the file that they were sent; of connections, bytes in both directions.")
    first_at = moment("When the first of them was.")
    last_at = moment("When the last of them was.")


class TaskLookPageSchema(NumberedPageSchema):
    """A page of looks."""

    items = documents(TaskLookSchema, "The looks, in the order of their first requests.")
