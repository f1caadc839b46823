"""The session that a name means: a whole id, `latest`, or the beginning or last part of one id.

`latest` is the session that was written last; of archived or deleted sessions, the one that came
last. Reading does not count: a search over all sessions would make each of them the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .disk.tombstones import Purged, load
from .model.errors import SessionNotFound
from .model.layout import ACTIVE, ARCHIVED, DELETED, LATEST, check_session_id
from .passes.lifecycle import activities

if TYPE_CHECKING:
    from .memory import Memory

_NAMED = 5
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def sessions_in(memory: Memory, place: str) -> dict[str, str]:
    """Return the ids of the sessions in this place, each with the time when it came there."""
    if place == ACTIVE:
        return {session.id: "" for session in memory._sessions()}
    away = memory.archived_sessions() if place == ARCHIVED else memory.deleted_sessions()
    return {one.session: one.at for one in away}


def session_id(memory: Memory, name: str, places: Sequence[str] = (ACTIVE,)) -> str:
    """Return the id of the session that `name` means, of the sessions in `places`.

    Raise SessionNotFound where no session fits or several do. A whole id never means another
    session whose id begins like it, also when its own session is elsewhere or purged.
    """
    check_session_id(name)
    memory.require()
    known = {one: at for place in places for one, at in sessions_in(memory, place).items()}
    what = "session" if ACTIVE in places else f"{places[0]} session"
    if name in known:
        return name
    if name == LATEST:
        if not known:
            advice = "Make one with smp new." if ACTIVE in places else ""
            raise SessionNotFound(f"There is no {what} under {memory.root}.", advice=advice)
        if places[0] != ACTIVE:
            return max(known, key=lambda one: known[one])
        written = activities(memory, list(known), readings=False)
        return max(known, key=lambda one: written.get(one, _LONG_AGO))
    if any(memory.tree.exists(f"{place}/{name}") for place in (ACTIVE, ARCHIVED, DELETED)):
        memory._session(name)  # raises where it is archived or deleted, with the way back
        said = f"The session {name!r} is not {' or '.join(places)}."
        raise SessionNotFound(said, session_id=name, advice="It is in its place.")
    if stamp := load(memory.tree).get(name, Purged()).whole:
        said = f"The session {name!r} was purged on {stamp[:16].replace('T', ' ')} UTC."
        raise SessionNotFound(said, advice="Nothing brings it back.")

    def fits(one: str) -> bool:
        return one.startswith(name) or one.endswith(f"-{name}")

    fitting = list(filter(fits, known))
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = ", ".join(fitting[:_NAMED]) + (", …" if len(fitting) > _NAMED else "")
        said = f"{len(fitting)} {what}s fit {name!r}: {listed}."
        raise SessionNotFound(said, advice="Give more of the id.")
    elsewhere = [one for place in (ARCHIVED, DELETED) for one in sessions_in(memory, place)]
    if len(away := list(filter(fits, elsewhere))) == 1:
        memory._session(away[0])  # raises, with the way back
    said = f"There is no {what} {name!r} under {memory.root}."
    raise SessionNotFound(said, advice="List them with smp sessions --all.")
