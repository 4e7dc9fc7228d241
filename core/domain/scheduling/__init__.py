"""Scheduling: executors, launches, leases, jobs and the queue, as values and pure decisions."""
