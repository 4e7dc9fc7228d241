"""Flow: what one rank has of the flows that a simulator asks for, and how the answers of all ranks become one.

Each rank has a slab of every world, executes an order with it, and returns its share of the answer.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .channel import HEIGHT, LENGTH, Channel
from .lattice import Array, Lattice, alone

#: Seconds in which a flow develops from its inflow's profile; those of its beginning in which the cylinder turns to
#: and fro, so that vortices are shed soon; and those of its end over which the uncontrolled drag is the mean.
DEVELOPMENT_TIME, DISTURBANCE_TIME, MEASUREMENT_TIME = 3.0, 0.33, 1.0
#: The speed of the surface meanwhile, in mean velocities of the inflow.
DISTURBANCE = 0.5
#: Seconds within which a scenario begins after that, by its phase: a period of the vortices at Reynolds number 100.
PERIOD = 0.33
#: Developed flows that a rank keeps: another scenario of the same flow begins with its copy.
CACHE_SIZE = 4
#: Places per diameter at which the picture has the vorticity.
PICTURE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowOrder:
    """An order to all ranks, as it travels: what to ``do`` with a ``world``: `reset`, `step`, or tell its `field`.

    ``cells`` and ``reynolds``: of its channel. ``phase``: at which a scenario begins, 0 to 1; ``seconds``: to move on,
    while the surface's speed goes from ``before`` to ``after``, in mean velocities of the inflow.
    """

    do: str
    world: int
    cells: int
    reynolds: float
    phase: float = 0.0
    seconds: float = 0.0
    before: float = 0.0
    after: float = 0.0

    @property
    def channel(self) -> Channel:
        """The world's channel."""
        return Channel(cells=self.cells, reynolds=self.reynolds)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowShare:
    """A rank's share of an answer: mean momentum that each of its links got, along and across, and its moment.

    ``uncontrolled``: the momentum along while the flow developed; ``pressures``: by number of the probe; ``along`` and
    ``across``: velocities at the slab's nodes.
    """

    drag: Sequence[float] = ()
    lift: Sequence[float] = ()
    moment: Sequence[float] = ()
    uncontrolled: Sequence[float] = ()
    pressures: Sequence[tuple[int, float]] = ()
    along: Array = field(default_factory=lambda: np.empty((0, 0)))
    across: Array = field(default_factory=lambda: np.empty((0, 0)))


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowAnswer:
    """The answer of all ranks, as it travels: coefficients of forces and pressures, or the picture's vorticity."""

    drag: float = 0.0
    lift: float = 0.0
    moment: float = 0.0
    uncontrolled: float = 0.0
    pressures: Sequence[float] = ()
    vorticity: Sequence[Sequence[float]] = ()


@dataclass(slots=True)
class DevelopedFlow:
    """A flow in which a scenario may begin, and the mean momentum that each link got while it was measured."""

    populations: Array
    drag: Sequence[float]


class FlowPart:
    """A rank's slabs of all worlds. ``exchange``: fills the halo of a slab with the neighbours' columns."""

    def __init__(self, rank: int, ranks: int, exchange: Callable[[Array], None] = alone) -> None:
        self._rank, self._ranks, self._exchange = rank, ranks, exchange
        self._slabs: dict[int, FlowSlab] = {}
        self._developed: OrderedDict[Channel, DevelopedFlow] = OrderedDict()

    def execute(self, order: FlowOrder) -> FlowShare:
        """Execute an order with this rank's slab; return its share of the answer. Raises KeyError for a new world."""
        channel = order.channel
        if order.do == "reset":
            self._slabs.pop(order.world, None)
            self._slabs[order.world] = world = self._begin(channel)
            world.advance(channel.steps(order.phase * PERIOD), 0.0, 0.0)
        world = self._slabs[order.world]
        if order.do == "field":
            return world.field()
        return world.move(channel.steps(order.seconds), order.before, order.after)

    def _begin(self, channel: Channel) -> "FlowSlab":
        """Return a slab of a developed flow, which is the same whenever it is computed."""
        first, last = slab(channel.columns, self._rank, self._ranks)
        world = FlowSlab(channel, Lattice(channel, first, last, self._exchange), first)
        if (developed := self._developed.get(channel)) is None:
            developed = self._developed[channel] = world.develop()
            while len(self._developed) > CACHE_SIZE:
                self._developed.popitem(last=False)
        self._developed.move_to_end(channel)
        world.begin(developed)
        return world


class FlowSlab:
    """A rank's slab of one world."""

    def __init__(self, channel: Channel, lattice: Lattice, first: int) -> None:
        self.channel, self._lattice, self._first = channel, lattice, first
        self._uncontrolled: Sequence[float] = ()

    def develop(self) -> DevelopedFlow:
        """Let the flow develop from the start."""
        channel = self.channel
        turning, all_steps = channel.steps(DISTURBANCE_TIME), channel.steps(DEVELOPMENT_TIME)
        measured = channel.steps(MEASUREMENT_TIME)
        for step in range(all_steps):
            if step == all_steps - measured:
                self._lattice.surface.clear()
            angle = 2.0 * math.pi * step / turning
            self._lattice.step(self._spin(DISTURBANCE * math.sin(angle)) if step < turning else 0.0)
        drag = self._lattice.surface.clear()[0] / measured
        return DevelopedFlow(self._lattice.populations.copy(), drag.tolist())

    def begin(self, developed: DevelopedFlow) -> None:
        """Begin with a developed flow."""
        self._lattice.populations[:] = developed.populations
        self._uncontrolled = developed.drag

    def _spin(self, surface: float) -> float:
        """Return the angle per step at which the surface has a speed, given in mean velocities of the inflow."""
        return surface * self.channel.mean / self.channel.radius

    def advance(self, steps: int, before: float, after: float) -> None:
        """Move on; the surface's speed goes evenly from ``before`` to ``after``."""
        for step in range(steps):
            self._lattice.step(self._spin(before + (after - before) * ((step + 1) / steps)))

    def move(self, steps: int, before: float, after: float) -> FlowShare:
        """Move on; return the mean momentum that each link got, and the pressures at the probes of this slab."""
        self._lattice.surface.clear()
        self.advance(steps, before, after)
        drag, lift, moment = (self._lattice.surface.clear() / max(1, steps)).tolist()
        pressures = [
            (number, (self._lattice.density(column - self._first, row) - 1.0) / 3.0)
            for number, (column, row) in enumerate(self.channel.probes)
            if 0 <= column - self._first < self._lattice.width
        ]
        return FlowShare(drag=drag, lift=lift, moment=moment, uncontrolled=self._uncontrolled, pressures=pressures)

    def field(self) -> FlowShare:
        """Return the velocities at the nodes of this slab, from which the picture's vorticity is computed."""
        along, across = self._lattice.velocity()
        return FlowShare(along=along, across=across)


def slab(columns: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return the first column of a rank, and the one after its last."""
    return columns * rank // ranks, columns * (rank + 1) // ranks


def merge(order: FlowOrder, shares: Sequence[FlowShare]) -> FlowAnswer:
    """Return the answer of all ranks, from their shares in order.

    Sums are rounded once, whatever is added first: they do not depend on where the slabs end.
    """
    if order.do == "field":
        along, across = (np.concatenate(parts) for parts in zip(*((s.along, s.across) for s in shares), strict=True))
        return FlowAnswer(vorticity=vorticity(along, across).tolist())
    dynamic = 0.5 * order.channel.mean**2

    def total(parts: Iterable[Sequence[float]], scale: float) -> float:
        return math.fsum(value for part in parts for value in part) / (dynamic * scale)

    numbered = sorted(entry for share in shares for entry in share.pressures)
    return FlowAnswer(
        drag=total((share.drag for share in shares), order.cells),
        lift=total((share.lift for share in shares), order.cells),
        moment=total((share.moment for share in shares), order.cells**2),
        uncontrolled=total((share.uncontrolled for share in shares), order.cells),
        pressures=[pressure / dynamic for _, pressure in numbered],
    )


def vorticity(along: Array, across: Array) -> Array:
    """Return the vorticity at PICTURE places per diameter, in mean velocities of the inflow per diameter.

    ``along`` and ``across``: velocities at all nodes. Of each place it is the circulation around the cells of its
    square, divided by the square's area.
    """
    cells = round(along.shape[0] / LENGTH)
    turning = np.gradient(across, axis=0) - np.gradient(along, axis=1)
    columns, rows = round(LENGTH * PICTURE), int(HEIGHT * PICTURE)
    size = cells / PICTURE
    starts = [round(column * size) for column in range(columns)], [round(row * size) for row in range(rows)]
    sums = np.add.reduceat(np.add.reduceat(turning, starts[0], axis=0), starts[1], axis=1)
    areas = np.diff([*starts[0], along.shape[0]])[:, None] * np.diff([*starts[1], along.shape[1]])[None, :]
    mean = Channel(cells=cells, reynolds=1.0).mean
    return np.asarray(sums / areas * (cells / mean))
