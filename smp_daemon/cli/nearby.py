"""What somebody may have meant who named something that is not there: an id, a kind, a topic, an agent, a tag."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from smp_client import Memory, SessionNotFound

_SUGGESTIONS = 3
_CONDITIONS = {"topic": ("tag", "topic"), "agent": ("actor",), "tags": ("tag",)}  # by the columns of the index


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    names = {one.lower(): one for one in known if one.isprintable()}
    close = [names[one] for one in difflib.get_close_matches(name.lower(), names, _SUGGESTIONS)]
    return f"Did you mean {' or '.join(close)}?" if close else otherwise


@contextmanager
def suggesting_ids(memory: Memory, session: str, ids: Sequence[str]) -> Iterator[None]:
    """Of an id that no memory of the session has, the error says which ones are like it."""
    from smp_client import MemoryNotFound, SMPError
    from smp_client.change.holdings import holdings

    try:
        yield
    except MemoryNotFound as error:
        if error.advice != MemoryNotFound.advice:
            raise  # it says what has become of it
        known: set[str] = set()
        with suppress(SMPError, OSError):
            known = {one.id for one in holdings(memory, session) if one.id} | {one.id for one in memory.deleted(session)}
        unknown = next((one for one in ids if one not in known), None)
        if unknown is None:
            problem = f"{' and '.join(ids)} of {session} cannot be changed in a part: it is a file of its own."
            raise MemoryNotFound(problem, session_id=session, advice="smp add replaces it.") from error
        if "/" in unknown:
            raise  # of another session
        advice = did_you_mean(unknown, known, f"See what there is with smp search --session {session}.")
        raise MemoryNotFound(f"There is no memory {unknown!r} in {session}.", advice=advice, session_id=session) from error


def explain_memory(memory: Memory, name: str, error: SessionNotFound, does: str) -> NoReturn:
    """For one who gave the id of a memory where a session is asked for; `does` says what to call, with SESSION and ID in it."""
    from smp_client import MemoryNotFound, SMPError
    from smp_client.records import SESSION_KINDS, kind_of

    holders: list[str] = []
    with suppress(SMPError):
        called = {"filters": [{"field": "id", "operator": "equals", "value": name}]}
        holders = sorted({record.session for record in memory.query(called) if record.type != "summary"})
    if not holders and kind_of(name, SESSION_KINDS) is None:
        raise error
    of = f" of {', '.join(holders[:5])}{', …' if len(holders) > 5 else ''}" if holders else ""
    command = does.replace("SESSION", holders[0] if len(holders) == 1 else "SESSION").replace("ID", name)
    raise MemoryNotFound(f"{name!r} is a memory{of}, not a session.", advice=command) from None


def why_nothing_fits(memory: Memory, session: str | None, conditions: Mapping[str, Any]) -> str:
    """Return which topic, agent or tag is meant where no memory has the given one."""
    known = _known_names(memory, session)
    said: list[str] = []
    for condition, columns in _CONDITIONS.items():
        given = conditions.get(condition) or ()
        names = {name for column in columns for name in known[column]}
        for one in (given,) if isinstance(given, str) else given:
            if one.lower() not in {name.lower() for name in names}:
                said.append(did_you_mean(one, names))
    return " ".join(dict.fromkeys(part for part in said if part))


def _known_names(memory: Memory, session: str | None) -> dict[str, set[str]]:
    """Return the agents, tags and topics that the index knows, of one session or of all."""
    from smp_client import SMPError
    from smp_client.scopes import archived_scope, scopes

    asked = {"actor": "SELECT DISTINCT actor FROM memories WHERE scope = ?", "tag": "SELECT DISTINCT tag FROM tags WHERE scope = ?",
             "topic": "SELECT DISTINCT topic FROM topics WHERE scope = ?"}  # fmt: skip
    found: dict[str, set[str]] = {column: set() for column in asked}
    wanted = scopes(memory) if session is None else [session, archived_scope(session)]
    with suppress(SMPError, OSError):
        rows = memory._asker_of(wanted).ask(lambda view: [
            (column, name) for column, sql in asked.items() for scope in wanted
            for (name,) in view.index.connection.execute(sql, (scope,))
        ])  # fmt: skip
        for column, name in rows:
            found[column].add(str(name))
    return found
