"""Images: what runs in a cluster, made from the same locks as the environments of a laptop, with Docker or without."""
