"""Retention: the rules of projects, what they would take, and the daily pass that puts it into the bin.

A pass may be killed at any time: each batch is a transaction that looks again at what it takes, and the next pass
begins again. It does nothing to what is in the bin.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from common.errors import PlatformError
from core.domain.access.audit import AuditEntry
from core.domain.access.scopes import Caller, Scope
from core.domain.retention.retention_rules import (
    BinnedKind,
    Protection,
    RetainedThing,
    Retention,
    RetentionDecision,
    RetentionVerdict,
    check_rules,
    matches,
)
from core.services.orphan_search import OrphanSearch
from core.store import audit, datasets, models, simulations
from core.store import retention as store
from core.store.bin import BinAct
from core.store.database import Connection, Database

logger = logging.getLogger(__name__)

#: Seconds between two passes of a process, which look at all that projects with rules have.
PASS = 86_400.0
#: Things that are read at once, and that one transaction takes; other transactions wait for it.
PAGE, BATCH = 500, 50
#: Most things of a dry run that are listed, of those that would go and of those that are spared.
MOST_LISTED_THINGS = 100
#: The act of a rule in the audit log.
ACT = "apply_retention"


@dataclass(slots=True)
class RetentionPreview:
    """The effect of rules: number and bytes by kind, the first things that go, and those that protections spare."""

    taken: dict[BinnedKind, tuple[int, int]] = field(default_factory=dict)
    first: list[RetentionVerdict] = field(default_factory=list)
    spared: Counter[Protection] = field(default_factory=Counter)
    first_spared: list[RetentionVerdict] = field(default_factory=list)

    def add(self, verdict: RetentionVerdict) -> None:
        """Count a verdict of a rule."""
        thing = verdict.thing
        if not verdict.taken:
            self.spared.update(thing.protections)
            self.first_spared += [verdict] if len(self.first_spared) < MOST_LISTED_THINGS else []
            return
        number, size = self.taken.get(thing.kind, (0, 0))
        self.taken[thing.kind] = number + 1, size + thing.bytes
        self.first += [verdict] if len(self.first) < MOST_LISTED_THINGS else []


class ProjectRetention:
    """Service of the rules of projects."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._passes = OrphanSearch(PASS)

    def get(self, caller: Caller) -> Retention:
        """Return what the caller's project has decided."""
        with self._database.read() as c:
            return store.find(c, caller.scope)

    def decide(self, caller: Caller, decided: Retention) -> Retention:
        """Replace what the caller's project has decided. Raise Invalid for a rule that makes no sense."""
        check_rules(decided.rules)
        self._database.write(lambda c: store.put(c, caller.scope, decided))
        return decided

    def preview(self, caller: Caller, decided: Retention | None = None) -> RetentionPreview:
        """Return what rules would take now; without any, as the project has decided. Raise Invalid."""
        decided = decided or self.get(caller)
        check_rules(decided.rules)
        preview = RetentionPreview()
        for verdict in self._verdicts(caller.scope, decided, self._now()):
            preview.add(verdict)
        return preview

    def sweep(self) -> int:
        """Once a day, and first soon after the start, apply the rules of all projects; return how much they took."""
        return self.apply() if self._passes.begin() else 0

    def apply(self) -> int:
        """Put what rules take into the bin, of all projects; return how much."""
        with self._database.read() as c:
            projects = store.ruled_projects(c)
        total = 0
        for project in projects:
            try:
                total += self._apply(Scope(project))
            except PlatformError as error:  # those of other projects are applied all the same
                logger.warning("the rules of project %s are not applied: %s", project, error)
        return total

    def _apply(self, scope: Scope) -> int:
        with self._database.read() as c:
            decided = store.find(c, scope)
        now, taken = self._now(), 0
        for batch in _batches(self._verdicts(scope, decided, now)):
            took = self._database.write(partial(_take, scope=scope, decided=decided, batch=batch, now=now))
            if took is None:
                logger.info("project %s has changed its rules; they are applied with the next pass", scope.owner)
                break
            taken += took
        if taken:
            logger.info("rules of project %s have put %d things into the bin", scope.owner, taken)
        return taken

    def _verdicts(self, scope: Scope, decided: Retention, now: float) -> Iterator[RetentionVerdict]:
        """Yield what a rule is about, newest first, simulations before the models and datasets that they used."""
        decision = RetentionDecision(decided.rules, now)
        for kind in BinnedKind:
            if any(rule.kind is kind for rule in decided.rules):
                verdicts = map(decision.of, self._things(scope, kind))
                yield from (verdict for verdict in verdicts if verdict.rule is not None)

    def _things(self, scope: Scope, kind: BinnedKind) -> Iterator[RetainedThing]:
        after = None
        while True:
            with self._database.read() as c:
                page = store.things(c, scope, kind, after=after, limit=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].id

    def _now(self) -> float:
        with self._database.read() as c:
            return self._database.now(c)


def _batches(verdicts: Iterator[RetentionVerdict]) -> Iterator[Sequence[RetentionVerdict]]:
    """Yield what is taken, in batches of one kind each."""
    batch: list[RetentionVerdict] = []
    for verdict in verdicts:
        if not verdict.taken:
            continue
        if batch and (len(batch) == BATCH or batch[0].thing.kind is not verdict.thing.kind):
            yield batch
            batch = []
        batch.append(verdict)
    if batch:
        yield batch


def _take(
    c: Connection, *, scope: Scope, decided: Retention, batch: Sequence[RetentionVerdict], now: float
) -> int | None:
    """Put a batch into the bin, but for what has changed meanwhile; return how much; None: the rules have changed."""
    if store.find(c, scope) != decided:
        return None
    kind, ids = batch[0].thing.kind, sorted(verdict.thing.id for verdict in batch)
    lock, into_bin = _ACTS[kind]
    for id in ids:  # a submission that uses it is seen afterwards, or sees its end
        lock(c, scope, id)
    fresh = {thing.id: thing for thing in store.things(c, scope, kind, limit=len(ids), of=ids)}
    taken = [verdict for verdict in batch if _still_taken(verdict, fresh, now)]
    for verdict in taken:
        rule = verdict.rule.in_words() if verdict.rule is not None else None
        into_bin(c, scope, verdict.thing.id, BinAct(now, "", rule))
    subjects = [f"{kind.value}/{verdict.thing.id}" for verdict in taken]
    if entries := [(AuditEntry(act=ACT, project=scope.owner, subject=subject), 1) for subject in subjects]:
        audit.add(c, entries, now)
    return len(taken)


#: How a thing is locked, and how it is put into the bin, by kind.
_ACTS: Mapping[
    BinnedKind,
    tuple[Callable[[Connection, Scope, str], None], Callable[[Connection, Scope, str, BinAct], object]],
] = {
    BinnedKind.SIMULATIONS: (lambda c, scope, id: None, simulations.into_bin),
    BinnedKind.MODELS: (models.lock, models.into_bin),
    BinnedKind.DATASETS: (datasets.lock, datasets.into_bin),
}


def _still_taken(verdict: RetentionVerdict, fresh: Mapping[str, RetainedThing], now: float) -> bool:
    thing, rule = fresh.get(verdict.thing.id), verdict.rule
    return thing is not None and rule is not None and not thing.protections and matches(rule, thing, now)
