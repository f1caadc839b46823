"""Reading everything once, saying what is wrong with it, and repairing what needs no guess.

Every file is parsed, every bundle read back against its manifest, and the index compared with the
files. A repair throws nothing away: bytes in the way of the next record go to quarantine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from ..disk import bundle, inventory, journal, rewrite
from ..disk.append import tail_of
from ..disk.inboxes import INBOX, REJECTED, rejected, waiting, why_rejected
from ..disk.locks import NO_PATIENCE, holder, lock
from ..disk.place import Place
from ..disk.quarantine import quarantined
from ..disk.scope import UPKEEP
from ..disk.scopes import directory_of, files_of, is_archived, kinds_of, scopes, unnameable
from ..disk.session_files import METADATA, new_metadata
from ..disk.tree import DEEPEST, is_left_alone
from ..index.database import Index
from ..index.rows import FileState
from ..index.schema import UnusableIndex
from ..index.status import SILENT_AFTER_S
from ..index.take_in import describe, is_unchanged
from ..model import layout
from ..model.errors import LockTimeout, NewerFormat, SessionNotFound, SMPError
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, INDEX_FILE, JOURNAL, QUARANTINE
from ..model.outcome import Action, Outcome
from ..model.record import Kind, state_history
from ..model.times import time_at
from ..text.document import Lines
from ..text.format import format_of
from .tidy import fold_retired, stale_files

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..disk.tree import Tree
    from ..memory import Memory
    from ..session import RecordFiles, Session

_DAMAGED = "Bring it back from a copy of your own; the disk may be failing."
_REPAIR = "Run smp check --repair."


@dataclass(frozen=True)
class Complaint:
    """Something that is not as it should be; `advice` says what to do about it."""

    scope: str
    file: str
    line: int | None
    problem: str
    advice: str


def check(memory: Memory) -> list[Complaint]:
    """Read every file and bundle. It changes nothing, but finishes changes that were cut off."""
    memory.require()
    found = [*_unreadable(memory), *_silently_changed(memory)]
    found += [*_drops(memory, memory.tree.list(ACTIVE)), *_unfinished(memory.tree)]
    found += _quarantined(memory)
    away = {name for place in (ARCHIVED, DELETED) for name in memory.tree.directories(place)}
    return found + [complaint for name in sorted(away) for complaint in check_bundles(memory, name)]


def validate(session: Session) -> list[Complaint]:
    """Return what is wrong with one session and its bundles."""
    session.scope.require()
    place, name = Place(session.scope.tree.root), session.id
    found = [*_unreadable_in(place, session), *_silently_changed(place, name)]
    found += [*_drops(place, [name]), *_unfinished(place.tree, name), *_quarantined(place, name)]
    return found + check_bundles(place, name)


# Bundles and intents.


def check_bundles(memory: Place, name: str) -> list[Complaint]:
    """Return which bundles of a session, or of `global`, are damaged or not described."""
    if name != GLOBAL and not layout.is_session_id(name):
        return []
    if not (complaints := list(_wrong_bundles(memory.tree, name))):
        return []
    # It may look wrong because somebody is at work there: it must be wrong also when nobody is.
    try:
        with lock(memory.tree, name, UPKEEP, NO_PATIENCE, "checking bundles"):
            return list(_wrong_bundles(memory.tree, name))
    except LockTimeout:
        return []
    except (SMPError, OSError):
        return complaints  # nothing can be written here, so nobody is at work


def _wrong_bundles(tree: Tree, name: str) -> Iterator[Complaint]:
    for directory in (f"{ARCHIVED}/{name}", f"{DELETED}/{name}"):
        is_sound = True
        for path in bundle.paths(tree, directory):
            try:
                bundle.read(tree, path).pieces()
            except FileNotFoundError:
                continue  # restored just now
            except (SMPError, OSError) as error:
                advice = error.advice if isinstance(error, NewerFormat) else _DAMAGED
                is_sound, file = False, path.rpartition("/")[2]
                yield Complaint(directory, file, None, without_advice(error), advice)
        if is_sound and (wrong := _wrong_description(tree, directory)):
            problem = "it does not say what the bundles beside it hold"
            yield Complaint(directory, wrong.rpartition("/")[2], None, problem, _REPAIR)


def _wrong_description(tree: Tree, directory: str) -> str | None:
    """Return the file for people beside bundles, if it does not say what they hold."""
    path, content = inventory.rendered(tree, directory)
    with suppress(SMPError, OSError):
        return path if content is not None and tree.read(path) != content else None
    return path


def _unfinished(tree: Tree, only: str | None = None) -> Iterator[Complaint]:
    """Changes that were recorded and are not done, although nobody is at work on them."""
    for name in tree.list(JOURNAL):
        scope, path = name.partition("+")[0], f"{JOURNAL}/{name}"
        if only in (None, scope) and _has_waited(tree, path):
            yield Complaint(scope, path, None, "a recorded change that is not finished", _REPAIR)


# Files.


def _unreadable(memory: Memory) -> Iterator[Complaint]:
    for scope in scopes(memory):
        if is_archived(scope):
            yield from _unreadable_files(memory, scope)
            continue
        with suppress(SessionNotFound):  # it went while we looked
            files = memory.everywhere if scope == GLOBAL else memory._session(scope)
            yield from _unreadable_in(memory, files)


def _unreadable_in(memory: Place, files: RecordFiles) -> Iterator[Complaint]:
    scope = files.scope.name
    with suppress(Exception):  # what cannot be read at all is named below, with its file
        for problem in files.problems():
            yield Complaint(scope, problem.file, problem.line, problem.problem, "Mend it by hand.")
    yield from _unreadable_files(memory, scope)


def _unreadable_files(memory: Place, scope: str) -> Iterator[Complaint]:
    for file in unnameable(memory, scope):
        advice = "Rename it: letters, digits, '_' and '-'."
        yield Complaint(scope, _shown(file), None, "no memory can have this name", advice)
    for one in memory.tree.walk(directory_of(scope), lambda *_: None):
        if one.is_deep:
            inner = _shown(one.path.removeprefix(f"{directory_of(scope)}/"))
            problem = f"it is deeper than {DEEPEST} directories, and not looked into"
            yield Complaint(scope, inner, None, problem, "Move it out of the tree.")
    # Every byte of a bundle is compared with its manifest.
    for file in files_of(memory, scope) if not is_archived(scope) else ():
        try:
            doubles = _doubles(memory, scope, file)
        except (SMPError, OSError) as error:
            advice = error.advice if isinstance(error, NewerFormat) else "Mend it by hand."
            yield Complaint(scope, file, None, without_advice(error), advice)
            continue
        except Exception as error:  # nobody thought of this, and the other files are to be read too
            problem = f"it cannot be read: {error!r}"
            yield Complaint(scope, file, None, problem, "Move it away, and report it.")
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
    """Content that differs although nobody wrote the file since it was indexed: a failing disk."""
    path = memory.root / INDEX_FILE
    if not path.exists():
        return
    try:
        index = Index.open_to_read(path)
    except UnusableIndex as error:
        problem = f"the index cannot be used: {error}"
        yield Complaint("", INDEX_FILE, None, problem, "Run smp reindex.")
        return
    try:
        for (scope, file), state in index.files(only).items():
            if not is_archived(scope):
                yield from _changed_since(memory, index, scope, file, state)
    finally:
        index.close()


def _changed_since(
    memory: Place, index: Index, scope: str, file: str, state: FileState
) -> Iterator[Complaint]:
    path = f"{directory_of(scope)}/{file}"
    try:
        if not is_unchanged(state, memory.tree.stat(path)):
            return
        found = set(describe(scope, file, memory.tree.read(path)))
    except (SMPError, OSError):
        return  # that it cannot be read is said already
    for memory_id, _ in sorted(index.hashes(scope, file) - found):
        problem = f"{memory_id} has changed although the file was not written"
        advice = "Compare it with a backup; the disk may be failing."
        yield Complaint(scope, file, None, problem, advice)


def _drops(memory: Place, sessions: Iterable[str]) -> Iterator[Complaint]:
    """Those that are no memories: rejected ones, and those that nobody takes in."""
    is_led = holder(memory.tree, layout.LEAD_SCOPE, layout.LEAD) is not None
    for scope in sessions:
        directory = f"{ACTIVE}/{scope}"
        for name in rejected(memory.tree, directory):
            why = why_rejected(memory.tree, directory, name).rstrip(".")
            problem = f"a drop that was rejected{': ' if why else ''}{why}"
            advice = "Mend it and move it back into inbox/, or remove it and the note beside it."
            yield Complaint(scope, _shown(f"{REJECTED}/{name}"), None, problem, advice)
        advice = "smp status says why it waits." if is_led else "smp run takes it in."
        for name in waiting(memory.tree, directory):
            if not is_led or _has_waited(memory.tree, f"{directory}/{INBOX}/{name}"):
                problem = "a drop that was not taken in yet"
                yield Complaint(scope, _shown(f"{INBOX}/{name}"), None, problem, advice)


def _has_waited(tree: Tree, path: str) -> bool:
    """Return whether a file is there for so long that nobody can be at work on it."""
    try:
        return time.time() - tree.stat(path).st_mtime > SILENT_AFTER_S
    except (OSError, SMPError):
        return False  # it went just now


def _shown(file: str) -> str:
    return file.encode("utf-8", "backslashreplace").decode()


def _quarantined(memory: Place, only: str | None = None) -> Iterator[Complaint]:
    advice = "Read the note beside it, take out what you need, and remove both."
    for name in quarantined(memory):
        if only is None or name.startswith(f"{QUARANTINE}/{only}/"):
            yield Complaint("", name, None, "bytes that were set aside", advice)


def without_advice(error: Exception) -> str:
    return str(error).removesuffix(getattr(error, "advice", "")).rstrip(" .")


# Repairing.


@dataclass
class _Repair:
    """The repair of one session while it is under way."""

    session: Session
    outcome: Outcome
    for_show: bool
    cut_at: dict[str, int] = field(default_factory=dict)  # by file: from here on it is quarantined

    def note(self, type: str, about: str, reason: str) -> None:
        self.outcome.actions.append(Action(self.session.id, type, (about,), reason))

    def attempt(self, step: Callable[[_Repair], None]) -> None:
        """Try one step. A step that fails keeps no other from being done."""
        try:
            step(self)
        except (SMPError, OSError) as error:
            self.outcome.problems.append(f"{self.session.id}: {error}")


def repair(session: Session, *, dry_run: bool = False) -> Outcome:
    """Finish changes that were cut off, quarantine torn records, and make missing files anew.

    The problems of the outcome are left to a person.
    """
    work = _Repair(session, Outcome(dry_run=dry_run), dry_run)
    work.attempt(_finish_changes)
    steps = (_fold_versions, _make_directories, _make_metadata, _mend_all, _describe)
    with session.scope.undisturbed("repairing"):
        session.scope.require()  # a session that was archived meanwhile must not come back, empty
        for step in steps:
            work.attempt(step)
    left = [complaint for complaint in validate(session) if not _is_dealt_with(work, complaint)]
    work.outcome.problems[:] = dict.fromkeys([*work.outcome.problems, *map(sentence, left)])
    return work.outcome


def describe_bundles(memory: Place, name: str, *, dry_run: bool = False) -> list[Action]:
    """Render the files for people beside the bundles of a session anew, where they are wrong."""
    done: list[Action] = []
    for directory in (f"{ARCHIVED}/{name}", f"{DELETED}/{name}"):
        if path := _wrong_description(memory.tree, directory):
            if not dry_run:
                inventory.describe(memory.tree, directory)
            reason = "it did not say what the bundles beside it hold"
            done.append(Action(name, "describe_bundles", (path,), reason))
    return done


def _describe(work: _Repair) -> None:
    place = Place(work.session.scope.tree.root)
    work.outcome.actions += describe_bundles(place, work.session.id, dry_run=work.for_show)


def _finish_changes(work: _Repair) -> None:
    """Note the changes that were cut off. Whoever takes the session's lock finishes them."""
    scope = work.session.scope
    for name in journal.pending(scope):
        if work.for_show or journal.load(scope, name):
            reason = "a transaction that was recorded, and cut off before it was done"
            work.note("finish_transaction", name, reason)
        else:
            reason = "a recorded transaction that the disk has damaged; it is in quarantine/"
            work.note("set_aside", name, reason)


def _fold_versions(work: _Repair) -> None:
    reason = "an old version of it, into which somebody may have written after it was replaced"
    files = (stale_files if work.for_show else fold_retired)(work.session.scope)
    for file in files:
        work.note("fold_versions", file, reason)


def _make_directories(work: _Repair) -> None:
    scope = work.session.scope
    for name in layout.SESSION_DIRECTORIES:
        if not scope.tree.exists(scope.path(name)):
            if not work.for_show:
                scope.tree.make_directory(scope.path(name))
            work.note("make_directory", name, "it was missing")
        elif not scope.tree.is_directory(scope.path(name)):
            advice = "is not a directory. Move it away, and repair again."
            work.outcome.problems.append(f"{scope.name}: {name} {advice}")


def _make_metadata(work: _Repair) -> None:
    """Make missing or empty metadata anew from the memories. The session is in use from now on."""
    session = work.session
    if session.scope.read(METADATA).strip():
        return
    if not work.for_show:
        now = session._now()
        made = new_metadata(session.id, session._asker().ask(_first) or now, user=None, agents=[],
                            quota_bytes=session.quota_bytes(), context={"tags": []},
                            last_accessed=now)  # fmt: skip
        with session.scope.locked([METADATA], "making the metadata anew"):
            rewrite.rewrite(session.scope, METADATA, lambda old: old if old.strip() else made)
    lost = "the quota, the people and the context are not known any more"
    work.note("make_metadata", METADATA, f"it was missing or empty; {lost}")


def _first(view: View) -> datetime | None:
    """Return the time of the first memory of a session."""
    query = "SELECT MIN(at) FROM memories WHERE scope = ?"
    return time_at(view.index.connection.execute(query, view.scopes[:1]).fetchone()[0])


def _mend_all(work: _Repair) -> None:
    for kind in work.session.kinds:
        work.attempt(partial(_mend, kind=kind))
    for agent in work.session.agent_states():
        if layout.is_file_id(agent):
            work.attempt(partial(_mend, kind=state_history(agent)))


def _mend(work: _Repair, kind: Kind) -> None:
    """Make a missing record file; quarantine a record that a crash has cut off at its end."""
    scope = work.session.scope
    is_missing = not scope.tree.exists(scope.path(kind.file))
    if is_missing and "/" in kind.file:
        return  # the history of a state that was saved once
    line = None if is_missing else _torn_line(work, kind)
    if not is_missing and line is None:
        return
    if line is not None:
        work.cut_at[kind.file] = line
    if not work.for_show:
        with scope.locked([kind.file], f"repairing {kind.file}") as held:
            held[kind.file].note.pop("file", None)  # look, whatever the last writer knew of it
            tail_of(scope, kind, held[kind.file])
    if is_missing:
        work.note("make_file", kind.file, "it was missing")
    else:
        torn = f"a record that was cut off while it was written, from line {line} on"
        work.note("set_aside", kind.file, f"{torn}: into quarantine/")


def _torn_line(work: _Repair, kind: Kind) -> int | None:
    """Return the line where a record begins that was cut off, and that nobody is still writing."""
    scope, form = work.session.scope, format_of(kind)
    content = scope.read(kind.file)
    torn = form.torn(form.parse(content), content)
    if torn is None:
        return None
    with scope.tree.opened(scope.path(kind.file)) as descriptor:
        if not (form.is_ours(content, torn) or is_left_alone(descriptor)):
            return None
    return content.count(b"\n", 0, torn) + 1


def _is_dealt_with(work: _Repair, complaint: Complaint) -> bool:
    """Return whether nothing is left to do: it is, or would be, quarantined or rendered anew."""
    if complaint.file.startswith(f"{QUARANTINE}/") and complaint.scope != work.session.id:
        return True
    if not work.for_show:
        return False
    if complaint.advice == _REPAIR:
        return True
    line = work.cut_at.get(complaint.file) if complaint.scope == work.session.id else None
    return line is not None and complaint.line is not None and complaint.line >= line


def sentence(complaint: Complaint) -> str:
    """Return a complaint in one line, with the file that it is about and the advice."""
    place = "/".join(part for part in (complaint.scope, complaint.file) if part)
    line = f":{complaint.line}" if complaint.line else ""
    return f"{place}{line}: {complaint.problem}. {complaint.advice}"
