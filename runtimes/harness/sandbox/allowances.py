"""Allowances: what a confined process may use by default; also for the loaders and the API, which show them."""

#: Bytes of memory, with the libraries of the model's format.
MEMORY = 4 << 30
#: Bytes of address space besides, for the shared libraries of packages that a model has declared: PyTorch maps 1.6 GB.
LIBRARIES = 4 << 30
#: Processes and threads together, and open file descriptors.
TASKS, OPEN_FILES = 64, 64
#: The writable folder /tmp: megabytes, and files and folders.
SCRATCH_MB, SCRATCH_FILES = 64, 1000
#: Files and folders of the ranks of a coupled program, in /tmp and in /dev/shm.
SHARED_FILES = 100_000
#: Bytes of a Python thread's or process's stack.
STACK = 8 << 20
