"""Datasets: the built-in ones, registration of new versions, bundles for runners."""
