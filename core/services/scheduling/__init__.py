"""Scheduling: the dispatcher's reads and writes, staging, leases, progress."""
