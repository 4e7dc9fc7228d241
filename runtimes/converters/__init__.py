"""Converters: programs that turn files of users into files of simulators, each run confined."""
