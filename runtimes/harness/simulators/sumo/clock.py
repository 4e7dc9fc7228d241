"""Step length of the SUMO simulation, in a module that does not import libsumo."""

#: Seconds per step of the evaluator and of SUMO.
DT = 0.1
