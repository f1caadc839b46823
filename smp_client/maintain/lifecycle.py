"""The life of a session: active while it is used, then idle, decaying and archived; active again as soon as it is used.

    created → active → idle (24 h) → decaying (7 days) → archived (30 days) → deleted → purged

Where it stands is in `metadata.yaml`: `status`, `status_since` and `status_reason`. When it was last used is told by what its
memories and its access log say, never by the times of files, which decay rewrites. What claims to be from the future says nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ..errors import CorruptionDetected, Invalid, SessionNotFound, SMPError
from ..layout import ACTIVE as SESSIONS
from ..locks import NO_PATIENCE
from ..policies import HOURS_PER_DAY, Thresholds
from ..privacy.redact import harmless
from ..questions.query import microseconds
from ..records import plain_fields
from ..rewrite import rewrite
from ..scope import Scope
from ..session_files import METADATA, RESTING
from ..text.mapping import load_mapping, replace_parts
from ..text.values import Value
from ..timestamps import parse_time, render_time
from .actions import Action, Outcome

if TYPE_CHECKING:
    from ..memory import Memory
    from ..questions.priorities import View
    from ..session import Session

CREATED, ACTIVE, IDLE, DECAYING, ARCHIVED, DELETED = "created", "active", "idle", "decaying", "archived", "deleted"
Passed = Callable[[datetime], timedelta]
STATES = (CREATED, ACTIVE, IDLE, DECAYING, ARCHIVED, DELETED)
_FUTURE = timedelta(days=1)  # clocks differ by less; a time beyond it is a slip, and must not keep a session alive for ever
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {ACTIVE: "become_active", IDLE: "become_idle", DECAYING: "become_decaying", ARCHIVED: "archive"}
_STATUSES = {type: status for status, type in _TYPES.items()}
_JULIAN_EPOCH, _DAY_MS = 2440587.5, 86_400_000
_CHANGED = f"CAST(ROUND((julianday(json_extract(data, '$.updated_at')) - {_JULIAN_EPOCH}) * {_DAY_MS}) AS INTEGER) * 1000"
# Looking for the word is far quicker than reading JSON; and SQLite takes also 'now' for a time.
_WAS_CHANGED = "instr(data, '\"updated_at\"') AND json_extract(data, '$.updated_at') GLOB '[0-9][0-9][0-9][0-9]-*'"


@dataclass(frozen=True)
class Standing:
    """Where a session is in its life, and what says whether it should be elsewhere."""

    session: str
    status: str
    last_activity: datetime | None  # None where nothing tells
    since: datetime | None = None  # when it came into its status; None where nobody wrote it down


@dataclass(frozen=True)
class Transition(Action):
    """From one state into another; done only if what it was decided from still holds."""

    before: str = ACTIVE
    last_activity: datetime | None = None


def state_for(idle_for: timedelta, thresholds: Thresholds) -> str:
    hours = idle_for / timedelta(hours=1)
    if hours >= thresholds.archive_after_days * HOURS_PER_DAY:
        return ARCHIVED
    if hours >= thresholds.decaying_after_days * HOURS_PER_DAY:
        return DECAYING
    return IDLE if hours >= thresholds.idle_after_hours else ACTIVE


def plan(standings: Iterable[Standing], thresholds: Thresholds, now: datetime, passed: Passed | None = None) -> list[Action]:
    """What is due, each with its reason. A status that SMP does not know stands for `active`, and stays until something is due.
    `passed` says how much time has passed since then; without it, as much as the clock says."""
    passed = passed or (lambda since: max(now - since, timedelta()))
    return [action for standing in standings if (action := _due(standing, thresholds, now, passed))]


def _due(standing: Standing, thresholds: Thresholds, now: datetime, passed: Passed) -> Transition | None:
    last = standing.last_activity
    if last is None:
        return None
    due = state_for(passed(last), thresholds)
    is_known = standing.status in (CREATED, IDLE, DECAYING)
    if due == standing.status or (due == ACTIVE and not is_known):
        return None
    is_younger = due == ACTIVE or (due == IDLE and standing.status == DECAYING)
    if is_younger and standing.status in RESTING and standing.since and last <= standing.since <= now:
        return None  # made so by hand, or by other thresholds, and not used since
    reason = _reason(standing.status, due, last, thresholds, last + passed(last))
    return Transition(standing.session, _TYPES[due], (standing.session,), reason, 0, standing.status, last)


def _reason(before: str, due: str, last: datetime, thresholds: Thresholds, now: datetime) -> str:
    if due == ACTIVE:
        return "a new session is active at once" if before == CREATED else f"used again at {render_time(last)}"
    limit = {
        IDLE: f"idle after {_number(thresholds.idle_after_hours)} hours",
        DECAYING: f"decaying after {_number(thresholds.decaying_after_days)} days",
        ARCHIVED: f"archived after {_number(thresholds.archive_after_days)} days",
    }[due]
    return f"not used for {_length(now - last)} (since {render_time(last)}), {limit}"


def _length(time: timedelta) -> str:
    hours = time // timedelta(hours=1)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} hour{'' if hours == 1 else 's'}"


def _number(number: float) -> str:
    return f"{number:,.10g}"


def last_activity(session: Session) -> datetime:
    """When it was last written to or read; now, where nothing at all tells: what nobody knows of is not old."""
    return session._asker().ask(_activities).get(session.id) or session._now()


def activities(memory: Memory, sessions: Sequence[str], *, readings: bool = True) -> dict[str, datetime]:
    """When each was last used, or last written to, in one question; without those of which nothing tells."""
    return memory._asker_of(sessions).ask(lambda view: _activities(view, readings=readings))


def _activities(view: View, *, readings: bool = True) -> dict[str, datetime]:
    within = view.within("scope")
    limit = microseconds(min(view.now, datetime.max.replace(tzinfo=UTC) - _FUTURE) + _FUTURE)
    found: dict[str, int] = {}

    def take(query: str) -> None:
        for scope, *times in view.index.connection.execute(query, within.parameters):
            found[scope] = max([found.get(scope, 0), *(time for time in times if time is not None and time <= limit)])

    for scope, metadata in view.index.connection.execute(
        f"SELECT scope, metadata FROM sessions WHERE {within.text}", within.parameters
    ):
        stamps = (_time(json.loads(metadata).get(name)) for name in ("created_at", *(("last_accessed",) if readings else ())))
        found[scope] = max([0, *(at for stamp in stamps if stamp and (at := microseconds(stamp)) <= limit)])
    columns = ("at", "accessed") if readings else ("at",)
    newest = ", ".join(f"MAX(CASE WHEN {column} <= {limit} THEN {column} END)" for column in columns)
    take(f"SELECT scope, {newest} FROM memories WHERE {within.text} GROUP BY scope")
    changed = f"SELECT scope, {_CHANGED} AS changed FROM memories WHERE {within.text} AND {_WAS_CHANGED}"
    take(f"SELECT scope, MAX(changed) FROM ({changed}) WHERE changed <= {limit} GROUP BY scope")
    if readings:
        take(f"SELECT scope, MAX(last) FROM temp.noted WHERE {within.text} AND last <= {limit} GROUP BY scope")
    return {scope: min(_EPOCH + timedelta(microseconds=time), view.now) for scope, time in found.items() if time > 0}


def _time(text: object) -> datetime | None:
    with suppress(ValueError, OverflowError):
        return parse_time(text) if isinstance(text, str) else None
    return None


def lifecycle(
    memory: Memory, *, dry_run: bool = False, archive: bool = True, only: Collection[str] | None = None,
    passed: Passed | None = None,
) -> Outcome:  # fmt: skip
    """Every session, or only some, into the state that is due; a session that fails stops no other. `passed` is as for `plan`."""
    memory.require()
    outcome = Outcome(dry_run=dry_run)
    standings = list(_standings(memory, outcome.problems, only))
    thresholds = memory.options.thresholds
    if not archive:
        thresholds = replace(thresholds, archive_after_days=math.inf)
    for action in plan(standings, thresholds, _now(memory), passed):
        if dry_run:
            outcome.actions.append(action)
            continue
        try:
            done = apply(memory, action)
        except SessionNotFound:
            continue  # it went meanwhile
        except (SMPError, OSError) as error:
            outcome.problems.append(f"{action.session}: {error}")
            continue
        outcome.actions += done.actions
        outcome.problems += done.problems
    return outcome


def apply(memory: Memory, action: Action) -> Outcome:
    """Does nothing where the session is not any more what the action was decided from."""
    session = memory._session(action.session)
    before = action.before if isinstance(action, Transition) else session.state
    status = _STATUSES[action.type]
    if status == ARCHIVED:
        return _archive(memory, session, action, before)
    with session.scope.undisturbed("changing where the session is in its life"):
        is_done = _change_status(session.scope, status, action.reason, only_from=(before,))
    return Outcome([action] if is_done else [])


def _archive(memory: Memory, session: Session, action: Action, before: str) -> Outcome:
    from .archive import archive

    planned = action.last_activity if isinstance(action, Transition) else None
    if session.state != before or (planned and last_activity(session) > planned):
        return Outcome()
    return archive(memory, session.id, action.reason)


def _standings(memory: Memory, problems: list[str], only: Collection[str] | None) -> Iterator[Standing]:
    names = [name for name in (memory.tree.list(SESSIONS) if only is None else only) if _is_session(memory, name)]
    known = activities(memory, names)
    for name in names:
        try:
            metadata = memory._session(name).metadata()
        except SessionNotFound:
            continue
        except (SMPError, OSError) as error:
            problems.append(f"{name}: {error}")
            continue
        if not metadata:
            problems.append(f"{name}: {METADATA} is missing or empty, so nothing says how old it is; repair makes it anew")
            continue
        yield Standing(name, str(metadata.get("status", ACTIVE)), known.get(name), _time(metadata.get("status_since")))


def _is_session(memory: Memory, name: str) -> bool:
    try:
        return memory._is_session(name)
    except (SMPError, OSError):
        return False


def _now(memory: Memory) -> datetime:
    now = memory.options.clock()
    return now if now.tzinfo else now.replace(tzinfo=UTC)


def activate(session: Session, reason: str) -> None:
    """Active from now on, as if it had just been used."""
    _change_status(session.scope, ACTIVE, _said(reason), used=True)


def deactivate(session: Session, reason: str) -> None:
    """Idle until it is used again."""
    _change_status(session.scope, IDLE, _said(reason))


def wake(scope: Scope, reason: str) -> bool:
    """Active again, because it was used. Never waits and never fails: whoever used it is not to notice."""
    hurried = Scope(scope.tree, scope.name, scope.directory, replace(scope.options, patience=NO_PATIENCE))
    with suppress(OSError, SMPError):
        return _change_status(hurried, ACTIVE, reason, only_from=RESTING, used=True)
    return False


def _change_status(scope: Scope, status: str, reason: str, *, only_from: Collection[str] | None = None, used: bool = False) -> bool:
    """Without a look at the quota: also a session that is full grows old."""
    now = render_time(scope.options.clock())
    changes: dict[str, Value] = {"status": status, "status_since": now, "status_reason": reason}
    changes |= {"last_accessed": now} if used else {}
    is_done = False

    def changed(content: bytes) -> bytes:
        nonlocal is_done
        known = load_mapping(content, "session", METADATA)
        if not known:
            raise CorruptionDetected(f"{METADATA} of {scope.name} is missing or empty.", session_id=scope.name,
                                     advice="Repair the session, which makes it anew.")  # fmt: skip
        is_done = only_from is None or str(known.get("status", ACTIVE)) in only_from
        return replace_parts(content, "session", changes, METADATA) if is_done else content

    with scope.locked([METADATA], f"making the session {status}"):
        rewrite(scope, METADATA, changed)
    return is_done


def _said(reason: str) -> str:
    problems: list[str] = []
    said = plain_fields({"reason": reason}, problems).get("reason")
    if problems or not isinstance(said, str) or not said.strip():
        raise Invalid(problems or ["a reason must be given, in words"])
    return harmless(said)
