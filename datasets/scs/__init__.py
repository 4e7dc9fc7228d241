"""Cache service (SCS): objects by bucket and key over HTTP, stored as local files; docs/scs.md is its contract."""
