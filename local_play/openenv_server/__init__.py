"""OpenEnv server: serves the scenarios of a dataset to training loops that speak OpenEnv's protocol."""
