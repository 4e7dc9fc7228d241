"""What an operator looks at: storage in use, caches and the queue."""
