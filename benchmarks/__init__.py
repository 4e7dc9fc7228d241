"""What the platform measures up to, side by side with peers: `python -m benchmarks`, never a timed test."""
