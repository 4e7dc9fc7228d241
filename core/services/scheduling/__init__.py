"""What moves simulations on: the dispatcher's reads and writes, staging, leases, progress."""
