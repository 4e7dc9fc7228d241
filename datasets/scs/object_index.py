"""Which objects there are and how many bytes each bucket holds: SQLite, shared by every process on one folder.

The file `ab/rest.random` of an object is never written twice, so whoever still knows an old one finds it gone and looks
again. A file is announced as an *intent*, with its bytes counted, before it is made; what a dead process had intended
is undone by the living, or by the next to start.
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
#: Tells by the digest (None: there is none) and the time of what is there, whether it may be replaced.
Condition = Callable[[bytes | None, float], bool]
Step = Callable[[sqlite3.Connection], T]
#: Tells how many bytes a disk lacks for so many more, beside files that were announced before (names and bytes).
Lacking = Callable[[int, Iterable[tuple[str, int]]], int]

#: What a full bucket gives up first, as an SQL sort key that is an index. Two policies are more than a key: ``random``,
#: and ``nr``, which gives up only what nobody has used for a day: a set that is read over and over in any order keeps
#: what fits, and yet nothing stays for ever.
ORDER: Mapping[str, str] = {"lru": "used, name", "fifo": "added, name"}
NR_IDLE = 86400.0
#: Seconds an entry's use may be older in the ledger than it is: one write for many reads.
COARSE = 10.0
#: What SQLite says of a file that is no sound ledger any more: a disk has flipped or lost some of it.
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
#: Seconds to wait for other processes' writes.
_BUSY = 30.0
_TOGETHER = 500
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
    """There is no room for the object, and nothing that may make room for it."""


class TooLarge(Full):
    """The object is larger than its bucket could ever hold."""


class Unmet(Exception):
    """The object that is there is not one that may be replaced."""


@dataclass(frozen=True, slots=True)
class Row:
    """An object as the ledger knows it; ``file`` relative to the folder, ``digest`` its SHA-256."""

    name: bytes
    file: str
    size: int
    digest: bytes
    added: float


@dataclass(frozen=True, slots=True)
class Account:
    """What a bucket holds, bytes on their way included."""

    bytes: int
    objects: int


def name_of(bucket: str, key: bytes) -> bytes:
    """Return what an object is called in the ledger and, in hexadecimal, on disk: no key can name a place."""
    return blake2b(bucket.encode() + b"\0" + key, digest_size=16).digest()


def is_damage(error: BaseException) -> bool:
    """Tell whether an error says that the ledger's file is damaged, and not that it is busy or the disk is full."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def debtor(held: Mapping[str, int], shares: Mapping[str, float]) -> str:
    """Return the bucket that has to give when all of them are full: the one furthest above its share.

    The shares add up to what there is, so while that is exceeded some bucket is above its own: none within its share
    ever gives.
    """
    return max(held, key=lambda bucket: (held[bucket] - shares.get(bucket, 0.0), bucket))


class Ledger:
    """One process's hold on the ledger: reads on the caller's thread, writes gathered by one thread of its own."""

    def __init__(self, path: Path, config: Config, process: str) -> None:
        self._path, self._config, self._process = path, config, process
        self._local = threading.local()
        self._asked: queue.SimpleQueue[tuple[Step[Any], Future[Any]] | None] = queue.SimpleQueue()
        self._shares = {bucket.name: config.share(bucket) for bucket in config.buckets.values()}
        self._owed: list[Step[Any]] = []
        #: Whether the file turned out to be damaged; whoever opens it next, alone, begins a new one.
        self.broken = False
        connection = self._connection()
        connection.execute("pragma journal_mode=wal")
        connection.executescript(_SCHEMA)
        connection.executemany("insert or ignore into accounts values(?,0,0)", [(name,) for name in config.buckets])
        self._writer = threading.Thread(target=self._write_all, name="ledger", daemon=True)
        self._writer.start()

    def _connection(self) -> sqlite3.Connection:
        made: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if made is None:
            made = self._local.connection = sqlite3.connect(
                self._path, isolation_level=None, timeout=_BUSY, check_same_thread=False
            )
            made.execute(f"pragma synchronous={'full' if self._config.fsync else 'normal'}")
            made.execute("pragma mmap_size=268435456")
        return made

    def close(self) -> None:
        """Write what was asked for, and stop."""
        self._asked.put(None)
        self._writer.join()

    @property
    def alive(self) -> bool:
        """Whether writes are still served."""
        return self._writer.is_alive()

    # -- reading

    def look(self, name: bytes) -> Row | None:
        """Return an object's row."""
        found = self._connection().execute("select name,file,size,digest,added from objects where name=?", (name,))
        row = found.fetchone()
        return Row(*row) if row else None

    def after(self, name: bytes, limit: int) -> list[Row]:
        """Return some rows in order of name, from the first beyond ``name`` on."""
        query = "select name,file,size,digest,added from objects where name>? order by name limit ?"
        return [Row(*row) for row in self._connection().execute(query, (name, limit))]

    def accounts(self) -> dict[str, Account]:
        """Return what every bucket holds."""
        rows = self._connection().execute("select bucket,bytes,objects from accounts")
        return {bucket: Account(held, objects) for bucket, held, objects in rows}

    def counters(self) -> dict[tuple[str, str], float]:
        """Return what every process has counted, since the folder was made."""
        rows = self._connection().execute("select name,labels,value from counters")
        return {(name, labels): value for name, labels, value in rows}

    # -- writing

    def write(self, step: Step[T]) -> T:
        """Take a step in a transaction it may share with others'; it counts when this returns."""
        done: Future[T] = Future()
        self._asked.put((step, done))
        return done.result()

    def owe(self, step: Step[Any]) -> None:
        """Take a step now, or later if the disk is too full even for that; never raise for it."""
        try:
            self.write(step)
        except sqlite3.OperationalError:
            self._owed.append(step)

    def settle(self) -> None:
        """Try again what is owed."""
        owed, self._owed = self._owed, []
        for step in owed:
            self.owe(step)

    def _write_all(self) -> None:
        connection = self._connection()
        while (first := self._asked.get()) is not None:
            batch = [first]
            over = False
            while len(batch) < _TOGETHER and not self._asked.empty():
                if (more := self._asked.get()) is None:
                    over = True
                    break
                batch.append(more)
            self._commit(connection, batch)
            if over:
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
                    # On a full disk SQLite has rolled all of it back; on a damaged file no other step may count either.
                    if not connection.in_transaction or is_damage(error):
                        raise
                    connection.execute("rollback to step")
                    answers.append((done, None, error))
                connection.execute("release step")
            connection.execute("commit")
        except Exception as error:
            with suppress(sqlite3.Error):
                connection.execute("rollback")
            self.broken = self.broken or is_damage(error)
            answers = [(done, None, error) for _, done in batch]
        for done, answer, error_ in answers:
            if error_ is not None:
                done.set_exception(error_)
            else:
                done.set_result(answer)

    # -- steps

    def reserve(
        self, bucket: Bucket, name: bytes, file: str, size: int, now: float, lacking: Lacking = lambda *_: 0
    ) -> list[str]:
        """Count an object's bytes before they come; return the files of objects that had to go for it.

        ``lacking`` says how much more is freed, for a disk that is fuller than the accounts say.
        """
        capacity = self._config.capacity
        if size > min(bucket.quota, capacity):
            raise TooLarge(f"{size} bytes are more than the bucket {bucket.name} may hold")

        def step(connection: sqlite3.Connection) -> list[str]:
            held: dict[str, int] = dict(connection.execute("select bucket,bytes from accounts"))
            gone: list[tuple[str, int]] = []
            short = lacking(size, connection.execute("select file,bytes from intents").fetchall())

            def give(giver: str, need: int) -> None:
                policy = self._config.buckets[giver].policy
                freed = _evict(connection, giver, policy, need, name, now, forced=giver != bucket.name)
                gone.extend(freed)
                held[giver] -= sum(each for _, each in freed)

            if (need := held[bucket.name] + size - bucket.quota) > 0:
                give(bucket.name, need)
            while True:
                wanted = max(sum(held.values()) + size - capacity, short - sum(each for _, each in gone))
                if wanted <= 0:
                    break
                after = {**held, bucket.name: held[bucket.name] + size}
                giver = debtor(after, self._shares)
                # down to its share at most: then somebody else may be further above
                above = int(after[giver] - self._shares[giver])
                give(giver, min(wanted, above) if above > 0 else wanted)
            taken = connection.execute(
                "update accounts set bytes=bytes+? where bucket=? and bytes+?<=? returning bytes",
                (size, bucket.name, size, bucket.quota),
            ).fetchone()
            if taken is None:
                raise Full(f"the bucket {bucket.name} is full")
            connection.execute("insert into intents values(?,?,?,?)", (file, self._process, bucket.name, size))
            return [gone_file for gone_file, _ in gone]

        return self.write(step)

    def keep(self, bucket: Bucket, key: bytes, row: Row, condition: Condition | None) -> str | None:
        """Make an announced file an object; return the file that it takes the place of; raise Unmet if it may not."""

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

    def forget(self, file: str) -> None:
        """Take an announcement back."""

        def step(connection: sqlite3.Connection) -> None:
            taken = connection.execute("delete from intents where file=? returning bucket,bytes", (file,)).fetchone()
            if taken:
                connection.execute("update accounts set bytes=bytes-? where bucket=?", (taken[1], taken[0]))

        self.owe(step)

    def drop(self, name: bytes, file: str) -> None:
        """Take an object out, if it still is the one of that file."""

        def step(connection: sqlite3.Connection) -> None:
            gone = connection.execute(
                "delete from objects where name=? and file=? returning bucket,size", (name, file)
            ).fetchone()
            if gone:
                _credit(connection, gone[0], gone[1])

        self.owe(step)

    def note(self, used: Mapping[bytes, float], counted: Mapping[tuple[str, str], float]) -> None:
        """Write down when objects were last used, and what was counted since the last time."""

        def step(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "update objects set used=? where name=? and used<?",
                [(at, name, at - COARSE) for name, at in used.items()],
            )
            connection.executemany(
                "insert into counters values(?,?,?) on conflict(name,labels) do update set value=value+excluded.value",
                [(name, labels, value) for (name, labels), value in counted.items()],
            )

        self.write(step)

    # -- after a death

    def check(self) -> None:
        """Raise the error that says so, should the file be damaged anywhere; it reads all of it."""
        ((found,),) = self._connection().execute("pragma quick_check(1)")
        if found != "ok":
            damage = sqlite3.DatabaseError(" ".join(found.split()))
            damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise damage

    def strangers(self) -> list[str]:
        """Return the processes that intend something, ours apart."""
        rows = self._connection().execute("select distinct process from intents where process<>?", (self._process,))
        return [process for (process,) in rows]

    def undo(self, process: str) -> list[str]:
        """Take back what a dead process intended; return the files it may have left."""

        def step(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute(
                "delete from intents where process=? returning file,bucket,bytes", (process,)
            ).fetchall()
            for _, bucket, held in rows:
                connection.execute("update accounts set bytes=bytes-? where bucket=?", (held, bucket))
            return [file for file, _, _ in rows]

        return self.write(step)

    def reconcile(self, found: Callable[[], Iterable[tuple[str, int]]]) -> Iterable[str]:
        """Make rows and files agree, while nobody else is at work; return the files that no row knows.

        ``found`` yields every file with its size. Rows without their file, or with one of another size, go; buckets
        that are configured no longer go with all they held; then everything is counted anew.
        """

        def step(connection: sqlite3.Connection) -> list[str]:
            marks = ",".join("?" * len(self._config.buckets))
            connection.execute(f"delete from objects where bucket not in ({marks})", list(self._config.buckets))
            connection.execute("create temp table found(file text primary key, size integer) without rowid")
            connection.executemany("insert into found values(?,?)", found())
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
    """Take objects out of a bucket until ``need`` bytes are free; raise Full if that cannot be.

    ``forced``: it is above its share and another bucket is not, so ``nr`` has to give too: the youngest first.
    """
    gone: list[tuple[bytes, str, int]] = []
    candidates = chain(*_candidates(connection, bucket, policy, newcomer, now, forced=forced))
    while need > 0:
        row = next(candidates, None)
        if row is None:
            raise Full(f"the bucket {bucket} is full, and nothing in it may go")
        gone.append(row)
        need -= row[2]
    connection.executemany("delete from objects where name=?", [(name,) for name, _, _ in gone])
    for _, _, size in gone:
        _credit(connection, bucket, size)
    return [(file, size) for _, file, size in gone]


def _candidates(
    connection: sqlite3.Connection, bucket: str, policy: str, newcomer: bytes, now: float, *, forced: bool
) -> Iterator[Iterator[tuple[bytes, str, int]]]:
    """Yield queries for what may go: first the version that is about to be replaced, then by the policy."""
    columns = "select name,file,size from objects where"
    yield connection.execute(f"{columns} name=? and bucket=?", (newcomer, bucket))
    rest = f"{columns} bucket=? and name<>?"
    if policy == "nr" and forced:
        yield connection.execute(f"{rest} order by added desc, name desc", (bucket, newcomer))
    elif policy == "nr":
        yield connection.execute(f"{rest} and used<? order by used, name", (bucket, newcomer, now - NR_IDLE))
    elif policy == "random":  # from some place in the names on, which are hashes, and round
        place = secrets.token_bytes(16)
        yield connection.execute(f"{rest} and name>=? order by name", (bucket, newcomer, place))
        yield connection.execute(f"{rest} and name<? order by name", (bucket, newcomer, place))
    else:
        yield connection.execute(f"{rest} order by {ORDER[policy]}", (bucket, newcomer))


def _credit(connection: sqlite3.Connection, bucket: str, size: int) -> None:
    connection.execute("update accounts set bytes=bytes-?, objects=objects-1 where bucket=?", (size, bucket))
