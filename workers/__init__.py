"""Loops and processes that run simulations: dispatcher, background jobs, node agent, runners, executors."""
