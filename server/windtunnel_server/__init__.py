"""Installed server: the package of the wheel, which puts the server's modules on the path and runs its commands."""
