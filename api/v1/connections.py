"""Routes /v1/simulations/{id}/connections: connections to ports of programs that run, in numbered pieces of bytes."""

import msgspec
from flask import Response

from api.blueprint import BINARY, Blueprint, Success, header
from api.body import json_body, raw_body, validated
from api.context import caller
from api.context import submission_services as services
from api.downloads import SANDBOXED
from api.schemas.looks import ConnectionSchema, PieceQuerySchema, PieceSchema, PortSchema
from api.streams import require_free_stream
from common.errors import (
    Invalid,
    LooksNotAllowed,
    PortNotReached,
    RunnerSilent,
    TaskNotAtWork,
    TooLarge,
    TooManyStreams,
    UnknownSimulation,
    UnknownTask,
    UnsupportedMedia,
)
from core.domain.access.roles import Verb
from runtimes.harness.runner.runner_api_messages import PiecesHeader

blueprint = Blueprint(
    "connections", __name__, url_prefix="/v1/simulations/<id:id>", description="Connections to ports of programs."
)


class PortBody(msgspec.Struct):
    """The body of a request for a connection."""

    port: int


class PieceNumber(msgspec.Struct):
    """The query of a request for a piece."""

    number: int


@blueprint.operation(
    "POST /tasks/<task:task>/connections",
    Success(status=201, schema=ConnectionSchema, description="The program has accepted the connection."),
    body={"application/json": PortSchema},
    errors=[
        Invalid,
        LooksNotAllowed,
        PortNotReached,
        RunnerSilent,
        TaskNotAtWork,
        TooLarge,
        TooManyStreams,
        UnknownSimulation,
        UnknownTask,
        UnsupportedMedia,
    ],
    verb=Verb.CHANGE,
)
def open_connection(id: str, task: int) -> dict[str, object]:
    """Connect to a port of a program that runs

    At 127.0.0.1 in the sandbox of the task, if it runs on one machine. The operator lists the ports
    (`WINDTUNNEL_FORWARDED_PORTS`), and each connection is recorded. `windtunnel forward` does all of it.
    """
    require_free_stream()
    port = msgspec.convert(validated(PortSchema(), json_body()), PortBody).port
    return {"id": services().looks.connect(caller(), id, task, port), "task": task, "port": port}


@blueprint.operation(
    "POST /connections/<id:connection>/pieces",
    Success(schema=PieceSchema, plain=True, description="What became of the piece."),
    body={"application/octet-stream": BINARY},
    body_required=False,
    errors=[TooLarge],
    verb=Verb.CHANGE,
)
@blueprint.takes(PieceQuerySchema)
def send_piece(query: object, id: str, connection: str) -> dict[str, object]:
    """Send bytes to the program

    At most 256 KiB. A piece without bytes says that no more follow. A piece that is sent again changes nothing.
    """
    number = msgspec.convert(query, PieceNumber).number
    if not services().looks.is_connected(caller(), id, connection):
        return {"accepted": False, "over": True}
    answer = services().looks.tunnels.push(id, connection, "person", number, raw_body())
    return {"accepted": answer.accepted, "over": answer.over}


@blueprint.operation(
    "GET /connections/<id:connection>/pieces",
    Success(
        description="The bytes, possibly none.",
        media={"application/octet-stream": BINARY},
        headers={
            "Next-Piece": header("Number of the piece to ask for next.", type="integer"),
            "Connection-State": header("`open`, `ended` (the program sends no more) or `over`."),
        },
    ),
    errors=[TooManyStreams],
    verb=Verb.CHANGE,
)
@blueprint.takes(PieceQuerySchema)
def receive_pieces(query: object, id: str, connection: str) -> Response:
    """Receive bytes from the program

    From a piece on, as soon as there are any; after some seconds none. The pieces before that one are forgotten.
    """
    require_free_stream()
    number = msgspec.convert(query, PieceNumber).number
    pieces, data = PiecesHeader(number, over=True), b""
    if services().looks.is_connected(caller(), id, connection):
        pieces, data = services().looks.tunnels.pull(id, connection, "person", number)
    state = "over" if pieces.over else "ended" if pieces.end else "open"
    headers = {**SANDBOXED, "Cache-Control": "no-store", "Next-Piece": str(pieces.next), "Connection-State": state}
    return Response(data, headers=headers, content_type="application/octet-stream")


@blueprint.operation(
    "DELETE /connections/<id:connection>",
    Success(status=204, description="The connection is over."),
    errors=[],
    verb=Verb.CHANGE,
)
def close_connection(id: str, connection: str) -> None:
    """Close a connection

    One that is over already is not an error.
    """
    if services().looks.is_connected(caller(), id, connection):
        services().looks.tunnels.close(id, connection)
