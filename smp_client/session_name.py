"""The session that a name means: a whole id, `latest`, or the beginning or last part of one id.

`latest` is the session that was written last; of archived or deleted sessions, the one that came
last. Reading does not count: a search over all sessions would make each of them the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .disk.tombstones import Purged, load
from .model.errors import SessionNotFound
from .model.layout import ACTIVE, ARCHIVED, DELETED, LATEST, check_session_id
from .model.nearest import nearest
from .passes.lifecycle import activities

if TYPE_CHECKING:
    from .memory import Memory

_NAMED = 5
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def sessions_in(memory: Memory, place: str) -> dict[str, str]:
    """Return the ids of the sessions in this place, each with the time when it came there."""
    if place == ACTIVE:
        return dict.fromkeys(memory._session_ids(), "")
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
    said, advice = f"There is no {what} {name!r} under {memory.root}.", "See smp sessions --all."
    if name in known:
        return name
    if name == LATEST and known:
        written = activities(memory, list(known), readings=False) if ACTIVE in places else {}
        return max(known, key=lambda one: (written.get(one, _LONG_AGO), known[one]))
    fitting = _fitting(name, known)
    if any(memory.tree.exists(f"{place}/{name}") for place in (ACTIVE, ARCHIVED, DELETED)):
        memory._session(name)  # raises where it is archived or deleted, with the way back
    elif stamp := load(memory.tree).get(name, Purged()).whole:
        said = f"The session {name!r} was purged on {stamp[:16].replace('T', ' ')} UTC."
        advice = "Nothing brings it back."
    elif len(fitting) == 1:
        return fitting[0]
    elif fitting:
        listed = ", ".join(fitting[:_NAMED]) + (", …" if len(fitting) > _NAMED else "")
        said, advice = f"{len(fitting)} {what}s fit {name!r}: {listed}.", "Give more of the id."
    else:
        away = [one for place in (ARCHIVED, DELETED) for one in sessions_in(memory, place)]
        if len(found := _fitting(name, away)) == 1:
            memory._session(found[0])  # raises, with the way back
        elif meant := nearest(name, [*known, *away]):
            advice = f"Did you mean {meant}? smp sessions --all lists all."
    raise SessionNotFound(said, session_id=name, advice=advice)


def _fitting(name: str, ids: Iterable[str]) -> list[str]:
    return [one for one in ids if one.startswith(name) or one.endswith(f"-{name}")]
