"""Reading everything once, and saying what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .entries import FileState
from .errors import NewerFormat, SessionNotFound, SMPError
from .files import DEEPEST
from .inboxes import INBOX, REJECTED, rejected, waiting, why_rejected
from .index import Index, UnusableIndex
from .indexing import describe, is_unchanged
from .layout import ACTIVE, GLOBAL, QUARANTINE
from .locks import holder
from .place import Place
from .quarantine import quarantined
from .scopes import ARCHIVE, directory_of, files_of, is_archived, kinds_of, scopes, unnameable
from .status import INDEX_FILE, LEAD, LEAD_SCOPE, SILENT_AFTER_S
from .text.document import Lines
from .text.format import format_of

if TYPE_CHECKING:
    from .memory import Memory
    from .session import RecordFiles, Session


@dataclass(frozen=True)
class Complaint:
    """Something that is not as it should be; `advice` says what to do about it."""

    scope: str
    file: str
    line: int | None
    problem: str
    advice: str


def check(memory: Memory) -> list[Complaint]:
    """Reads every file, what was put away included; changes nothing. Raises where there is no memory at all."""
    from .maintain.copies import check_copies, put_away

    memory.require()
    found = [*_unreadable(memory), *_silently_changed(memory), *_drops(memory, memory.tree.list(ACTIVE)), *_quarantined(memory)]
    return found + [complaint for session_id in put_away(memory) for complaint in check_copies(memory, session_id)]


def validate(session: Session) -> list[Complaint]:
    """The same for one session and what was put away of it."""
    from .maintain.copies import check_copies

    session.scope.require()
    place = Place(session.scope.tree.root)
    return [
        *_unreadable_in(place, session), *_silently_changed(place, session.id), *_drops(place, [session.id]),
        *_quarantined(place, session.id), *check_copies(place, session.id),
    ]  # fmt: skip


def _unreadable(memory: Memory) -> Iterator[Complaint]:
    for scope in scopes(memory):
        if is_archived(scope):
            yield from _unreadable_files(memory, scope)
            continue
        with suppress(SessionNotFound):  # it went while we looked
            yield from _unreadable_in(memory, memory.everywhere if scope == GLOBAL else memory._session(scope))


def _unreadable_in(memory: Place, files: RecordFiles) -> Iterator[Complaint]:
    scope = files.scope.name
    with suppress(Exception):  # what cannot be read at all is named below, with its file
        for problem in files.problems():
            yield Complaint(scope, problem.file, problem.line, problem.problem, "Mend it by hand.")
    yield from _unreadable_files(memory, scope)


def _unreadable_files(memory: Place, scope: str) -> Iterator[Complaint]:
    for file in unnameable(memory, scope):
        yield Complaint(scope, _shown(file), None, "no memory can have this name",
                        "Rename it: letters, digits, '_' and '-'.")  # fmt: skip
    for one in memory.tree.walk(directory_of(scope), lambda *_: None):
        if one.is_deep:
            inner = one.path.removeprefix(f"{directory_of(scope)}/").encode("utf-8", "backslashreplace").decode()
            yield Complaint(scope, inner, None, f"it is deeper than {DEEPEST} directories, and not looked into",
                            "Move it out of the tree.")  # fmt: skip
    for file in files_of(memory, scope):
        if file == ARCHIVE:
            continue  # copies.py compares every byte of it
        try:
            doubles = _doubles(memory, scope, file)
        except (SMPError, OSError) as error:
            advice = error.advice if isinstance(error, NewerFormat) else "Mend it by hand."
            yield Complaint(scope, file, None, without_advice(error), advice)
            continue
        except Exception as error:  # nobody thought of this, and the other files are to be read too
            yield Complaint(scope, file, None, f"it cannot be read: {error!r}", "Move it away, and report it.")
            continue
        for memory_id, lines in doubles.items():
            listed = f"{', '.join(map(str, lines[:-1]))} and {lines[-1]}"
            problem = f"{len(lines)} records have the id {memory_id}, on the lines {listed}"
            yield Complaint(scope, file, lines[-1], problem, "Give all but one another id.")


def _doubles(memory: Place, scope: str, file: str) -> dict[str, list[int]]:
    """The ids that more than one record of a file has, each with the lines on which these begin."""
    content = memory.tree.read(f"{directory_of(scope)}/{file}")
    ids = [memory_id for memory_id, _ in describe(scope, file, content)]
    if len(ids) == len(set(ids)):
        return {}
    lines, found = Lines(content, b"\n"), dict[str, list[int]]()
    for record in format_of(kinds_of(scope)[file]).parse(content).records:
        if record.has_id:
            found.setdefault(str(record.value["id"]), []).append(lines.at(record.start))
    return {memory_id: known for memory_id, known in found.items() if len(known) > 1}


def _silently_changed(memory: Place, only: str | None = None) -> Iterator[Complaint]:
    """Content that differs although nobody has written the file since it was indexed: a disk that forgets."""
    path = memory.root / INDEX_FILE
    if not path.exists():
        return
    try:
        index = Index.open_to_read(path)
    except UnusableIndex as error:
        yield Complaint("", INDEX_FILE, None, f"the index cannot be used: {error}", "Run smp reindex.")
        return
    try:
        for (scope, file), state in index.files(only).items():
            if file != ARCHIVE:
                yield from _changed_since(memory, index, scope, file, state)
    finally:
        index.close()


def _changed_since(memory: Place, index: Index, scope: str, file: str, state: FileState) -> Iterator[Complaint]:
    path = f"{directory_of(scope)}/{file}"
    try:
        if not is_unchanged(state, memory.tree.stat(path)):
            return
        found = set(_described(memory, scope, file))
    except (SMPError, OSError):
        # That it cannot be read is said already.
        return
    for memory_id, _ in sorted(index.hashes(scope, file) - found):
        yield Complaint(scope, file, None, f"{memory_id} has changed although the file was not written",
                        "Compare it with a backup; the disk may be failing.")  # fmt: skip


def _described(memory: Place, scope: str, file: str) -> list[tuple[str, str]]:
    return describe(scope, file, memory.tree.read(f"{directory_of(scope)}/{file}"))


def _drops(memory: Place, sessions: Iterable[str]) -> Iterator[Complaint]:
    """Those that are no memories: rejected ones, and those that nobody takes in."""
    is_led = holder(memory.tree, LEAD_SCOPE, LEAD) is not None
    for scope in sessions:
        directory = f"{ACTIVE}/{scope}"
        for name in rejected(memory.tree, directory):
            why = why_rejected(memory.tree, directory, name).rstrip(".")
            yield Complaint(scope, _shown(f"{REJECTED}/{name}"), None, f"a drop that was rejected{': ' if why else ''}{why}",
                            "Mend it and move it back into inbox/, or remove it and the note beside it.")  # fmt: skip
        for name in waiting(memory.tree, directory):
            if not is_led or _has_waited(memory, f"{directory}/{INBOX}/{name}"):
                yield Complaint(scope, _shown(f"{INBOX}/{name}"), None, "a drop that was not taken in yet",
                                "smp status says why it waits." if is_led else "smp run takes it in.")  # fmt: skip


def _has_waited(memory: Place, path: str) -> bool:
    try:
        return time.time() - memory.tree.stat(path).st_mtime > SILENT_AFTER_S
    except (OSError, SMPError):
        return False  # it was taken in just now


def _shown(file: str) -> str:
    return file.encode("utf-8", "backslashreplace").decode()


def _quarantined(memory: Place, only: str | None = None) -> Iterator[Complaint]:
    for name in quarantined(memory):
        if only is not None and not name.startswith(f"{QUARANTINE}/{only}/"):
            continue
        yield Complaint("", name, None, "bytes that were set aside",
                        "Read the note beside it, take out what you need, and remove both.")  # fmt: skip


def without_advice(error: Exception) -> str:
    return str(error).removesuffix(getattr(error, "advice", "")).rstrip(" .")
