"""Functional Mock-up Units (FMI 2.0 and 3.0, co-simulation) by fmpy: for models that are FMUs, and for plants."""
