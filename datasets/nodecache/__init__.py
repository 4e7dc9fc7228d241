"""Node cache: datasets and models on this node, kept while they are pinned, evicted when room is needed."""
