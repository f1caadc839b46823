"""What a summary in `deleted/` tells of turns that are deleted as well: it must not bring their words back, nor outlast them.

Such a summary is put back without them, and when they are purged its copy loses their words.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...errors import SMPError
from ...maintain import evictions
from ...maintain.compaction import SUMMARIZES
from ...maintain.putting_back import Copy, number_of, stands_in, told_without
from ...records import TURN
from ...text.document import INDENT
from ...text.format import format_of
from ...text.values import Value
from .store import VALUES, Store, member_of

if TYPE_CHECKING:
    from ...memory import Memory


def retold(
    memory: Memory, store: Store, items: Iterable[Mapping[str, Any]], gone: Collection[str], members: Mapping[str, bytes]
) -> dict[str, tuple[bytes, dict[str, Value]] | None]:
    """Those of these items that are summaries and tell of turns that are gone, by the names of their copies: each as it is without
    them; None where nothing is left."""
    values: dict[str, tuple[Mapping[str, Any], dict[str, Value]]] = {}
    if not gone:
        return {}
    for item in items:
        if item["file"] == TURN.file:
            with suppress(SMPError):
                value = store.copy(item, members)[1]
                if stands_in(TURN, value) and isinstance(value.get(SUMMARIZES), dict):
                    values[member_of(item)] = item, value
    if not values:
        return {}
    turns = _turns(memory, store, members)
    found: dict[str, tuple[bytes, dict[str, Value]] | None] = {}
    for name, (item, value) in values.items():
        said = value[SUMMARIZES]
        assert isinstance(said, dict)
        # What is known of neither end any more is still where the others are counted from.
        ends = {end: Copy(end, "", b"") for end in (str(said.get("first")), str(said.get("last")))}
        every = sorted({**ends, **turns}.values(), key=lambda turn: number_of(TURN, turn.id) or 0)
        for new in told_without({str(item["id"]): value}, set(gone), [every]).values():
            found[name] = None if new is None else (format_of(TURN).render(new, INDENT), new)
    return found


def _silent(value: Mapping[str, Value]) -> tuple[bytes, dict[str, Value]]:
    """A summary of nothing that is left."""
    bare = {name: one for name, one in value.items() if name not in (SUMMARIZES, "memory_refs")}
    new: dict[str, Value] = {**bare, "content": "What was said is deleted."}
    return format_of(TURN).render(new, INDENT), new


def _turns(memory: Memory, store: Store, members: Mapping[str, bytes]) -> dict[str, Copy]:
    """Every turn that was taken out, by compaction or since."""
    found = {turn.id: turn for one in evictions.turns(memory.tree, store.name) for turn in one}
    for item in store.known():
        if item["file"] == TURN.file:
            with suppress(SMPError):
                raw, value = store.copy(item, members)
                if not stands_in(TURN, value):
                    found.setdefault(str(item["id"]), Copy(str(item["id"]), "", raw))
    return found


def deleted_turns(store: Store, items: Iterable[Mapping[str, Any]], members: Mapping[str, bytes]) -> set[str]:
    """The ids of those that are turns, and no summaries; what was anonymised still stands."""
    found: set[str] = set()
    for item in items:
        if item["file"] == TURN.file and "replaced_by" not in item:
            with suppress(SMPError):
                found |= set() if stands_in(TURN, store.copy(item, members)[1]) else {str(item["id"])}
    return found


def forget_told(memory: Memory, name: str, going: Collection[str]) -> None:
    """Before these copies are destroyed: what other copies tell of them goes too. Under both locks."""
    store = Store(memory, name)
    known = store.known()
    if not any(item["file"] == TURN.file and member_of(item) not in going for item in known):
        return
    members = store.members()
    gone = deleted_turns(store, [item for item in known if member_of(item) in going], members)
    changed = retold(memory, store, [item for item in known if member_of(item) not in going], gone, members)
    if not changed:
        return
    for item in known:
        if (copy := member_of(item)) in changed:
            raw, value = changed[copy] or _silent(store.copy(item, members)[1])
            members |= {copy: raw, f"{VALUES}{copy}": json.dumps(value).encode()}
    store.replace_members(members)
