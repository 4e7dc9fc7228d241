"""Full disks: how the errors that report them are recognised, of system calls and of SQLite."""

import errno
import sqlite3

#: A disk, a quota (quotactl(2)) or a process's limit of file sizes (RLIMIT_FSIZE, setrlimit(2)) is exhausted.
_EXHAUSTED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_disk_full(error: BaseException) -> bool:
    """Tell whether a write failed because the disk, a quota or the limit of file sizes is exhausted."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL  # the low byte: the primary code
    return isinstance(error, OSError) and error.errno in _EXHAUSTED
