"""Usage: what was granted to launches and for how long, what it cost, and what a submission will probably cost."""
