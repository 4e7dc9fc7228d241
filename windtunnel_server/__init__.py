"""Installed server: the command `windtunnel-server`, for machines that have the package and no checkout."""
