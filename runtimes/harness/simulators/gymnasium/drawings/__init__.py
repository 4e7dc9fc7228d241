"""Drawings of environments of Gymnasium and of highway-env."""
