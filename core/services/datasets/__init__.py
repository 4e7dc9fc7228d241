"""Datasets: built-in datasets, registration of new versions, bundles for runners."""
