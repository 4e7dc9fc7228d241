"""Submissions: names become digests, and models that are named by reference are fetched."""
