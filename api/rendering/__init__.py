"""Replays as pictures: SVG that animates itself."""
