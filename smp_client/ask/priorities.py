"""The priority of memories as of now, inside the index: the formula of model/priority.py in SQL.

Temporary tables of the connection hold the rules of the policy, and the readings since records were
last written. They are filled before a question, and only with changes since the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

from ..disk.access import Noted
from ..index.archive import STATE as ARCHIVED
from ..index.archive import TYPE as SUMMARY_TYPE
from ..index.database import Index
from ..index.sql import Sql
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
CREATE TEMP TABLE IF NOT EXISTS noted (
    scope TEXT, id TEXT, times INTEGER, last INTEGER, PRIMARY KEY (scope, id)
) WITHOUT ROWID;
"""
_HAS_RULES = "metadata LIKE '%decay_config%'"
_NOTHING_READ = Noted()
_ALL = ""  # the scope of the rules that hold where a session has none of its own


class View:
    """The index that a question is asked of, some of its scopes, and the rules of now."""

    def __init__(
        self, index: Index, scopes: Iterable[str], now: datetime, policy: Policy, weights: Weights
    ) -> None:
        self.index, self.scopes = index, tuple(scopes)
        self.now, self.policy, self.weights = now, policy, weights

    def of(self, scopes: Iterable[str]) -> View:
        """Return this view of some of its scopes."""
        return View(self.index, scopes, self.now, self.policy, self.weights)

    @property
    def together(self) -> str | tuple[str, ...]:
        """The scopes as index/topics.py takes them: one session by its name."""
        return self.scopes[0] if len(self.scopes) == 1 else self.scopes

    def within(self, column: str) -> Sql:
        """Return the condition that the column names one of the scopes."""
        if len(self.scopes) == 1:
            return Sql(f"{column} = ?", self.scopes)
        return Sql(f"{column} IN (SELECT value FROM json_each(?))", (json.dumps(self.scopes),))


class Columns(NamedTuple):
    """Expressions over the source."""

    priority: str
    recency: str
    state: str
    holds: str  # what the score is multiplied by: less than 1 for a memory that no longer holds


def prepare(index: Index, now: datetime, policy: Policy, readings: Mapping[str, Noted]) -> None:
    """Make the temporary tables true for now."""
    if index.rules != policy:
        index.connection.executescript(f"{_TABLES} DELETE FROM temp.rules; DELETE FROM temp.clock;")
        index.connection.execute("INSERT INTO temp.clock VALUES (0)")
        _insert_rules(index, _ALL, policy)
        index.rules = policy
    # Not in the text of a question: a text that is the same again need not be understood again.
    index.connection.execute("UPDATE temp.clock SET now = ?", (microseconds(now),))
    for scope, noted in readings.items():
        known = index.noted.get(scope, _NOTHING_READ)
        if known is noted or not (known or noted):
            continue
        if known.log is not noted.log:
            index.connection.execute("DELETE FROM temp.noted WHERE scope = ?", (scope,))
            known = _NOTHING_READ
        # What was read since then stands at the end.
        last = reversed(noted.items())
        new = takewhile(lambda item: known.get(item[0]) != item[1], last)  # noqa: B023
        rows = [(scope, name, one.times, microseconds(one.last)) for name, one in new]
        index.connection.executemany("INSERT OR REPLACE INTO temp.noted VALUES (?, ?, ?, ?)", rows)
        index.noted[scope] = noted
        if not noted:
            del index.noted[scope]


def source(view: View, *, by_key: bool = False) -> tuple[str, Columns]:
    """Return FROM … JOIN …, and the expressions over it.

    Numbers, and names that SMP has checked, stand in the text itself. With keys SQLite goes by them
    alone, and not through all memories in the order of the answer.
    """
    own = _own_rules(view)
    scope = (
        f"CASE WHEN m.scope IN ({', '.join(map(_quoted, own))}) THEN m.scope ELSE '{_ALL}' END"
        if own
        else f"'{_ALL}'"
    )
    memories = "memories m NOT INDEXED" if by_key else "memories m"
    rules = f"temp.rules r ON r.scope = {scope} AND r.standing = m.standing"
    joined = f"FROM {memories} CROSS JOIN {rules} CROSS JOIN temp.clock"
    last, times = "COALESCE(m.accessed, m.at, now)", "m.accesses"
    if view.index.noted:
        joined += " LEFT JOIN temp.noted a ON a.scope = m.scope AND a.id = m.id"
        last, times = f"MAX({last}, COALESCE(a.last, 0))", "(m.accesses + COALESCE(a.times, 0))"
    state = "1.0"
    if len(view.scopes) > 1:
        joined += " LEFT JOIN sessions s ON s.scope = m.scope"
        cases = " ".join(
            f"WHEN {_quoted(name)} THEN {float(factor)}"
            for name, factor in view.weights.states.items()
        )
        # Evicted memories of a session that is in use count as archived ones.
        status = f"COALESCE(s.status, CASE WHEN m.scope GLOB '{ARCHIVED}/*' THEN '{ARCHIVED}' END)"
        state = f"CASE {status} {cases} ELSE 1.0 END" if cases else state
        state += f" * CASE m.type WHEN '{SUMMARY_TYPE}' THEN {SUMMARY} ELSE 1.0 END"
    idle, age = f"MAX(0, now - {last})", "MAX(0, now - COALESCE(m.at, now))"
    priority = (
        "MAX(r.floor, 0.0, MIN(1.0, COALESCE(m.base, r.base)"
        f" * EXP(-(r.rate * {idle} + r.age_rate * {age}) / {float(_DAY_US)})"
        f" + MIN(r.boost_cap, {times} * r.boost)))"
    )
    recency = f"EXP(-{ACCESS_RATE} * {idle} / {float(_HOUR_US)})"
    return joined, Columns(priority, recency, state, factor(view.weights.ended))


def _own_rules(view: View) -> list[str]:
    """Return the sessions with rules of their own, and put these into the table."""
    within = view.within("scope")
    asked = f"SELECT scope, metadata FROM sessions WHERE {within.text} AND {_HAS_RULES}"
    own = view.index.connection.execute(asked, within.parameters).fetchall()
    for scope, metadata in own:
        _insert_rules(view.index, scope, view.policy.for_session(json.loads(metadata)))
    return [scope for scope, _ in own]


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
