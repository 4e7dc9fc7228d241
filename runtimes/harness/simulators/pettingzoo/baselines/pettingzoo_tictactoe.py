"""Baseline for pettingzoo_tictactoe: wins if it can, prevents the other's win, and prefers the middle, then corners."""

from typing import Any

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
PREFERRED = (4, 0, 2, 6, 8, 1, 3, 5, 7)


class Model:
    """Looks one move ahead. The observation has own and other pieces of nine squares, and the legal squares."""

    def act(self, observation: Any) -> list[float]:
        legal = {square for square in PREFERRED if observation[18 + square] > 0.5}
        for who in (0, 1):
            for line in LINES:
                taken = [square for square in line if observation[2 * square + who] > 0.5]
                free = [square for square in line if square in legal]
                if len(taken) == 2 and free:
                    return [float(free[0])]
        return [float(next(square for square in PREFERRED if square in legal))]
