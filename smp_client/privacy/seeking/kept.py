"""All that is kept of a memory, wherever it is: in its file, in the archive, taken out by compaction, or deleted."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import SMPError
from ...layout import DELETED, GLOBAL
from ...packing import read_members
from ..deleting.standing import Contents, Standing, holds_memories, in_file, is_record_file, standing, type_of_file, value_of_file
from ..deleting.store import BACKUP, Store
from .places import ARCHIVE
from .unpacking import Budget, members, reading

if TYPE_CHECKING:
    from ...memory import Memory

_SESSION, _ARCHIVED = "session/", "archived/"
_FACTS = ("deleted_at", "deleted_by", "recovery_deadline", "batch", "action", "place")


def kept(memory: Memory, name: str, problems: list[str]) -> Iterator[Standing]:
    """Of a session, or of `global`; adds to `problems` what cannot be read, and so may hold more."""
    yield from standing(memory, name, problems)
    yield from deleted(memory, name, problems)


def deleted(memory: Memory, name: str, problems: list[str]) -> Iterator[Standing]:
    """What was deleted and can be restored, one by one or with the whole session; `facts` say when, by whom and until when."""
    try:
        yield from _one_by_one(memory, name)
        if name != GLOBAL:
            yield from _with_the_session(memory, name, problems)
    except (SMPError, OSError) as error:
        problems.append(f"What was deleted of {name} cannot be read: {error}")


def _one_by_one(memory: Memory, name: str) -> Iterator[Standing]:
    store = Store(memory, name)
    items = store.items()
    copies = store.members() if items else {}
    for item in items:
        file, memory_id = str(item["file"]), str(item["id"])
        raw, value = store.copy(item, copies)
        facts = {fact: item[fact] for fact in _FACTS if item.get(fact)} | {"reason": item.get("reason_specific")}
        value = value if is_record_file(file) else value_of_file(file, raw)
        yield Standing(name, DELETED, store.path(BACKUP), file, type_of_file(file), memory_id, value, raw, 0, None, facts)


def _with_the_session(memory: Memory, name: str, problems: list[str]) -> Iterator[Standing]:
    from ...maintain.removal import whole_deletion

    said = whole_deletion(memory.tree, name)
    if said is None:
        return
    facts = {fact: said[fact] for fact in (*_FACTS, "reason") if said.get(fact)}
    contents = _Packed(memory, name, f"{DELETED}/{name}/{BACKUP}")
    for file in contents.files():
        try:
            yield from (replace(one, place=DELETED, facts=facts) for one in in_file(contents, file))
        except SMPError as error:
            problems.append(f"{contents.container(file)}, {file}: {error}")


class _Packed(Contents):
    """The files of a session that was deleted whole, out of its backup; where it was archived, out of the archive in that."""

    def __init__(self, memory: Memory, name: str, backup: str) -> None:
        super().__init__(memory, name)
        self._backup = backup
        found: dict[str, bytes] = {}
        for path, content in read_members(memory.tree, backup):
            if path.startswith(_SESSION):
                found[path.removeprefix(_SESSION)] = content
            elif path == _ARCHIVED + ARCHIVE:
                with reading():
                    found |= {inner: source.read() for inner, _, source in members(io.BytesIO(content), Budget())}
        self._files: Mapping[str, bytes] = found

    def container(self, file: str) -> str:
        return self._backup

    def files(self) -> list[str]:
        return [path for path in self._files if holds_memories(path, "")]

    def read(self, file: str) -> bytes:
        return self._files[file]


def find(memory: Memory, name: str, memory_id: str, problems: list[str]) -> list[Standing]:
    """Every copy of one memory: in its place or in the archive, then what compaction holds, then deleted ones, the last first."""
    found = [one for one in kept(memory, name, problems) if one.id == memory_id]
    return [one for one in found if one.place != DELETED] + sorted(
        (one for one in found if one.place == DELETED), key=lambda one: str(one.facts.get("deleted_at")), reverse=True
    )
