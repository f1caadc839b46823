"""An import of a path, whatever stands there: an export of ours, or memories that others keep in other layouts.

An export of ours is a move, and comes as it is. Everything else comes through a door like any other write: secrets are taken out of
it. What comes as deleted is stored when its session is there.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import audit
from ..privacy.redact import FIELD, Redaction, SecretKey, harmless, placeholder, with_counts
from . import formats
from .entries import ACTIVE, ARCHIVED, Entry
from .importing import Imported, Importing
from .layouts import Found, nothing_at, read, recognise
from .layouts.kinds import counting_unknown, unknown_note
from .layouts.logs.continuing import LAYOUT as LOG
from .layouts.logs.continuing import Continuing
from .layouts.recognising import SMP
from .layouts.removed import Removed
from .layouts.sessions import DELETED
from .names import with_allowed_names
from .opening import opened

if TYPE_CHECKING:
    from ..memory import Memory
    from .reading import Transform

_NOTHING: Callable[[], None] = lambda: None  # noqa: E731
_AT_ONCE = 50
_KEPT = ("id", "turn")  # of a record: by which it is known
_NAMES = ""  # counted like the kinds of secrets: ids and sessions whose names look like one
# Where in an entry of each kind the fields are that secrets are taken out of; in a mapping of the second name, where there is one.
_FIELDS = {"memory": ("record", ""), DELETED: ("record", ""), "evicted": ("record", ""), "session": ("metadata", "session"),
           "state": ("state", "agent_state"), "profile": ("profile", "user_profile"), "archive": ("summary", ""),
           "artifact": ("head", ""), "file": ("head", "")}  # fmt: skip


def found_at(path: str | Path, layout: str | None = None, *, extract: bool = True) -> list[Found]:
    """Every layout at a path; raises Invalid where there is none, or not the one that was asked for."""
    found = recognise(path, layout, extract=extract)
    if not found:
        raise nothing_at(path, layout)
    return found


def import_found(
    memory: Memory, found: Sequence[Found], *, dry_run: bool, transform: Transform | None, by: str,
    advance: Callable[[], None] | None, purged: bool = False,
) -> Imported:  # fmt: skip
    """All of it, one layout behind the other."""
    if not dry_run:
        memory.create()
    layouts = ",".join(one.layout for one in found)
    importing = Importing(memory, str(found[0].path), dry_run=dry_run, transform=transform, purged=purged)
    removed, counts, unknown = Removed(), Counter[str](), Counter[str]()
    half_step = _halved(advance or _NOTHING)
    given = removed.take_out(counting_unknown(entries(memory, found, counts, half_step), unknown))

    def done() -> Imported:
        result = importing.take_all(given, half_step)
        left_out = [session for session, became in result.sessions.items() if became == "left out"]
        put = removed.put(memory, dry_run=dry_run, purged=purged, without=left_out)
        result.deleted, result.notes = put.count, [*result.notes, *put.notes]
        result.sessions |= {session: "merged" for session in put.sessions if result.sessions.get(session) == "unchanged"}
        for problem in put.problems:
            result.problem(problem)
        result.redacted = {kind: count for kind, count in sorted(counts.items()) if kind != _NAMES}
        if counts[_NAMES]:
            result.notes.append(_names_note(counts[_NAMES]))
        result.notes += unknown_note(unknown)
        for one in found:
            result.notes += [*one.notes, *one.continuing.notes]
        return result

    if dry_run:
        return done()
    with audit.noted(memory.tree, "import", clock=memory.options.clock, by=by, count=None, format=layouts) as tell:
        result = done()
        tell(result.added)
        return result


def entries(
    memory: Memory, found: Iterable[Found], counts: Counter[str], advance: Callable[[], None] = _NOTHING
) -> Iterator[formats.Read]:
    """What an import of these would write; `advance` is called for each entry as soon as it was read."""
    found = list(found)
    of_logs = next((one for one in found if one.layout == LOG), None)
    if of_logs:
        of_logs.continuing = Continuing(memory)
    for one in found:
        if one.layout == SMP:
            for given in with_allowed_names(memory, _read_export(one)):
                advance()
                yield given
            continue
        one.source.advance = advance
        given_now = read(one) if of_logs is None or one is of_logs else _noted(read(one), of_logs.continuing)
        yield from cleaned(given_now, memory.everywhere.scope.redaction, counts)


def _noted(given: Iterable[formats.Read], continuing: Continuing) -> Iterator[formats.Read]:
    """What logs are compared with, before it is in the tree."""
    for one in given:
        if one.entry is not None:
            continuing.note(one.entry)
        yield one


def _read_export(found: Found) -> Iterator[formats.Read]:
    with found.path.open("rb") as source:
        yield from opened(source, found.path.name)[1]


def _halved(advance: Callable[[], None]) -> Callable[[], None]:
    """Each entry counts half when it was read, and half when it is on its way to its file: the two take about as long."""
    is_second = itertools.cycle((False, True))
    return lambda: advance() if next(is_second) else None


# Secrets.


def cleaned(given: Iterable[formats.Read], redaction: Redaction, counts: Counter[str]) -> Iterator[formats.Read]:
    """Entries without secrets; how many were taken out is counted. Many are asked about at once, since mostly there is nothing."""
    rest = iter(given)
    while some := list(itertools.islice(rest, _AT_ONCE)):
        if redaction.is_clean(map(_texts_of, some)):
            yield from some
            continue
        for one in some:
            entry = _clean(redaction, counts, one.entry) if one.entry is not None else None
            yield one._replace(entry=entry, problem=harmless(one.problem))


def _texts_of(one: formats.Read) -> Any:
    """All that `_clean` looks at."""
    entry = one.entry
    if entry is None:
        return one.problem
    fields = entry.get(_FIELDS[entry["entry"]][0]) if entry["entry"] in _FIELDS else None
    return [fields, entry.get("text"), entry["session"] if entry["entry"] == "session" else None]


def _names_note(count: int) -> str:
    what = "1 id or name of a session looks like a secret and stays"
    what = what if count == 1 else f"{count:,} ids or names of sessions look like secrets and stay"
    return f"{what}: memories are known by them; give others where it comes from, purge what came, and import it anew"


def _clean(redaction: Redaction, counts: Counter[str], entry: Entry) -> Entry:
    kind = entry["entry"]
    record = entry.get("record") if kind in ("memory", DELETED) else None
    name = record.get("id") if isinstance(record, dict) else entry.get("session") if kind == "session" else None
    counts[_NAMES] += isinstance(name, str) and bool(redaction.redacted_text(name)[1])
    if kind in _FIELDS:
        name, inner = _FIELDS[kind]
        whole = entry.get(name) or {}
        fields = whole[inner] if isinstance(whole.get(inner), dict) else whole
        new = _clean_fields(redaction, counts, fields)
        if new is not fields:
            if kind == "file":
                new = {part: value for part, value in new.items() if part != FIELD or part in fields}  # the head has no such line
            entry = {**entry, name: new if fields is whole else {**whole, inner: new}}
    if isinstance(text := entry.get("text"), str) and entry.get("place") in (ACTIVE, ARCHIVED):
        new_text, kinds = redaction.redacted_text(text)
        counts.update(kinds)
        entry = {**entry, "text": new_text} if kinds else entry
    return entry


def _clean_fields(redaction: Redaction, counts: Counter[str], fields: dict[str, Any]) -> dict[str, Any]:
    try:
        new, kinds = redaction.redacted_fields(fields)
    except SecretKey:
        renamed = Counter[str]()
        new, kinds = redaction.redacted_fields(_with_clean_keys(redaction, fields, renamed))
        new, kinds = with_counts(new, new.get(FIELD), renamed), kinds + renamed
    counts.update(kinds)
    return {**new, **{name: fields[name] for name in _KEPT if name in fields}} if kinds else fields


def _with_clean_keys(redaction: Redaction, value: Any, kinds: Counter[str]) -> Any:
    """Whoever writes here is told to put such a key elsewhere; whoever comes from elsewhere has written it long ago."""
    if isinstance(value, list):
        return [_with_clean_keys(redaction, item, kinds) for item in value]
    if not isinstance(value, dict):
        return value
    new: dict[str, Any] = {}
    for key, item in value.items():
        found = redaction.redacted_text(key)[1]
        kinds.update(found)
        name = placeholder(next(iter(found))) if found else key
        if name in new or (found and name in value):
            name = next(free for number in itertools.count(2) if (free := f"{name} {number}") not in new and free not in value)
        new[name] = _with_clean_keys(redaction, item, kinds)
    return new
