"""Baseline for pettingzoo_connect_four: wins if it can, prevents the other's win, and prefers the middle."""

from typing import Any

ROWS, COLUMNS, LONG = 6, 7, 4
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))
#: Columns by their distance from the middle.
PREFERRED = (3, 2, 4, 1, 5, 0, 6)

Board = set[tuple[int, int]]


class Model:
    """Looks one move ahead. The observation is the board, row by row, own and other, and the legal columns."""

    def act(self, observation: Any) -> list[float]:
        own: Board = set()
        other: Board = set()
        for square in range(ROWS * COLUMNS):
            place = divmod(square, COLUMNS)
            if observation[2 * square] > 0.5:
                own.add(place)
            if observation[2 * square + 1] > 0.5:
                other.add(place)
        legal = [column for column in PREFERRED if observation[2 * ROWS * COLUMNS + column] > 0.5]
        lands = {column: (self._lowest(column, own | other), column) for column in legal}
        for pieces in (own, other):
            for column in legal:
                if self._is_row(lands[column], pieces):
                    return [float(column)]
        return [float(legal[0])]

    @staticmethod
    def _lowest(column: int, taken: Board) -> int:
        return max(row for row in range(ROWS) if (row, column) not in taken)

    @staticmethod
    def _is_row(place: tuple[int, int], pieces: Board) -> bool:
        """Tell whether a piece at this place would be in a row of four."""
        for down, right in DIRECTIONS:
            count = 1
            for sign in (1, -1):
                row, column = place[0] + sign * down, place[1] + sign * right
                while (row, column) in pieces:
                    count, row, column = count + 1, row + sign * down, column + sign * right
            if count >= LONG:
                return True
        return False
