"""The one way in which existing records change: `apply(scope, changes, draft)`.

Update, transaction, decay, compaction, retention, delete, restore, anonymise, redaction of edited
files and import all go through it:

1. lock the files, read them, and compare each record with the hash that its change expects;
2. make the bundle of what goes aside, and new versions of the bundles that change;
3. record one intent that names all of it: from here on the change has happened;
4. name the bundles, 5. splice the files, 6. forget the intent.

A crash before 3 leaves temporaries, which tidying removes. A crash after 3 leaves an intent, which
whoever comes next rolls forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..disk import access, bundle, journal
from ..disk.append import Reserved, Tail, note_rewritten, note_tail, settle
from ..disk.bundle import Bundle, Item, Manifest, item_of
from ..disk.locks import Lock, brief_lock
from ..disk.tree import is_left_alone
from ..model.errors import Conflict, StorageFailed, TransactionPending
from ..model.record import Kind, kind_of_file
from ..text.document import INDENT
from ..text.edits import FEW, Edit, Span, Spans, edited, located, replaced, spans, value_of
from ..text.fingerprint import hash_of, hash_of_bytes
from ..text.format import format_of
from ..text.values import Value
from .digest import digest
from .places import is_record_file, type_of_file

if TYPE_CHECKING:
    from ..disk.scope import Scope

_LAST = ""  # as `Change.behind`: the record comes last
_TRIES = 3
_Done = TypeVar("_Done")


@dataclass(frozen=True)
class Change:
    """What one memory is to become.

    `old` is the hash that it has now, or None where it comes in. `new` is its bytes, or its fields,
    or None where it goes. `container` is the bundle that holds it, and empty for the session's files.
    A change without an id is of a line in the head of a record file; one that is gone is no conflict.
    """

    file: str
    id: str
    old: str | None
    new: bytes | Mapping[str, Value] | None
    behind: str | None = _LAST
    container: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the item of the draft; see `_pieces`


@dataclass(frozen=True)
class Draft:
    """A bundle that is to be made of all memories that a change takes out or replaces."""

    path: str
    manifest: Manifest


@dataclass(frozen=True)
class Request:
    """Everything that happens together, and how it is called while it is under way."""

    changes: Sequence[Change]
    draft: Draft | None = None
    added: Mapping[str, Sequence[Mapping[str, Value]]] = field(default_factory=dict)  # new records, by file
    reserved: Mapping[str, Reserved] = field(default_factory=dict)  # where their numbers come from
    steps: Sequence[dict[str, Any]] = ()  # files of the inbox that go with it, a cut of the access log
    parsed: Mapping[str, tuple[bytes, Spans]] = field(default_factory=dict)  # files that the caller has parsed
    quota_bytes: int | None = None
    doing: str = "changing memories"


@dataclass
class Applied:
    """What a change came to. `kept` are memories that somebody changed meanwhile without a lock."""

    kept: list[str] = field(default_factory=list)
    growth_bytes: int = 0


def apply(scope: Scope, request: Request) -> Applied:
    """Make all changes, or none. Raises Conflict where a memory is not as a change expects it.

    The caller of a change with bundles holds the session's upkeep lock. Raises QuotaExceeded or
    StorageFailed with nothing done, and TransactionPending where the change is safe but not done.
    """
    files = dict.fromkeys([*(change.file for change in request.changes if not change.container), *request.added])
    cuts = [step for step in request.steps if "cut" in step]
    if not files and not request.changes and not request.steps:
        return Applied()
    with ExitStack() as stack:
        locked = [*files, *(step["file"] for step in cuts)]
        held = stack.enter_context(scope.locked(locked, request.doing)) if locked else {}
        if not all(access.can_cut(scope, step) for step in cuts):
            raise Conflict(f"The access log of {scope.name} was replaced; nothing was changed.", session_id=scope.name)
        work = _Work(scope, request)
        for file in files:
            changes = [change for change in request.changes if change.file == file and not change.container]
            work.prepare_file(file, changes, request.added.get(file, ()), held[file])
        temporaries = stack.enter_context(_temporaries(scope))
        for container in dict.fromkeys(change.container for change in request.changes if change.container):
            work.prepare_bundle(container, temporaries)
        if request.draft is not None and work.taken:
            work.prepare_draft(request.draft, temporaries)
        if request.quota_bytes is not None and work.growth > 0:
            usage = brief_lock(scope.tree, scope.name, "usage", scope.options.patience)
            stack.enter_context(usage)
            scope.usage.require(scope.name, work.growth, request.quota_bytes)
        return work.carry_out(held, temporaries)


def replanned(attempt: Callable[[], _Done]) -> _Done:
    """Plan and apply, and once more where somebody changed a memory in between, at most 3 times."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()


class _Work:
    """The steps of one change while they are put together."""

    def __init__(self, scope: Scope, request: Request) -> None:
        self._scope, self._request = scope, request
        self._bundle_steps: list[dict[str, Any]] = []
        self._file_steps: list[dict[str, Any]] = []
        self._tails: dict[str, Tail] = {}
        self._ready: dict[str, tuple[bytes, bytes]] = {}  # a file, and what its edits make of it
        self.taken: list[tuple[Item, bytes]] = []  # for the draft
        self.growth = 0

    def prepare_file(
        self, file: str, changes: Sequence[Change], added: Sequence[Mapping[str, Value]], held: Lock
    ) -> None:
        if not is_record_file(file):
            for change in changes:
                self._prepare_whole(change)
            return
        scope, kind = self._scope, kind_of_file(file)
        tail = self._tails[file] = settle(scope, kind, held)
        numbers = [int(number) for value in added if (number := str(value["id"]).rpartition("-")[2]).isdecimal()]
        reserved = self._request.reserved.get(file)
        if reserved is not None and tail.last == reserved.last:
            tail.last = 0  # nobody has taken a number since: those that are left can be given again
        tail.last = max([tail.last, *numbers])
        is_certain = not added or (reserved is not None and reserved.is_held_by(held))
        if not changes and is_certain and tail.opening is not None:
            rendered = b"".join(format_of(kind).render(value, tail.indent) for value in added)
            self._file_steps.append({"file": file, "append": (tail.opening + rendered).decode(), "at": tail.size})
            self.growth += len(tail.opening) + len(rendered)
            return
        content = scope.tree.read(scope.path(file))
        is_few = len(changes) + len(added) <= FEW and all(change.old is not None and change.id for change in changes)
        known = self._request.parsed.get(file)
        found = known[1] if known and known[0] == content else None if is_few else spans(kind, content)
        ids = [*(change.id for change in changes), *(str(value["id"]) for value in added)]
        standing = located(kind, content, ids) if found is None else {span.id: span for span in found.records}
        for value in added:
            if value["id"] in standing:
                raise Conflict(f"{value['id']} was given to somebody else, because .smp/ was lost; nothing was written.")
        edits = [self._edit(kind, change, standing.get(change.id), content) for change in changes]
        edits += [Edit(str(value["id"]), None, format_of(kind).render(value, INDENT).decode(), _LAST) for value in added]
        self._file_steps.append({"file": file, "edit": [list(edit) for edit in edits], "last": tail.last})
        after = edited(kind, content, edits, tail.last, found).content
        self._ready[file] = (content, after)
        self.growth += len(after) - len(content)

    def _edit(self, kind: Kind, change: Change, span: Span | None, content: bytes) -> Edit:
        if not change.id:
            for line in spans(kind, content).head.splitlines(keepends=True):
                if self._request.draft is not None and hash_of_bytes(line) == change.old:
                    facts = {"hash": change.old, **change.facts}
                    self.taken.append(item_of(change.file, "", "head", line, **facts))
        elif change.old is None:
            if span is not None:
                raise _conflict(self._scope, change, "another memory has its id by now")
        elif span is None or hash_of(span.value) != change.old:
            raise _conflict(self._scope, change, "somebody else changed it since it was read")
        elif self._request.draft is not None:
            known: dict[str, Any] = {"timestamp": span.value.get("timestamp"), "behind": span.behind}
            known |= {"hash": change.old, **change.facts}
            self.taken.append(item_of(change.file, change.id, kind.name, span.raw, **known))
        new = change.new
        if isinstance(new, Mapping):
            new = format_of(kind).render(new, INDENT) if span is None else replaced(kind, span, new)
        return Edit(change.id, change.old, None if new is None else new.decode(), change.behind)

    def _prepare_whole(self, change: Change) -> None:
        """A memory that is a file of its own: a state, an artifact, metadata or the profile."""
        path = self._scope.path(change.file)
        before = self._scope.tree.read(path) if self._scope.tree.exists(path) else b""
        if (hash_of_bytes(before) if before else None) != change.old:
            raise _conflict(self._scope, change, "somebody else changed it since it was read")
        if before:
            facts = {"hash": change.old, "whole": True, **change.facts}
            self.taken.append(item_of(change.file, change.id, type_of_file(change.file), before, **facts))
        new = _whole(change)
        self.growth += len(new or b"") - len(before)
        if new is not None:
            content = new.decode("utf-8", "surrogateescape")
            self._file_steps.append({"file": change.file, "content": content, "old": change.old})
            return
        with self._scope.tree.opened(path) as descriptor:
            if not is_left_alone(descriptor):
                raise _conflict(self._scope, change, "somebody is writing it just now")
        self._file_steps.append({"file": change.file, "remove": journal.version_of(self._scope.tree.stat(path))})

    def prepare_bundle(self, container: str, temporaries: list[str]) -> None:
        """Make a new version of a bundle, without or with other items."""
        changes = [change for change in self._request.changes if change.container == container]
        tree = self._scope.tree
        old = bundle.read(tree, container)
        pieces = self._packed_files(old, changes) if old.manifest.kind == "archive" else self._pieces(old, changes)
        if not pieces:
            version = journal.version_of(tree.stat(container))
            self._bundle_steps.append({"bundle": container, "aside": None, "was": version})
            return
        manifest = old.manifest
        if manifest.kind == "archive":
            facts = digest(manifest.session, {item.file: raw for item, raw in pieces})
            manifest = replace(manifest, facts={**manifest.facts, **facts})
        temporaries.append(bundle.write(tree, manifest, pieces))
        self._bundle_steps.append({"bundle": container, "aside": temporaries[-1]})

    def _pieces(self, old: Bundle, changes: Sequence[Change]) -> list[tuple[Item, bytes]]:
        """The items of a bundle of records, or of single files, after the changes.

        A memory that was in two places when it was deleted is in the bundle twice; one change means both.
        Facts of a change are added to the item of the draft. Those that the item here has change here.
        """
        wanted = {(change.file, change.id, change.old): change for change in changes}
        pieces: list[tuple[Item, bytes]] = []
        found: set[tuple[str, str, str | None]] = set()
        for item, raw in old.pieces():
            change = wanted.get((*item.key, item.hash))
            if change is None:
                pieces.append((item, raw))
                continue
            found.add((*item.key, item.hash))
            self.taken.append((replace(item, facts={**change.facts, **item.facts}), raw))
            if change.new is not None:
                new, known = _packed(change), change.facts.keys() & item.facts.keys()
                facts = {**item.facts, **{name: change.facts[name] for name in known}}
                pieces.append((_repacked(replace(item, facts=facts), new), new))
        for key, change in wanted.items():
            if key in found:
                continue
            if change.old is not None or change.new is None:
                raise _conflict(self._scope, change, f"{old.path} does not hold it any more")
            pieces.append(_arriving(change))
        return pieces

    def _packed_files(self, old: Bundle, changes: Sequence[Change]) -> list[tuple[Item, bytes]]:
        """The files of an archived session after the changes."""
        files = dict(old.files())
        for file in dict.fromkeys(change.file for change in changes):
            here = [change for change in changes if change.file == file]
            before = files.get(file, b"")
            if not is_record_file(file):
                for change in here:
                    if (hash_of_bytes(before) if before else None) != change.old:
                        raise _conflict(self._scope, change, "somebody else changed it since it was read")
                    if before:
                        facts = {"hash": change.old, "whole": True, **change.facts}
                        self.taken.append(item_of(file, change.id, type_of_file(file), before, **facts))
                    files.pop(file, None)
                    if (new := _whole(change)) is not None:
                        files[file] = new
                continue
            kind = kind_of_file(file)
            standing = located(kind, before, [change.id for change in here])
            edits = [self._edit(kind, change, standing.get(change.id), before) for change in here]
            last = format_of(kind).highest(format_of(kind).parse(before), before)
            files[file] = edited(kind, before, edits, last).content
        return [item_of(file, "", "file", content, whole=True) for file, content in files.items()]

    def prepare_draft(self, draft: Draft, temporaries: list[str]) -> None:
        temporaries.append(bundle.write(self._scope.tree, draft.manifest, self.taken))
        self._bundle_steps.insert(0, {"bundle": draft.path, "aside": temporaries[-1]})

    def carry_out(self, held: Mapping[str, Lock], temporaries: list[str]) -> Applied:
        scope, applied = self._scope, Applied(growth_bytes=self.growth)
        steps = [*self._bundle_steps, *self._file_steps, *self._request.steps]
        try:
            intent = journal.record(scope, steps)
        except OSError as error:
            raise StorageFailed(f"Could not record the change: {error}.", session_id=scope.name) from error
        temporaries.clear()  # they belong to the intent now
        try:
            for step in steps:
                kept: list[str] = []
                after = journal.carry_out(scope, step, kept, self._ready.get(step.get("file", "")))
                applied.kept += kept
                if step.get("file") in self._tails:
                    self._note(step, held[step["file"]], after)
            journal.forget(scope, intent)
        except OSError as error:
            raise TransactionPending(f"The change is recorded, but: {error}.", session_id=scope.name) from error
        return applied

    def _note(self, step: Mapping[str, Any], held: Lock, after: bytes | None) -> None:
        """Leave for the next writer what is known of the end of the file."""
        tail = self._tails[step["file"]]
        if "append" in step:
            note_tail(held, tail, step["append"].encode(), self._scope.tree.stat(self._scope.path(step["file"])))
        elif after is not None:
            note_rewritten(held, tail, after)


@contextmanager
def _temporaries(scope: Scope) -> Iterator[list[str]]:
    """Remove the bundles that were made aside, unless an intent has taken them over."""
    names: list[str] = []
    try:
        yield names
    finally:
        for name in names:
            scope.tree.unlink(name)


def _repacked(item: Item, raw: bytes) -> Item:
    """The item for other bytes of one memory."""
    kind = None if item.is_file else kind_of_file(item.file)
    hash = hash_of_bytes(raw) if kind is None else hash_of(value_of(kind, raw))
    return replace(item_of(item.file, item.id, item.type, raw, hash=hash, whole=item.is_file)[0],
                   timestamp=item.timestamp, behind=item.behind, facts=item.facts)  # fmt: skip


def _arriving(change: Change) -> tuple[Item, bytes]:
    raw = _packed(change)
    if not is_record_file(change.file):
        facts = {"hash": hash_of_bytes(raw), "whole": True, **change.facts}
        return item_of(change.file, change.id, type_of_file(change.file), raw, **facts)
    kind = kind_of_file(change.file)
    value = value_of(kind, raw)
    known: dict[str, Any] = {"hash": hash_of(value), "timestamp": value.get("timestamp"), "behind": change.behind}
    return item_of(change.file, change.id, kind.name, raw, **known, **change.facts)


def _whole(change: Change) -> bytes | None:
    """The new content of a file that is one memory."""
    assert not isinstance(change.new, Mapping)
    return change.new


def _packed(change: Change) -> bytes:
    """The bytes of a memory that goes into a bundle of records."""
    if isinstance(change.new, Mapping):
        return format_of(kind_of_file(change.file)).render(change.new, INDENT)
    return change.new or b""


def _conflict(scope: Scope, change: Change, why: str) -> Conflict:
    return Conflict(f"{change.id or change.file} of {scope.name}: {why}; nothing was changed.", session_id=scope.name,
                    advice="Look again, and repeat it.")  # fmt: skip
