"""Places outside of the platform from which models are imported by reference."""
