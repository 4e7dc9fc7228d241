"""What people bring: models, resumable uploads, transfers straight to the object store."""
