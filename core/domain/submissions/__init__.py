"""Submissions: what may be asked for, and the models and simulations that come of it."""
