"""The health of a root and its daemon, read from the lock, the heartbeat and the index."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..disk.inboxes import rejected, waiting
from ..disk.locks import holder
from ..disk.place import Place
from ..disk.policy import POLICY_FILE, published
from ..disk.quarantine import quarantined
from ..model.errors import SMPError
from ..model.layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    INDEX_FILE,
    LEAD,
    LEAD_SCOPE,
    MARKER,
    SCRUB,
    STATUS_FILE,
)  # fmt: skip
from ..model.times import now, time_of
from . import exposures
from .database import Index
from .schema import UnusableIndex
from .take_in import outdated

SILENT_AFTER_S = 5.0  # a daemon without a sign for so long is not well, whatever it said last
OK, DEGRADED, DOWN, UNKNOWN = "ok", "degraded", "down", "unknown"

# Of those in their place; the others are counted by the files that are left of them.
_BY_STATE = (
    "SELECT status, COUNT(*) FROM sessions WHERE scope NOT LIKE 'archived/%' GROUP BY status"
)
_UNREADABLE = "SELECT COUNT(*) FROM files WHERE bad > 0 OR problem IS NOT NULL"
_FULL_BYTES = 64 * 1024  # with less than this free, hardly any write succeeds
_NO_DAEMON = (
    "No daemon is running for this root. smp run starts one,"
    " and smp service install has one started with the machine."
)
_JOB_FIELDS = ("last_success", "next_run", "last_error", "duration_ms", "did")


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
    secrets: int = 0  # places with something like a secret that came in past the library


@dataclass
class Status:
    health: str
    problems: list[str]
    root: RootStatus
    said: dict[str, Any] = field(default_factory=dict)  # by the daemon: pid, version, times, jobs


def read_status(memory: Place, *, deep: bool = False, at: datetime | None = None) -> Status:
    """Return the health of a root.

    It is ok only while the lock is held, the heartbeat is fresh, and the daemon has no complaint.
    """
    root = RootStatus(str(memory.root))
    if not memory.root.is_dir():
        problem = f"There is no memory at {memory.root}. smp init makes one; --root names another."
        return Status(UNKNOWN, [problem], root)
    try:
        if not memory.tree.exists(MARKER):
            why = "it is not mounted, or was never made by smp init"
            return Status(UNKNOWN, [f"{memory.root} has no {MARKER}: {why}."], root)
        memory.require_known_version()
        return _judge(memory, root, deep=deep, at=at or now())
    except (OSError, SMPError, sqlite3.Error) as error:
        return Status(UNKNOWN, [f"The state of {memory.root} cannot be read: {error}"], root)


def _judge(memory: Place, root: RootStatus, *, deep: bool, at: datetime) -> Status:
    said = _said(memory)
    full = list(_about_the_disk(memory))
    leader = holder(memory.tree, LEAD_SCOPE, LEAD)
    problems = [
        *full,
        *_about_the_index(memory, root, deep=deep or leader is None),
        *_about_foreign_files(memory, root),
        *_about_drops(memory, root, is_led=leader is not None),
    ]
    root.sessions |= _count_in_bundles(memory)
    if leader is None:
        return Status(DOWN, [_NO_DAEMON, *problems], root, said)
    root.lag_ms = said.get("lag_ms")
    beat = time_of(said.get("heartbeat_at"))
    silent_s = (at - beat).total_seconds() if beat else 0.0
    if beat is None:
        problems.append(
            "The daemon is starting and has not given a sign yet. Ask again in a few seconds."
        )
    elif silent_s < -SILENT_AFTER_S:
        problems.append(
            "The daemon's last sign is from the future: one of the clocks was wrong. Set it right."
        )
    elif silent_s > SILENT_AFTER_S and not full:
        sign = f"The daemon ({leader}) has given no sign for {silent_s:.0f} s."
        problems.append(f"{sign} Look at its log, or start it again.")
    problems += [str(problem) for problem in said["problems"]]
    for name, job in said["jobs"].items():
        if job["last_error"]:
            problems.append(f"{name} failed: {job['last_error']}")
    if root.unindexed_files is None:
        root.unindexed_files = said.get("unindexed_files")
    return Status(DEGRADED if problems else OK, problems, root, said)


def _said(memory: Place) -> dict[str, Any]:
    """Return the daemon's own words without anything of another form: anybody can write a file."""
    said = None
    with suppress(FileNotFoundError, ValueError, RecursionError):
        said = json.loads(memory.tree.read(STATUS_FILE))
    said = said if isinstance(said, dict) else {}
    problems, jobs = said.get("problems"), said.get("jobs")
    listed = jobs.items() if isinstance(jobs, dict) else ()
    sound = {
        name: {field: job.get(field) for field in _JOB_FIELDS}
        for name, job in listed
        if isinstance(job, dict)
    }
    return {**said, "problems": problems if isinstance(problems, list) else [], "jobs": sound}


def _about_the_disk(memory: Place) -> Iterator[str]:
    """Say that the disk is full or read-only: then neither the daemon nor a writer can help."""
    disk = os.statvfs(memory.root)
    if disk.f_flag & os.ST_RDONLY:
        yield (
            "The disk is read-only: nothing can be written, and the daemon can do nothing."
            " Mount it writable."
        )
    elif disk.f_bavail * disk.f_frsize < _FULL_BYTES or (disk.f_files and not disk.f_favail):
        yield (
            "The disk is full: nothing can be written until something is removed from it."
            " Then all goes on by itself."
        )


def _about_the_index(memory: Place, root: RootStatus, *, deep: bool) -> Iterator[str]:
    path = memory.root / INDEX_FILE
    if not path.exists():
        yield "There is no index yet. A daemon makes it, or smp reindex."
        return
    try:
        opened = Index.open_to_read(path)
    except UnusableIndex as error:
        mend = "A daemon does that, or smp reindex."
        yield f"The index cannot be used and will be rebuilt: {error}. {mend}"
        return
    with closing(opened) as index:
        ask = index.connection.execute
        root.generation = index.generation
        root.memories = ask("SELECT COUNT(*) FROM memories").fetchone()[0]
        root.sessions = dict(ask(_BY_STATE).fetchall())
        if bad := ask(_UNREADABLE).fetchone()[0]:
            files = _counted(bad, "file holds", "files hold")
            yield f"{files} something that cannot be read; smp check names it."
        if twice := len(index.doubles()):
            ids = _counted(twice, "id is", "ids are")
            yield f"{ids} that of several memories; smp check names the lines."
        root.secrets = exposures.count(index)
        if root.secrets:
            redacts = published(memory.tree).redaction().unlocked_edits == "redact"
            yield exposures.sentence(exposures.found(index), redacts=redacts)
        if any(name.startswith(SCRUB) for name in memory.tree.list(".smp")):
            yield (
                "Words of what was purged may still stand in the index."
                " A daemon takes them out, or smp reindex."
            )
        if deep:
            root.unindexed_files = sum(1 for _ in outdated(memory, index))
            if root.unindexed_files:
                files = _counted(
                    root.unindexed_files, "file on disk differs", "files on disk differ"
                )
                yield f"{files} from the index. smp sync brings it up to date."


def _about_foreign_files(memory: Place, root: RootStatus) -> Iterator[str]:
    aside = list(quarantined(memory))
    root.quarantined = len(aside)
    if foreign := sum("-journal-" in name for name in aside):
        files = _counted(foreign, "file was", "files were")
        mend = "Look at it in quarantine/, and remove it there."
        yield f"{files} in .smp/journal/ that SMP has not written. {mend}"
    if not published(memory.tree).is_sound():
        mend = "Restart the daemon, or remove it."
        yield f"{POLICY_FILE} is none that SMP has written, and the defaults hold. {mend}"


def _about_drops(memory: Place, root: RootStatus, *, is_led: bool) -> Iterator[str]:
    for name in memory.tree.list(ACTIVE):
        root.waiting_drops += len(waiting(memory.tree, f"{ACTIVE}/{name}"))
        root.rejected_drops += len(rejected(memory.tree, f"{ACTIVE}/{name}"))
    # A daemon that leads says itself which drops it cannot take; all others are on their way.
    if root.waiting_drops and not is_led:
        yield f"{_counted(root.waiting_drops, 'drop waits', 'drops wait')} until a daemon runs."
    if root.rejected_drops:
        drops = _counted(root.rejected_drops, "drop was", "drops were")
        yield f"{drops} rejected; smp check says which, and why."


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _count_in_bundles(memory: Place) -> dict[str, int]:
    """Return how many sessions are archived, and deleted as a whole."""
    counts: dict[str, int] = {}
    elsewhere = set(memory.tree.list(ACTIVE))
    for place, file in ((ARCHIVED, "summary.yaml"), (DELETED, "backup.tar.gz")):
        for name in set(memory.tree.list(place)) - elsewhere:
            with suppress(OSError, SMPError):
                if memory.tree.exists(f"{place}/{name}/{file}"):
                    counts[place] = counts.get(place, 0) + 1
                    elsewhere.add(name)
    return counts
