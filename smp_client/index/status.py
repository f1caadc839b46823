"""The health of a root and its daemon, read from the lock, the heartbeat and the index."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ..disk import journal
from ..disk.foreign import foreign
from ..disk.locks import holder
from ..disk.place import Place
from ..disk.policy import DEFAULT_QUOTA_BYTES, POLICY_FILE, published
from ..disk.quarantine import A_COPY, Piece, described, rejected, waiting
from ..disk.session_files import METADATA
from ..disk.tree import Tree
from ..disk.usage import size_notes
from ..model import layout
from ..model.errors import SMPError
from ..model.times import now, time_of
from ..redaction.redact import harmless, listed_kinds
from .database import Index, outdated
from .gone import Gone, removed_since
from .schema import UnusableIndex
from .unreadable import unreadable

SILENT_AFTER_S = 5.0  # a daemon without a heartbeat for so long is degraded
OK, DEGRADED, DOWN, UNKNOWN = "ok", "degraded", "down", "unknown"

# Sessions in active/. Archived and deleted sessions are counted by their files.
_BY_STATE = (
    "SELECT status, COUNT(*) FROM sessions WHERE scope NOT LIKE 'archived/%' GROUP BY status"
)
# Memories and metadata in which a daemon has found secrets, see privacy/leaks.py.
_LEAKS = f"""
SELECT scope, file, id, secrets FROM memories WHERE secrets > ''
UNION ALL SELECT scope, '{METADATA}', '', secrets FROM sessions WHERE secrets > ''
ORDER BY 1, 2, 3 LIMIT 10000
"""
ADVICE = (
    "Remove it from the file, or the memory with smp delete."
    " The daemon redacts secrets by their shape alone, if redaction.unlocked_edits says so"
)
NOT_INDEXED = "not indexed"
_PLACES = (layout.ARCHIVED, layout.DELETED)
_NEWS_S = 86_400.0  # for so long the status names memories that were removed outside of SMP
_NAMED_FILES = 3  # of those that cannot be read
_OPEN_S = 60.0  # after so long, a directory that has left and is not removed is named
_NAMED_PIECES = 3  # groups of quarantined pieces, by session and reason
_RECENT = timedelta(days=7)  # a quarantined piece that is younger is named
_FULL_BYTES = 64 * 1024  # with less than this free, hardly any write succeeds
_NO_DAEMON = (
    "No daemon is running for this root. smp run starts one,"
    " and smp service install has one started with the machine."
)
STOPPED = "stopped"  # how a daemon watches that does not
_NOT_WATCHING = (
    "The daemon does not watch the files: it finds changes only when it scans, once an hour."
    " Look at its log, or start it again."
)
# Why a drop waits that is not a drop yet.
BEING_WRITTEN = "somebody is still writing it"
_NO_JOB = dict.fromkeys(("last_success", "next_run", "last_error", "duration_ms", "did"))


@dataclass
class RootStatus:
    """The counts of one root."""

    path: str
    sessions: dict[str, int] = field(default_factory=dict)  # how many in each state
    memories: int = 0
    generation: int = 0
    lag_ms: float | None = None  # how long the last canary took through watcher and worker
    unindexed_files: int | None = None  # None where only --deep counts them
    quarantined: int = 0
    waiting_drops: int = 0
    rejected_drops: int = 0
    secrets: int = 0  # that were written past the library, by places
    removed_outside: int = 0  # memories, in the last day, that somebody removed outside of SMP


@dataclass
class Status:
    health: str
    problems: list[str]
    root: RootStatus
    notes: list[str] = field(default_factory=list)  # sentences that are no problems
    said: dict[str, Any] = field(default_factory=dict)  # by the daemon: pid, version, times, jobs


class Leak(NamedTuple):
    """A memory, or the metadata of a session, that holds secrets of these kinds."""

    scope: str
    file: str
    id: str  # empty for metadata
    kinds: tuple[tuple[str, int], ...]


def read_status(memory: Place, *, deep: bool = False, at: datetime | None = None) -> Status:
    """Return the health of a root.

    It is ok only while a daemon holds the lock, its heartbeat is fresh, and no problem is found.
    """
    root = RootStatus(str(memory.root))
    try:
        if not memory.root.is_dir():
            why = f"There is no memory at {memory.root}. smp init makes one; --root names another."
        elif not memory.tree.exists(layout.MARKER):
            why = f"{memory.root} is not mounted, or has lost its {layout.MARKER}."
            why += " smp doctor --fix makes it anew."
        else:
            memory.require_known_version()
            return _judge(memory, root, deep=deep, at=at or now())
    except (OSError, SMPError, sqlite3.Error) as error:
        why = f"The state of {memory.root} cannot be read: {error}"
    return Status(UNKNOWN, [why], root)


def _judge(memory: Place, root: RootStatus, *, deep: bool, at: datetime) -> Status:
    report, disk, problems = daemon_report(memory), os.statvfs(memory.root), list[str]()
    is_full = disk.f_bavail * disk.f_frsize < _FULL_BYTES or (disk.f_files and not disk.f_favail)
    if disk.f_flag & os.ST_RDONLY:
        problems.append("The disk is read-only: nothing can be written. Mount it writable.")
    elif is_full:
        problems.append("The disk is full: nothing can be written until something is removed.")
    leader = holder(memory.tree, layout.LEAD_SCOPE, layout.LEAD)
    notes: list[str] = []
    problems += _index_problems(memory, root, notes, deep=deep or leader is None)
    problems += _tree_problems(memory, root, is_led=leader is not None)
    pieces = [*described(memory.tree)]
    root.quarantined = len(pieces)
    recent = [one for one in pieces if at - one.at < _RECENT]
    problems += _quarantine_sentences([one for one in recent if one.why != A_COPY])
    notes += _quarantine_sentences([one for one in recent if one.why == A_COPY])
    notes += _open_directories(memory.tree, at)
    quota = published(memory.tree).client.get("quota_bytes", DEFAULT_QUOTA_BYTES)
    notes += [note for _, _, note in size_notes(memory.tree, quota)]
    if leader is None:
        return Status(DOWN, [_NO_DAEMON, *problems], root, notes, report)
    if not _is_by(report, leader):
        report = {"jobs": report["jobs"], "problems": []}  # of a daemon that is gone
    beat = time_of(report.get("heartbeat_at"))
    silent_s = (at - beat).total_seconds() if beat else 0.0
    if beat is None:
        problems.append("The daemon is starting. Ask again in a few seconds.")
    elif abs(silent_s) > SILENT_AFTER_S and not is_full:  # less than 0 after the clock was set back
        sign = f"The daemon ({leader}) has given no sign for {silent_s:.0f} s."
        problems.append(f"{sign} Look at its log, or start it again.")
    problems += report["problems"]
    for name, job in report["jobs"].items():
        if job["last_error"]:
            problems.append(f"{name} failed: {job['last_error']}")
    if not problems and report.get("watching") == STOPPED:
        problems.append(_NOT_WATCHING)
    root.lag_ms = report.get("lag_ms")
    if root.unindexed_files is None:
        root.unindexed_files = report.get("unindexed_files")
    return Status(DEGRADED if problems else OK, problems, root, notes, report)


def _is_by(report: Mapping[str, Any], leader: str) -> bool:
    """Return whether the leader wrote the report. One that names no process is believed."""
    return not leader.startswith("pid ") or leader.startswith(f"pid {report.get('pid')} ")


def daemon_report(memory: Place) -> dict[str, Any]:
    """Return the status that the daemon wrote; nothing where the file has another form."""
    odd = (ValueError, RecursionError, LookupError, TypeError, AttributeError)
    with suppress(FileNotFoundError, *odd):
        report = dict(json.loads(memory.tree.read(layout.STATUS_FILE)))
        jobs = {name: _NO_JOB | job for name, job in report["jobs"].items()}
        return {**report, "jobs": jobs, "problems": [str(one) for one in report["problems"]]}
    return {"jobs": {}, "problems": []}


def _index_problems(
    memory: Place, root: RootStatus, notes: list[str], *, deep: bool
) -> Iterator[str]:
    """Count the memories and sessions of the index, and yield its problems. Add to the notes."""
    try:
        opened = Index.open_to_read(memory.root / layout.INDEX_FILE)
    except UnusableIndex as error:
        yield f"The index cannot be used: {error}. A daemon rebuilds it, or smp reindex."
        return
    with closing(opened) as index:
        ask, leaks = index.execute, known_leaks(index)
        root.generation, root.secrets = index.generation, len(leaks)
        root.memories = ask("SELECT COUNT(*) FROM memories").fetchone()[0]
        root.sessions = dict(ask(_BY_STATE).fetchall())
        if bad := unreadable(index):
            first = ", ".join(harmless(f"{one.scope}/{one.file}") for one in bad[:_NAMED_FILES])
            more = ", …" if len(bad) > _NAMED_FILES else ""
            count = f"Files that cannot be read as a whole: {len(bad):,}"
            yield f"{count} ({first}{more}). smp check says why, and smp doctor --fix mends it."
        if leaks:
            yield _sentence(leaks)
        removed = removed_since(index, time.time() - _NEWS_S)
        root.removed_outside = len(removed)
        if removed:
            notes.append(_removed_sentence(removed))
        if any(name.startswith(layout.SCRUB) for name in memory.tree.list(".smp")):
            yield "Words of purged memories may stand in the index. A daemon removes them."
        if deep:
            root.unindexed_files = len(outdated(memory, index))
            if root.unindexed_files:
                yield f"Files that differ from the index: {root.unindexed_files:,}. See smp sync."


def _tree_problems(memory: Place, root: RootStatus, *, is_led: bool) -> Iterator[str]:
    """Count archived and deleted sessions and drops; yield their problems."""
    tree = memory.tree
    active = tree.list(layout.ACTIVE)
    counted = set(active)
    for place, file in ((layout.ARCHIVED, "summary.yaml"), (layout.DELETED, "backup.tar.gz")):
        for name in set(tree.list(place)) - counted:
            with suppress(OSError, SMPError):
                if tree.exists(f"{place}/{name}/{file}"):
                    root.sessions[place] = root.sessions.get(place, 0) + 1
                    counted.add(name)
    known = sum(count for state, count in root.sessions.items() if state not in _PLACES)
    sessions = [name for name in active if layout.is_session_id(name)]
    if len(sessions) > known:  # there is no index, or it does not know them yet
        root.sessions[NOT_INDEXED] = len(sessions) - known
    yield from _state_problems(tree)
    if not published(tree).is_sound:
        mend = "Restart the daemon, or remove the file."
        yield f"{POLICY_FILE} was not written by SMP, so the defaults hold. {mend}"
    root.waiting_drops = sum(len(waiting(tree, f"{layout.ACTIVE}/{name}")) for name in active)
    root.rejected_drops = sum(len(rejected(tree, f"{layout.ACTIVE}/{name}")) for name in active)
    # A daemon that leads reports itself the drops that it cannot take in.
    if root.waiting_drops and not is_led:
        yield f"Drops that wait until a daemon runs: {root.waiting_drops:,}."
    if root.rejected_drops:
        yield f"Rejected drops: {root.rejected_drops:,}. smp check names them."


def _quarantine_sentences(pieces: Sequence[Piece]) -> list[str]:
    """Return the number of pieces, their sessions and reasons, and how to look at them."""
    if not pieces:
        return []
    groups = Counter((one.scope, one.why) for one in pieces).most_common()
    named = [f"{count:,} of {scope}, {why}" for (scope, why), count in groups[:_NAMED_PIECES]]
    if len(groups) > _NAMED_PIECES:
        named.append("…")
    said = f"In quarantine for less than a week: {harmless('; '.join(named))}."
    return [f"{said} smp check names them; copy what you need, and remove them."]


def _open_directories(tree: Tree, at: datetime) -> Iterator[str]:
    """Yield a sentence about each directory that has left and that a program still has open."""
    for name in tree.directories(layout.LEAVING):
        with suppress(OSError, SMPError):  # it went just now
            if at.timestamp() - tree.stat(f"{layout.LEAVING}/{name}").st_ctime > _OPEN_S:
                session_id = harmless(name.partition("+")[0])
                yield (
                    f"A program may have a file of {session_id} open since before it was archived"
                    f" or deleted. What it writes comes back with the session: {layout.LEAVING}."
                )


def _state_problems(tree: Tree) -> Iterator[str]:
    """Yield recorded changes that nobody can read, and pieces of `.smp/` that SMP has not made."""
    for name, intent in journal.intents(tree).items():
        if error := journal.problem_of(tree, f"{layout.JOURNAL}/{name}"):
            yield f"Session {intent.scope} has a recorded change that cannot be read: {error}"
    if odd := [harmless(one.path) for one in foreign(tree)]:
        more = ", …" if len(odd) > _NAMED_FILES else ""
        named = f"{', '.join(odd[:_NAMED_FILES])}{more}"
        yield f"Pieces that SMP has not made: {named}. smp doctor --fix moves them to quarantine."


def known_leaks(index: Index) -> list[Leak]:
    """Return the leaks that the index knows."""
    rows = index.execute(_LEAKS)
    return [Leak._make((*row, tuple(json.loads(kinds).items()))) for *row, kinds in rows]


def _sentence(leaks: Sequence[Leak]) -> str:
    """Return the number of leaks, their kinds, the first places and the advice."""
    kinds = sum((Counter(dict(leak.kinds)) for leak in leaks), Counter[str]())
    places = ", ".join(harmless(f"{leak.id or leak.file} in {leak.scope}") for leak in leaks[:3])
    more = ", …" if len(leaks) > 3 else ""
    return (
        f"Memories with secrets that were not redacted: {len(leaks):,}"
        f" ({listed_kinds(kinds)}): {places}{more}. {ADVICE}."
    )


def _removed_sentence(rows: Sequence[Gone]) -> str:
    """Return which memories were removed outside of SMP, and the way back."""
    shown = [harmless(f"{row.id} of {row.scope}/{row.file}") for row in rows[:_NAMED_FILES]]
    more = f" and {len(rows) - _NAMED_FILES:,} more" if len(rows) > _NAMED_FILES else ""
    return (
        f"Removed outside of SMP in the last day: {', '.join(shown)}{more}."
        " smp restore brings them back; smp restore --list lists them."
    )
