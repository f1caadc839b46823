"""Memories that vanished from their files become deleted memories, restorable like any other.

An editor that saves an old copy, `git checkout` or a sync tool can take a memory out of its file,
and so can a person. The index still knows it. A memory that is in no bundle, and that nobody has
purged, goes into a bundle in `deleted/`: a whole session into one that brings the session back.
If it stands in its file again, it leaves the bundle.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..change.change import Change, Request, apply, happen, item_of_change, temporaries, unlink_step
from ..change.holdings import Origin, bundles_of, in_bundle, is_in_use, is_kept
from ..change.restore import manifest_of, new_batch
from ..disk import audit, bundle, tombstones
from ..disk.bundle import Item, item_of
from ..disk.locks import NO_PATIENCE, holder, lock
from ..disk.place import ARCHIVE, ARTIFACTS, BACKUP, STATES, has_moved, session_of
from ..index import gone
from ..index.database import Index
from ..index.gone import BACK, GONE, Gone
from ..index.schema import UnusableIndex
from ..index.sync import bring_up_to_date
from ..model.errors import LockTimeout, NotInTime, SMPError
from ..model.layout import DELETED, GLOBAL, INDEX_FILE, LEAD, LEAD_SCOPE, MARKER, METADATA
from ..model.outcome import Action, Outcome
from ..model.record import SESSION_KINDS, TURN, is_deleted, kind_of_file
from ..model.times import time_of
from ..text.document import INDENT
from ..text.format import format_of
from ..text.mapping import render_mapping
from ..text.values import Value, hash_of, hash_of_bytes, render_lines
from ..text.version import is_record_file

if TYPE_CHECKING:
    from ..disk.scope import Scope
    from ..memory import Memory

OUTSIDE = "removed outside of SMP"
REMOVED = "removed_outside"  # the type of the action
WHOLE = "the whole session"  # in the place of a file
BY = "smp"
# An editor may empty a file before it writes it.
QUIET_S = 0.7
_PATIENCE_S = 5.0  # with a daemon
_PAUSE_S = 0.05
BUSY = "busy"  # as a count: sessions that somebody else is changing just now


def settle(
    memory: Memory, index: Index, *, quiet_s: float = QUIET_S, is_believed: bool = False
) -> Outcome:
    """Make deleted memories of those that vanished and that nobody deleted through SMP.

    The caller leads the root. If most sessions are gone at once, it needs somebody who says that
    this is right. A memory of a file with unreadable records waits: it may stand there still.
    """
    outcome = Outcome()
    if not memory.tree.exists(MARKER):
        return outcome
    by_session: dict[str, list[Gone]] = {}
    for row in gone.waiting(index, quiet_s):
        by_session.setdefault(session_of(row.scope), []).append(row)
    if not is_believed and (problem := _too_many(memory, index, by_session)):
        outcome.problems.append(problem)
        by_session = {name: rows for name, rows in by_session.items() if is_kept(memory, name)}
    for name, rows in by_session.items():
        scope = memory._scope(name)
        try:
            with scope.undisturbed("asking where memories went", is_new=True):
                case = _Case(memory, scope, rows)
                # Under the lock of the purge: one that ends later would leave its memories here.
                if purged := tombstones.load(memory.tree).get(name):
                    case.explain(gone.purged_among(rows, purged, is_there=case.is_kept))
                outcome.actions += case.settle(index)
        except LockTimeout:
            outcome.counts[BUSY] += 1
        except (SMPError, OSError) as error:
            outcome.problems.append(f"{name}: {error}")
    return outcome


def settle_here(memory: Memory, *, is_believed: bool = False) -> Outcome:
    """Settle if no daemon leads the root. A daemon does it by itself."""
    doing = "asking where memories went"
    with suppress(LockTimeout), lock(memory.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, doing):
        index, _ = Index.open_or_replace(memory.root / INDEX_FILE)
        with closing(index):
            return settle(memory, index, quiet_s=0.0, is_believed=is_believed)
    return Outcome()


def settle_now(memory: Memory) -> None:
    """Settle before a person removes or replaces memories, so that none waits in the index alone.

    Beside a daemon, this waits a moment until the daemon has done it.
    """
    if memory.options.is_leading or not memory.tree.exists(INDEX_FILE):
        return
    with suppress(NotInTime):
        if bring_up_to_date(memory, timeout_s=_PATIENCE_S) == "here":
            settle_here(memory)
    # A daemon may have taken the lead just now, so that nothing was settled here.
    until = time.monotonic() + _PATIENCE_S
    # An index that cannot be used is made anew: no memory waits in it.
    path = memory.root / INDEX_FILE
    with suppress(UnusableIndex), closing(Index.open_to_read(path)) as index:
        while gone.is_waiting(index) and holder(memory.tree, LEAD_SCOPE, LEAD) is not None:
            if time.monotonic() >= until:
                break
            time.sleep(_PAUSE_S)


def _too_many(memory: Memory, index: Index, rows: Mapping[str, Sequence[Gone]]) -> str | None:
    """Return the problem that most sessions are gone at once; None if they are not."""
    away = [name for name in rows if name != GLOBAL and not is_kept(memory, name)]
    away = [name for name in away if not has_moved(memory, name)]
    known = {session_of(scope) for (scope,) in index.execute("SELECT DISTINCT scope FROM files")}
    known |= {*away}
    if len(away) < 3 or 2 * len(away) <= len(known):
        return None
    return (
        f"{len(away)} of {len(known)} sessions have disappeared at once; none counts as deleted."
        " If that is right, run smp reindex; if not, bring the directories back."
    )


class _Case:
    """The vanished memories of one session. The caller holds the session's upkeep lock."""

    def __init__(self, memory: Memory, scope: Scope, rows: Sequence[Gone]) -> None:
        self._memory = memory
        self._scope = scope
        self._name = scope.name
        self._rows = [row for row in rows if row.state == GONE]
        self._back = [row for row in rows if row.state == BACK]
        self._standing: dict[str, dict[str, str] | None] = {}  # by file: the hash of each id
        self.is_kept = is_kept(memory, self._name)
        self._explained: set[Gone] = set()

    def explain(self, rows: Sequence[Gone]) -> None:
        """Note that these rows need no bundle."""
        self._explained.update(rows)

    def settle(self, index: Index) -> list[Action]:
        lost = self._lost()
        actions: list[Action] = []
        if lost:
            is_whole = not self.is_kept and not self._memory.tree.exists(self._backup)
            actions = self._delete_session(lost) if is_whole else self._delete(lost)
        if self._back:
            self._withdraw()
        with index.batch(is_silent=True):
            gone.forget(index, [*self._explained, *self._back])
            gone.mark_deleted(index, lost)
        return actions

    @property
    def _backup(self) -> str:
        return f"{DELETED}/{self._name}/{BACKUP}"

    # Where the memories are.

    def _lost(self) -> list[Gone]:
        """Return the memories that are nowhere. Note those that are somewhere as explained."""
        lost: list[Gone] = []
        for row in self._rows:
            if row in self._explained:
                continue
            standing = self._in_file(row.file)
            if standing is None:
                continue  # it waits until the file can be read
            if row.id in standing or row.key in self._in_bundles or _is_summary(row):
                self._explained.add(row)
            elif row.id or not self.is_kept:
                lost.append(row)
        if not any(row.id for row in lost):
            return []  # metadata alone are made again from the files
        return lost

    def _in_file(self, file: str) -> dict[str, str] | None:
        """Return the hash of each memory in a file; None if it has records that are unreadable."""
        if file not in self._standing:
            self._standing[file] = self._read(file)
        return self._standing[file]

    def _read(self, file: str) -> dict[str, str] | None:
        if not is_in_use(self._memory, self._name):
            return {}
        try:
            content = self._scope.read(file)
        except SMPError:
            return None
        if not is_record_file(file):
            return {_id_of(file): hash_of_bytes(content)} if content else {}
        kind = kind_of_file(file)
        found = format_of(kind).parse(content)
        if found.bad:
            return None
        records = [one for one in found.records if one.has_id and not is_deleted(kind, one.value)]
        return {str(one.value["id"]): hash_of(one.value) for one in records}

    @cached_property
    def _in_bundles(self) -> set[tuple[str, str]]:
        """The file and the id of each memory in the bundles of the session."""
        found: set[tuple[str, str]] = set()
        for path in bundles_of(self._memory, self._name):
            with suppress(SMPError, OSError):  # `smp check` names a damaged bundle
                if path.endswith((f"/{ARCHIVE}", f"/{BACKUP}")):
                    packed = bundle.read(self._memory.tree, path)
                    held = in_bundle(packed, Origin(self._name, "archived", path), [])
                    found |= {(one.file, one.id) for one in held}
                    continue
                manifest = bundle.read_manifest(self._memory.tree, path)
                # The undo of an anonymisation holds an earlier version of a memory that stays.
                found |= {one.key for one in manifest.items if "replaced_by" not in one.facts}
        return found

    # Deleting.

    def _delete(self, lost: Sequence[Gone]) -> list[Action]:
        """Write memories into a bundle like that of a deletion."""
        batch = new_batch(self._memory)
        pieces = [item_of_change(self._change(row)) for row in lost if row.id]
        by_file: dict[str, list[str]] = {}
        for item, _ in pieces:
            by_file.setdefault(item.file, []).append(item.id)
        with self._audited([item.id for item, _ in pieces], batch=batch):
            self._pack(f"{DELETED}/{self._name}/{batch}.tar.gz", pieces, batch)
        return [self._action(file, ids, batch) for file, ids in by_file.items()]

    def _delete_session(self, lost: Sequence[Gone]) -> list[Action]:
        """Write the files of a session, made again from its memories, into a bundle."""
        files = self._files(lost)
        pieces = [item_of(file, "", "file", raw, whole=True) for file, raw in files.items()]
        ids = [row.id for row in lost if row.id]
        with self._audited(ids, whole_session=True):
            self._pack(self._backup, pieces)
        return [self._action(WHOLE, ids)]

    def _action(self, file: str, ids: Sequence[str], batch: str = "") -> Action:
        return Action(self._name, REMOVED, tuple(ids), f"{OUTSIDE}: {file}", batch=batch)

    def _audited(self, ids: Sequence[str], **facts: object) -> AbstractContextManager[None]:
        return audit.noted(
            self._memory.tree,
            "delete",
            clock=self._memory.options.clock,
            by=BY,
            session=self._name,
            count=len(ids),
            ids=ids,
            reason=OUTSIDE,
            **facts,
        )

    def _pack(
        self, path: str, pieces: Sequence[tuple[Item, bytes]], batch: str = "", old: str = ""
    ) -> None:
        """Make a bundle, and unlink the one that it replaces."""
        memory = self._memory
        days = memory.options.retention.deleted_days
        head = manifest_of(memory, "deleted", self._name, OUTSIDE, BY, batch, days=days)
        with temporaries(memory.tree) as made:
            steps: list[dict[str, Any]] = []
            if pieces:
                made.append(bundle.write(memory.tree, head, pieces))
                steps.append({"bundle": path, "aside": made[0]})
            if old:
                steps.append(unlink_step(memory.tree, old))
            happen(self._scope, steps, made)

    # Memories as the index knew them.

    def _change(self, row: Gone) -> Change:
        return Change(row.file, row.id, None, content_of(self._scope, row), row.behind)

    def _files(self, lost: Sequence[Gone]) -> dict[str, bytes]:
        """Return the files of a session that has these memories."""
        known = (json.loads(row.data) for row in lost if not row.id)
        metadata: dict[str, Value] = next(known, {})
        created = time_of(metadata.get("created_at")) or self._memory.options.clock()
        files = {
            kind.file: format_of(kind).empty(self._name, created, []) for kind in SESSION_KINDS
        }
        for row in lost:
            content = content_of(self._scope, row)
            if isinstance(content, bytes):
                files[row.file] = content
            else:
                form = format_of(kind_of_file(row.file))
                files[row.file] += form.render(content, INDENT)
        return files

    # Memories that are back.

    def _withdraw(self) -> None:
        """Take memories that stand in their files again out of the bundles that hold them."""
        tree, changes = self._memory.tree, list[Change]()
        for path, manifest in bundle.manifests(tree, f"{DELETED}/{self._name}"):
            if manifest.why != OUTSIDE or not is_in_use(self._memory, self._name):
                continue
            if path == self._backup:
                self._withdraw_session()
                continue
            for item in manifest.items:
                if (self._in_file(item.file) or {}).get(item.id) == item.hash:
                    changes.append(Change(item.file, item.id, item.hash, None, container=path))
        apply(self._scope, Request(changes, doing="forgetting what is back"))

    def _withdraw_session(self) -> None:
        """Keep of a removed session, which is back, only the memories that it has no longer."""
        packed = bundle.read(self._memory.tree, self._backup)
        pieces: list[tuple[Item, bytes]] = []
        for one in in_bundle(packed, Origin(self._name, "deleted", self._backup), []):
            is_memory = one.id and one.file != METADATA
            if is_memory and (self._in_file(one.file) or {}).get(one.id) != one.hash:
                pieces.append(item_of_change(Change(one.file, one.id, None, one.raw, one.behind)))
        batch = new_batch(self._memory)
        path = f"{DELETED}/{self._name}/{batch}.tar.gz"
        self._pack(path, pieces, batch, self._backup)


def content_of(scope: Scope, row: Gone) -> bytes | dict[str, Value]:
    """Return the fields of a record, or the bytes of a whole file, without secrets."""
    known: dict[str, Value] = json.loads(row.data)
    fields, _ = scope.redaction.redacted_value(known)
    if is_record_file(row.file):
        return fields
    if row.file == METADATA:
        return render_mapping("session", fields)
    fields = {name: value for name, value in fields.items() if name != "id"}
    if row.file.startswith(f"{STATES}/"):
        return render_mapping("agent_state", fields)
    assert row.file.startswith(f"{ARTIFACTS}/")
    text, _ = scope.redaction.redacted_value(row.text)
    if not fields:
        return text.encode()
    # In the order in which SMP writes it, so that it is known again.
    version = {name: value for name, value in fields.items() if name == "version"}
    head = {**version, "id": row.id, **fields}
    return f"---\n{render_lines(head)}---\n{text}".encode()


def _id_of(file: str) -> str:
    return "" if file == METADATA else file.rpartition("/")[2].rpartition(".")[0]


def _is_summary(row: Gone) -> bool:
    """Return whether a turn was the summary of evicted turns, which go back in its place."""
    return row.type == TURN.name and json.loads(row.data).get("type") == "summary"
