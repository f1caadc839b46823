"""One session on its way into another layout: laid down first, because an entry may name one that stands behind it.

What is laid down is in a file that nobody else sees; in memory there are only ids and places, however large the session is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from ....files import Tree, sync
from ....records import STATE_HISTORY, TURN, Kind, is_deleted
from ...entries import ACTIVE, ARCHIVED, Entry, content_of, kind_of
from .. import shaping
from ..shaping import IMPORTED, Ids, Values
from .entries import Way, Writing

if TYPE_CHECKING:
    from ....memory import Memory

_IMPORTED_FILES = "imported/"
_OF_A_MARK = ("id", "deleted", "ts", "timestamp", "deleted_at", "deleted_by", "reason")  # never what it said
_ENDS = re.compile("[\u0085\u2028\u2029]")
Described = tuple[str, str, Entry, Any]  # a name, a text, the entry, when


@dataclass
class Held:
    """What was read of one session. `entries` gives it out, the oldest first."""

    name: str
    spool: IO[bytes]
    place: str = ACTIVE
    has_session: bool = False
    metadata: Values = field(default_factory=dict)
    summary: Values = field(default_factory=dict)
    ids: Ids = field(default_factory=Ids)
    live: set[Any] = field(default_factory=set)  # ids, as they are known there
    forms: dict[Any, str] = field(default_factory=dict)  # by such an id: how a checksum was taken, where not as we do
    files: dict[str, bytes] = field(default_factory=dict)  # that stood beside it when it was imported
    left_out: dict[str, int] = field(default_factory=dict)  # by what it is
    _order: list[tuple[str, int, int]] = field(default_factory=list)  # time, and where it is laid down
    _last_turn: str = ""

    @property
    def session(self) -> Values:
        """What stands below `session` in the metadata."""
        told = self.metadata.get("session")
        return told if isinstance(told, dict) else {"id": self.name}

    @property
    def notes(self) -> Values:
        notes = self.session.get(IMPORTED)
        return notes if isinstance(notes, dict) else {}

    @property
    def first(self) -> str | None:
        """When it began."""
        created = self.session.get("created_at")
        return created if isinstance(created, str) else min((time for time, _, _ in self._order if time), default=None)

    def leave_out(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1

    def take(self, entry: Entry) -> None:
        kind = entry["entry"]
        if kind == "session":
            self.has_session, self.place, self.metadata = True, entry["place"], dict(entry["metadata"] or {})
        elif kind == "archive":
            self.summary = dict(entry["summary"])
        elif kind == "memory":
            self._take_record(entry["file"], entry["record"])
        elif kind == "evicted":
            self._take_record(entry["item"]["file"], entry["record"])
        elif kind in ("state", "artifact"):
            self._lay_down({"other": {name: value for name, value in entry.items() if name not in ("session", "place", "written")}})
        elif kind == "bytes":
            self._take_file(entry)

    def _take_record(self, file: str, record: Values) -> None:
        kind = kind_of(self.name, file)
        if kind is None or is_deleted(kind, record) or not isinstance(record.get("id"), str):
            return
        if file.startswith(f"{STATE_HISTORY}/"):
            told: Entry = {"entry": "memory", "file": file, "type": kind.name, "record": record}
            self._lay_down({"other": told}, str(record.get("timestamp") or ""))
            return
        old = shaping.old_id(record)
        self.ids.know(record["id"], old)
        self.live.add(old if isinstance(old, (str, int)) else record["id"])
        notes = record.get(IMPORTED)
        if isinstance(notes, dict) and isinstance(form := notes.get("checksum"), str) and isinstance(old, (str, int)):
            self.forms[old] = form
        at = str(record.get("timestamp") or "")
        if kind is TURN:
            at = self._last_turn = max(at, self._last_turn)  # what was said stays in its order, whatever a clock said
        self._lay_down({"file": file, "record": record}, at)

    def _take_file(self, entry: Entry) -> None:
        path = str(entry["path"])
        inner = path.removeprefix(_IMPORTED_FILES)
        if entry["place"] in (ACTIVE, ARCHIVED) and path != inner and "/" not in inner and not inner.startswith("."):
            self.files[inner] = content_of(entry)
        else:
            self.leave_out("what is in quarantine" if entry["place"] == "quarantine" else f"file {path}")

    def _lay_down(self, what: Values, at: str = "") -> None:
        line = json.dumps(what).encode() + b"\n"
        self._order.append((at, self.spool.tell(), len(line)))
        self.spool.write(line)

    def entries(self, way: Way, session: str) -> Iterator[tuple[Kind | None, Values]]:
        """Each as an entry of the layout; without a kind where it is no memory."""
        came_from = self.notes.get("layout")
        writing = Writing(way, self.ids, session, came_from=came_from if isinstance(came_from, str) else None, since=self.first)
        self.spool.flush()
        for _, start, length in sorted(self._order, key=lambda one: one[0]):
            what = json.loads(os.pread(self.spool.fileno(), length, start))
            if "other" in what:
                yield None, writing.other(*_described(what["other"]))
            else:
                kind = kind_of(self.name, what["file"])
                assert kind
                yield kind, writing.entry(kind, what["record"])


def _described(entry: Entry) -> Described:
    """A name, a text and a time for what is no memory."""
    if entry["entry"] == "artifact":
        head = entry.get("head") or {}
        return f"artifact.{entry['artifact']}", f"Artifact {head.get('title') or entry['artifact']}", entry, head.get("created_at")
    if entry["entry"] == "state":
        state = entry["state"].get("agent_state")
        at = state.get("last_updated") if isinstance(state, dict) else None
        return f"state.{entry['agent']}", f"State of {entry['agent']}", entry, at
    agent = entry["file"].rpartition("/")[2].removesuffix(".yaml")
    record = entry["record"]
    return f"state.{agent}.{record['id']}", f"Earlier state of {agent}", entry, record.get("timestamp")


def deleted(memory: Memory, held: Held, time: str) -> list[Values]:
    """Marks of what was deleted and can be restored: ids, times and reasons; nothing of what it said. What refers to it still does,
    by the id that it had there."""
    from ....privacy.deleting.store import DELETION, Store

    session = held.name
    store = Store(memory, session)
    members: dict[str, bytes] | None = None
    marks: list[Values] = []
    for item in store.items():
        if item.get("action", DELETION) != DELETION or kind_of(session, str(item["file"])) is None:
            continue
        if str(item["file"]).startswith(f"{STATE_HISTORY}/"):
            continue
        members = store.members() if members is None else members
        _, value = store.copy(item, members)
        notes = value.get(IMPORTED) if isinstance(value.get(IMPORTED), dict) else {}
        assert isinstance(notes, dict)
        known = notes.get(shaping.OLD_ID, item["id"])
        held.ids.know(str(item["id"]), known)
        mark = notes.get("deleted" if time == "ts" else "tombstone")
        if isinstance(mark, Mapping):
            marks.append({name: mark[name] for name in _OF_A_MARK if name in mark})
            continue
        reason = item.get("reason_specific")
        marks.append({"id": known, time: item.get("deleted_at"), **({"reason": reason} if isinstance(reason, str) else {})})
    return marks


class Lines:
    """A file of JSON lines, which tells where each begins."""

    def __init__(self, tree: Tree, name: str) -> None:
        self._out = os.fdopen(tree.open(name, os.O_WRONLY | os.O_CREAT), "wb", buffering=1 << 18)
        self.count = self.bytes = 0

    def add(self, entry: Mapping[str, Any]) -> tuple[int, int]:
        """The number of the line, from 1, and the bytes before it."""
        line = dense(entry) + b"\n"
        self._out.write(line)
        self.count += 1
        self.bytes += len(line)
        return self.count, self.bytes - len(line)

    def write(self, text: str) -> None:
        """A piece of a file that is no list of lines."""
        piece = text.encode()
        self._out.write(piece)
        self.bytes += len(piece)

    def close(self) -> None:
        self._out.flush()
        sync(self._out.fileno())
        self._out.close()

    def abandon(self) -> None:
        with suppress(OSError):
            self._out.close()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._out.closed:
            self.close()


def dense(value: Any) -> bytes:
    """In one line for everybody: some take these characters, which JSON allows in a text, for the end of one."""
    return _ENDS.sub(lambda end: f"\\u{ord(end[0]):04x}", json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def document(value: Any) -> bytes:
    """A JSON file that a person may look at."""
    return json.dumps(value, ensure_ascii=False, indent=2).encode() + b"\n"
