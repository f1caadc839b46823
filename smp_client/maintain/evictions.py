"""What compaction has taken out of a session: kept beside its archive, in `archived/{session}/evicted-….tar.gz`.

The first member of such a file is its manifest, and then comes one for each record file with the bytes of the records, one behind
the other. It is durable, and read back, before anything is taken out. What a crash has left where it was does not count as evicted,
whatever stands here; and what is brought back leaves its file only when it reads back from the session.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..append import settle
from ..errors import CorruptionDetected, Invalid, MemoryNotFound
from ..fingerprint import hash_of
from ..layout import ARCHIVED, is_file_id
from ..locks import brief_lock
from ..packing import read_members, write_archive
from ..records import SESSION_KINDS, STATE_HISTORY, TURN, Kind, check_memory_id, state_history, type_of
from ..rewrite import rewrite
from ..text.document import INDENT
from ..text.format import format_of
from ..text.values import Value
from ..timestamps import render_time
from .actions import Action, Outcome
from .compaction import Item
from .putting_back import Copy, by_id, number_of, put_back, value_of

if TYPE_CHECKING:
    from ..files import Tree
    from ..questions.priorities import View
    from ..session import Session

MANIFEST = "manifest.json"
VERSION = 1
_PREFIX, _ENDING = "evicted-", ".tar.gz"
_ADVICE = "It was left as it is; everything else can still be brought back."
Place = tuple[str, str]  # the file and the id of a record


@dataclass(frozen=True)
class Evicted:
    """A memory that compaction has taken out, and that can be brought back."""

    id: str
    type: str
    session: str
    file: str
    timestamp: str | None
    evicted_at: str
    operation: str
    reason: str
    size_bytes: int
    text: str = ""  # what it says, where that was asked for


@dataclass(frozen=True)
class Eviction:
    """One file of what was taken out together."""

    name: str
    head: dict[str, Any]  # of the manifest, without the items
    items: list[dict[str, Any]]
    members: dict[str, bytes]  # none where only the manifest was read

    def held(self, item: dict[str, Any]) -> bytes:
        """The bytes in the place of a record, whatever the disk has made of them."""
        return self.members.get(item["file"], b"")[item["offset"] : item["offset"] + item["length"]]

    def raw(self, item: dict[str, Any]) -> bytes:
        """The bytes of a record; raises CorruptionDetected where they are not those that were taken out."""
        raw = self.held(item)
        if hashlib.sha256(raw).hexdigest() != item["sha256"]:
            raise CorruptionDetected(f"{self.name} does not hold {item['id']} any more.", advice=_ADVICE)
        return raw


def is_eviction(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(_ENDING)


def names(tree: Tree, session_id: str) -> list[str]:
    """The files of what was taken out of a session, the oldest first."""
    return [f"{ARCHIVED}/{session_id}/{name}" for name in tree.list(f"{ARCHIVED}/{session_id}") if is_eviction(name)]


def load(tree: Tree, name: str, *, whole: bool = True) -> Eviction:
    """Raises CorruptionDetected where it cannot be read."""
    members = read_members(tree, name)
    try:
        first, content = next(members, ("", b""))
        manifest = json.loads(content) if first == MANIFEST else None
        if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
            raise ValueError("its manifest is missing, or of another version")
        items = manifest.pop("items")
        if not all(map(_is_sound, items)):
            raise ValueError("its manifest names what no session holds")
        return Eviction(name, manifest, items, dict(members) if whole else {})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionDetected(f"{name} cannot be read: {error}.", advice=_ADVICE) from error
    finally:
        members.close()  # type: ignore[attr-defined]


def _is_sound(item: dict[str, Any]) -> bool:
    try:
        _kind(item["file"])
    except Invalid:
        return False
    texts, numbers = (item["id"], item["hash"], item["sha256"]), (item["offset"], item["length"])
    return all(isinstance(text, str) for text in texts) and all(isinstance(number, int) and number >= 0 for number in numbers)


def _kind(file: str) -> Kind:
    """Only of files that compaction takes records out of."""
    agent = file.removeprefix(f"{STATE_HISTORY}/").removesuffix(".yaml")
    known = {kind.file: kind for kind in (*SESSION_KINDS, *([state_history(agent)] if is_file_id(agent) else []))}
    if file not in known:
        raise Invalid([f"no memories of a session are kept in {file!r}"])
    return known[file]


def write(session: Session, taken: Sequence[tuple[Item, bytes, str, str]], reason: str) -> str:
    """Makes copies durable: of each record its bytes, by which operation it goes and why. Gives back the name of the file."""
    now = session._now()
    stamp = render_time(now)
    name = f"{ARCHIVED}/{session.id}/{_PREFIX}{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}{_ENDING}"
    head: dict[str, Any] = {"version": VERSION, "session": session.id, "evicted_at": stamp, "reason": reason}
    items = [
        {"id": item.id, "type": item.type, "file": item.file, "timestamp": render_time(item.at) if item.at else None,
         "sha256": hashlib.sha256(raw).hexdigest(), "hash": item.hash, "operation": operation, "reason": why}
        for item, raw, operation, why in taken
    ]  # fmt: skip
    session.scope.tree.make_directory(f"{ARCHIVED}/{session.id}")
    _save(session.scope.tree, name, head, zip(items, [raw for _, raw, _, _ in taken], strict=True))
    return name


def _save(tree: Tree, name: str, head: dict[str, Any], copies: Iterable[tuple[dict[str, Any], bytes]]) -> None:
    members: dict[str, list[bytes]] = {}
    ends: dict[str, int] = {}
    listed: list[dict[str, Any]] = []
    for item, raw in copies:
        file = item["file"]
        listed.append({**item, "offset": ends.get(file, 0), "length": len(raw)})
        members.setdefault(file, []).append(raw)
        ends[file] = ends.get(file, 0) + len(raw)
    manifest = json.dumps({**head, "items": listed}).encode()
    write_archive(tree, name, [(MANIFEST, manifest), *((file, b"".join(pieces)) for file, pieces in members.items())])


def keep_only(tree: Tree, eviction: Eviction, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Drops the other items; the file itself where none is left."""
    kept = [item for item in eviction.items if wanted(item)]
    if not kept:
        drop(tree, eviction.name)
    elif len(kept) < len(eviction.items):
        whole = eviction if eviction.members else load(tree, eviction.name)
        _save(tree, eviction.name, eviction.head, [(item, whole.held(item)) for item in kept])


def change(tree: Tree, changes: Mapping[tuple[str, str, str], Mapping[str, Value] | bytes | None]) -> None:
    """Puts other records in the place of copies, each named by its file here, the file that it was taken out of and its id; where
    there is none the copy goes."""
    for name in dict.fromkeys(name for name, _, _ in changes):
        if not tree.exists(name):
            continue
        eviction = load(tree, name)
        kept: list[tuple[dict[str, Any], bytes]] = []
        for item in eviction.items:
            key = (name, item["file"], item["id"])
            new = changes.get(key)
            if key not in changes:
                kept.append((item, eviction.held(item)))
            elif isinstance(new, Mapping):
                raw = format_of(_kind(item["file"])).render(new, INDENT)
                kept.append(({**item, "sha256": hashlib.sha256(raw).hexdigest(), "hash": hash_of(new)}, raw))
        if kept:
            _save(tree, name, eviction.head, kept)
        else:
            drop(tree, name)


def with_copies(
    tree: Tree, name: str, head: Mapping[str, Any], copies: Sequence[tuple[dict[str, Any], bytes]]
) -> Callable[[], None]:
    """What puts copies that were deleted, or changed, back among the others; into a file of its own where that is gone by now."""
    eviction = load(tree, name) if tree.exists(name) else Eviction(name, {"version": VERSION, **head}, [], {})
    back = {_place(item) for item, _ in copies}
    others = [(other, eviction.held(other)) for other in eviction.items if _place(other) not in back]
    # Turns stand in the order in which they were said: a summary stands for those from one to another.
    every = sorted([*others, *copies], key=lambda one: (one[0]["file"], number_of(_kind(one[0]["file"]), one[0]["id"]) or 0))

    def write() -> None:
        tree.make_directory(name.rpartition("/")[0])
        _save(tree, name, eviction.head, every)

    return write


def turns(tree: Tree, session_id: str) -> list[list[Copy]]:
    """The turns that were taken out of a session, of each file, the newest first."""
    return [[Copy(item["id"], item["hash"], one.held(item)) for item in one.items if item["file"] == TURN.file]
            for one in list(_readable(tree, session_id))[::-1]]  # fmt: skip


def drop(tree: Tree, name: str) -> None:
    """Removes the file, and the directory of the session if that was the last of it in the archive."""
    tree.unlink(name)
    tree.sync_parent(name)
    tree.remove_empty(name.rpartition("/")[0])


def evicted(session: Session, *, texts: bool = False) -> list[Evicted]:
    """What can be brought back, the oldest first, and if asked for with the beginning of what each says.

    A copy that the disk has damaged cannot be brought back: `bring_back` and `check` tell of it.
    """
    with session.scope.answering("listing what compaction has taken out"):
        found = list(_readable(session.scope.tree, session.id, whole=texts))
        still = _standing(session, found)
        return [_evicted(session.id, one, item) for one in found for item in one.items if still.get(_place(item)) != item["hash"]]


def evicted_of_archived(tree: Tree, session_id: str, *, texts: bool = False) -> list[Evicted]:
    """The same of a session that is archived; its own files are packed, so the copies alone tell."""
    return [_evicted(session_id, one, item) for one in _readable(tree, session_id, whole=texts) for item in one.items]


def _evicted(session_id: str, eviction: Eviction, item: dict[str, Any]) -> Evicted:
    stamp = item.get("timestamp")
    return Evicted(item["id"], type_of(str(item.get("type"))), session_id, item["file"], None if stamp is None else str(stamp),
                   str(eviction.head.get("evicted_at")), str(item.get("operation")), str(item.get("reason")),
                   item["length"], _said(eviction, item) if eviction.members else "")  # fmt: skip


def evicted_at(tree: Tree, session_id: str, memory_id: str) -> str | None:
    """When compaction took out what is not there; None where it did not."""
    return evicted_times(tree, session_id, [memory_id]).get(memory_id)


def evicted_times(tree: Tree, session_id: str, wanted: Collection[str]) -> dict[str, str]:
    """The same of many: those that it took out, each with when. Only the manifests are read."""
    found: dict[str, str] = {}
    for one in _readable(tree, session_id, whole=False):
        at = str(one.head.get("evicted_at"))
        found |= {item["id"]: max(at, found.get(item["id"], "")) for item in one.items if item["id"] in wanted}
    return found


def _said(eviction: Eviction, item: dict[str, Any]) -> str:
    kind = _kind(item["file"])
    value = value_of(kind, eviction.held(item)) or {}
    return str(value.get(kind.text, ""))


def _place(item: dict[str, Any]) -> Place:
    return item["file"], item["id"]


def _standing(session: Session, found: Sequence[Eviction]) -> dict[Place, str]:
    """The hashes of the records that the session holds now, as far as they can tell what of these is evicted."""
    files = {item["file"] for one in found for item in one.items}
    if not files:
        return {}

    def question(view: View) -> dict[Place, str]:
        # What is known of a file that cannot be read now is old.
        readable = [file for file in files if not view.index.has_problem(session.id, file)]
        return {(file, memory_id): hash for file in readable for memory_id, hash in view.index.hashes(session.id, file)}

    return session._asker().ask(question) | _parsed(session, [file for file in files if file.startswith(f"{STATE_HISTORY}/")])


def _parsed(session: Session, files: Iterable[str]) -> dict[Place, str]:
    """The same from the files themselves."""
    found: dict[Place, str] = {}
    for file in files:
        records = by_id(format_of(_kind(file)).parse(session.scope.read(file)).records)
        found.update({(file, memory_id): hash_of(record.value) for memory_id, record in records.items()})
    return found


def drop_leftovers(session: Session) -> list[str]:
    """Removes copies of what was never taken out, or is back; gives back what cannot be read. Under the lock of the passes."""
    tree = session.scope.tree
    found: list[Eviction] = []
    problems: list[str] = []
    for name in names(tree, session.id):
        try:
            found.append(load(tree, name, whole=False))
        except CorruptionDetected as error:
            problems.append(str(error))
    still = _standing(session, found)
    doubtful = {item["file"] for one in found for item in one.items if still.get(_place(item)) == item["hash"]}
    if doubtful:
        # A copy is about to be destroyed: ask the files themselves, not the index.
        sure = _parsed(session, doubtful)
        for one in found:
            try:
                keep_only(tree, one, lambda item: sure.get(_place(item)) != item["hash"])
            except CorruptionDetected as error:
                problems.append(str(error))
    return problems


def settle_deletions(session: Session) -> None:
    """What is on its way to or from `deleted/` is neither taken out nor brought back. Under the lock of the passes."""
    from ..deletion import memory_of
    from ..privacy.deleting.reworking import settle_memories  # which needs us

    settle_memories(memory_of(session), session.id)


def bring_back(session: Session, ids: str | Iterable[str] | None = None) -> Outcome:
    """Puts what was taken out, or these memories of it, back into its place, with its old bytes and ids, within the quota."""
    wanted = None if ids is None else {check_memory_id(one) for one in ([ids] if isinstance(ids, str) else ids)}
    scope = session.scope
    with scope.undisturbed("bringing back what compaction has taken out"):
        scope.require()
        settle_deletions(session)
        outcome = Outcome(problems=drop_leftovers(session))
        found = list(_readable(scope.tree, session.id))[::-1]
        if missing := sorted((wanted or set()) - {item["id"] for one in found for item in one.items}):
            raise MemoryNotFound(f"Compaction has not taken {', '.join(missing[:5])} out of {session.id}.", session_id=session.id,
                                 advice=f"smp compact {session.id} --list, or session.evicted(), says what can be"
                                        " brought back.")  # fmt: skip
        copies = _chosen(found, wanted, outcome.problems)
        if copies:
            said = [[Copy(item["id"], item["hash"], one.held(item)) for item in one.items if item["file"] == TURN.file]
                    for one in found] if TURN.file in copies else []  # fmt: skip
            _put_into_files(session, copies, said, outcome)
            sure = _parsed(session, copies)
            for one in found:
                keep_only(scope.tree, one, lambda item: sure.get(_place(item)) != item["hash"])
    return outcome


def _readable(tree: Tree, session_id: str, *, whole: bool = True) -> Iterator[Eviction]:
    for name in names(tree, session_id):
        try:
            yield load(tree, name, whole=whole)
        except CorruptionDetected:
            continue  # which is told by `drop_leftovers`


def _chosen(found: Sequence[Eviction], wanted: set[str] | None, problems: list[str]) -> dict[str, list[Copy]]:
    """What is to be put back, by file; of two copies with one id the newer."""
    chosen: dict[Place, Copy] = {}
    for one in found:
        for item in one.items:
            if wanted is not None and item["id"] not in wanted:
                continue
            if (known := chosen.get(_place(item))) is not None:
                if known.hash != item["hash"]:
                    problems.append(f"{item['id']} was taken out of {item['file']} twice; the older copy stays in {one.name}.")
                continue
            try:
                chosen[_place(item)] = Copy(item["id"], item["hash"], one.raw(item))
            except CorruptionDetected as error:
                problems.append(str(error))
    by_file: dict[str, list[Copy]] = {}
    for (file, _), copy in chosen.items():
        by_file.setdefault(file, []).append(copy)
    return by_file


def _put_into_files(session: Session, copies: dict[str, list[Copy]], said: list[list[Copy]], outcome: Outcome) -> None:
    scope = session.scope
    with scope.locked(copies, "bringing back what compaction has taken out") as held:
        tails = {file: settle(scope, _kind(file), held[file]) for file in copies}
        changes = {file: _Change(_kind(file), scope.tree.read(scope.path(file)), copies[file], said) for file in copies}
        with brief_lock(scope.tree, session.id, "usage", scope.options.patience):
            growth = sum(len(change.done.content) - len(change.before) for change in changes.values())
            scope.usage.require(session.id, growth, session.quota_bytes())
            for file, change in changes.items():
                rewrite(scope, file, change)
                last = max([tails[file].last, *(number_of(change.kind, copy.id) or 0 for copy in copies[file])])
                # The bytes may have brought a style of their own into an empty list: let the next writer look.
                held[file].note = {"last": last}
    for change in changes.values():
        change.tell(session.id, outcome)


class _Change:
    """What is put back into one file; worked out again only where somebody edits the file meanwhile."""

    def __init__(self, kind: Kind, before: bytes, copies: list[Copy], said: list[list[Copy]]) -> None:
        self.kind = kind
        self.before = before
        self.copies = copies
        self.said = said  # every turn that was taken out, of each eviction
        self.done = put_back(kind, before, copies, said)

    def __call__(self, content: bytes) -> bytes:
        if content != self.before:
            self.before, self.done = content, put_back(self.kind, content, self.copies, self.said)
        return self.done.content

    def tell(self, session_id: str, outcome: Outcome) -> None:
        after, conflicts = self.done
        outcome.problems += [f"{name} was not brought back: {why}; its copy stays." for name, why in conflicts.items()]
        if back := tuple(copy.id for copy in self.copies if copy.id not in conflicts):
            freed = len(self.before) - len(after)
            outcome.actions.append(Action(session_id, "bring_back", back, f"back into {self.kind.file}", freed))
