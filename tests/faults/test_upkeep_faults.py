"""What time does to sessions, on a bad day: a disk that fails, a clock that jumps, kills, other writers, a tree that is gone."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from harness import SYNCING, WRITING, Call, Outcome, Programs, injection, mounted, needs_mounts, needs_strace
from programs import PASSES, SESSION, open_later
from test_daemon_faults import changing_calls, needs_root, stop_traced
from test_kill_upkeep import MOVING, _no_grace, contents, done_again, members, prepared  # noqa: F401  # the first holds for all tests here

from smp_client import Memory, SMPError
from smp_client.layout import MARKER
from smp_client.maintain.deadlines import FILE as DEADLINES
from smp_client.maintain.deadlines import observe
from smp_client.maintain.doomed import all_doomed
from smp_client.maintain.purged import FILE as PURGED
from smp_client.policies import CompactionPolicy
from smp_client.tidy import tidy
from smp_client.timestamps import now, render_time
from smp_daemon.ingest.debounce import Debounce
from smp_daemon.log import start
from smp_daemon.maintenance import running_s
from smp_daemon.root import Root
from smp_daemon.schedule import KNOWN_SINCE, save_successes
from smp_daemon.settings import LogSettings
from smp_daemon.worker import Timing, Worker

sys.path.insert(0, str(Path(__file__).parent.parent))
from daemons import Daemon, running, settings_file, smp, status, wait_until, wait_until_true

# A disk that fails or is full.

MOST = ("archive", "unarchive", "delete_session", "compact", "decay")  # of the passes, those that the quick tests try


def places(root: Path) -> list[str]:
    """Where the session is, as every command says."""
    memory = open_later(root)
    found = {
        "active": [session.id for session in memory.sessions()],
        "archived": [one.session for one in memory.archived_sessions()],
        "deleted": [one.session for one in memory.deleted_sessions()],
    }
    return [name for name, ids in found.items() if SESSION in ids]


def tidied(root: Path) -> dict[str, Any]:
    """What there is when only what was cut off is put right."""
    tidy(open_later(root))
    return contents(root)


def differing(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


class Failing:
    """Runs of one pass, each of which meets a failure of its own."""

    def __init__(self, operation: str, directory: Path, runner: Programs | None = None, variant: str = "sound") -> None:
        self.operation, self._directory, self._runner, self._variant = operation, directory, runner, variant
        self.base = directory / "base"
        prepared(operation, self.base)
        undisturbed = directory / "undisturbed"
        shutil.copytree(self.base, undisturbed)
        if runner is None:
            PASSES[operation](open_later(undisturbed))
        else:
            self._files = self._touched(runner, undisturbed)
        self._done = tidied(undisturbed)
        self._wanted = done_again(operation, undisturbed)

    def _touched(self, runner: Programs, root: Path) -> dict[Call, str]:
        """The calls of an undisturbed run, with the file that each is about."""
        log = self._directory / "calls"
        assert runner.run(self.operation, root, variant=self._variant, strace=("-y", "-o", str(log))).acknowledged
        seen: Counter[str] = Counter()
        found: dict[Call, str] = {}
        for name, path in re.findall(r"^(\w+)\(\d+<([^>]*)>", log.read_text(errors="replace"), re.MULTILINE):
            seen[name] += 1
            found[name, seen[name]] = path.removeprefix(str(root))
        return found

    def calls(self, names: tuple[str, ...], *, each: int = 1, of_index: int) -> list[Call]:
        """One of so many calls with these names; of those that are about the index, which can be made anew, one of more."""
        index, rest = [], []
        for call, path in self._files.items():
            if call[0] in names:
                (index if is_derived(call[0], path) else rest).append(call)
        return rest[::each] + index[::of_index]

    def problems(self, calls: list[Call], error: str, *, on: bool = False) -> Iterator[str]:
        """What is wrong after each of these calls has failed; with all of the same name that come after it, if so wanted."""
        assert self._runner is not None
        for call in calls:
            root = self._directory / "failed"
            shutil.copytree(self.base, root)
            name, number = call
            what = ("-e", f"trace={name}", "-e", f"inject={name}:error={error}:when={number}+") if on else injection(
                call, f"error={error}")  # fmt: skip
            outcome = self._runner.run(self.operation, root, variant=self._variant, strace=what)
            found = [*self._said(outcome, *call), *self.after(root, acknowledged=bool(outcome.acknowledged))]
            yield from (f"{error} from {name} {number}, {self._files[call]}: {problem}" for problem in found)
            shutil.rmtree(root)

    def _said(self, outcome: Outcome, name: str, number: int) -> Iterator[str]:
        if outcome.status:
            yield f"the run ended with {outcome.status}"
        if outcome.failure not in (None, "StorageFailed", "TransactionPending"):
            yield f"it raised {outcome.failure}"
        if outcome.acknowledged and name in SYNCING and not is_derived(name, self._files[name, number]):
            yield "a failed fsync was not mentioned"

    def after(self, root: Path, *, acknowledged: bool) -> Iterator[str]:
        try:
            if len(found := places(root)) > 1:
                yield f"the session is in {found}"
            if acknowledged and (different := differing(tidied(root), self._done)):
                yield f"it said that all was done, but these differ: {different}"
            if different := differing(done_again(self.operation, root), self._wanted):
                yield f"done again, these differ: {different}"
        except (SMPError, OSError) as error:
            yield f"it cannot be done again: {error!r}"


def is_derived(name: str, path: str) -> bool:
    """What nobody loses by: the index, which alone is synced with fdatasync, and the directory of the locks."""
    return name == "fdatasync" or path.startswith("/.smp/index.db") or path == "/.smp/locks"


@needs_strace
@pytest.mark.parametrize("operation", MOST)
def test_a_disk_that_is_full_from_some_write_on(runner: Programs, operation: str, tmp_path: Path) -> None:
    """ENOSPC from one of its writes and all of that kind after it: the pass says so, the session is in one place, and done again
    when there is room, all is as if nothing had been.

    For broken variants see below; the slow test takes every write, and fsync too."""
    failing = Failing(operation, tmp_path, runner)
    assert list(failing.problems(failing.calls(WRITING, each=4, of_index=40), "ENOSPC", on=True)) == []


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("operation", PASSES)
def test_a_disk_that_fails_anywhere(runner: Programs, operation: str, tmp_path: Path) -> None:
    """The same for each write, for one write that fails alone, and for EIO from each fsync, which is never left unsaid.

    Seen to fail for purging where `scrub_index` let a full disk through: what had been purged was not told."""
    failing = Failing(operation, tmp_path, runner)
    writes, syncs = failing.calls(WRITING, of_index=15), failing.calls(SYNCING, of_index=4)
    found = [*failing.problems(writes, "ENOSPC", on=True), *failing.problems(syncs, "EIO")]
    found += failing.problems(writes[::2], "ENOSPC")
    assert found == []


@needs_strace
@pytest.mark.parametrize(
    ("variant", "operation", "names", "noticed"),
    [
        ("deaf to fsync", "archive", SYNCING, "a failed fsync was not mentioned"),
        ("moved first", "archive", WRITING, "done again, these differ"),
        ("without journal", "compact", WRITING, "done again, these differ"),
    ],
)
def test_the_same_failures_find_a_broken_pass(
    runner: Programs, variant: str, operation: str, names: tuple[str, ...], noticed: str, tmp_path: Path
) -> None:
    """One that ignores a failed fsync, that takes the session out of its place before the copy is made, or that takes out of
    several files with no intent."""
    failing = Failing(operation, tmp_path, runner, variant)
    found = failing.problems(failing.calls(names, of_index=1000), "EIO" if names is SYNCING else "ENOSPC", on=names is WRITING)
    assert any(noticed in problem for problem in found)


@needs_mounts
@pytest.mark.parametrize("operation", MOST)
def test_a_small_disk_filled_to_various_levels(operation: str, tmp_path: Path) -> None:
    """With no page left, or a few more: the pass raises SMPError and nothing is lost, or does all of it. While the disk is full the
    session is in one place; when there is room again, the same call ends as it would have ended on an empty disk.

    Seen to fail with a session that is out of its place while it is copied, and with a write that ignores ENOSPC."""
    failing = Failing(operation, tmp_path)
    found: list[str] = []
    outcomes = set()
    with mounted("none", tmp_path / "small", "tmpfs", "size=4m") as disk:
        for pages in (0, 1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 26, 32, 40, 50, 64, 100):
            root, ballast = disk / "root", disk / "ballast"
            shutil.copytree(failing.base, root)
            ballast.write_bytes(b"x" * (os.statvfs(disk).f_bfree - pages) * 4096)
            outcomes.add(error := _attempt(operation, root))
            if len(standing := places(root)) != 1:
                found.append(f"{pages} pages: while it is full the session is in {standing}")
            ballast.unlink()
            found += [f"{pages} pages, {error}: {problem}" for problem in failing.after(root, acknowledged=error is None)]
            shutil.rmtree(root)
    assert found == []
    assert outcomes >= {None, "StorageFailed"}


def _attempt(operation: str, root: Path) -> str | None:
    memory = open_later(root)
    try:
        PASSES[operation](memory)
    except SMPError as error:
        return type(error).__name__
    finally:
        memory.close()
    return None


# A clock that jumps.

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR_S = 3600.0


class Machine:
    """A memory, and all that a daemon does for it by the clock, which can be set."""

    def __init__(self, root: Path) -> None:
        self.now = NOON
        self.running_s = 1000.0
        self.memory = Memory(root, clock=lambda: self.now, fsync="batch")

    def upkeep(self) -> list[str]:
        """One run of each job; gives back what was done. Whatever it did, the next run at the same time finds nothing to do."""
        done = [action.type for action in self._once()]
        assert [action.type for action in self._once()] == []
        return done

    def _once(self) -> list[Any]:
        memory = self.memory
        outcomes = [memory.age_sessions()]
        outcomes += [memory.session(session.id).decay() for session in memory.sessions()]
        observe(memory, self.now, self.running_s)
        outcomes.append(memory.purge())
        assert [problem for outcome in outcomes for problem in outcome.problems] == []
        return [action for outcome in outcomes for action in outcome.actions]

    def live(self, days: float, step_hours: float = 6.0) -> list[str]:
        done: list[str] = []
        for _ in range(round(days * 24 / step_hours)):
            self.now += timedelta(hours=step_hours)
            self.running_s += step_hours * HOUR_S
            done += self.upkeep()
        return done

    def leap(self, days: float) -> None:
        self.now += timedelta(days=days)

    def fill(self) -> None:
        """Sessions in use, one in the archive, one that is deleted, and one of which memories are."""
        for name in ("used", "archived", "deleted", "partly"):
            session = self.memory.create_session(id=name, user="u")
            session.record_decision(f"decided in {name}", made_by="a", implementation_impact="high")
            session.record_finding(f"found in {name}", discovered_by="a", severity="critical")
            session.record_preference(f"preferred in {name}", confidence="explicit")
            session.add_turn("user", f"said in {name}")
        self.memory.archive_session("archived")
        self.memory.delete_session("deleted", reason="asked for")
        self.memory.session("partly").delete(["DEC-001", "turn-1"], reason="asked for")

    def texts(self) -> list[str]:
        """All that was ever said, with everything brought back that is away."""
        memory = self.memory
        for away in memory.archived_sessions():
            memory.restore_session(away.session)
        for gone in memory.deleted_sessions():
            memory.undelete_session(gone.session)
        for session in memory.sessions():
            for deleted in session.deleted():
                session.restore(deleted.id)
        found = [session.records(kind.name) for session in memory.sessions() for kind in session.kinds]
        return sorted(record.text for records in found for record in records)

    def priorities(self) -> list[float]:
        """As every answer and every file says."""
        shown: list[float] = []
        for session in Memory(self.memory.root, clock=lambda: self.now, count_access=False).sessions():
            shown += [record.priority for record in session.search()]
            for file in (self.memory.root / "active" / session.id).glob("*.yaml"):
                shown += [float(found) for found in re.findall(r"priority: ([-.\d]+)", file.read_text())]
        return shown


WORDS = ("decided", "found", "preferred", "said")
SAID = sorted(f"{word} in {name}" for word in WORDS for name in ("used", "archived", "deleted", "partly"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "sessions")
    made.fill()
    made.live(2)
    return made


@pytest.mark.parametrize("days", [400, 40_000])
def test_a_leap_forward_archives_and_destroys_nothing(machine: Machine, days: int) -> None:
    """By 400 days, or a century: all sessions are archived, as the clock says, and nothing is purged in the days after; whether the
    clock stays or is set right again, every word can be brought back.

    Seen to fail with a `verdict` that only compares the deadline with the clock: both deletions were purged."""
    machine.leap(days)
    done = machine.live(3)
    assert done.count("archive") == 2
    assert not [action for action in done if action.startswith("purge")]
    assert not (machine.memory.root / PURGED).exists()
    machine.leap(-days)
    assert not [action for action in machine.live(3) if action.startswith("purge")]
    machine.leap(days)
    assert machine.texts() == SAID


def test_two_days_back_make_nothing_younger_than_new_and_nobody_stuck(machine: Machine) -> None:
    """What was read and done in what is now the future: no priority is above 1, nothing is purged, one run of the jobs leaves
    nothing to do for the next, and the sessions grow old again as if they had been used now.

    Seen to fail with a `_FUTURE` of a century, which kept the session active for as long, in an age of 40 days of which it asks."""
    memory = machine.memory
    memory.session("used").get("DEC-001")
    memory.session("partly").deactivate("for now")
    machine.leap(-2)
    assert not [action for action in machine.upkeep() if action.startswith(("purge", "archive"))]
    assert 0 < max(machine.priorities()) <= 1
    states: list[str] = []
    for _ in range(70):
        states += [memory.session(name).state for name in ("used", "partly") if (memory.root / "active" / name).exists()]
        purged = [action for action in machine.live(0.5, 12) if action.startswith("purge")]
        assert not purged or machine.running_s > 30 * 24 * HOUR_S
        assert max(machine.priorities(), default=0) <= 1
    assert {"active", "idle", "decaying"} <= set(states)
    assert memory.sessions() == []


def test_a_session_made_while_the_clock_was_ahead_grows_old_too(machine: Machine) -> None:
    """All that it says of itself is from two days ahead: it is idle, decaying and archived at most two days late.

    Seen to fail where times in the future are taken for now: it was active until the clock was there, and its age began anew."""
    machine.leap(2)
    machine.memory.create_session(id="ahead").record_decision("from the future", made_by="a")
    machine.leap(-2)
    machine.upkeep()
    assert machine.memory.session("ahead").state == "active"
    machine.live(1 + 2, 12)
    assert machine.memory.session("ahead").state == "idle"
    machine.live(6, 12)
    assert machine.memory.session("ahead").state == "decaying"
    machine.live(23, 12)
    assert "ahead" in [one.session for one in machine.memory.archived_sessions()]


# A tree that is not as it was.

# All that may go goes at once, so that how much that is does not depend on when it was looked at.
OFTEN = {"lifecycle": {"check_every_s": 1}, "compaction": {"gentle_at_pct": 50, "gentle_reduction_pct": 100}}


def overdue(root: Path) -> Memory:
    """Sessions that should be archived, one that is too full, and a deletion whose deadline was waited for: all jobs are due."""
    long_ago = Memory(root, clock=lambda: now() - timedelta(days=40), fsync="batch")
    for number in range(4):
        session = long_ago.create_session(id=f"s{number}", user="u")
        session.record_decision(f"decided in s{number}", made_by="a")
        session.record_finding(f"found in s{number}", discovered_by="a", severity="low")
    session.delete("FIND-001", reason="asked for")
    # It is in use, so that it is made smaller and not archived.
    full = Memory(root, clock=lambda: now() - timedelta(days=9), fsync="batch").create_session(id="full", quota_bytes=60_000)
    while full.size().utilization_pct < 60:
        full.add_turn("user", "We talked about the weather and about lunch. " * 20)
    memory = Memory(root)
    memory.session("full").activate("still in use")
    watched(memory)
    save_successes(memory, {KNOWN_SINCE: render_time(now() - timedelta(days=30))})
    return memory


def watched(memory: Memory) -> None:
    """As if a daemon had run all the time since the deletions."""
    seen = {one.key: [one.deleted_at, 30 * 86_400.0, 31 * 86_400.0] for one in all_doomed(memory)[0]}
    said = {"version": 1, "at": render_time(now()), "running_s": running_s(), "watches": seen}
    (memory.root / DEADLINES).write_text(json.dumps(said))


def outside_of_smp(root: Path) -> dict[str, bytes]:
    """All but what the daemon keeps for itself, and what it says of sizes and people."""
    return {
        str(path.relative_to(root)): re.sub(rb"\n  (storage|participants):.*(\n    .*)*", b"", path.read_bytes())
        for path in sorted(root.rglob("*")) if path.is_file() and ".smp" not in path.parts and path.parent.name != "indexes"
    }  # fmt: skip


def skipped(daemon: Daemon, *names: str) -> bool:
    return all(daemon.said(f"{name} skipped") for name in names)


def all_is_done(root: Path) -> bool:
    archived = sorted(path.parent.name for path in root.glob("archived/*/summary.yaml"))
    return archived == ["s0", "s1", "s2", "s3"] and bool(list(root.glob("archived/full/evicted-*"))) and (root / PURGED).exists()


def test_while_most_sessions_are_gone_nothing_is_taken_out(tmp_path: Path) -> None:
    """Three of five have disappeared when the daemon starts and all jobs are due: nothing is archived, compacted or purged, and
    status says why. When they are back, and the daemon has started again, all of it is done.

    Seen to fail with `TAKES_OUT = ()`."""
    root = tmp_path / "root"
    overdue(root)
    smp("sync", "--root", root)
    (tmp_path / "away").mkdir()
    for name in ("s0", "s1", "s2"):
        shutil.move(root / "active" / name, tmp_path / "away" / name)
    taken = outside_of_smp(root)
    config = settings_file(tmp_path, **OFTEN)
    with running(root, log=tmp_path / "log", config=config) as daemon:
        wait_until(lambda: skipped(daemon, "archive", "purge", "compaction"), "the jobs are skipped")
        found = wait_until(lambda: (said := status(root))["health"] == "degraded" and said, "status says so")
        assert any("have disappeared at once" in problem for problem in found["problems"])
        wait_until(lambda: status(root)["jobs"]["purge"]["did"] == {"skipped": "the tree is not as it was"}, "status says so")
        gone = {name for name in taken if outside_of_smp(root).get(name) is None}
        assert (gone, list(root.glob("archived/*/*")), (root / PURGED).exists()) == (set(), [], False)
        for name in ("s0", "s1", "s2"):
            shutil.move(tmp_path / "away" / name, root / "active" / name)
        wait_until(lambda: status(root)["health"] == "ok", "it is well again")
        assert daemon.stop() == 0
    with running(root, log=tmp_path / "next", config=config):
        wait_until(lambda: all_is_done(root), "all is done")


@needs_root
@pytest.mark.parametrize("how", ["unmounted", "without its marker"])
def test_while_the_root_is_gone_no_job_touches_anything(tmp_path: Path, how: str) -> None:
    """The root goes after the start, before its jobs, each of which is then asked for in the daemon's own thread: all are skipped,
    no byte changes, here or there, and status cannot or does not say that all is well. It comes back: all is done.

    Seen to fail with a `Maintenance._unsafe` that never finds anything."""
    kept, root = tmp_path / "kept", tmp_path / "root"
    overdue(kept)
    root.mkdir()
    subprocess.run(["mount", "--bind", kept, root], check=True)
    try:
        with leading(root, tmp_path / "log") as (worker, led):
            before = outside_of_smp(kept)
            go_away(kept, root, how)
            jobs = ("decay", "lifecycle", "archive", "purge")
            for name in jobs:
                worker.ask_for(name)
            work(worker)
            assert all("is missing, unmounted or without its" in led.jobs[name].did["skipped"] for name in jobs)
            assert led.problems["root"]
            assert outside_of_smp(kept) == before
            assert how != "unmounted" or list(root.iterdir()) == []
            come_back(kept, root, how)
            for name in jobs:
                worker.ask_for(name)
            wait_until(lambda: work(worker) or all_is_done(kept), "all is done")
            assert "root" not in led.problems
    finally:
        subprocess.run(["umount", "-l", root], check=True)


@contextmanager
def leading(root: Path, log_file: Path) -> Iterator[tuple[Worker, Root]]:
    """A worker that has begun, and whose thread is ours."""
    log = start(LogSettings(level="debug", format="json", file=log_file))
    worker = Worker(Timing(), log.logger)
    led = Root(Memory(root, compaction=CompactionPolicy(gentle_at_pct=50)), Debounce(0.01, 0.1), 2.0, worker.notice)
    led.lead()
    worker.add(led, {})
    worker.prepare()
    try:
        yield worker, led
    finally:
        led.close()
        log.close()


def work(worker: Worker) -> None:
    """Until nothing is left to do."""
    worker._do_what_is_due()
    while worker._maintenance.has_work():
        worker._do_what_is_due()


def go_away(kept: Path, root: Path, how: str) -> None:
    if how == "unmounted":
        subprocess.run(["umount", "-l", root], check=True)
    else:
        (kept / MARKER).rename(kept.parent / "marker")


def come_back(kept: Path, root: Path, how: str) -> None:
    if how == "unmounted":
        subprocess.run(["mount", "--bind", kept, root], check=True)
    else:
        (kept.parent / "marker").rename(kept / MARKER)


# Killed in the middle of its jobs.

JOBS = ("decay", "lifecycle", "archive", "purge")
# What no two runs have in common: times, and what follows from their digits.
VARYING = ((rb"\d{4}-\d\d-\d\dT[\d:.]+Z", b"TIME"), (rb'"?\b[0-9a-f]{64}\b"?', b"SHA256"), (rb"\bbytes: \d+|[\d,]+ bytes", b"SIZE"),
           (rb"\n  (storage|participants):.*(\n    .*)*", b""))  # fmt: skip


def told(root: Path) -> dict[str, bytes]:
    """Every file, and every member of an archive, without what varies."""
    found: dict[str, bytes] = {}
    for path in sorted(root.rglob("*")):
        name = re.sub(r"evicted-[^/]*", "evicted.tar.gz", str(path.relative_to(root)))
        if not path.is_file() or name.startswith(".smp/") or "/indexes/" in name:
            continue
        assert name not in found, f"{name} is there twice"
        packed = {f"{name}/{member}": content for member, content in members(path).items()} if name.endswith(".gz") else {}
        for part, content in (packed or {name: path.read_bytes()}).items():
            if "/indexes/" not in part:
                found[part] = content
    return {name: _without_what_varies(content) for name, content in found.items()}


def _without_what_varies(content: bytes) -> bytes:
    for pattern, instead in VARYING:
        content = re.sub(pattern, instead, content)
    return content


def run_jobs_traced(root: Path, directory: Path, *options: str) -> bool:
    """Until all jobs are done, or it has died of what was injected; gives back whether it has."""
    log = directory / "log"
    log.unlink(missing_ok=True)
    config = settings_file(directory, **OFTEN)
    daemon = Daemon([root], log, config, ["strace", "-f", "-e", f"trace={','.join(MOVING)}", *options])

    def is_over() -> bool:
        done = {line["event"] for line in daemon.lines() if line["component"] == "job"}
        return daemon.process.poll() is not None or done >= {*JOBS, "compaction"}

    wait_until(is_over, "all is done, or the daemon is dead")
    stop_traced(daemon)
    return daemon.process.returncode == -signal.SIGKILL


@needs_strace
@pytest.mark.slow
def test_a_daemon_that_is_killed_while_it_decays_compacts_archives_and_purges(tmp_path: Path) -> None:
    """Killed at some of its renames and removals, all jobs being due: the next daemon ends where an undisturbed one does, in every
    file and every member of an archive, and its index is what a rebuild gives. (Each pass is killed everywhere in
    test_kill_upkeep.py; here it is whether the daemon takes all of it up again.)

    Seen to fail where a job counts as done before it is."""
    base, undisturbed, root = (tmp_path / name for name in ("base", "undisturbed", "root"))
    overdue(base)
    smp("sync", "--root", base)
    shutil.copytree(base, undisturbed)
    run_jobs_traced(undisturbed, tmp_path, "-o", str(tmp_path / "calls"))
    assert all_is_done(undisturbed)
    wanted = told(undisturbed)
    killed = 0
    for name, number in random.Random(5).sample(changing_calls(tmp_path / "calls"), 8):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(base, root)
        killed += run_jobs_traced(root, tmp_path, "-o", os.devnull, "-e", f"inject={name}:signal=KILL:when={number}")
        with running(root, log=tmp_path / "next", config=settings_file(tmp_path, **OFTEN)):
            try:
                wait_until(lambda: told(root) == wanted, "all is as if nothing had been")
            except AssertionError:
                assert (name, number, differing(told(root), wanted)) == (name, number, [])
            wait_until_true(root)
    assert killed > 4


# Others who write meanwhile.

SHELL = r"""
i=0
while [ ! -e "$2" ]; do
    i=$((i+1))
    if printf '## Turn %s - 2026-01-01 00:00:00\n**Speaker:** shell\n\nshell-%s.\n\n---\n\n' $((1000000+1000*i)) $i >> "$1"
    then echo $i; fi 2> /dev/null
    /bin/true
done
"""
WRITER = """
import sys
from datetime import UTC, datetime
from smp_client import Memory, SMPError
memory = Memory(sys.argv[1], count_access=False)
at = datetime(2026, 1, 1, tzinfo=UTC)
for number in range(60):
    writes = [lambda s: s.record_finding(f"locked-{number}. " + "x" * 100, discovered_by="a", timestamp=at,
                                         resolution={"status": "resolved"}),
              lambda s: s.add_turn("a", f"locked-{number}. " + "word " * 60, timestamp=at)]
    while writes:
        try:
            writes[0](memory.session("first"))
        except SMPError:
            continue  # it was put away: told so, one tries again
        writes.pop(0)
"""


def test_writers_lose_nothing_to_all_passes_together(tmp_path: Path) -> None:
    """A program that writes under the locks, and tries again what is refused, and a shell that appends without, against decay,
    compaction, archiving and bringing back, one after the other and again and again, in another process: in the end each record
    that either could write is there exactly once.

    Seen to fail where the directory of a session that is put away is removed at once, and where files are replaced by a rename."""
    root, stop = tmp_path / "root", tmp_path / "stop"
    prepared("compact", root)
    memory = open_later(root)
    target = root / "active" / SESSION / "conversation.md"
    command = ["bash", "-c", SHELL, "sh", target, stop]
    shell = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    other = subprocess.Popen([sys.executable, "-c", WRITER, str(root)])
    rounds = 0
    try:
        while other.poll() is None or rounds < 3:
            every_pass(memory, rounds)
            rounds += 1
    finally:
        stop.touch()
        written = shell.communicate(timeout=60)[0].split()
    assert other.wait(timeout=60) == 0
    kept = [root / ".smp" / name for name in ("leaving", "retired")]
    wait_until(lambda: tidy(memory) is not None and not any(list(path.glob("*")) for path in kept), "all is brought over")
    session = memory.session(SESSION)
    assert session.bring_back().problems == []
    aside = "".join(path.read_text() for path in (root / "quarantine").rglob("*.bytes"))
    texts = Counter(record.text.split()[0] for kind in ("turn", "finding") for record in session.records(kind) if record.text)
    assert [number for number in written if texts[f"shell-{number}."] + aside.count(f"shell-{number}.") != 1] == []
    assert [number for number in range(60) if texts[f"locked-{number}."] != 2] == []
    assert written
    assert session.problems() == []


def every_pass(memory: Memory, number: int) -> None:
    session = memory.session(SESSION)
    session.decay()
    session.compact(reduction_pct=90)
    if number % 2:
        session.bring_back()
    memory.archive_session(SESSION)
    memory.restore_session(SESSION)
