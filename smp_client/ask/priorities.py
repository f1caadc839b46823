"""The priority of memories as of now, inside the index: the formula of model/priority.py in SQL.

Temporary tables of the connection hold the rules of the policy, the time of the question, and the
readings that no decay pass has added to the records yet (see readings.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from ..index.database import Index
from ..index.sql import Sql, within
from ..index.validity import STATE as ARCHIVED
from ..index.validity import SUMMARY as SUMMARY_TYPE
from ..index.validity import factor
from ..model.priority import Policy
from ..model.ranking import ACCESS_RATE, SUMMARY, Weights
from ..model.times import microseconds

_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000
_TABLES = """
CREATE TEMP TABLE IF NOT EXISTS rules (
    scope TEXT, standing TEXT, base REAL, rate REAL, boost REAL, floor REAL, age_rate REAL,
    boost_cap REAL, PRIMARY KEY (scope, standing)
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS clock (now INTEGER);
CREATE TEMP TABLE IF NOT EXISTS readings (
    scope TEXT, id TEXT, accessed INTEGER, accesses INTEGER, PRIMARY KEY (scope, id)
) WITHOUT ROWID;
"""
_HAS_RULES = "metadata LIKE '%decay_config%'"
_ALL = ""  # the scope of the rules that hold where a session has none of its own


class View:
    """An index with everything that a question needs."""

    def __init__(
        self, index: Index, scopes: Iterable[str], now: datetime, policy: Policy, weights: Weights
    ) -> None:
        self.index, self.scopes = index, tuple(scopes)
        self.now, self.policy, self.weights = now, policy, weights

    def within(self, column: str) -> Sql:
        """Return the condition that the column names one of the scopes."""
        return within(column, self.scopes)

    @cached_property
    def counts(self) -> tuple[int, int]:
        """How many memories the scopes have, and how many the whole index has."""
        rows = self.index.execute("SELECT scope, memories FROM scopes")
        counts = dict(rows.fetchall())
        return sum(counts.get(scope, 0) for scope in {*self.scopes}), sum(counts.values())

    @property
    def has_all(self) -> bool:
        """Return whether every memory of the index is in these scopes."""
        return self.counts[0] == self.counts[1]

    @property
    def has_readings(self) -> bool:
        """Return whether a memory of these scopes was read since the last decay pass."""
        logs = self.index.readings
        return any(log.end for log in logs.values()) and any(scope in logs for scope in self.scopes)

    @cached_property
    def own_rules(self) -> list[str]:
        """The sessions that have rules of their own, which are inserted now."""
        within = self.within("scope")
        asked = f"SELECT scope, metadata FROM sessions WHERE {within.text} AND {_HAS_RULES}"
        own = self.index.execute(asked, within.parameters).fetchall()
        for scope, metadata in own:
            _insert_rules(self.index, scope, self.policy.for_session(json.loads(metadata)))
        return [scope for scope, _ in own]


class Columns(NamedTuple):
    """SQL expressions over the tables that `source` joins."""

    priority: str
    recency: str
    state: str
    holds: str  # a factor of the score: less than 1 for a memory that no longer holds
    accesses: str  # how often it was read
    last: str  # when it was last read, else when it was made


def prepare(index: Index, now: datetime, policy: Policy) -> None:
    """Fill the temporary tables with the policy and the time of a question."""
    if index.rules != policy:
        index.connection.executescript(f"{_TABLES} DELETE FROM temp.rules; DELETE FROM temp.clock;")
        index.execute("INSERT INTO temp.clock VALUES (0)")
        _insert_rules(index, _ALL, policy)
        index.rules = policy
    # The time is no part of a question's text: SQLite compiles the same text only once.
    index.execute("UPDATE temp.clock SET now = ?", (microseconds(now),))


def source(view: View, *, by_key: bool = False) -> tuple[str, Columns]:
    """Return FROM … JOIN …, and the expressions over its tables.

    Numbers, and names that SMP has checked, stand in the text itself. With `by_key` SQLite looks
    each key up, instead of walking through all memories in the order of the answer.
    """
    scope = f"'{_ALL}'"
    if own := ", ".join(map(_quoted, view.own_rules)):
        scope = f"CASE WHEN m.scope IN ({own}) THEN m.scope ELSE '{_ALL}' END"
    memories = "memories m NOT INDEXED" if by_key else "memories m"
    rules = f"temp.rules r ON r.scope = {scope} AND r.standing = m.standing"
    joined = f"FROM {memories} CROSS JOIN {rules} CROSS JOIN temp.clock"
    state = "1.0"
    if len(view.scopes) > 1:
        joined += " LEFT JOIN sessions s ON s.scope = m.scope"
        cases = " ".join(
            f"WHEN {_quoted(name)} THEN {float(weight)}"
            for name, weight in view.weights.states.items()
        )
        # Evicted memories of a session that is in use count as archived ones.
        status = f"COALESCE(s.status, CASE WHEN m.scope GLOB '{ARCHIVED}/*' THEN '{ARCHIVED}' END)"
        state = f"CASE {status} {cases} ELSE 1.0 END" if cases else state
        state += f" * CASE m.type WHEN '{SUMMARY_TYPE}' THEN {SUMMARY} ELSE 1.0 END"
    last = "COALESCE(m.accessed, m.at, now)"
    accesses = "m.accesses"
    if view.has_readings:
        joined += " LEFT JOIN temp.readings a ON a.scope = m.scope AND a.id = m.id"
        last = f"MAX({last}, COALESCE(a.accessed, {last}))"
        accesses = "(m.accesses + COALESCE(a.accesses, 0))"
    idle = f"MAX(0, now - {last})"
    age = "MAX(0, now - COALESCE(m.at, now))"
    priority = (
        "MAX(r.floor, 0.0, MIN(1.0, COALESCE(m.base, r.base)"
        f" * EXP(-(r.rate * {idle} + r.age_rate * {age}) / {float(_DAY_US)})"
        f" + MIN(r.boost_cap, {accesses} * r.boost)))"
    )
    recency = f"EXP(-{ACCESS_RATE} * {idle} / {float(_HOUR_US)})"
    holds = factor(view.weights.ended)
    return joined, Columns(priority, recency, state, holds, accesses, last)


def _insert_rules(index: Index, scope: str, policy: Policy) -> None:
    enabled = float(policy.enabled)
    index.connection.executemany(
        "INSERT OR REPLACE INTO temp.rules VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (scope, name, rule.base, enabled * rule.rate, rule.boost, rule.floor,
             enabled * policy.age_rate, policy.boost_cap)
            for name, rule in policy.all_rules().items()
        ],
    )  # fmt: skip


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
