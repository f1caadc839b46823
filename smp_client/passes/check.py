"""The check: it reads everything once, and names each fault.

Every file is parsed, and every bundle read back against its manifest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..disk import bundle, journal
from ..disk.foreign import foreign, odd_locks
from ..disk.locks import holder
from ..disk.place import FILES, Place, directory_of, files_of, is_archived, scopes
from ..disk.quarantine import NOTE, REJECTED, described, rejected
from ..disk.session_files import METADATA
from ..disk.tree import Tree
from ..disk.usage import require_readable
from ..index.status import SILENT_AFTER_S
from ..index.take_in import ids_in
from ..index.topics import render
from ..model import layout
from ..model.errors import NewerFormat, SessionNotFound, SMPError
from ..model.layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    GLOBAL,
    JOURNAL,
    LEAD,
    LEAD_SCOPE,
    YAML_INDEXES,
)
from ..model.metadata_forms import senseless
from ..redaction.redact import harmless
from ..text.mapping import load_mapping

if TYPE_CHECKING:
    from ..memory import Memory
    from ..session import RecordFiles, Session

_WRITTEN_AFTER_S = 120.0  # a daemon has written the files for people by then
_DAMAGED = "Bring it back from a copy of your own; the disk may be failing."
_LOOK = "Copy the bytes that you need, and remove it with the note beside it."
BY_HAND = "Mend it by hand."
MEND = "Mend it by hand, or run smp doctor --fix, which brings back what is known."
_NAMELESS = "the record has no id"
REPAIR = "Run smp doctor --fix."
_OPEN = "Make it readable for you; nothing of its session is written before."


@dataclass(frozen=True)
class Complaint:
    """Something that is not as it should be; `advice` says how to mend it."""

    scope: str
    file: str
    line: int | None
    problem: str
    advice: str


def sentence(complaint: Complaint) -> str:
    """Return a complaint in one line, with the file that it is about and the advice."""
    place = "/".join(part for part in (complaint.scope, complaint.file) if part)
    line = f":{complaint.line}" if complaint.line else ""
    shown = place.encode("utf-8", "backslashreplace").decode()
    return f"{shown}{line}: {complaint.problem}. {complaint.advice}"


def check(memory: Memory) -> list[Complaint]:
    """Read every file and bundle. It changes nothing, but finishes changes that were cut off."""
    memory.require()
    found: list[Complaint] = []
    for scope in scopes(memory):
        if not is_archived(scope):
            with suppress(SessionNotFound):  # it went while we looked
                files = memory.everywhere if scope == GLOBAL else memory._session(scope)
                found += _of_files(memory, scope, files)
                found += _of_indexes(memory, scope)
    found += _leftovers(memory, None)
    away = {name for place in (ARCHIVED, DELETED) for name in memory.tree.directories(place)}
    return found + [complaint for name in sorted(away) for complaint in check_bundles(memory, name)]


def validate(session: Session) -> list[Complaint]:
    """Return the faults of one session and its bundles."""
    session.scope.require()
    place, name = Place(session.scope.tree.path), session.id
    found = [*_of_files(place, name, session), *_of_indexes(session.memory, name)]
    found += _leftovers(place, name)
    return found + check_bundles(place, name)


def _of_files(memory: Place, scope: str, files: RecordFiles) -> Iterator[Complaint]:
    """Yield the faults in the files of a session, or of `global`."""
    for kind in files.kinds:
        with suppress(Exception):  # a file that cannot be read at all is named below
            for bad in files._problems_in(kind):
                advice = BY_HAND if bad.problem.startswith(_NAMELESS) else MEND
                yield Complaint(scope, bad.file, bad.line, bad.problem, advice)
    if scope != GLOBAL:
        with suppress(SMPError, OSError):  # metadata that cannot be read are named below
            yield from _of_metadata(scope, files.scope.read(METADATA))
    top, tree = directory_of(scope), memory.tree
    for one in tree.walk(top):
        if one.problem:
            problem = f"it is not looked into: {one.problem}"
            inner = one.path.removeprefix(f"{top}/")
            yield Complaint(scope, inner, None, problem, "Move it out of the tree.")
    for file in files_of(memory, scope):
        try:
            require_readable(tree, top, file, tree.stat(f"{top}/{file}").st_size)
            content = tree.read(f"{top}/{file}")
            ids = ids_in(scope, file, content)
        except Exception as error:  # whatever it is, the other files are to be read too
            yield _unreadable(scope, file, error, MEND)
            continue
        for memory_id, count in Counter(ids).items():
            if count > 1:
                problem = f"{count} records have the id {memory_id}"
                yield Complaint(scope, file, None, problem, "Give all but one another id.")


def _of_metadata(scope: str, content: bytes) -> Iterator[Complaint]:
    """Yield the values of the metadata that make no sense. SMP ignores them."""
    with suppress(SMPError):  # metadata that cannot be read are named with the other files
        for problem in senseless(load_mapping(content, "session", METADATA)):
            yield Complaint(scope, METADATA, None, problem, "It is ignored. Correct it by hand.")


def _of_indexes(memory: Memory, scope: str) -> list[Complaint]:
    """Return the files for people that do not say what the memories say.

    Files that changed a moment ago do not count, because a daemon writes them after the memories.
    A session that no daemon and nobody else has written them for has none.
    """
    found: list[Complaint] = []
    if scope == GLOBAL:
        return found
    tree = memory.tree
    top = directory_of(scope)
    with suppress(SMPError, OSError):  # what cannot be read is named by others
        present = [name for name in YAML_INDEXES if tree.exists(f"{top}/{name}")]
        files = [f"{top}/{name}" for name in FILES if tree.exists(f"{top}/{name}")]
        newest = max((tree.stat(path).st_mtime for path in files), default=time.time())
        is_led = holder(tree, LEAD_SCOPE, LEAD) is not None
        if not (present or is_led) or time.time() - newest < _WRITTEN_AFTER_S:
            return found
        rendered = memory._asker_of([scope]).ask(lambda view: render(view.index, scope))
        for file in YAML_INDEXES:
            problem = "it is missing"
            if file in present:
                if tree.read(f"{top}/{file}") == rendered[file.rpartition("/")[2]]:
                    continue
                problem = "it does not say what the memories say"
            found.append(Complaint(scope, file, None, problem, f"Run smp reindex {scope}."))
    return found


def _unreadable(scope: str, file: str, error: Exception, advice: str) -> Complaint:
    is_known = isinstance(error, (SMPError, OSError))
    problem = str(error).removesuffix(getattr(error, "advice", "")) if is_known else repr(error)
    advice = error.advice if isinstance(error, NewerFormat) else advice
    return Complaint(scope, file, None, problem.rstrip(" ."), advice)


def _leftovers(memory: Place, only: str | None) -> Iterator[Complaint]:
    """Yield drops that are no memories, unfinished changes and quarantined bytes, of all or one."""
    tree = memory.tree
    for scope in tree.list(ACTIVE) if only is None else [only]:
        directory = f"{ACTIVE}/{scope}"
        for name in rejected(tree, directory):
            advice = f"{name}{NOTE} beside it says why, and how to mend it."
            yield Complaint(scope, f"{REJECTED}/{name}", None, "a drop that was rejected", advice)
    for odd in (*foreign(tree), *odd_locks(tree)):
        if only in (None, odd.scope):
            problem = f"not a piece of SMP: {odd.problem}"
            yield Complaint("", odd.path, None, problem, odd.advice)
    for name, intent in journal.intents(tree).items():
        if only in (None, intent.scope):
            yield from _unfinished(tree, intent.scope, f"{JOURNAL}/{name}")
    for piece in described(tree):
        if only in (None, piece.scope):
            advice = f"Why: {harmless(piece.why)}. {_LOOK}"
            yield Complaint("", piece.name, None, "quarantined bytes", advice)


def _unfinished(tree: Tree, scope: str, path: str) -> Iterator[Complaint]:
    """Yield an intent that nobody can read, or that has waited for long."""
    if error := journal.problem_of(tree, path):
        yield _unreadable(
            scope, path, error, error.advice if isinstance(error, SMPError) else _OPEN
        )
        return
    with suppress(OSError, SMPError):  # it went just now
        if time.time() - tree.stat(path).st_mtime > SILENT_AFTER_S:
            yield Complaint(scope, path, None, "a recorded change that is not finished", REPAIR)


def check_bundles(memory: Place, name: str) -> list[Complaint]:
    """Return which bundles of a session, or of `global`, are damaged."""
    found: list[Complaint] = []
    is_ours = name == GLOBAL or layout.is_session_id(name)
    for directory in (f"{ARCHIVED}/{name}", f"{DELETED}/{name}") if is_ours else ():
        for path in bundle.paths(memory.tree, directory):
            try:
                bundle.read(memory.tree, path).pieces()
            except FileNotFoundError:
                continue  # restored just now
            except (SMPError, OSError) as error:
                found.append(_unreadable(directory, path.rpartition("/")[2], error, _DAMAGED))
    return found
