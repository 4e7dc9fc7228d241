"""Drawings of MuJoCo's tasks."""
