"""Claims in SQL: which job works on a row, and until when, in the columns `claim` and `claim_until` of its table.

One UPDATE takes a claim and repeats what it relies on: the row needs the job, and no other job has it. The job's own
writes repeat that the claim holds. All versions of the platform write their claims to the same columns.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, TextClause, and_, select, text, update

from core.store.rows import StoredTable


class HeldClaim(NamedTuple):
    """A job's claim on a row, by the row's id and the random name of the attempt."""

    id: str
    who: str


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Claims on the rows of a table.

    ``needed``: SQL, which rows need the job. Its values are literals, so that a partial index is used. ``ready``: SQL,
    which of them it can work on now. ``counted``: the column `attempts` counts the claims.
    """

    table: StoredTable
    needed: str
    ready: str = "not_before<=:now"
    counted: bool = False

    @cached_property
    def taking(self) -> TextClause:
        """The statement that takes a claim, or renews it."""
        counted = ", attempts=attempts+(CASE WHEN claim=:who THEN 0 ELSE 1 END)" if self.counted else ""
        return text(
            f"UPDATE {self.table.name} SET claim=:who, claim_until=:until{counted} WHERE {self._key.name}=:i AND"
            f" {self.needed} AND (claim IS NULL OR claim_until<:now OR claim=:who) RETURNING {self._key.name}"
        )

    def take(self, c: Connection, claim: HeldClaim, seconds: float, now: float) -> bool:
        """Claim a row for ``seconds``, or renew the claim; False if another job has it or it needs none any more."""
        values = {"i": claim.id, "who": claim.who, "until": now + seconds, "now": now}
        return c.execute(self.taking, values).first() is not None

    def change(self, c: Connection, claim: HeldClaim, /, **values: object) -> bool:
        """Change columns of a claimed row; return False if the claim is lost."""
        changing = update(self.table).where(self._held(claim)).values(**values).returning(self._key)
        return c.execute(changing).first() is not None

    def release(self, c: Connection, claim: HeldClaim, /, **values: object) -> bool:
        """End a claim and change columns of its row; return False if the claim is lost."""
        return self.change(c, claim, claim=None, claim_until=0.0, **values)

    def lock(self, c: Connection, claim: HeldClaim) -> bool:
        """Return whether a claim still holds, and lock its row until the transaction ends."""
        return c.execute(select(self._key).where(self._held(claim)).with_for_update()).first() is not None

    def due(self, c: Connection, now: float) -> list[str]:
        """Return the rows that can be worked on and that no job has claimed, at most 100."""
        return list(c.scalars(self._due, {"now": now}))

    @cached_property
    def _key(self) -> Column[str]:
        return self.table.primary_key.columns[0]

    @cached_property
    def _due(self) -> TextClause:
        key = self._key.name
        conditions = " AND ".join(filter(None, (self.needed, "claim_until<:now", self.ready)))
        return text(f"SELECT {key} FROM {self.table.name} WHERE {conditions} ORDER BY {key} LIMIT 100")

    def _held(self, claim: HeldClaim) -> ColumnElement[bool]:
        return and_(self._key == claim.id, self.table.c.claim == claim.who, text(self.needed))
