"""Wake-ups between processes: the notifier port, its Redis adapter, and threads that wait for changes."""
