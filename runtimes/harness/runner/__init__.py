"""Runner: leases tasks for one launch and supervises its workers, each an evaluator with a model server."""
