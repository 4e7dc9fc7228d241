"""Wake-ups between processes: the port, its Redis adapter, and what waits in threads for changes."""
