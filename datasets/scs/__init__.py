"""The cache service (SCS): objects by bucket and key over HTTP, kept as local files; docs/scs.md is its contract."""
