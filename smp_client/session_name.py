"""The session that a name means: a whole id, `latest`, or the beginning or last part of one id.

The last part of `session-2026-01-11-abc123` is `abc123`: narrow tables show it. `latest` is the
session that was written last; of archived or deleted sessions, the one that came last. Reading does
not count: a search over all sessions would make each of them the latest.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .model.errors import SessionNotFound, SessionPutAway
from .model.layout import ACTIVE, ARCHIVED, DELETED, LATEST, check_session_id

if TYPE_CHECKING:
    from .memory import Memory

PLACES = (ACTIVE, ARCHIVED, DELETED)
_NAMED = 5
_LIKENESS, _SLIPS = 0.6, 3  # of two names of which one may be meant for the other
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def sessions_in(memory: Memory, place: str) -> dict[str, str]:
    """Return the ids of the sessions in this place, each with the time when it came there."""
    if place == ARCHIVED:
        return {one.session: one.at for one in memory.archived_sessions()}
    if place == DELETED:
        return {one.session: one.at for one in memory.deleted_sessions()}
    return {session.id: "" for session in memory._sessions()}


def session_id(memory: Memory, name: str, places: Sequence[str] = (ACTIVE,)) -> str:
    """Return the id of the session that `name` means, of the sessions in `places`.

    Raise SessionNotFound where no session fits or several do, with the candidates. A whole id never
    means another session whose id begins like it, also when its own session is elsewhere or purged.
    """
    check_session_id(name)
    memory.require()
    known = {place: sessions_in(memory, place) for place in places}
    if any(name in some for some in known.values()):
        return name
    if name == LATEST:
        return _latest(memory, places[0], known[places[0]])
    _require_no_whole_id(memory, name, places)
    where = {
        one: place for place in PLACES for one in known.get(place) or sessions_in(memory, place)
    }
    fitting = [one for one in where if one.startswith(name) or one.endswith(f"-{name}")]
    candidates = [one for one in fitting if where[one] in places]
    if len(candidates) == 1:
        return candidates[0]
    if len(fitting) == 1:
        memory._session(
            fitting[0]
        )  # raises: the session is elsewhere, and the error says how it comes back
    raise _not_one(memory, name, candidates or fitting, where, places)


def _latest(memory: Memory, place: str, sessions: Mapping[str, str]) -> str:
    if not sessions:
        what, advice = (
            ("session", "Make one with smp new.") if place == ACTIVE else (f"{place} session", "")
        )
        raise SessionNotFound(f"There is no {what} under {memory.root}.", advice=advice)
    if place != ACTIVE:
        return max(sessions, key=lambda one: sessions[one])
    from .passes.lifecycle import activities

    written = activities(memory, list(sessions), readings=False)
    return max(sessions, key=lambda one: written.get(one, _LONG_AGO))


def _require_no_whole_id(memory: Memory, name: str, places: Sequence[str]) -> None:
    """Raise where `name` is the whole id of a session that is in none of `places`."""
    try:
        memory._session(name)
    except SessionPutAway:
        raise
    except SessionNotFound:
        for place in (ARCHIVED, DELETED):
            if any(entry.partition(".")[0] == name for entry in memory.tree.list(place)):
                problem = f"There is no session {name!r}: something of it is in {place}/."
                raise SessionNotFound(
                    problem, advice="Bring it back, or name another one."
                ) from None
        from .disk.tombstones import Purged, load

        if stamp := load(memory.tree).get(name, Purged()).whole:
            problem = f"The session {name!r} was purged on {stamp[:16].replace('T', ' ')} UTC."
            raise SessionNotFound(problem, advice="Nothing brings it back.") from None
    else:
        problem = f"The session {name!r} is not {' or '.join(places)}."
        raise SessionNotFound(problem, session_id=name, advice="It is in its place.")


def _not_one(
    memory: Memory,
    name: str,
    fitting: Sequence[str],
    where: Mapping[str, str],
    places: Sequence[str],
) -> SessionNotFound:
    said = places[0] if len(places) == 1 else ACTIVE  # the place that goes without saying
    what = "session" if said == ACTIVE else f"{said} session"

    def shown(one: str) -> str:
        return one if where[one] in (ACTIVE, said) else f"{one} ({where[one]})"

    if fitting:
        more = ", …" if len(fitting) > _NAMED else ""
        listed = ", ".join(map(shown, fitting[:_NAMED])) + more
        problem = f"{len(fitting)} {what}s fit {name!r}: {listed}."
        return SessionNotFound(problem, advice="Give more of the id.")
    likeness = max(_LIKENESS, 1 - _SLIPS / len(name))
    close = [f"{one} ({where[one]})" if where[one] != ACTIVE else one
             for one in difflib.get_close_matches(name, where, cutoff=likeness)]  # fmt: skip
    advice = (
        f"Did you mean {' or '.join(close)}?" if close else "List them with smp sessions --all."
    )
    return SessionNotFound(f"There is no {what} {name!r} under {memory.root}.", advice=advice)
