"""The one way in which existing records change: `apply(scope, request)`.

1. lock the files, read them, and compare each record with the hash that its change expects;
2. make the bundle of the memories that go, and new versions of the bundles that change, aside;
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

from ..disk import bundle, journal
from ..disk.append import Reserved, Tail, note_tail, tail_of
from ..disk.bundle import Bundle, Item, Manifest, item_of
from ..disk.locks import Lock
from ..disk.tree import is_left_alone
from ..model.errors import Conflict, SMPError, StorageFailed, TransactionPending, storage_failed
from ..model.record import REVISION, TURN, Kind, kind_of_file
from ..text.document import INDENT
from ..text.edits import Edit, Span, Spans, edited, value_of
from ..text.format import format_of
from ..text.values import Value, hash_of, hash_of_bytes
from ..text.version import is_record_file
from .digest import digest
from .holdings import type_of_file

if TYPE_CHECKING:
    from ..disk.scope import Scope
    from ..disk.tree import Tree

_LAST = ""  # as `Change.behind`: the record comes last
_TRIES = 3
_CHANGED = "somebody else changed it meanwhile"
_Done = TypeVar("_Done")


@dataclass(frozen=True)
class Change:
    """The change of one memory.

    `old` is the hash that it has now, or None where it comes in. `new` is its bytes, or its fields,
    or None where it goes. `container` is the bundle that holds it, and empty for the session's
    files. In a record file, a change without an id is of a line in the head; a line that is gone is
    no conflict.
    """

    file: str
    id: str
    old: str | None
    new: bytes | Mapping[str, Value] | None
    behind: str | None = _LAST
    container: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the item of the draft


@dataclass(frozen=True)
class Request:
    """Everything that happens together, and how it is called while it is under way.

    `draft` is the path and the head of a bundle of all memories that the changes take or replace.
    """

    changes: Sequence[Change]
    draft: tuple[str, Manifest] | None = None
    reserved: Mapping[str, Reserved] = field(default_factory=dict)  # by file: new numbers
    steps: Sequence[dict[str, Any]] = ()  # such as drops that go with it
    parsed: Mapping[str, tuple[bytes, Spans]] = field(default_factory=dict)  # by the caller
    quota_bytes: int | None = None
    doing: str = "changing memories"


def apply(scope: Scope, request: Request) -> list[str]:
    """Make all changes, or none. Return the memories that somebody changed without a lock.

    The caller of a change with bundles holds the session's upkeep lock. Raises Conflict where a
    memory is not as a change expects it, QuotaExceeded or StorageFailed, each with nothing done,
    and TransactionPending where the change is safe but not done.
    """
    by_file: dict[str, list[Change]] = {}
    by_bundle: dict[str, list[Change]] = {}
    for change in request.changes:
        group = by_bundle if change.container else by_file
        group.setdefault(change.container or change.file, []).append(change)
    if not request.changes and not request.steps:
        return []
    with ExitStack() as stack:
        held = stack.enter_context(scope.locked(by_file, request.doing)) if by_file else {}
        work = _Work(scope, request, stack.enter_context(temporaries(scope.tree)))
        for file, changes in by_file.items():
            work.prepare_file(file, changes, held[file])
        bundles = [work.bundle_step(*change) for change in by_bundle.items()]
        if request.draft is not None and work.taken:
            bundles.insert(0, work.packed(*request.draft, work.taken))
        if request.quota_bytes is not None and work.growth > 0:
            scope.usage.require(scope.name, work.growth, request.quota_bytes)
        return work.carry_out(bundles, held)


@contextmanager
def temporaries(tree: Tree) -> Iterator[list[str]]:
    """Yield a list for the names of things made aside. Those left in it at the end are removed."""
    made: list[str] = []
    try:
        yield made
    finally:
        for name in made:
            (tree.remove_directory if tree.is_directory(name) else tree.unlink)(name)


def happen(
    scope: Scope, steps: list[journal.Step], made: list[str],
    carry_out: Callable[[Scope, journal.Step], Any] | None = None,
) -> None:  # fmt: skip
    """Record an intent, carry its steps out, and forget it.

    The intent takes the temporaries over. Raises StorageFailed where nothing was recorded.
    """
    try:
        intent = journal.record(scope, steps)
    except StorageFailed:
        made.clear()  # the intent may stand, and would need them
        raise
    except OSError as error:
        doing = f"Could not record the change of {scope.tree.path}/{scope.directory}"
        raise storage_failed(doing, error, scope.name) from error
    made.clear()
    try:
        for step in steps:
            (carry_out or journal.carry_out)(scope, step)
        journal.forget(scope, intent, steps)
    except (OSError, SMPError) as error:
        said = f"The change is recorded, but: {error}."
        raise TransactionPending(said, session_id=scope.name) from error


def replanned(attempt: Callable[[], _Done]) -> _Done:
    """Plan and apply, and again where somebody changed a memory in between, at most 3 times."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()


class _Work:
    """The steps of one change while they are put together."""

    def __init__(self, scope: Scope, request: Request, made: list[str]) -> None:
        self._scope, self._request, self._made = scope, request, made
        self._steps: list[dict[str, Any]] = []  # of files
        self._tails: dict[str, tuple[Tail, int]] = {}  # with the size of the file after its step
        self._ready: dict[str, tuple[bytes, bytes]] = {}  # a file before and after its edits
        self.taken: list[tuple[Item, bytes]] = []  # for the draft
        self.growth = 0

    def prepare_file(self, file: str, changes: Sequence[Change], held: Lock) -> None:
        """Add the step that changes a file of the session."""
        if is_record_file(file):
            self._prepare_records(file, changes, held)
            return
        tree, path = self._scope.tree, self._scope.path(file)
        before = tree.read(path) if tree.exists(path) else b""
        after = self._changed(file, changes, before)
        step: dict[str, Any] = {"file": file}
        if after is not None:
            step |= {"content": after.decode("utf-8", "surrogateescape"), "old": changes[0].old}
        else:
            with tree.opened(path) as descriptor:
                if not is_left_alone(descriptor):
                    raise self._conflict(file, "somebody is writing it just now")
            step["remove"] = journal.version_of(tree.stat(path))
        self._steps.append(step)
        self.growth += len(after or b"") - len(before)

    def _prepare_records(self, file: str, changes: Sequence[Change], held: Lock) -> None:
        """Add the step that appends records to a file, or edits some of its records."""
        scope, kind, reserved = self._scope, kind_of_file(file), self._request.reserved.get(file)
        added = {one.id: one.new for one in changes
                 if one.old is None and isinstance(one.new, Mapping)}  # fmt: skip
        tail = tail_of(scope, kind, held)
        # In a file that somebody wrote by hand since, one of the new ids may stand already.
        is_certain = reserved is not None and tail.is_noted and reserved.is_held_by(held)
        # Where nobody has taken a number since, those that are left can be given again.
        is_untouched = is_certain and reserved and tail.last == reserved.last
        numbers = [kind.number_of(one) or 0 for one in added]
        given_before = reserved.first - 1 if reserved and is_untouched else tail.last
        tail = tail._replace(last=max([given_before, *numbers]))
        if len(added) == len(changes) and is_certain:
            records = (format_of(kind).render(value, tail.indent) for value in added.values())
            new = b"".join([tail.opening, *records])
            self._steps.append({"file": file, "append": new.decode(), "at": tail.size})
            self._tails[file] = tail, tail.size + len(new)
            self.growth += len(new)
            return
        before = scope.tree.read(scope.path(file))
        after = self._changed(file, changes, before, tail.last) or b""
        self._steps.append({"file": file, "edit": [*map(_edit, changes)], "last": tail.last})
        self._ready[file] = (before, after)
        # A record that comes back may have a higher number, as bytes behind the tail may.
        is_known = all(one.old is not None or one.id in added for one in changes)
        is_known = is_known and len(before) == tail.size
        is_open = tail.opening or not after.endswith(b"\n\n" if kind is TURN else b"\n")
        self._tails[file] = tail, len(after) if is_known and not is_open else -1
        self.growth += len(after) - len(before)

    def _changed(
        self, file: str, changes: Sequence[Change], before: bytes, last: int | None = None
    ) -> bytes | None:
        """Return a file after its changes; None where it goes. The draft gets the memories of now.

        Raises Conflict where a memory is not as its change expects it.
        """
        if not is_record_file(file):
            change = changes[0]
            if (hash_of_bytes(before) if before else None) != change.old:
                raise self._conflict(file, _CHANGED)
            if before:
                self._take(change, type_of_file(file), before, whole=True)
            assert not isinstance(change.new, Mapping)
            return change.new
        kind = kind_of_file(file)
        if last is None:
            last = format_of(kind).highest(format_of(kind).parse(before), before)
        parsed, found = self._request.parsed.get(file, (None, None))
        found = found if parsed == before else None
        after, kept, standing = edited(kind, before, [*map(_edit, changes)], last, found)
        for change in (change for change in changes if change.old is not None):
            span = standing.get(change.id or str(change.old))
            if span is not None:
                type = kind.name if change.id else "head"
                self._take(change, type, span.raw, **_facts_of(kind, span))
            elif change.id:
                kept.append(change.id)
        if kept:
            raise self._conflict(kept[0], _CHANGED)
        return after

    def _take(self, change: Change, type: str, raw: bytes, **known: Any) -> None:
        if self._request.draft is not None:
            facts = {"hash": change.old, **known, **change.facts}
            self.taken.append(item_of(change.file, change.id, type, raw, **facts))

    def bundle_step(self, path: str, changes: Sequence[Change]) -> dict[str, Any]:
        """Make a new version of a bundle aside, and return its step; an empty one is unlinked."""
        old = bundle.read(self._scope.tree, path)
        manifest = old.manifest
        if manifest.kind == "archive":
            files = dict(old.files())
            for file in dict.fromkeys(change.file for change in changes):
                here = [change for change in changes if change.file == file]
                after = self._changed(file, here, files.pop(file, b""))
                files |= {} if after is None else {file: after}
            pieces = [item_of(file, "", "file", raw, whole=True) for file, raw in files.items()]
            facts = {**manifest.facts, **digest(manifest.session, files)}
            manifest = replace(manifest, facts=facts)
        else:
            pieces = self._pieces(old, changes)
        if pieces:
            return self.packed(path, manifest, pieces)
        return unlink_step(self._scope.tree, path)

    def _pieces(self, old: Bundle, changes: Sequence[Change]) -> list[tuple[Item, bytes]]:
        """Return the items of a bundle of records, or of single files, after the changes.

        A memory that was in two places when it was deleted is in the bundle twice; one change means
        both. The item of the draft gets all facts of a change. The item that stays in the bundle
        gets new values of the facts that it has.
        """
        wanted = {(change.file, change.id, change.old): change for change in changes}
        missing = dict(wanted)
        pieces: list[tuple[Item, bytes]] = []
        for item, raw in old.pieces():
            key = (*item.key, item.hash)
            change = wanted.get(key)
            if change is None:
                pieces.append((item, raw))
                continue
            missing.pop(key, None)
            self.taken.append((replace(item, facts={**change.facts, **item.facts}), raw))
            if change.new is not None:
                known = {name: change.facts.get(name, fact) for name, fact in item.facts.items()}
                pieces.append(item_of_change(replace(change, behind=item.behind, facts=known)))
        for change in missing.values():
            if change.old is not None:
                raise self._conflict(change.id, f"{old.path} does not hold it any more")
            pieces.append(item_of_change(change))
        return pieces

    def packed(
        self, path: str, manifest: Manifest, pieces: Sequence[tuple[Item, bytes]]
    ) -> dict[str, Any]:
        """Make a bundle aside, and return the step that names it."""
        self._made.append(bundle.write(self._scope.tree, manifest, pieces))
        return {"bundle": path, "aside": self._made[-1]}

    def carry_out(self, bundles: list[dict[str, Any]], held: Mapping[str, Lock]) -> list[str]:
        """Make it happen, and note the tails for the next writer."""
        everything: list[str] = []

        def carry_out(scope: Scope, step: journal.Step) -> None:
            kept: list[str] = []
            file = step.get("file", "")
            after = journal.carry_out(scope, step, kept, self._ready.get(file))
            everything.extend(kept)
            if file in self._tails and ("append" in step or after is not None):
                tail, size = self._tails[file]
                status = scope.tree.stat(scope.path(file))
                # Somebody's edit may have crossed ours.
                is_ours = after is None or after == self._ready.get(file, (b"", b""))[1]
                note_tail(held[file], tail, status, size if is_ours else -1)

        happen(self._scope, [*bundles, *self._steps, *self._request.steps], self._made, carry_out)
        return everything

    def _conflict(self, about: str, why: str) -> Conflict:
        name = self._scope.name
        advice = "Look at it, and repeat this, or repeat it for the others."
        said = f"{about} of {name}: {why}; nothing was changed."
        return Conflict(said, session_id=name, advice=advice)


def _facts_of(kind: Kind, span: Span) -> dict[str, Value]:
    """Return the facts of a record that its item in a bundle keeps."""
    facts: dict[str, Value] = {"timestamp": span.value.get("timestamp"), "behind": span.behind}
    if kind is REVISION:
        facts["memory"] = span.value.get("memory")
    return facts


def _edit(change: Change) -> Edit:
    new = change.new.decode() if isinstance(change.new, bytes) else change.new
    return Edit(change.id, change.old, new, change.behind)


def unlink_step(tree: Tree, path: str) -> dict[str, Any]:
    """Return the step that unlinks a bundle, if it is still this one."""
    return {"bundle": path, "aside": None, "was": journal.version_of(tree.stat(path))}


def item_of_change(change: Change) -> tuple[Item, bytes]:
    """Return the item, and the bytes, of a memory that a bundle of records is to hold."""
    file, raw = change.file, change.new or b""
    if not is_record_file(file):
        assert isinstance(raw, bytes)
        facts = {"hash": hash_of_bytes(raw), "whole": True, **change.facts}
        return item_of(file, change.id, type_of_file(file), raw, **facts)
    kind = kind_of_file(file)
    if isinstance(raw, Mapping):
        raw = format_of(kind).render(raw, INDENT)
    value = value_of(kind, raw)
    facts = {"hash": hash_of(value), "timestamp": value.get("timestamp"), **change.facts}
    return item_of(file, change.id, kind.name, raw, behind=change.behind, **facts)
