"""Dataset versions: manifests, packs, uploaded archives, users' scenarios."""
