"""Container images, built from the same lock files as local environments, with or without Docker."""
