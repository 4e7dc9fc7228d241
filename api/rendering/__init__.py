"""Rendering of replays as animated SVG."""
