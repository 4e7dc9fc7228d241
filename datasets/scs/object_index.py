"""Object index: objects, bytes per bucket and counters in SQLite, shared by every process on one folder.

An object's file `ab/rest.random` is never written twice, so a process with a stale entry finds the file missing and
looks the object up again. Before a file is created, an *intent* with its bytes is recorded and counted. The intents of
a dead process are undone by another process on the folder, or at the next start.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from common.group_commit import GroupCommit, is_corruption
from datasets.eviction.decision import Candidate, Group, Newcomer, decide
from datasets.eviction.policies import load_policy
from datasets.eviction.policy import Item
from datasets.scs.config import Bucket, Config

T = TypeVar("T")
#: Called with digest and time of the present object (None and 0.0 if absent); returns whether it may be replaced.
Condition = Callable[[bytes | None, float], bool]
Step = Callable[[sqlite3.Connection], T]
#: Returns how many bytes the disk lacks for a new object of that size, given the intents (file names and bytes).
DiskShortfall = Callable[[int, Iterable[tuple[str, int]]], int]

#: Seconds by which an object's recorded last use may lag: one write for many reads.
USE_RESOLUTION = 10.0
#: Seconds to wait for write locks of other processes.
_BUSY_TIMEOUT = 30.0
_SCHEMA = """
create table if not exists objects(
    name blob primary key, bucket text not null, key blob not null, file text not null, size integer not null,
    digest blob not null, added real not null, used real not null, eviction_key real not null default 0,
    checksums blob not null default x'') without rowid;
create table if not exists accounts(bucket text primary key, bytes integer not null, objects integer not null,
    policy text not null default '', floor real not null default 0);
create table if not exists intents(file text primary key, process text not null, bucket text not null,
    bytes integer not null);
create table if not exists counters(name text, labels text, value real not null, primary key(name, labels));
create index if not exists by_eviction_key on objects(bucket, eviction_key, name);
create index if not exists by_age on objects(bucket, added, name);
"""
#: Columns of a `Row`.
_ROW = "name,file,size,digest,added,checksums"
#: An object's eviction key after a use, by its bucket's policy: a SQL function that `ObjectIndex` registers.
_KEY_AT = (
    "eviction_key(bucket, name, size, added, :at, (select floor from accounts where accounts.bucket=objects.bucket))"
)


class Full(Exception):
    """There is no room for the object, and no object may be evicted for it."""


class ObjectTooLarge(Full):
    """The object is larger than its bucket's quota or the total capacity."""


class Unmet(Exception):
    """A condition of the PUT does not hold: the present object may not be replaced."""


@dataclass(frozen=True, slots=True)
class Row:
    """Index entry of an object; ``file`` relative to the folder, ``digest`` SHA-256, ``added`` seconds since 1970.

    ``checksums`` of its blocks: absent if an earlier version has stored it, until its first read or a scrub.
    """

    name: bytes
    file: str
    size: int
    digest: bytes
    added: float
    checksums: bytes = b""


@dataclass(frozen=True, slots=True)
class Account:
    """Bytes and objects of a bucket; bytes include PUTs in progress."""

    bytes: int
    objects: int


def name_of(bucket: str, key: bytes) -> bytes:
    """Return an object's name in the index and, in hexadecimal, on disk: a hash, so that no key can choose a path."""
    return blake2b(bucket.encode() + b"\0" + key, digest_size=16).digest()


class ObjectIndex:
    """Object index of one process: reads run on the caller's thread, writes are committed in groups."""

    def __init__(self, path: Path, config: Config, process: str) -> None:
        self._path, self._config, self._process = path, config, process
        self._policies = {bucket.name: load_policy(bucket.policy) for bucket in config.buckets.values()}
        self._local = threading.local()
        self._commits = GroupCommit(path, self._connect_writer, self._note_failure)
        self._deferred: list[Step[Any]] = []
        #: Whether the file turned out to be corrupt; the next process to open it alone starts with an empty index.
        self.corrupt = False
        self.closed = False
        connection = self._connection()
        connection.execute("pragma journal_mode=wal")
        connection.executescript(_SCHEMA)
        if "checksums" not in {row[1] for row in connection.execute("pragma table_info(objects)")}:  # of version 0.2.0
            connection.execute("alter table objects add column checksums blob not null default x''")
        connection.executemany(
            "insert or ignore into accounts(bucket,bytes,objects) values(?,0,0)", [(name,) for name in config.buckets]
        )

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_TIMEOUT, check_same_thread=False)
        connection.execute(f"pragma synchronous={'full' if self._config.fsync else 'normal'}")
        connection.execute("pragma mmap_size=268435456")
        connection.create_function("eviction_key", 6, self._eviction_key, deterministic=True)
        return connection

    @contextmanager
    def _connect_writer(self) -> Iterator[tuple[sqlite3.Connection, sqlite3.Connection]]:
        with closing(self._connect()) as connection:
            yield connection, connection

    def _eviction_key(self, bucket: str, name: bytes, size: int, added: float, used: float, floor: float) -> float:
        return self._policies[bucket].key(Item(name.hex(), size, added, used), floor)

    def _note_failure(self, error: BaseException, transactions: int) -> BaseException:
        self.corrupt = self.corrupt or is_corruption(error)
        return error

    def close(self) -> None:
        """Commit the waiting writes, and stop the writer thread."""
        self._commits.close()
        self.closed = True

    # -- reading

    def get_row(self, name: bytes) -> Row | None:
        """Return an object's row, None if it is not in the index."""
        cursor = self._connection().execute(f"select {_ROW} from objects where name=?", (name,))
        row = cursor.fetchone()
        return Row(*row) if row else None

    def rows_after(self, name: bytes, limit: int) -> list[Row]:
        """Return at most ``limit`` rows in order of name, beginning after ``name``."""
        query = f"select {_ROW} from objects where name>? order by name limit ?"
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
        """Run a step in a transaction whose commit it may share with other steps; committed when this returns."""
        return self._commits.run(step, durable=self._config.fsync)

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
            groups = {
                name: Group(self._policies[name], used, self._config.buckets[name].quota)
                for name, used in connection.execute("select bucket,bytes from accounts")
            }
            total = sum(group.used for group in groups.values()) + size
            shortfall = disk_shortfall(size, connection.execute("select file,bytes from intents").fetchall())
            room = min(capacity, total - shortfall) if shortfall > 0 else capacity
            objects = _IndexedObjects(connection)
            newcomer = Newcomer(group=bucket.name, size=size, replaces=objects.present(name))
            decision = decide(groups, objects, newcomer, room, now)
            if decision.full is not None:
                policy = self._config.buckets[decision.full].policy
                raise Full(
                    f"the bucket {decision.full} is full, and no object in it may be evicted (Eviction: {policy})"
                )
            evicted = [
                _delete_evicted(connection, group, victim.id)
                for group, victims in decision.victims.items()
                for victim in victims
            ]
            for group, floor in decision.floors.items():
                connection.execute("update accounts set floor=? where bucket=? and floor<?", (floor, group, floor))
            connection.execute("update accounts set bytes=bytes+? where bucket=?", (size, bucket.name))
            connection.execute("insert into intents values(?,?,?,?)", (file, self._process, bucket.name, size))
            return evicted

        return self.write(step)

    def commit_object(self, bucket: Bucket, key: bytes, row: Row, condition: Condition | None) -> str | None:
        """Turn an intent into an object; return the replaced file, if any; raise Unmet if ``condition`` refuses."""

        def step(connection: sqlite3.Connection) -> str | None:
            old = connection.execute("select file,size,digest,added from objects where name=?", (row.name,)).fetchone()
            if condition and not condition(*(old[2:] if old else (None, 0.0))):
                raise Unmet
            connection.execute("delete from intents where file=?", (row.file,))
            connection.execute(
                "insert or replace into objects values(:name,:bucket,:key,:file,:size,:digest,:added,:added,"
                "eviction_key(:bucket,:name,:size,:added,:added,(select floor from accounts where bucket=:bucket)),"
                ":checksums)",
                {
                    "name": row.name,
                    "bucket": bucket.name,
                    "key": key,
                    "file": row.file,
                    "size": row.size,
                    "digest": row.digest,
                    "added": row.added,
                    "checksums": row.checksums,
                },
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

    def set_checksums(self, name: bytes, file: str, checksums: bytes) -> None:
        """Record the checksums of an object's blocks, if its row still refers to that file."""
        values = (checksums, name, file)
        self.write_or_defer(
            lambda connection: connection.execute("update objects set checksums=? where name=? and file=?", values)
        )

    def record(self, used: Mapping[bytes, float], metric_values: Mapping[tuple[str, str], float]) -> None:
        """Record when objects were last used, and add to the counters."""

        def step(connection: sqlite3.Connection) -> None:
            connection.executemany(
                f"update objects set used=:at, eviction_key={_KEY_AT} where name=:name and used<:due",
                [{"at": at, "name": name, "due": at - USE_RESOLUTION} for name, at in used.items()],
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
        so are buckets that are not configured any more, with their objects. Then the accounts are computed again, and
        the eviction keys of buckets that have another policy than before.
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
            connection.execute(f"delete from accounts where bucket not in ({marks})", list(self._config.buckets))
            connection.execute(
                "update accounts set (bytes,objects)=(select coalesce(sum(size),0),count(*) from objects"
                " where objects.bucket=accounts.bucket)"
            )
            for bucket in self._config.buckets.values():
                self._apply_policy(connection, bucket)
            return [file for (file,) in orphans]

        return self.write(step)

    def _apply_policy(self, connection: sqlite3.Connection, bucket: Bucket) -> None:
        """Compute a bucket's eviction keys again, as of each object's last use, if its policy has changed."""
        changed = connection.execute(
            "update accounts set policy=?1, floor=0 where bucket=?2 and policy<>?1", (bucket.policy, bucket.name)
        ).rowcount
        if changed:
            connection.execute(
                "update objects set eviction_key=eviction_key(bucket,name,size,added,used,0) where bucket=?",
                (bucket.name,),
            )


class _IndexedObjects:
    """The objects of the buckets as candidates for eviction, read from the index one by one; ids are names in hex."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def present(self, name: bytes) -> Candidate | None:
        """Return the present version of an object."""
        return next(self._select("name=?", (name,)), None)

    def by_key(self, group: str, below: float) -> Iterator[Candidate]:
        """Yield a bucket's objects with keys below a bound, the least key first."""
        return self._select("bucket=? and eviction_key<? order by eviction_key, name", (group, below))

    def youngest(self, group: str) -> Iterator[Candidate]:
        """Yield a bucket's objects, the last added first."""
        return self._select("bucket=? order by added desc, name desc", (group,))

    def _select(self, where: str, values: tuple[object, ...]) -> Iterator[Candidate]:
        query = f"select name,size,eviction_key from objects where {where}"
        return (Candidate(name.hex(), size, key) for name, size, key in self._connection.execute(query, values))


def _delete_evicted(connection: sqlite3.Connection, bucket: str, id: str) -> str:
    """Delete an evicted object, and return its file."""
    query = "delete from objects where name=? returning file,size"
    file, size = connection.execute(query, (bytes.fromhex(id),)).fetchone()
    _credit(connection, bucket, size)
    return str(file)


def _credit(connection: sqlite3.Connection, bucket: str, size: int) -> None:
    connection.execute("update accounts set bytes=bytes-?, objects=objects-1 where bucket=?", (size, bucket))
