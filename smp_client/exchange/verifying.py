"""Whether everything that an import takes in is in the tree, and says the same: both sides are read and compared, nothing changes.

Each memory of the source is looked for by its id, by what it was known as before, wherever a session keeps memories: in its files,
in the archive, among what compaction took out or what was deleted. What it says is compared, with the time and every field, but for
how much it matters; then whether it still refers to the same. Of both sides the digests of all that was found are put into one.

A session is held while its entries come. Of one that is done only digests are kept: it may come again, in another layout.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SMPError
from ..layout import ARCHIVED, DELETED, GLOBAL, QUARANTINE
from ..records import Kind, is_deleted
from ..scopes import ARTIFACTS
from ..session_files import artifact_file, parse_artifact, state_file
from ..text.mapping import load_mapping
from ..text.values import Value, canonical
from . import entries as entry_of
from .elsewhere import entries, found_at
from .entries import Entry, content_of, kind_of, problem_of
from .formats import Read
from .identity import (
    DIGEST,
    is_as_it_came,
    is_from_log,
    is_same_in_words,
    known_as,
    notes_of,
    referring,
    refers_to_the_same,
    said,
)  # fmt: skip
from .layouts.removed import is_marked
from .layouts.sessions import DELETED as COMES_DELETED
from .layouts.sessions import GONE
from .layouts.sources import is_lost
from .placing import pieces_in
from .purged import is_of_purged_session, is_purged

if TYPE_CHECKING:
    from ..memory import Memory
    from ..privacy.deleting.standing import Contents
    from .layouts import Found

_NAMED_CAP = 1000
_WHOLE_FILES = (entry_of.BESIDE, entry_of.DELETED)
_REFERRING = ("memory_refs", "references", "source", "target", "turn_ref")
# What our fields are called where people read it; others have the names that they have there.
_WORDS = {"timestamp": "its time", "tags": "its tags", "imported": "its form there", "pinned": "whether it is pinned",
          "redacted": "which secrets were taken out", "resolution": "whether it is resolved", "type": "what kind of turn it is",
          "severity": "how severe it is", "confidence": "how sure it is", "updated_at": "when it was changed",
          **dict.fromkeys(_REFERRING, "what it refers to")}  # fmt: skip
_NOT_NAMED = ("id", "turn", "imported_id", "decay")
Values = dict[str, Value]


@dataclass
class Compared:
    """One session, or `global`. Counts are of memories."""

    source: int = 0
    found: int = 0  # of them here, where `deleted` and `put_away` of these are not in their files
    deleted: int = 0
    put_away: int = 0  # by compaction
    missing: int = 0
    changed: int = 0  # says something else, and nobody has changed it here
    updated: int = 0  # was changed here since
    extra: int = 0  # that are only here
    others: int = 0  # files, states and artifacts that are not here, or not the same
    source_sha256: str = ""
    tree_sha256: str = ""  # of what was found; the same where nothing is missing or changed


@dataclass
class Verified:
    sessions: dict[str, Compared] = field(default_factory=dict)
    quarantined: int = 0  # lines of the source that cannot be read, and are set aside here
    removed: int = 0  # such lines that somebody has removed from there
    missing: list[str] = field(default_factory=list)  # each in a sentence
    changed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # what of the source cannot be read, and is nowhere here
    notes: list[str] = field(default_factory=list)  # what else is wrong with the source itself

    @property
    def is_whole(self) -> bool:
        return not self.missing and not self.changed and not self.unread

    def total(self, name: str) -> int:
        return sum(getattr(one, name) for one in self.sessions.values())


def verify(
    memory: Memory, source: str | Path | Sequence[Found], *, layout: str | None, extract: bool, advance: Callable[[], None] | None
) -> Verified:
    found = found_at(source, layout, extract=extract) if isinstance(source, (str, Path)) else source
    verifying = _Verifying(memory)
    for one in entries(memory, found, Counter()):
        verifying.take(one)
        if advance:
            advance()
    return verifying.end()


@dataclass
class _Here:
    """A memory of the tree."""

    value: Values
    place: str
    is_met: bool = False


class _Session:
    """What the tree holds of one session."""

    def __init__(self, memory: Memory, name: str) -> None:
        from ..maintain.purged import Purged, load

        self.name = name
        self._memory = memory
        self.is_known = memory.root.is_dir()
        self.renamed: dict[str, str] = {}
        self.referring: list[tuple[str, Values, Values]] = []
        self.digests: tuple[list[bytes], list[bytes]] = ([], [])
        self.seen: dict[tuple[str, str], bytes] = {}
        self.purged = load(memory.tree).get(name, Purged()) if self.is_known else Purged()
        self.is_deleted = self.is_purged = False  # as a whole
        self.release()
        self.load()

    @property
    def is_gone(self) -> bool:
        return self.is_deleted or self.is_purged

    def release(self) -> None:
        """Lets go of what it says."""
        self.is_loaded = False
        self.contents: Contents | None = None
        self.memories: list[_Here] = []
        self._by_id: dict[tuple[str, str], list[_Here]] = {}
        self._by_old_id: dict[tuple[str, str], list[_Here]] = {}

    def load(self) -> None:
        from ..maintain.removal import whole_deletion
        from ..privacy.deleting.standing import Contents, standing
        from ..privacy.deleting.store import Store

        self.is_loaded = True
        self.contents = Contents(self._memory, self.name) if self.is_known else None
        self.is_there = bool(self.contents and self.contents.is_there)
        if not self.is_known:
            return
        for one in standing(self._memory, self.name, [], self.contents):
            if one.id and (kind := kind_of(self.name, one.file)) and not is_deleted(kind, one.value):
                self._add(kind, one.value, one.place)
        self.is_deleted = self.name != GLOBAL and whole_deletion(self._memory.tree, self.name) is not None
        store = Store(self._memory, self.name)
        with suppress(SMPError, OSError):
            members = store.members()
            for item in store.items():
                if kind := kind_of(self.name, item["file"]):
                    with suppress(SMPError, OSError):
                        self._add(kind, store.copy(item, members)[1], "deleted")
        met = Counter(self.digests[1])  # before it was let go of
        for here in self.memories if met else ():
            digest = _digest_of(here.value)
            here.is_met = met[digest] > 0
            met[digest] -= here.is_met

    def _add(self, kind: Kind, value: Values, place: str) -> None:
        here = _Here(value, place)
        self.memories.append(here)
        self._by_id.setdefault((kind.file, str(value.get("id"))), []).append(here)
        for old in known_as(kind, value):
            self._by_old_id.setdefault((kind.file, old), []).append(here)

    def like(self, kind: Kind, value: Mapping[str, Value]) -> list[_Here]:
        """Those that it could be, the likeliest first."""
        names = [str(value.get("id")), *sorted(known_as(kind, value))]
        return [one for name in names for known in (self._by_id, self._by_old_id) for one in known.get((kind.file, name), ())]

    def read(self, file: str) -> bytes | None:
        if self.contents is None or not self.contents.is_there:
            return None
        try:
            return self.contents.read(file) or None
        except (SMPError, OSError):
            return None


class _Verifying:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._result = Verified()
        self._sessions: dict[str, _Session] = {}
        self._current = ""

    def take(self, read: Read) -> None:
        entry = read.entry
        if entry is None:
            said_so = read.problem.replace("; it goes to ", "; it belongs into ")  # here nothing goes anywhere
            told = self._result.unread if is_lost(said_so) else self._result.notes
            self._note(told, f"{f'line {read.line}: ' if read.line else ''}{said_so}")
            return
        if "entry" not in entry or entry["entry"] in ("end", GONE):
            return
        if entry["entry"] != COMES_DELETED and (problem := problem_of(entry)):
            self._note(self._result.missing, f"line {read.line} cannot be taken in: {problem}")
            return
        name = entry.get("session", GLOBAL)
        session = self._session(name)
        compared = self._result.sessions.setdefault(name, Compared())
        if entry["entry"] in ("memory", "evicted", COMES_DELETED):
            self._take_memory(session, compared, entry)
        else:
            self._take_other(session, entry)

    def _session(self, name: str) -> _Session:
        if name != self._current and self._current in self._sessions:
            self._close(self._current)
        self._current = name
        if name not in self._sessions:
            self._sessions[name] = _Session(self._memory, name)
        elif not self._sessions[name].is_loaded:
            self._sessions[name].load()
        return self._sessions[name]

    # Memories.

    def _take_memory(self, session: _Session, compared: Compared, entry: Entry) -> None:
        file = entry["item"]["file"] if entry["entry"] == "evicted" else entry["file"]
        kind, value = kind_of(session.name, file), entry["record"]
        if kind is None or is_deleted(kind, value):
            return
        key, own, digest = (file, str(value.get("id"))), said(value), _digest_of(value)
        like = session.like(kind, value)
        again = [one.value for one in like if key in session.seen and one.is_met]
        if session.seen.get(key) == digest or any(is_same_in_words(one, value) for one in again):
            return  # the same memory in a second layout
        session.seen[key] = digest
        compared.source += 1
        session.digests[0].append(digest)
        if entry["entry"] == COMES_DELETED:
            like.sort(key=lambda one: one.place != "deleted")
        here = next((one for one in like if said(one.value) == own), None)
        if here is not None:
            self._found(session, compared, value, here)
        elif session.is_gone or session.purged.holds(file, value):
            compared.found += 1
            compared.deleted += 1
            session.digests[1].append(digest)
        elif like:
            here = like[0]
            self._differs(session, compared, kind, value, here)
        else:
            compared.missing += 1
            self._note(self._result.missing, f"{session.name}: {_named(value)} is not here")
        if entry["entry"] == COMES_DELETED and here is not None and here.place != "deleted" and not is_marked(here.value):
            compared.changed += 1
            self._note(self._result.changed, f"{session.name}: {_named(value)} is deleted where it comes from, and stands here")

    def _found(self, session: _Session, compared: Compared, value: Values, here: _Here) -> None:
        here.is_met = True
        compared.found += 1
        compared.deleted += here.place == "deleted"
        compared.put_away += here.place == "evicted"
        session.digests[1].append(_digest_of(here.value))
        old, new = str(value.get("id")), str(here.value.get("id"))
        if old != new:
            session.renamed[old] = new
        if any(value.get(name) != here.value.get(name) for name in _REFERRING):
            session.referring.append((_named(value), value, here.value))

    def _differs(self, session: _Session, compared: Compared, kind: Kind, value: Values, here: _Here) -> None:
        here.is_met = True
        session.digests[1].append(_digest_of(here.value))
        if here.value.get("updated_at") != value.get("updated_at"):
            compared.updated += 1
            return
        is_edited = is_as_it_came(here.value) is False
        compared.updated += is_edited
        compared.changed += not is_edited
        value, own = ({**one, "imported": {**notes_of(one), DIGEST: None}} for one in (value, here.value))
        words = {**_WORDS, kind.text: "its text", kind.actor: "who it is from"}
        names = sorted(name for name in value.keys() | own.keys() if name not in _NOT_NAMED and value.get(name) != own.get(name))
        what = ", ".join(dict.fromkeys(words.get(name, repr(name)) for name in names))
        if is_edited:
            self._note(self._result.notes, f"{session.name}: {_named(value)} was changed in its file since it came: {what}")
        else:
            self._note(self._result.changed, f"{session.name}: {_named(value)} says something else here: {what}")

    # Everything else.

    def _take_other(self, session: _Session, entry: Entry) -> None:
        kind = entry["entry"]
        if kind == "session":
            about = (entry["metadata"] or {}).get("session")
            known = about if isinstance(about, dict) else {}
            session.is_purged = is_of_purged_session(self._memory, session.name, session.purged, known)
        if session.is_purged or (kind in ("state", "artifact") and is_purged(entry, session.purged)):
            return
        missing = len(self._result.missing)
        if kind == "session" and not (session.is_there or session.is_deleted):
            self._note(self._result.missing, f"{session.name}: there is no such session here")
        elif kind == "bytes" and entry["place"] == entry_of.QUARANTINE:
            self._take_aside(session, entry)
        elif kind == "bytes" and not self._has_file(session, entry):
            self._note(self._result.missing, f"{session.name}: {entry['path']} is not here, or not the same")
        elif kind == "state" and not session.is_deleted and not _has_state(session, entry):
            self._note(self._result.missing, f"{session.name}: the state of {entry['agent']} is not here")
        elif kind == "artifact" and not session.is_deleted and not _has_artifact(session, entry):
            self._note(self._result.missing, f"{session.name}: artifact {entry['artifact']} is not here, or not the same")
        elif kind == "profile":
            self._take_profile(session, entry)
        self._result.sessions[session.name].others += len(self._result.missing) - missing

    def _take_aside(self, session: _Session, entry: Entry) -> None:
        """What is in quarantine may be removed there, when somebody has looked at it."""
        is_here = session.is_known and pieces_in(self._memory.tree, f"{QUARANTINE}/{session.name}", [entry["path"]])
        if entry["path"].endswith(".bytes"):
            count = content_of(entry).count(b"\n") + 1
            self._result.quarantined += count if is_here else 0
            self._result.removed += 0 if is_here else count

    def _has_file(self, session: _Session, entry: Entry) -> bool:
        place, path, tree = entry["place"], entry["path"], self._memory.tree
        if not session.is_known:
            return False
        if place in _WHOLE_FILES:
            return tree.exists(f"{ARCHIVED if place == entry_of.BESIDE else DELETED}/{session.name}/{path}")
        return session.is_deleted or session.read(path) == content_of(entry) or path.startswith("inbox/")

    def _take_profile(self, session: _Session, entry: Entry) -> None:
        given = entry["profile"].get("user_profile", {})
        own: Mapping[str, Value] = {}
        with suppress(SMPError):
            own = load_mapping(session.read(entry_of.PROFILE) or b"", "user_profile", entry_of.PROFILE)
        for name in given if isinstance(given, dict) else ():
            if name not in own:
                self._note(self._result.missing, f"{entry_of.PROFILE}: {name!r} is not here")
            elif canonical(own[name]) != canonical(given[name]):
                self._note(self._result.changed, f"{entry_of.PROFILE}: {name!r} says something else here")

    # The end.

    def _close(self, name: str) -> None:
        session, compared = self._sessions[name], self._result.sessions[name]
        there = {session.renamed.get(memory_id, memory_id) for _, memory_id in session.seen}
        for called, value, here in session.referring:
            meant = referring(value, session.renamed)
            if not refers_to_the_same(meant, here, there) and not is_from_log(value):
                compared.changed += 1
                self._note(self._result.changed, f"{name}: {called} refers to something else here")
        session.referring.clear()
        compared.extra = sum(not here.is_met and here.place != "deleted" for here in session.memories)
        compared.source_sha256, compared.tree_sha256 = (_digest(digests) for digests in session.digests)
        session.release()

    def end(self) -> Verified:
        if self._current in self._sessions:
            self._close(self._current)
        return self._result

    def _note(self, sentences: list[str], sentence: str) -> None:
        if len(sentences) < _NAMED_CAP:
            sentences.append(sentence)
        elif len(sentences) == _NAMED_CAP:
            sentences.append("and more")


def _has_state(session: _Session, entry: Entry) -> bool:
    """As the state of the agent, or among its earlier ones."""
    given = _bare(entry["state"].get("agent_state"))
    file = state_file(entry["agent"])
    with suppress(SMPError):
        if canonical(_bare(load_mapping(session.read(file) or b"", "agent_state", file))) == canonical(given):
            return True
    return any(canonical(_bare(here.value.get("state"))) == canonical(given) for here in session.memories)


def _bare(state: Value) -> Value:
    return {name: value for name, value in state.items() if name != "decay"} if isinstance(state, dict) else state


def _has_artifact(session: _Session, entry: Entry) -> bool:
    """Under its name, or under the one that it has got because that was taken."""
    name = entry["artifact"]
    contents = session.contents
    listed = [file for file in (contents.files() if contents and contents.is_there else ()) if file.startswith(f"{ARTIFACTS}/")]
    others = [file for file in listed if file.startswith(f"{ARTIFACTS}/{name[:48]}-imported-")]
    return any((content := session.read(file)) is not None and parse_artifact(content)[1] == entry["text"]
               for file in [artifact_file(name), *others])  # fmt: skip


def _digest_of(value: Mapping[str, Value]) -> bytes:
    return hashlib.sha256(said(value)).digest()


def _digest(digests: Iterable[bytes]) -> str:
    """The same for the same memories in any order."""
    whole = hashlib.sha256()
    for digest in sorted(digests):
        whole.update(digest)
    return whole.hexdigest()


def _named(value: Mapping[str, Any]) -> str:
    own, old = str(value.get("id")), value.get("imported_id")
    return f"{own} (there {old})" if isinstance(old, str) and old != own else own
