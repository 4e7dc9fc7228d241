"""Object index: objects, bytes per bucket and counters in SQLite, shared by every process on one folder.

An object's file `ab/rest.random` is never written twice, so a process with a stale entry finds the file missing and
looks the object up again. Before a file is created, an *intent* with its bytes is recorded and counted. The intents of
a dead process are undone by another process on the folder, or at the next start.
"""

import queue
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from datasets.scs.config import Bucket, Config

T = TypeVar("T")
#: Called with digest and time of the present object (None and 0.0 if absent); returns whether it may be replaced.
Condition = Callable[[bytes | None, float], bool]
Step = Callable[[sqlite3.Connection], T]
#: Returns how many bytes the disk lacks for a new object of that size, given the intents (file names and bytes).
DiskShortfall = Callable[[int, Iterable[tuple[str, int]]], int]

#: Eviction order of a full bucket: an SQL sort key with an index. Two policies are more than a key: ``random``, and
#: ``nr`` (non-replacing), which evicts only objects that were not used for a day: a set that is read repeatedly, in any
#: order, keeps the part that fits, and yet no object stays for ever.
EVICTION_ORDER: Mapping[str, str] = {"lru": "used, name", "fifo": "added, name"}
NR_IDLE = 86400.0
#: Seconds by which an object's recorded last use may lag: one write for many reads.
USE_RESOLUTION = 10.0
#: SQLite's error codes for a corrupt file: the disk flipped or lost some of it.
_CORRUPTION_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
#: Seconds to wait for write locks of other processes.
_BUSY_TIMEOUT = 30.0
_BATCH_SIZE = 500
_SCHEMA = """
create table if not exists objects(
    name blob primary key, bucket text not null, key blob not null, file text not null, size integer not null,
    digest blob not null, added real not null, used real not null) without rowid;
create index if not exists by_use on objects(bucket, used, name);
create index if not exists by_age on objects(bucket, added, name);
create index if not exists by_name on objects(bucket, name);
create table if not exists accounts(bucket text primary key, bytes integer not null, objects integer not null);
create table if not exists intents(file text primary key, process text not null, bucket text not null,
    bytes integer not null);
create table if not exists counters(name text, labels text, value real not null, primary key(name, labels));
"""


class Full(Exception):
    """There is no room for the object, and no object may be evicted for it."""


class ObjectTooLarge(Full):
    """The object is larger than its bucket's quota or the total capacity."""


class Unmet(Exception):
    """A condition of the PUT does not hold: the present object may not be replaced."""


@dataclass(frozen=True, slots=True)
class Row:
    """Index entry of an object; ``file`` relative to the folder, ``digest`` SHA-256, ``added`` seconds since 1970."""

    name: bytes
    file: str
    size: int
    digest: bytes
    added: float


@dataclass(frozen=True, slots=True)
class Account:
    """Bytes and objects of a bucket; bytes include PUTs in progress."""

    bytes: int
    objects: int


def name_of(bucket: str, key: bytes) -> bytes:
    """Return an object's name in the index and, in hexadecimal, on disk: a hash, so that no key can choose a path."""
    return blake2b(bucket.encode() + b"\0" + key, digest_size=16).digest()


def is_corruption(error: BaseException) -> bool:
    """Tell whether an error means that the index file is corrupt, as opposed to busy or on a full disk."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPTION_CODES


def bucket_to_shrink(used: Mapping[str, int], shares: Mapping[str, float]) -> str:
    """Return the bucket that must evict when the total capacity is exceeded: the bucket furthest above its share.

    The shares add up to the capacity, so while it is exceeded some bucket is above its share: a bucket within its share
    never evicts for another.
    """
    return max(used, key=lambda bucket: (used[bucket] - shares.get(bucket, 0.0), bucket))


class ObjectIndex:
    """Object index of one process: reads run on the caller's thread, writes are batched by a writer thread."""

    def __init__(self, path: Path, config: Config, process: str) -> None:
        self._path, self._config, self._process = path, config, process
        self._local = threading.local()
        self._write_queue: queue.SimpleQueue[tuple[Step[Any], Future[Any]] | None] = queue.SimpleQueue()
        self._shares = {bucket.name: config.fair_share(bucket) for bucket in config.buckets.values()}
        self._deferred: list[Step[Any]] = []
        #: Whether the file turned out to be corrupt; the next process to open it alone starts with an empty index.
        self.corrupt = False
        connection = self._connection()
        connection.execute("pragma journal_mode=wal")
        connection.executescript(_SCHEMA)
        connection.executemany("insert or ignore into accounts values(?,0,0)", [(name,) for name in config.buckets])
        self._writer = threading.Thread(target=self._write_all, name="object-index", daemon=True)
        self._writer.start()

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = sqlite3.connect(
                self._path, isolation_level=None, timeout=_BUSY_TIMEOUT, check_same_thread=False
            )
            connection.execute(f"pragma synchronous={'full' if self._config.fsync else 'normal'}")
            connection.execute("pragma mmap_size=268435456")
        return connection

    def close(self) -> None:
        """Commit the queued writes, and stop the writer thread."""
        self._write_queue.put(None)
        self._writer.join()

    @property
    def alive(self) -> bool:
        """Whether the writer thread runs."""
        return self._writer.is_alive()

    # -- reading

    def get_row(self, name: bytes) -> Row | None:
        """Return an object's row, None if it is not in the index."""
        cursor = self._connection().execute("select name,file,size,digest,added from objects where name=?", (name,))
        row = cursor.fetchone()
        return Row(*row) if row else None

    def rows_after(self, name: bytes, limit: int) -> list[Row]:
        """Return at most ``limit`` rows in order of name, beginning after ``name``."""
        query = "select name,file,size,digest,added from objects where name>? order by name limit ?"
        return [Row(*row) for row in self._connection().execute(query, (name, limit))]

    def accounts(self) -> dict[str, Account]:
        """Return bytes and objects of every bucket."""
        rows = self._connection().execute("select bucket,bytes,objects from accounts")
        return {bucket: Account(used, objects) for bucket, used, objects in rows}

    def counters(self) -> dict[tuple[str, str], float]:
        """Return the counters of all processes, since the folder was created."""
        rows = self._connection().execute("select name,labels,value from counters")
        return {(name, labels): value for name, labels, value in rows}

    # -- writing

    def write(self, step: Step[T]) -> T:
        """Run a step in a transaction that it may share with other steps; committed when this returns."""
        done: Future[T] = Future()
        self._write_queue.put((step, done))
        return done.result()

    def write_or_defer(self, step: Step[Any]) -> None:
        """Run a step now, or later if the disk is too full to write; a full disk raises no error."""
        try:
            self.write(step)
        except sqlite3.OperationalError:
            self._deferred.append(step)

    def retry_deferred(self) -> None:
        """Retry the deferred steps."""
        deferred, self._deferred = self._deferred, []
        for step in deferred:
            self.write_or_defer(step)

    def _write_all(self) -> None:
        connection = self._connection()
        while (first := self._write_queue.get()) is not None:
            batch = [first]
            stopping = False
            while len(batch) < _BATCH_SIZE and not self._write_queue.empty():
                if (more := self._write_queue.get()) is None:
                    stopping = True
                    break
                batch.append(more)
            self._commit(connection, batch)
            if stopping:
                break
        connection.close()

    def _commit(self, connection: sqlite3.Connection, batch: list[tuple[Step[Any], "Future[Any]"]]) -> None:
        answers: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            connection.execute("begin immediate")
            for step, done in batch:
                connection.execute("savepoint step")
                try:
                    answers.append((done, step(connection), None))
                except Exception as error:
                    # On a full disk SQLite has rolled back the transaction; on a corrupt file no other step may commit.
                    if not connection.in_transaction or is_corruption(error):
                        raise
                    connection.execute("rollback to step")
                    answers.append((done, None, error))
                connection.execute("release step")
            connection.execute("commit")
        except Exception as error:
            with suppress(sqlite3.Error):
                connection.execute("rollback")
            self.corrupt = self.corrupt or is_corruption(error)
            answers = [(done, None, error) for _, done in batch]
        for done, answer, error_ in answers:
            if error_ is not None:
                done.set_exception(error_)
            else:
                done.set_result(answer)

    # -- steps

    def reserve(
        self,
        bucket: Bucket,
        name: bytes,
        file: str,
        size: int,
        now: float,
        disk_shortfall: DiskShortfall = lambda *_: 0,
    ) -> list[str]:
        """Reserve an object's bytes before its body arrives; return the files of the evicted objects.

        ``disk_shortfall`` returns the bytes to free beyond the quotas, for a disk that is fuller than the accounts say.
        """
        capacity = self._config.capacity
        if size > min(bucket.quota, capacity):
            raise ObjectTooLarge(f"{size} bytes exceed the BucketQuota of {bucket.name} or the TotalQuota")

        def step(connection: sqlite3.Connection) -> list[str]:
            used: dict[str, int] = dict(connection.execute("select bucket,bytes from accounts"))
            evicted: list[tuple[str, int]] = []
            shortfall = disk_shortfall(size, connection.execute("select file,bytes from intents").fetchall())

            def evict_from(victim_bucket: str, need: int) -> None:
                policy = self._config.buckets[victim_bucket].policy
                freed = _evict(connection, victim_bucket, policy, need, name, now, forced=victim_bucket != bucket.name)
                evicted.extend(freed)
                used[victim_bucket] -= sum(each for _, each in freed)

            if (need := used[bucket.name] + size - bucket.quota) > 0:
                evict_from(bucket.name, need)
            while True:
                need = max(sum(used.values()) + size - capacity, shortfall - sum(each for _, each in evicted))
                if need <= 0:
                    break
                after = {**used, bucket.name: used[bucket.name] + size}
                victim_bucket = bucket_to_shrink(after, self._shares)
                # down to its share at most: then another bucket may be further above
                above = int(after[victim_bucket] - self._shares[victim_bucket])
                evict_from(victim_bucket, min(need, above) if above > 0 else need)
            updated = connection.execute(
                "update accounts set bytes=bytes+? where bucket=? and bytes+?<=? returning bytes",
                (size, bucket.name, size, bucket.quota),
            ).fetchone()
            if updated is None:
                raise Full(f"the bucket {bucket.name} has reached its BucketQuota")
            connection.execute("insert into intents values(?,?,?,?)", (file, self._process, bucket.name, size))
            return [evicted_file for evicted_file, _ in evicted]

        return self.write(step)

    def commit_object(self, bucket: Bucket, key: bytes, row: Row, condition: Condition | None) -> str | None:
        """Turn an intent into an object; return the replaced file, if any; raise Unmet if ``condition`` refuses."""

        def step(connection: sqlite3.Connection) -> str | None:
            old = connection.execute("select file,size,digest,added from objects where name=?", (row.name,)).fetchone()
            if condition and not condition(*(old[2:] if old else (None, 0.0))):
                raise Unmet
            connection.execute("delete from intents where file=?", (row.file,))
            connection.execute(
                "insert or replace into objects values(?,?,?,?,?,?,?,?)",
                (row.name, bucket.name, key, row.file, row.size, row.digest, row.added, row.added),
            )
            connection.execute(
                "update accounts set bytes=bytes-?, objects=objects+? where bucket=?",
                (old[1] if old else 0, 0 if old else 1, bucket.name),
            )
            return old[0] if old else None

        return self.write(step)

    def cancel_intent(self, file: str) -> None:
        """Delete an intent and return its bytes to the bucket."""

        def step(connection: sqlite3.Connection) -> None:
            updated = connection.execute("delete from intents where file=? returning bucket,bytes", (file,)).fetchone()
            if updated:
                connection.execute("update accounts set bytes=bytes-? where bucket=?", (updated[1], updated[0]))

        self.write_or_defer(step)

    def delete(self, name: bytes, file: str) -> None:
        """Delete an object, if its row still refers to that file."""

        def step(connection: sqlite3.Connection) -> None:
            deleted = connection.execute(
                "delete from objects where name=? and file=? returning bucket,size", (name, file)
            ).fetchone()
            if deleted:
                _credit(connection, deleted[0], deleted[1])

        self.write_or_defer(step)

    def record(self, used: Mapping[bytes, float], metric_values: Mapping[tuple[str, str], float]) -> None:
        """Record when objects were last used, and add to the counters."""

        def step(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "update objects set used=? where name=? and used<?",
                [(at, name, at - USE_RESOLUTION) for name, at in used.items()],
            )
            connection.executemany(
                "insert into counters values(?,?,?) on conflict(name,labels) do update set value=value+excluded.value",
                [(name, labels, value) for (name, labels), value in metric_values.items()],
            )

        self.write(step)

    # -- recovery

    def check_integrity(self) -> None:
        """Raise sqlite3.DatabaseError if the file is corrupt anywhere; reads the whole file."""
        ((result,),) = self._connection().execute("pragma quick_check(1)")
        if result != "ok":
            corruption = sqlite3.DatabaseError(" ".join(result.split()))
            corruption.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise corruption

    def other_processes(self) -> list[str]:
        """Return the other processes that have intents."""
        rows = self._connection().execute("select distinct process from intents where process<>?", (self._process,))
        return [process for (process,) in rows]

    def undo_intents(self, process: str) -> list[str]:
        """Delete the intents of a dead process; return the files that it may have left."""

        def step(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute(
                "delete from intents where process=? returning file,bucket,bytes", (process,)
            ).fetchall()
            for _, bucket, reserved in rows:
                connection.execute("update accounts set bytes=bytes-? where bucket=?", (reserved, bucket))
            return [file for file, _, _ in rows]

        return self.write(step)

    def reconcile(self, list_files: Callable[[], Iterable[tuple[str, int]]]) -> Iterable[str]:
        """Make rows and files agree, while no other process has the folder open; return the files without a row.

        ``list_files`` yields every file with its size. Rows without a file, or with one of another size, are deleted;
        so are buckets that are not configured any more, with their objects. Then the accounts are computed again.
        """

        def step(connection: sqlite3.Connection) -> list[str]:
            marks = ",".join("?" * len(self._config.buckets))
            connection.execute(f"delete from objects where bucket not in ({marks})", list(self._config.buckets))
            connection.execute("create temp table found(file text primary key, size integer) without rowid")
            connection.executemany("insert into found values(?,?)", list_files())
            connection.execute(
                "delete from objects where not exists"
                " (select 1 from found where found.file=objects.file and found.size=objects.size)"
            )
            orphans = connection.execute("select file from found except select file from objects").fetchall()
            connection.execute("drop table found")
            connection.execute("delete from intents")
            connection.execute("delete from accounts")
            connection.executemany("insert into accounts values(?,0,0)", [(name,) for name in self._config.buckets])
            connection.execute(
                "insert or replace into accounts select bucket,sum(size),count(*) from objects group by bucket"
            )
            return [file for (file,) in orphans]

        return self.write(step)


def _evict(
    connection: sqlite3.Connection, bucket: str, policy: str, need: int, newcomer: bytes, now: float, *, forced: bool
) -> list[tuple[str, int]]:
    """Evict objects of a bucket until ``need`` bytes are free; raise Full if that is impossible.

    ``forced``: the bucket is above its share and another is not, so ``nr`` has to evict too, the youngest object first.
    """
    evicted: list[tuple[bytes, str, int]] = []
    candidates = chain(*_candidates(connection, bucket, policy, newcomer, now, forced=forced))
    while need > 0:
        row = next(candidates, None)
        if row is None:
            raise Full(f"the bucket {bucket} is full, and no object in it may be evicted (Eviction: {policy})")
        evicted.append(row)
        need -= row[2]
    connection.executemany("delete from objects where name=?", [(name,) for name, _, _ in evicted])
    for _, _, size in evicted:
        _credit(connection, bucket, size)
    return [(file, size) for _, file, size in evicted]


def _candidates(
    connection: sqlite3.Connection, bucket: str, policy: str, newcomer: bytes, now: float, *, forced: bool
) -> Iterator[Iterator[tuple[bytes, str, int]]]:
    """Yield queries for objects to evict, in order: the version that is being replaced, then by the policy."""
    columns = "select name,file,size from objects where"
    yield connection.execute(f"{columns} name=? and bucket=?", (newcomer, bucket))
    rest = f"{columns} bucket=? and name<>?"
    if policy == "nr" and forced:
        yield connection.execute(f"{rest} order by added desc, name desc", (bucket, newcomer))
    elif policy == "nr":
        yield connection.execute(f"{rest} and used<? order by used, name", (bucket, newcomer, now - NR_IDLE))
    elif policy == "random":  # names are hashes: start at a random name, and wrap around
        start = secrets.token_bytes(16)
        yield connection.execute(f"{rest} and name>=? order by name", (bucket, newcomer, start))
        yield connection.execute(f"{rest} and name<? order by name", (bucket, newcomer, start))
    else:
        yield connection.execute(f"{rest} order by {EVICTION_ORDER[policy]}", (bucket, newcomer))


def _credit(connection: sqlite3.Connection, bucket: str, size: int) -> None:
    connection.execute("update accounts set bytes=bytes-?, objects=objects-1 where bucket=?", (size, bucket))
