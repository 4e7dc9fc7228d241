"""Dependencies of Python models: what a model declares, the lock that is resolved from it, and its installation."""
