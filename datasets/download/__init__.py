"""Downloads: files of object storage to this node, coalesced into ranges, parallel, verified, resumed."""
