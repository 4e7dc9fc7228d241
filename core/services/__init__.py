"""The use cases. They own the transaction; `platform` puts them together for the composition roots."""
