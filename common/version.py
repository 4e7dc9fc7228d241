"""Version of the platform, in a file that checkouts, images and wheels have; `scripts/release.py` writes it."""

VERSION = "0.3.0"
