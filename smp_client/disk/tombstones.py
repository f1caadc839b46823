"""`deleted/purged.yaml`: which memories and sessions were purged, and when, without their content.

The list only grows, one entry a memory or session. An entry is durable before anything is removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from ..model.layout import DELETED
from ..model.times import render_time
from ..text.values import Value, render_entries
from ..text.yaml_list import parse

if TYPE_CHECKING:
    from ..change.holdings import Holding
    from .tree import Tree

FILE = f"{DELETED}/purged.yaml"
_LIST = "purged"
_IMPORTED, _IMPORTED_ID = "imported", "imported_id"


@dataclass
class Purged:
    """The purged memories of one session, or of `global`."""

    whole: str = ""  # when the session itself was purged, if it was
    # The times by file and id; of a session that was made anew since, only since then.
    _stamps: dict[tuple[str, str], list[Value]] = field(default_factory=dict)

    def holds(self, file: str, value: Mapping[str, Value]) -> bool:
        """Return whether this very memory was purged.

        A memory from another layout may have an id that was another's here; its time tells.
        """
        is_own, stamp = not isinstance(value.get(_IMPORTED), dict), value.get("timestamp")
        for name in (value.get("id"), value.get(_IMPORTED_ID)):
            # By the file too, because each agent counts its earlier states by itself.
            stamps = self._stamps.get((file, str(name)), ())
            if stamps and (is_own or stamp is None or None in stamps or stamp in stamps):
                return True
        return False

    def take(self, entry: Mapping[str, Value]) -> None:
        if "id" not in entry:
            self.whole, self._stamps = str(entry.get("purged_at")), {}
            return
        file, stamp, imported = (entry.get(name) for name in ("file", "timestamp", "imported_ids"))
        for name in (entry["id"], *(imported if isinstance(imported, list) else ())):
            self._stamps.setdefault((str(file), str(name)), []).append(stamp)


def note(
    tree: Tree, session: str, memories: Sequence[Holding], deleted_at: str, now: datetime
) -> None:
    """Add memories of a session, or with none of them the session whole, durably and once."""

    def key(entry: Mapping[str, Value]) -> tuple[str, ...]:
        return tuple(str(entry.get(name)) for name in ("session", "deleted_at", "id", "file"))

    about: dict[str, Value] = {"session": session, "deleted_at": deleted_at}
    entries = [{**about, **_described(one)} for one in memories] or [about]
    known = {key(entry) for entry in _load(tree)}
    text = ""
    for entry in entries:
        if key(entry) not in known:
            lines = render_entries({**entry, "purged_at": render_time(now)}, 4)
            text += "".join(f"{line}\n" for line in [f"  - {lines[0].lstrip()}", *lines[1:]])
    if text:
        tree.make_directory(DELETED)
        tree.append_line(FILE, text.encode(), head=f"version: 1\n{_LIST}:\n".encode())


def load(tree: Tree) -> dict[str, Purged]:
    """Return all that was purged, by session."""
    found: dict[str, Purged] = {}
    for entry in _load(tree):
        found.setdefault(str(entry.get("session")), Purged()).take(entry)
    return found


def _load(tree: Tree) -> list[dict[str, Value]]:
    try:
        return [record.value for record in parse(tree.read(FILE), _LIST).records]
    except FileNotFoundError:
        return []


def _described(one: Holding) -> dict[str, Value]:
    stamp, notes = one.value.get("timestamp"), one.value.get(_IMPORTED)
    # Others may bring a memory again under the ids that it was imported with.
    old = (one.value.get(_IMPORTED_ID), notes.get("id") if isinstance(notes, dict) else None)
    said: dict[str, Value] = {"id": one.id, "type": one.type, "file": one.file}
    said |= {"timestamp": stamp} if isinstance(stamp, str) else {}
    imported: list[Value] = [*dict.fromkeys(name for name in old if isinstance(name, str))]
    return said | ({"imported_ids": imported} if imported else {})
