"""The entries of one session as files, aside: nobody knows of them before they are whole and in their place.

They may come in any order, and in any number: what is collected of a file goes to the disk again and again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..files import sync, write_all
from ..layout import ACCESS_LOG, SESSION_DIRECTORIES
from ..maintain.putting_back import value_of
from ..packing import plain_files
from ..records import TURN, Kind, is_counted
from ..session_files import METADATA, artifact_file, parse_artifact, state_file
from ..temporaries import temporary_name
from ..text.format import format_of
from ..text.values import Value, canonical
from .entries import BESIDE, DELETED, PROFILE, QUARANTINE, Entry, content_of, kind_of
from .pieces import artifact_content, is_written, mapping_file, render, render_head

if TYPE_CHECKING:
    from ..files import Tree
    from ..maintain.purged import Purged

SESSION = "session"  # below the directory: the files of the session itself
_ELSEWHERE = (BESIDE, DELETED, QUARANTINE)
_SPILL_BYTES = 1 << 20
_PLAIN_BRACKETS = 32  # in a turn that is nested no deeper
Eviction = tuple[dict[str, Any], list[tuple[dict[str, Any], bytes]]]  # the head of the manifest; item and bytes of each


class Refused(Exception):
    """Why an entry cannot be taken in."""


@dataclass
class _Spool:
    """A file that grows, at first in memory."""

    tree: Tree
    path: str
    held: list[bytes] = field(default_factory=list)
    held_bytes: int = 0
    is_there: bool = False

    def add(self, *pieces: bytes) -> None:
        self.held += pieces
        self.held_bytes += sum(map(len, pieces))
        if self.held_bytes > _SPILL_BYTES:
            self.spill()

    def spill(self, *, durable: bool = False) -> None:
        flags = os.O_WRONLY | (os.O_APPEND if self.is_there else os.O_CREAT)
        if not self.is_there and "/" in self.path:
            self.tree.make_directory(self.path.rpartition("/")[0])
        with self.tree.opened(self.path, flags) as descriptor:
            write_all(descriptor, b"".join(self.held))
            if durable:
                sync(descriptor)
        self.held, self.held_bytes, self.is_there = [], 0, True


class _RecordFile:
    """A record file as it was written, and as it would be rendered, for where what was written does not say what its records do."""

    def __init__(self, tree: Tree, path: str, kind: Kind, head: bytes) -> None:
        self._tree, self._path, self._kind = tree, path, kind
        self._written = _Spool(tree, path)
        self._rendered: _Spool | None = None  # none while both are the same
        self._digest = hashlib.blake2b()
        self._behind: bytes | None = None
        self._count = 0
        self._written.add(head)

    def begin(self, entry: Entry, rendered: bytes) -> None:
        """What stands before the first record, and behind the last."""
        self._written.held, self._written.held_bytes = [], 0
        self._written.add(rendered)
        if "before" in entry:
            self._fork()
            self._written.held, self._written.held_bytes = [], 0
            self._written.add(entry["before"].encode())
        if "behind" in entry:
            self._behind = entry["behind"].encode()

    def add(self, entry: Entry) -> None:
        """Raises Refused where there is no way to write the record."""
        kind, value = self._kind, entry["record"]
        raw = entry["written"].encode() if "written" in entry else None
        if raw is not None and not is_written(kind, raw, value):
            raw = None  # somebody has edited what it says
        rendered = _rendered(kind, value, needed=raw is None)
        if raw is not None or "before" in entry:
            self._fork()
        before = entry["before"].encode() if "before" in entry else b""
        self._written.add(before, raw if raw is not None else rendered)
        if self._rendered and rendered:
            self._rendered.add(rendered)
        if self._rendered:
            # Of a turn, how it was read is only told where it was.
            told = value_of(kind, rendered) if raw is None and kind is TURN else value
            self._digest.update(canonical(told) + b"\n")
        self._count += 1

    def close(self) -> bool:
        """Durable; gives back whether it is what was written, where that was given."""
        if self._rendered is None and self._behind is None:
            self._written.spill(durable=True)
            return True
        self._fork()
        self._written.add(self._behind or b"")
        self._written.spill(durable=True)
        if self._says_the_same():
            return True
        assert self._rendered
        self._rendered.spill(durable=True)
        self._tree.rename(self._rendered.path, self._path)
        return False

    def discard_rendered(self) -> None:
        if self._rendered and self._rendered.is_there:
            self._tree.unlink(self._rendered.path)

    def _says_the_same(self) -> bool:
        return self._digest_of(self._tree.read(self._path)).digest() == self._digest.digest()

    def _digest_of(self, content: bytes) -> hashlib.blake2b:
        digest = hashlib.blake2b()
        for record in sorted(format_of(self._kind).parse(content).records, key=lambda record: record.start):
            digest.update(canonical(record.value) + b"\n")
        return digest

    def _fork(self) -> None:
        if self._rendered is None:
            spilled = self._tree.read(self._path) if self._written.is_there else b""
            content = b"".join([spilled, *self._written.held])
            # What was only rendered says what its records do; from here on each is counted.
            self._digest = self._digest_of(content)
            self._rendered = _Spool(self._tree, temporary_name())
            self._rendered.add(content)


def _rendered(kind: Kind, value: dict[str, Value], *, needed: bool) -> bytes:
    """The bytes of a record. Those of a turn are read back, unless it is as plain as almost all are."""
    try:
        if not isinstance(value.get("id"), str) or not value["id"]:
            raise ValueError("it has no id")
        raw = render(kind, value)
        if kind is not TURN or _is_plain_turn(value, raw):
            return raw
        found = value_of(kind, raw)
        if found is None or any(found.get(name) != value.get(name) for name in ("id", "turn", "content")):
            raise ValueError("it is no turn that could be written")
        return raw
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if needed:
            said = str(error) if isinstance(error, ValueError) else f"it lacks, or has wrongly, {error}"
            raise Refused(said) from error
        return b""


def _is_plain_turn(value: dict[str, Value], raw: bytes) -> bool:
    """Whether it has the number that its id says, and no field is nested deep: then it comes back as it is."""
    number = value.get("turn")
    is_numbered = type(number) is int and 0 <= number < 10**15 and value["id"] == f"turn-{number}"
    return is_numbered and type(value.get("content")) is str and raw.count(b"{") + raw.count(b"[") < _PLAIN_BRACKETS


class Building:
    """One session, or `global`, on its way in. `finish` makes it durable; whoever is done with it calls `discard`."""

    def __init__(self, tree: Tree, session: str, at: datetime) -> None:
        self.tree, self.session, self._at = tree, session, at
        self.directory = temporary_name()
        self.place = ""
        self.has_session = False  # or only what was put away of one
        self.summary: dict[str, Any] | None = None
        self.evictions: dict[str, Eviction] = {}
        self.memories = 0
        self.bad: dict[str, int] = {}
        self.problems: list[str] = []
        self.purged: Purged | None = None  # of this session, where that is to stay away
        self.taken_back: Purged | None = None  # and where it is not
        self.left_out: list[str] = []  # the ids of what stays away
        # By file and id, what stands in the session and has come in this same import before; None where all of it has.
        self.met: set[tuple[str, str]] | None = set()
        self.given: set[tuple[str, ...]] = set()  # what was, for whoever has to know whether it comes again
        self.is_told = False  # what holds for the session as a whole was given
        self._files: dict[str, _RecordFile] = {}
        self._whole: set[str] = set()
        tree.make_directory(f"{self.directory}/{SESSION}")

    def take(self, entry: Entry) -> None:
        """Raises Refused where nothing can be made of it."""
        kind = entry["entry"]
        self.is_told |= kind == "session"
        self.has_session |= kind not in ("evicted", "archive") and entry.get("place") not in _ELSEWHERE
        if kind in ("file", "memory"):
            self._take_record(entry)
        elif kind == "evicted":
            self._take_evicted(entry)
        elif kind == "archive":
            self.summary = entry["summary"]
        elif kind == "bytes":
            try:
                content = content_of(entry)
            except ValueError as error:
                raise Refused(str(error)) from error
            place = entry["place"] if entry["place"] in _ELSEWHERE else SESSION
            self._write(f"{place}/{entry['path']}", content)
        else:
            self._take_whole(entry)

    def _take_whole(self, entry: Entry) -> None:
        kind, written = entry["entry"], entry.get("written")
        if kind == "session":
            if entry["metadata"] is not None:
                self._write(f"{SESSION}/{METADATA}", mapping_file(entry["metadata"], written))
        elif kind == "state":
            self._write(f"{SESSION}/{state_file(entry['agent'])}", mapping_file(entry["state"], written))
            self.memories += 1
        elif kind == "profile":
            self._write(f"{SESSION}/{PROFILE}", mapping_file(entry["profile"], written))
        elif kind == "access":
            self._write(f"{SESSION}/{ACCESS_LOG}", entry["text"].encode())
        else:
            head = entry["head"]
            content = artifact_content(head, entry["text"], written)
            if head is not None and parse_artifact(content)[1] != entry["text"]:
                raise Refused("its front matter cannot be told from its text")
            self._write(f"{SESSION}/{artifact_file(entry['artifact'])}", content)
            self.memories += 1

    def _take_record(self, entry: Entry) -> None:
        file = entry["file"]
        kind = kind_of(self.session, file)
        if kind is None or file in self._whole:
            raise Refused(f"{file} was given as a whole before")
        is_new = file not in self._files
        if is_new:
            head = render_head(kind, entry["head"]) if entry["entry"] == "file" else self._usual_head(kind)
            self._files[file] = _RecordFile(self.tree, f"{self.directory}/{SESSION}/{file}", kind, head)
        if entry["entry"] == "memory":
            self._files[file].add(entry)
            self.memories += is_counted(kind, entry["record"])
        elif is_new:
            self._files[file].begin(entry, render_head(kind, entry["head"]))
            if isinstance(bad := entry.get("bad"), int) and bad > 0:
                self.bad[file] = bad
        else:
            raise Refused(f"{file} has a head already")

    def _usual_head(self, kind: Kind) -> bytes:
        return format_of(kind).empty(self.session, self._at, [])

    def _take_evicted(self, entry: Entry) -> None:
        item, value = entry["item"], entry["record"]
        kind = kind_of(self.session, item["file"])
        assert kind
        raw = entry["written"].encode() if "written" in entry else None
        if raw is None or not is_written(kind, raw, value):
            raw = _rendered(kind, value, needed=True)
        _, items = self.evictions.setdefault(entry["eviction"], (entry["manifest"], []))
        items.append(({**item, "id": str(value["id"])}, raw))
        self.memories += 1

    def _write(self, path: str, content: bytes) -> None:
        target = f"{self.directory}/{path}"
        if path.removeprefix(f"{SESSION}/") in self._files or self.tree.exists(target):
            raise Refused(f"{path.partition('/')[2]} was given before")
        self.tree.make_directory(target.rpartition("/")[0])
        self.tree.write_new(target, content)
        self._whole.add(path.removeprefix(f"{SESSION}/"))

    def finish(self) -> None:
        """Everything that was taken, durable."""
        for file, building in self._files.items():
            if not building.close():
                self.problems.append(f"{file}: the bytes beside its records do not fit to them; it was rendered anew.")
            building.discard_rendered()
        self._files.clear()
        if self.session != "global":
            for name in SESSION_DIRECTORIES:
                self.tree.make_directory(f"{self.directory}/{SESSION}/{name}")
        for directory in {path.rpartition("/")[0] for path in self._paths()} | {self.directory}:
            self.tree.sync_parent(f"{directory}/any")

    def _paths(self) -> Iterator[str]:
        yield from (f"{self.directory}/{path}" for path in plain_files(self.tree, self.directory))
        yield f"{self.directory}/{SESSION}/any"

    def files(self, place: str = SESSION) -> list[str]:
        return list(plain_files(self.tree, f"{self.directory}/{place}"))

    def read(self, file: str, place: str = SESSION) -> bytes:
        return self.tree.read(f"{self.directory}/{place}/{file}")

    def path(self, place: str = SESSION) -> str:
        return f"{self.directory}/{place}"

    def discard(self) -> None:
        for building in self._files.values():
            building.discard_rendered()
        self.tree.remove_directory(self.directory)
