"""Benchmarks of the platform and of comparable systems, side by side: `python -m benchmarks`; no test is timed."""
