"""The street's clock, apart from the engine so that the pure parts need no libsumo."""

#: Seconds of one step, ours and SUMO's.
DT = 0.1
