"""What holds everywhere, for a layout that has a place for it, and the settings that came with one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ....records import GLOBAL_PREFERENCE, Kind
from ...entries import Entry, content_of, kind_of
from .. import own, shaping, shared
from ..shaping import IMPORTED, Ids, Values

_LISTS = {shared.PREFERENCES: "preferences", shared.KNOWLEDGE: "patterns"}
Place = list[str | int]


class Shared:
    """Takes the entries of `global`; gives out the documents of `shared/`."""

    def __init__(self, layout: str) -> None:
        self._layout = layout
        self._records: list[tuple[Kind, Values]] = []
        self._heads: dict[str, Values] = {}
        self.config: bytes | None = None
        self.count = 0
        self.left_out: list[str] = []

    def take(self, entry: Entry) -> None:
        what = entry["entry"]
        if what == "memory" and (kind := kind_of("global", entry["file"])) is not None:
            self._records.append((kind, entry["record"]))
        elif what == "profile":
            self._take_profile(entry["profile"])
        elif what == "bytes":
            self._take_file(entry)

    def _take_profile(self, profile: Values) -> None:
        told = profile.get("user_profile")
        told = dict(told) if isinstance(told, dict) else {}
        for name in shared.FILES:
            head = told.pop(f"imported_{name.removesuffix('.json').replace('-', '_')}", None)
            if isinstance(head, dict):
                self._heads[name] = head
        if told:
            self.left_out.append("the user's profile")

    def _take_file(self, entry: Entry) -> None:
        path = str(entry["path"])
        if path.startswith(f"imported/{self._layout}-") and path.endswith("-config.json") and self.config is None:
            self.config = content_of(entry)
        elif not path.startswith("imported/"):
            self.left_out.append(f"file {path}")

    def documents(self, now: str) -> dict[str, Any]:
        """Each thing where it stood; what is ours in a list."""
        ids = Ids()
        for _, record in self._records:
            ids.know(str(record["id"]), shaping.old_id(record))
        made: dict[str, Any] = {}
        for name, kind in shared.FILES.items():
            records = [record for one, record in self._records if one is kind]
            placed = [(record[IMPORTED]["at"], record) for record in records if _is_placed(name, kind, record, ids)]
            others = [record for record in records if not _is_placed(name, kind, record, ids)]
            if not records and name not in self._heads:
                continue
            self.count += len(records)
            root: Any = [] if placed and isinstance(placed[0][0][0], int) else dict(self._heads.get(name, {}))
            for at, record in sorted(placed, key=_rank):
                _put(root, at, shared.theirs(kind, record, ids))
            if others and isinstance(root, dict) and name not in self._heads:
                root = {"version": "1.0", "updated_at": now, **root}
            _append(root, _LISTS[name], [_own(kind, record, name, ids) for record in others])
            made[name] = root
        return made


def _is_placed(name: str, kind: Kind, record: Mapping[str, Any], ids: Ids) -> bool:
    """Whether it came from this file, and still says what it did."""
    notes = record.get(IMPORTED)
    if not isinstance(notes, dict) or notes.get("file") != name or not _is_place(notes.get("at")):
        return False
    try:
        again = shared.ours(kind, str(record["id"]), shared.theirs(kind, record, ids), list(notes["at"]), name, ids)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return all(again.get(part) == record.get(part) for part in {*again, *record} - {IMPORTED, "decay", "turn_ref", "references"})


def _rank(one: tuple[Place, Values]) -> int:
    """In a list, one behind the other."""
    return one[0][-1] if isinstance(one[0][-1], int) else 0


def _is_place(at: object) -> bool:
    return isinstance(at, list) and bool(at) and all(isinstance(part, (str, int)) for part in at)


def _own(kind: Kind, record: Mapping[str, Any], name: str, ids: Ids) -> Values:
    plain = {part: value for part, value in record.items() if part not in (IMPORTED, shaping.IMPORTED_ID)}
    item: Values = shared.theirs(kind, plain, ids)
    item.pop("turn_ref", None)
    if kind is GLOBAL_PREFERENCE:
        item.setdefault("key", item.get("topic") or "preference")
        item.setdefault("value", item.get("preference"))
    back = shared.ours(kind, str(record["id"]), item, [_LISTS[name], 0], name, ids)
    return {**item, own.FIELD: own.note_for(kind, record, back, ids)}


def _put(root: Any, at: Place, value: Any) -> None:
    """Where it stood; in a list behind what stood before it."""
    for part, following in pairwise(at):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(root, list):
            root.append(empty)
            root = empty
        elif isinstance(found := root.setdefault(part, empty), (dict, list)):
            root = found
        else:
            return
    if isinstance(root, list):
        root.append(value)
    else:
        root[at[-1]] = value


def _append(root: Any, name: str, items: list[Values]) -> None:
    if not items:
        return
    if isinstance(root, list):
        root += items
    elif isinstance(listed := root.setdefault(name, []), list):
        listed += items
    else:
        root.setdefault(f"further_{name}", []).extend(items)
