"""Dataset versions: manifests, packs, archives people upload, scenarios of their own."""
