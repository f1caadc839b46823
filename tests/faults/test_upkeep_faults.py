"""What time does to sessions, on a bad day: a tree that is gone, kills, other writers."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from daemons import (
    PATIENCE_S,
    SMP,
    Daemon,
    running,
    settings_file,
    smp,
    status,
    wait_until,
    wait_until_true,
)
from harness import CHANGING, MOVING, Call, needs_mounts, needs_strace, outside_of_smp
from programs import SESSION, open_later
from test_kill_upkeep import contents, prepared
from test_upkeep_disk import differing

from smp_client import Memory
from smp_client.disk.tombstones import FILE as PURGED
from smp_client.model.layout import MARKER
from smp_client.model.policies import CompactionPolicy
from smp_client.model.times import now, render_time
from smp_client.passes import purge
from smp_client.passes.purge import LEDGER
from smp_client.passes.tidy import tidy
from smp_daemon.config.settings import Configuration
from smp_daemon.log import Log
from smp_daemon.root import Root
from smp_daemon.schedule import KNOWN_SINCE, save_successes
from smp_daemon.worker import Worker

pytestmark = pytest.mark.usefixtures("no_grace")

# A tree that is not as it was.

# All that may go goes at once, so that how much that is does not depend on when it was looked at.
OFTEN = {"lifecycle": {"check_every_s": 1}, "compaction": {"gentle_at_pct": 50, "gentle_reduction_pct": 100}}


def overdue(root: Path) -> Memory:
    """Sessions that should be archived, one that is too full, and a deletion whose deadline was waited for: all jobs are due."""
    long_ago = Memory(root, clock=lambda: now() - timedelta(days=40))
    for number in range(4):
        session = long_ago.create_session(id=f"s{number}", user="u")
        session.record_decision(f"decided in s{number}", made_by="a")
        session.record_finding(f"found in s{number}", discovered_by="a", severity="low")
    session.delete("FIND-001", reason="asked for")
    # It is in use, so that it is made smaller and not archived.
    full = Memory(root, clock=lambda: now() - timedelta(days=9)).create_session(id="full", quota_bytes=60_000)
    while full.size().utilization_pct < 60:
        full.add_turn("user", "We talked about the weather and about lunch. " * 20)
    memory = Memory(root)
    memory.session("full").activate("still in use")
    watched(memory)
    save_successes(memory, {KNOWN_SINCE: render_time(now() - timedelta(days=30))})
    return memory


def watched(memory: Memory) -> None:
    """As if a daemon had looked at everything, and the machine had then been running for a month."""
    purge.planned(memory, [])
    ledger = json.loads((memory.root / LEDGER).read_text())
    ledger["waited_s"] = dict.fromkeys(ledger["waited_s"], 30 * 86_400.0)
    (memory.root / LEDGER).write_text(json.dumps(ledger))


def skipped(daemon: Daemon, *names: str) -> bool:
    return all(daemon.said(f"{name} skipped") for name in names)


def all_is_done(root: Path) -> bool:
    archived = sorted(path.parent.name for path in root.glob("archived/*/summary.yaml"))
    return archived == ["s0", "s1", "s2", "s3"] and bool(list(root.glob("archived/full/evicted-*"))) and (root / PURGED).exists()


def test_while_most_sessions_are_gone_nothing_is_taken_out(tmp_path: Path) -> None:
    """Three of five have disappeared when the daemon starts and all jobs are due: nothing is archived, compacted or purged, and
    status says why. When they are back for long enough, and the daemon has started again, all of it is done."""
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


@needs_mounts
@pytest.mark.parametrize("how", ["unmounted", "without its marker"])
def test_while_the_root_is_gone_no_job_touches_anything(tmp_path: Path, how: str) -> None:
    """The root goes after the start, before its jobs, each of which is then asked for in the daemon's own thread: all are skipped,
    no byte changes, here or there, and status cannot or does not say that all is well. It comes back: all is done."""
    kept, root = tmp_path / "kept", tmp_path / "root"
    overdue(kept)
    root.mkdir()
    subprocess.run(["mount", "--bind", kept, root], check=True)
    try:
        with leading(root, tmp_path / "log") as (worker, led):
            before = outside_of_smp(kept)
            switch(kept, root, how, back=False)
            jobs = ("decay", "lifecycle", "archive", "purge")
            for name in jobs:
                worker.ask_for(name)
            work(worker)
            assert all("is missing, unmounted" in led.jobs[name].did["skipped"] for name in jobs)
            assert led.problems["root"]
            assert outside_of_smp(kept) == before
            assert how != "unmounted" or list(root.iterdir()) == []
            switch(kept, root, how, back=True)
            for name in jobs:
                worker.ask_for(name)
            wait_until(lambda: work(worker) or all_is_done(kept), "all is done")
            assert "root" not in led.problems
    finally:
        subprocess.run(["umount", "-l", root], check=True)


@contextmanager
def leading(root: Path, log_file: Path) -> Iterator[tuple[Worker, Root]]:
    """A worker that has begun, and whose thread is ours."""
    log = Log(Configuration({"log.level": "debug", "log.file": log_file}))
    worker = Worker(log.logger)
    led = Root(Memory(root, compaction=CompactionPolicy(gentle_at_pct=50)), 2.0, worker.notice, log.logger)
    led.lead()
    worker.add(led)
    led.watcher.start()
    worker._maintenance.run_now("scan", led)
    try:
        yield worker, led
    finally:
        led.close()


def work(worker: Worker) -> None:
    """Until nothing is left to do."""
    worker._do_what_is_due()
    while worker._maintenance.has_work():
        worker._do_what_is_due()


def switch(kept: Path, root: Path, how: str, *, back: bool) -> None:
    """Take the root away, or bring it back."""
    if how == "unmounted":
        subprocess.run(["mount", "--bind", kept, root] if back else ["umount", "-l", root], check=True)
    else:
        marker, aside = kept / MARKER, kept.parent / "marker"
        (aside if back else marker).rename(marker if back else aside)


# Killed in the middle of its jobs.

JOBS = ("decay", "lifecycle", "archive", "purge")
# What no two runs have in common: times, and what follows from their digits.
VARYING = ((r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"), (r'"?\b[0-9a-f]{64}\b"?', "SHA256"),
           (r"\b(?:\w*bytes|metadata): \d+|[\d,]+ bytes", "SIZE"),
           (r'("file": "metadata\.yaml"[^}]*"length": )\d+', r"\1SIZE"),
           (r"\n  (storage|participants):.*(\n    .*)*", ""))  # fmt: skip


def told(root: Path) -> dict[str, str]:
    """Every file, and every member of an archive, without what varies."""
    found = {f"{name}/{member}": content for name, members in contents(root).items() for member, content in members.items()}
    for pattern, instead in VARYING:
        found = {name: re.sub(pattern, instead, content) for name, content in found.items() if "/indexes/" not in name}
    return found


def tells(root: Path, wanted: dict[str, str]) -> bool:
    """Whether it does; not while a directory goes that is just being looked through."""
    try:
        return told(root) == wanted
    except FileNotFoundError:
        return False


def run_jobs_traced(root: Path, directory: Path, *options: str) -> bool:
    """Run until all is done, or it has died of what was injected; return whether it has."""
    log = directory / "log"
    log.unlink(missing_ok=True)
    config = settings_file(directory, **OFTEN)
    # With --seccomp-bpf strace 6.1 injects nothing.
    program = ["strace", "-f", "-e", f"trace={','.join(CHANGING)}", *options, *SMP]
    daemon = Daemon([root], log, config, program)

    def is_over() -> bool:
        done = {line["event"] for line in daemon.lines() if line["component"] == "job"}
        is_taken = not list(root.glob("active/*/inbox/*.yaml"))
        return daemon.process.poll() is not None or (done >= {*JOBS, "compaction"} and is_taken)

    wait_until(is_over, "all is done, or the daemon is dead")
    with suppress(FileNotFoundError, ProcessLookupError):  # strace ends with its child
        children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children")
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGTERM)
    daemon.process.wait(PATIENCE_S)
    return daemon.process.returncode == -signal.SIGKILL


def changing_calls(log: Path) -> list[Call]:
    """Return each call with how many of its thread and name it is, which is how strace counts."""
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[Call, None] = {}
    said = log.read_text(errors="replace")
    for thread, name in re.findall(r"^(\d+) +(\w+)\(", said, re.MULTILINE):
        seen[thread, name] += 1
        found[name, seen[thread, name]] = None
    return list(found)


def changed_since_the_index(root: Path) -> None:
    """Sessions come, grow and go, and there is a drop."""
    memory = Memory(root)
    memory.create_session(id="gone").record_decision("indexed", made_by="a")
    smp("sync", "--root", root)
    shutil.rmtree(root / "active/gone")
    memory.session("full").record_finding("after the index", discovered_by="v", tags=["new"])
    memory.create_session(id="new").record_decision("not indexed", made_by="a")
    drop = "type: finding\nfinding: dropped\ndiscovered_by: somebody\nseverity: low\n"
    (root / "active/new/inbox/drop.yaml").write_text(drop)


@needs_strace
@pytest.mark.slow
def test_a_daemon_that_is_killed_while_it_indexes_compacts_archives_and_purges(
    tmp_path: Path,
) -> None:
    """Killed at some calls that change the disk, all jobs being due: the next daemon ends where an
    undisturbed one does, in every file and every member of an archive. Its index is what a rebuild
    gives. (Each pass is killed everywhere in test_kill_upkeep.py.)"""
    base, undisturbed, root = (tmp_path / name for name in ("base", "undisturbed", "root"))
    overdue(base)
    changed_since_the_index(base)
    shutil.copytree(base, undisturbed)
    run_jobs_traced(undisturbed, tmp_path, "-o", str(tmp_path / "calls"))
    assert all_is_done(undisturbed)
    wanted, killed, chance = told(undisturbed), 0, random.Random(5)
    assert "dropped" in wanted["active/new/findings.yaml/"]
    calls = changing_calls(tmp_path / "calls")
    # Writes come by the hundred.
    moving, others = ([call for call in calls if (call[0] in MOVING) == is_moving]
                      for is_moving in (True, False))  # fmt: skip
    for name, number in chance.sample(moving, 7) + chance.sample(others, 7):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(base, root)
        injected = f"inject={name}:signal=KILL:when={number}"
        killed += run_jobs_traced(root, tmp_path, "-o", os.devnull, "-e", injected)
        with running(root, log=tmp_path / "next", config=settings_file(tmp_path, **OFTEN)):
            try:
                wait_until(lambda: tells(root, wanted), "all is as if nothing had been")
            except AssertionError:
                assert (name, number, differing(told(root), wanted)) == (name, number, [])
            wait_until_true(root)
    # No two runs are quite the same: some have fewer calls of a name.
    assert killed > 7


# Others who write meanwhile.

# With a printf of its own, that writes all lines at once: between two that the shell itself writes, another program's can come.
SHELL = r"""
i=0
while [ ! -e "$2" ]; do
    i=$((i+1))
    if env printf '## Turn %s - 2026-01-01 00:00:00\n**Speaker:** shell\n\nshell-%s.\n\n---\n\n' $((1000000+1000*i)) $i >> "$1"
    then echo $i; fi 2> /dev/null
    /bin/true
done
"""


def test_a_shell_loses_nothing_to_all_passes_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It appends without a lock, against decay, compaction, archiving and bringing back, one after the other and again and again:
    in the end each turn that it could write is there exactly once."""
    monkeypatch.undo()  # without the grace, a shell that has found a file and is held up before it opens it can lose a line
    root, stop = tmp_path / "root", tmp_path / "stop"
    prepared("compact", root)
    memory = open_later(root)
    command = ["bash", "-c", SHELL, "sh", root / "active" / SESSION / "conversation.md", stop]
    shell = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        for number in range(8):
            every_pass(memory, number)
    finally:
        stop.touch()
        written = shell.communicate(timeout=60)[0].split()
    kept = [root / ".smp" / name for name in ("leaving", "retired")]
    wait_until(lambda: tidy(memory) is not None and not any(list(path.glob("*")) for path in kept), "all is brought over")
    session = memory.session(SESSION)
    assert session.bring_back().problems == []
    aside = "".join(path.read_text() for path in (root / "quarantine").rglob("*.bytes"))
    texts = Counter(record.text.split()[0] for record in session.records("turn") if record.text)
    assert [number for number in written if texts[f"shell-{number}."] + aside.count(f"shell-{number}.") != 1] == []
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
