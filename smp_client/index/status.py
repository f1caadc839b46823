"""How the daemon of a root is doing, told without asking it: from its lock, its heartbeat, and the index itself."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..disk.inboxes import rejected, waiting
from ..disk.locks import holder
from ..disk.place import Place
from ..disk.published import POLICY_FILE, published
from ..disk.quarantine import quarantined
from ..model.errors import SMPError
from ..model.layout import ACTIVE, ARCHIVED, DELETED, MARKER
from ..model.layout import COOKIES as COOKIES
from ..model.layout import INDEX_FILE as INDEX_FILE
from ..model.layout import LEAD as LEAD
from ..model.layout import LEAD_SCOPE as LEAD_SCOPE
from ..model.layout import SCRUB as SCRUB
from ..model.layout import STATUS_FILE as STATUS_FILE
from ..model.times import now, parse_time
from .database import Index, UnusableIndex
from .doubles import doubles

SILENT_AFTER_S = 5.0  # a daemon that has not given a sign for so long is not well, whatever it said last

# Of those in their place; the others are counted by what is left of them.
_BY_STATE = "SELECT status, COUNT(*) FROM sessions WHERE scope NOT LIKE 'archived/%' GROUP BY status"
# What daemons have found there; see privacy/leaks.py.
_SECRETS = "SELECT (SELECT COUNT(*) FROM memories WHERE secrets > '') + (SELECT COUNT(*) FROM sessions WHERE secrets > '')"

_FULL_BYTES = 64 * 1024  # with less than this free, hardly any write succeeds
_NO_DAEMON = "No daemon is running for this root. smp run starts one, and smp service install has one started with the machine."
OK, DEGRADED, DOWN, UNKNOWN = "ok", "degraded", "down", "unknown"


@dataclass
class RootStatus:
    """One root as it is now."""

    path: str
    sessions: dict[str, int] = field(default_factory=dict)  # how many in each state
    memories: int = 0
    generation: int = 0
    lag_ms: float | None = None  # the canary's last way through watcher and worker
    unindexed_files: int | None = None  # None where only --deep can tell
    quarantined: int = 0
    waiting_drops: int = 0
    rejected_drops: int = 0
    secrets: int = 0  # in how many places something that looks like one came in past the library


@dataclass
class Status:
    health: str
    problems: list[str]
    root: RootStatus
    said: dict[str, Any] = field(default_factory=dict)  # what the daemon itself wrote: pid, version, times, jobs


def read_status(memory: Place, *, deep: bool = False, at: datetime | None = None) -> Status:
    """Never says ok unless the lock is held, the heartbeat is fresh, and the daemon itself has no complaint."""
    root = RootStatus(str(memory.root))
    if not memory.root.is_dir():
        return Status(UNKNOWN, [f"There is no memory at {memory.root}. smp init makes one; --root names another."], root)
    try:
        return _judge(memory, root, deep=deep, at=at or now())
    except (OSError, SMPError, sqlite3.Error) as error:
        return Status(UNKNOWN, [f"The state of {memory.root} cannot be read: {error}"], root)


def _judge(memory: Place, root: RootStatus, *, deep: bool, at: datetime) -> Status:
    if not memory.tree.exists(MARKER):
        return Status(UNKNOWN, [f"{memory.root} has no {MARKER}: it is not mounted, or was never made by smp init."], root)
    memory.require_known_version()
    said = _said(memory)
    problems: list[str] = list(_about_the_disk(memory))
    is_full = bool(problems)
    leader = holder(memory.tree, LEAD_SCOPE, LEAD)
    _look_at_index(memory, root, problems, deep=deep or leader is None)
    aside = list(quarantined(memory))
    root.quarantined = len(aside)
    if foreign := sum("-journal-" in name for name in aside):
        problems.append(f"{foreign:,} file{' was' if foreign == 1 else 's were'} in .smp/journal/ that SMP has not written."
                        " Look at it in quarantine/, and remove it there.")  # fmt: skip
    if not published(memory.tree).is_sound():
        problems.append(f"{POLICY_FILE} is none that SMP has written, and the defaults hold. Restart the daemon, or remove it.")
    root.sessions |= _count_put_away(memory)
    _look_at_drops(memory, root, problems, is_led=leader is not None)
    if leader is None:
        return Status(DOWN, [_NO_DAEMON, *problems], root, said)
    root.lag_ms = said.get("lag_ms")
    silent_s = _seconds_since(said.get("heartbeat_at"), at)
    if silent_s is None:
        problems.append("The daemon is starting and has not given a sign yet. Ask again in a few seconds.")
    elif silent_s < -SILENT_AFTER_S:
        problems.append("The daemon's last sign is from the future: one of the clocks was wrong. Set it right.")
    elif silent_s > SILENT_AFTER_S and not is_full:
        problems.append(f"The daemon ({leader}) has given no sign for {silent_s:.0f} s. Look at its log, or start it again.")
    problems += [str(problem) for problem in said.get("problems", [])]
    problems += [f"{name} failed: {job['last_error']}" for name, job in said.get("jobs", {}).items() if job["last_error"]]
    if root.unindexed_files is None:
        root.unindexed_files = said.get("unindexed_files")
    return Status(DEGRADED if problems else OK, problems, root, said)


def _about_the_disk(memory: Place) -> Iterator[str]:
    """Say that the disk is full or read-only: then nothing that the daemon or a writer does can help."""
    disk = os.statvfs(memory.root)
    if disk.f_flag & os.ST_RDONLY:
        yield "The disk is read-only: nothing can be written, and the daemon can do nothing. Mount it writable."
    elif disk.f_bavail * disk.f_frsize < _FULL_BYTES or (disk.f_files and not disk.f_favail):
        yield "The disk is full: nothing can be written until something is removed from it. Then all goes on by itself."


def _said(memory: Place) -> dict[str, Any]:
    try:
        said = json.loads(memory.tree.read(STATUS_FILE))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return _sound(said) if isinstance(said, dict) else {}


def _sound(said: dict[str, Any]) -> dict[str, Any]:
    """Without what has another form than a daemon gives it: anybody can write a file."""
    problems, jobs = said.get("problems"), said.get("jobs")
    fields = ("last_success", "next_run", "last_error", "duration_ms", "did")
    listed = jobs.items() if isinstance(jobs, dict) else ()
    return {
        **said,
        "problems": problems if isinstance(problems, list) else [],
        "jobs": {name: {field: job.get(field) for field in fields} for name, job in listed if isinstance(job, dict)},
    }


def _look_at_index(memory: Place, root: RootStatus, problems: list[str], *, deep: bool) -> None:
    path = memory.root / INDEX_FILE
    if not path.exists():
        problems.append("There is no index yet. A daemon makes it, or smp reindex.")
        return
    try:
        index = Index.open_to_read(path)
    except UnusableIndex as error:
        problems.append(f"The index cannot be used and will be rebuilt: {error}. A daemon does that, or smp reindex.")
        return
    try:
        root.generation = index.generation
        root.memories = index.connection.execute("SELECT COUNT(*) FROM memories").fetchone()[0]
        root.sessions = dict(index.connection.execute(_BY_STATE).fetchall())
        bad = index.connection.execute("SELECT COUNT(*) FROM files WHERE bad > 0 OR problem IS NOT NULL").fetchone()[0]
        if bad:
            problems.append(f"{bad:,} file{' holds' if bad == 1 else 's hold'} something that cannot be read; smp check names it.")
        if twice := len(doubles(index)):
            problems.append(f"{twice:,} id{' is' if twice == 1 else 's are'} that of several memories; smp check names the lines.")
        root.secrets = index.connection.execute(_SECRETS).fetchone()[0]
        if root.secrets:
            from ..privacy import leaks

            redacts = published(memory.tree).redaction().unlocked_edits == "redact"
            problems.append(leaks.sentence(leaks.found(index), redacts=redacts))
        if any(name.startswith(SCRUB) for name in memory.tree.list(".smp")):
            problems.append("Words of what was purged may still stand in the index. A daemon takes them out, or smp reindex.")
        if deep:
            from .take_in import outdated

            root.unindexed_files = sum(1 for _ in outdated(memory, index))
            if count := root.unindexed_files:
                problems.append(f"{count:,} file{' on disk differs' if count == 1 else 's on disk differ'} from the index. smp sync"
                                " brings it up to date.")  # fmt: skip
    finally:
        index.close()


def _look_at_drops(memory: Place, root: RootStatus, problems: list[str], *, is_led: bool) -> None:
    for name in memory.tree.list(ACTIVE):
        root.waiting_drops += len(waiting(memory.tree, f"{ACTIVE}/{name}"))
        root.rejected_drops += len(rejected(memory.tree, f"{ACTIVE}/{name}"))
    # While a daemon leads it says itself what cannot be taken in; all else is on its way.
    if (count := root.waiting_drops) and not is_led:
        problems.append(f"{count:,} drop{' waits' if count == 1 else 's wait'} until a daemon runs.")
    if count := root.rejected_drops:
        problems.append(f"{count:,} drop{' was' if count == 1 else 's were'} rejected; smp check says which, and why.")


def _count_put_away(memory: Place) -> dict[str, int]:
    """How many sessions are archived, and deleted as a whole; each place also holds parts of sessions that are elsewhere."""
    counts: dict[str, int] = {}
    elsewhere = set(memory.tree.list(ACTIVE))
    for place, file in ((ARCHIVED, "summary.yaml"), (DELETED, "backup.tar.gz")):
        for name in set(memory.tree.list(place)) - elsewhere:
            with suppress(OSError, SMPError):
                if memory.tree.exists(f"{place}/{name}/{file}"):
                    counts[place] = counts.get(place, 0) + 1
                    elsewhere.add(name)
    return counts


def _seconds_since(stamp: Any, at: datetime) -> float | None:
    try:
        return (at - parse_time(str(stamp))).total_seconds()
    except ValueError:
        return None
