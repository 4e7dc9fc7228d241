"""Client of the cache service: membership, consistent hashing, pooled connections."""
