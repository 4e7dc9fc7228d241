"""Debian packages: resolved from a signed index to a lock, and unpacked into a folder that becomes a sandbox's root."""
