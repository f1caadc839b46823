"""The life of a session: active while it is used, then idle, decaying and archived.

    created → active → idle (24 h) → decaying (7 days) → archived (30 days) → deleted → purged

A use makes a session active again at once (disk/wakeup.py); after an edit by hand this pass does.
The state is in `metadata.yaml`: `status`, `status_since` and `status_reason`. The last use of a
session is the latest time of its memories and of its access log, never the time of a file, because
decay rewrites files. A future time does not count.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..ask.overview import last_uses
from ..disk import access
from ..disk.rewrite import rewrite
from ..disk.scope import Scope
from ..disk.session_files import METADATA
from ..disk.wakeup import RESTING
from ..model.errors import Conflict, CorruptionDetected, LockTimeout, SessionNotFound, SMPError
from ..model.layout import ACTIVE as SESSIONS
from ..model.outcome import Action, Outcome
from ..model.policies import Thresholds
from ..model.priority import HOURS_PER_DAY
from ..model.times import render_time, time_of
from ..text.mapping import load_mapping, replace_parts
from ..text.values import Value

if TYPE_CHECKING:
    from ..memory import Memory
    from ..session import Session

CREATED, ACTIVE, IDLE, DECAYING, ARCHIVED = "created", "active", "idle", "decaying", "archived"
STATES = (CREATED, ACTIVE, IDLE, DECAYING, ARCHIVED, "unreadable")


@dataclass(frozen=True)
class Standing:
    """The status of a session, and the times that decide whether it should change."""

    session: str
    status: str
    last_activity: datetime | None  # None where it is unknown
    since: datetime | None = None  # when it came into its status; None where nobody wrote it down


def plan(one: Standing, thresholds: Thresholds, now: datetime) -> Action | None:
    """Return the transition that is due, with its reason. An unknown status counts as `active`."""
    last, status, name = one.last_activity, one.status, one.session
    if last is None:
        return None
    days = {ARCHIVED: thresholds.archive_after_days, DECAYING: thresholds.decaying_after_days}
    limits = {state: (HOURS_PER_DAY * after, f"{after:g} days") for state, after in days.items()}
    limits[IDLE] = thresholds.idle_after_hours, f"{thresholds.idle_after_hours:g} hours"
    idle_hours = (now - last) / timedelta(hours=1)
    due = next((state for state, (hours, _) in limits.items() if idle_hours >= hours), ACTIVE)
    if due == status or (due == ACTIVE and status not in (CREATED, IDLE, DECAYING)):
        return None
    is_younger = due == ACTIVE or (due == IDLE and status == DECAYING)
    if is_younger and status in RESTING and one.since and last <= one.since <= now:
        return None  # made so by hand, or by other thresholds, and not used since
    reason = f"used at {render_time(last)}"
    if due != ACTIVE:
        reason = f"not used since {render_time(last)}, {due} after {limits[due][1]}"
    return Action(name, "archive" if due == ARCHIVED else f"become_{due}", (name,), reason)


def last_activity(session: Session) -> datetime:
    """Return when it was last written to or read; now, where nothing at all tells."""
    return activities(session.memory, [session.id]).get(session.id) or session._now()


def activities(
    memory: Memory, sessions: Sequence[str], *, readings: bool = True
) -> dict[str, datetime]:
    """Return when each was last used, or last written to; without those of which nothing tells."""
    read = access.last_readings(memory.tree, sessions) if readings else None
    return memory._asker_of(sessions).ask(lambda view: last_uses(view, read))


def lifecycle(
    memory: Memory, *, dry_run: bool = False, archive: bool = True,
    only: Collection[str] | None = None,
) -> Outcome:  # fmt: skip
    """Move every session, or only some, into its due state. One that fails stops no other."""
    memory.require()
    outcome = Outcome(dry_run=dry_run)
    thresholds, now = memory.options.thresholds, memory.options.clock()
    if not archive:
        thresholds = thresholds._replace(archive_after_days=math.inf)
    used = activities(memory, _names(memory, only))
    for name in _names(memory, only):
        try:
            metadata = memory._session(name).metadata()
            if not metadata:
                raise _no_metadata(name)
            status, since = metadata.get("status", ACTIVE), time_of(metadata.get("status_since"))
            one = Standing(name, str(status), used.get(name), since)
            if action := plan(one, thresholds, now):
                outcome.add(Outcome([action]) if dry_run else apply(memory, one, action))
        except SessionNotFound:
            continue  # it went meanwhile
        except (LockTimeout, Conflict) as error:  # it is in use: the next run does it
            outcome.notes.append(f"{name}: {error}")
        except (SMPError, OSError) as error:
            outcome.problems.append(f"{name}: {error}")
    return outcome


def _no_metadata(name: str) -> CorruptionDetected:
    advice = "Repair the session, which makes them anew."
    return CorruptionDetected(f"{METADATA} of {name} is missing or empty.",
                              session_id=name, advice=advice)  # fmt: skip


def apply(memory: Memory, one: Standing, action: Action) -> Outcome:
    """Change the state of a session, unless the session was used since the plan."""
    session, status = memory._session(action.session), action.type.removeprefix("become_")
    if one.last_activity is None or last_activity(session) > one.last_activity:
        return Outcome()
    if status == "archive":
        from ..change.move import archive  # late: it loads tar and gzip

        return archive(memory, session.id, action.reason)
    with session.scope.undisturbed("changing where the session is in its life"):
        _change_status(session.scope, status, action.reason)
    return Outcome([action])


def _names(memory: Memory, only: Collection[str] | None = None) -> list[str]:
    """Return the sessions that are there, or those of them that are meant."""
    found: list[str] = []
    for name in memory.tree.list(SESSIONS) if only is None else only:
        with suppress(SMPError, OSError):
            found += [name] if memory._is_session(name) else []
    return found


def _change_status(scope: Scope, status: str, reason: str) -> None:
    """Without a look at the quota: also a session that is full grows old."""
    now = render_time(scope.options.clock())
    changes: dict[str, Value] = {"status": status, "status_since": now, "status_reason": reason}

    def changed(content: bytes) -> bytes:
        if not load_mapping(content, "session", METADATA):
            raise _no_metadata(scope.name)
        return replace_parts(content, "session", changes, METADATA)

    with scope.locked([METADATA], f"making the session {status}"):
        rewrite(scope, METADATA, changed)
