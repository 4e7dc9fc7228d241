"""Services of retention: the rules of projects, and the bin."""
