"""Drawing of PettingZoo's board games: the board, and the pieces that are on it."""

from typing import Any

from ...drawings.shapes import Drawing, Point, circle, frame, line, moving_circle, moving_line, polygon, scene

#: Radius of a hole or a piece of Connect Four, and half the height of a cross, in squares.
RADIUS, CROSS = 0.38, 0.28
SIDES = ("first", "second")


def drawing(environment: Any, own: str) -> Drawing | None:
    """Return the drawing of an environment if it is a board game that is known here."""
    match getattr(environment, "metadata", {}).get("name"):
        case "connect_four_v3":
            return ConnectFourDrawing(environment)
        case "tictactoe_v3":
            return TicTacToeDrawing(environment)
    return None


class ConnectFourDrawing:
    """The model's opponent and the model are "first" and "second" by the order of their moves."""

    ROWS, COLUMNS = 6, 7

    def __init__(self, environment: Any) -> None:
        self._environment = environment

    def _place(self, square: int) -> Point:
        row, column = divmod(square, self.COLUMNS)
        return column + 0.5, self.ROWS - row - 0.5

    def scene(self) -> dict[str, Any]:
        width, height = float(self.COLUMNS), float(self.ROWS)
        frame_of_board = polygon([(0.0, 0.0), (width, 0.0), (width, height), (0.0, height)], "board")
        squares = range(self.ROWS * self.COLUMNS)
        holes = [circle(self._place(square), RADIUS, "hole") for square in squares]
        pieces = [moving_circle(f"{side}-{square}", side, RADIUS) for side in SIDES for square in squares]
        view = (-1.0, -0.3, width + 2.0, height + 0.6)
        return scene(view=view, unit="", shapes=[frame_of_board, *holes], objects=pieces)

    def frame(self) -> dict[str, Any]:
        return frame(
            {
                f"{SIDES[piece - 1]}-{square}": [self._place(square)]
                for square, piece in enumerate(self._environment.board)
                if piece
            }
        )


class TicTacToeDrawing:
    """The first side has crosses, the second circles; PettingZoo numbers the squares column by column."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment

    def scene(self) -> dict[str, Any]:
        lines = [line([(at, 0.0), (at, 3.0)], "track", width=0.04) for at in (1.0, 2.0)]
        lines += [line([(0.0, at), (3.0, at)], "track", width=0.04) for at in (1.0, 2.0)]
        objects = []
        for square in range(9):
            objects += [moving_line(f"first-{square}-{stroke}", "first", 0.12) for stroke in (0, 1)]
            objects += [moving_circle(f"second-{square}", "body", CROSS + 0.06)]
            objects += [moving_circle(f"second-{square}-inside", "hole", CROSS - 0.06)]
        return scene(view=(-0.2, -0.2, 3.4, 3.4), unit="", shapes=lines, objects=objects)

    def frame(self) -> dict[str, Any]:
        at: dict[str, list[Point]] = {}
        for square, piece in enumerate(self._environment.board.squares):
            column, row = divmod(square, 3)
            x, y = column + 0.5, 2.5 - row
            if piece == 1:
                at[f"first-{square}-0"] = [(x - CROSS, y - CROSS), (x + CROSS, y + CROSS)]
                at[f"first-{square}-1"] = [(x - CROSS, y + CROSS), (x + CROSS, y - CROSS)]
            elif piece == 2:
                at[f"second-{square}"] = at[f"second-{square}-inside"] = [(x, y)]
        return frame(at)
