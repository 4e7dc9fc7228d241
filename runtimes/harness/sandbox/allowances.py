"""Allowances: what a confined process may use by default; also for the loaders and the API, which show them."""

#: Bytes of address space.
MEMORY = 4 << 30
#: Processes and threads together, and open file descriptors.
TASKS, OPEN_FILES = 64, 64
#: The writable folder /tmp: megabytes, and files and folders.
SCRATCH_MB, SCRATCH_FILES = 64, 1000
#: Bytes of a Python thread's or process's stack.
STACK = 8 << 20
