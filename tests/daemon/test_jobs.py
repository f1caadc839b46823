"""Jobs in pieces: failures, sessions that must wait, and sessions that are too full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from smp_client import LockTimeout, Memory
from smp_client.index import sync
from smp_client.model.deadline import interruptible, step
from smp_client.model.outcome import Action, Outcome
from smp_daemon import worker
from smp_daemon.config.settings import SETTINGS, Configuration
from smp_daemon.ingest import indexer
from smp_daemon.jobs import Job, Run, Stopping
from smp_daemon.log import FilteringBoundLogger, Log
from smp_daemon.maintenance import JOBS, Maintenance
from smp_daemon.root import Root

QUOTA = 100_000


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(log_file: Path) -> FilteringBoundLogger:
    given = {"log.level": "debug", "log.file": log_file}
    return Log(Configuration(given)).logger


@pytest.fixture
def root(memory: Memory, log: FilteringBoundLogger) -> Iterator[Root]:
    """A tree that is led, and whose watcher does not run."""
    root = Root(memory, 2.0, lambda _root, _notice: None, log)
    root.lead()
    yield root
    root.close()


@pytest.fixture
def maintenance(root: Root) -> Maintenance:
    """Jobs, with a worker that only takes in."""

    def take_in(root: Root, paths: list[str]) -> bool:
        indexer.take_in(root.memory, root.index, paths)
        return True

    worker = SimpleNamespace(
        take_in=take_in, save_successes=lambda root: None, is_interrupted=lambda: True
    )
    made = Maintenance(cast("Any", worker))
    root.jobs = {name: Job() for name in JOBS}
    return made


def finish(maintenance: Maintenance) -> None:
    for _ in range(1000):
        maintenance.work()
    assert not maintenance.has_work()


def done(session: str) -> Outcome:
    return Outcome([Action(session, "tidy_up", (session,), "it was untidy", 10)])


def events(log_file: Path, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log_file.read_text().splitlines()]
    return [line for line in lines if line["event"] == name]


# One run.


def test_every_failure_costs_its_session_only(root: Root, log_file: Path) -> None:
    """Whatever a step raises, the sessions behind it are done, and the error counts and names."""
    errors = [OSError(5, "Input/output error"), RecursionError(), KeyError("x"), ValueError("odd")]
    bad = {f"bad{number}": error for number, error in enumerate(errors)}

    def work(session: str) -> Outcome:
        if session in bad:
            raise bad[session]
        return done(session)

    run = Run("decay", root)
    assert len([*run.each(["a", *bad, "b", "c"], work)]) == 7
    assert run.done == {"sessions": 7, "tidy_up": 3, "bytes_freed": 30}
    assert run.changed == {"a", "b", "c", *bad}
    named = "bad0: [Errno 5] Input/output error; bad1: RecursionError; bad2: 'x'; …"
    assert run.error == f"4 of 7 sessions: {named}"
    assert [line["session_id"] for line in events(log_file, "decay failed")] == [*bad]
    said = events(log_file, "tidy_up")[0]
    assert (said["component"], said["session_id"], said["reason"], said["bytes_freed"]) == (
        "decay", "a", "it was untidy", 10,
    )  # fmt: skip


def test_a_locked_session_is_tried_again_after_the_others(root: Root) -> None:
    tried: list[str] = []

    def work(session: str) -> Outcome:
        tried.append(session)
        if tried.count(session) <= {"once": 1, "always": 9, "never": 0}[session]:
            raise LockTimeout("somebody has it")
        return Outcome()

    run = Run("decay", root)
    assert [*run.each(["once", "always", "never"], work)]
    assert tried == ["once", "always", "never", "once", "always"]
    assert str(run.error).startswith("1 of 3 sessions: always: somebody has it")


def test_being_told_to_stop_is_no_failure(root: Root) -> None:
    def work(_: str) -> Outcome:
        raise Stopping

    run = Run("decay", root)
    with pytest.raises(Stopping):
        next(run.each(["a"], work))
    assert not run.failures


def test_sessions_that_cannot_be_listed_are_a_failure_of_the_run(
    root: Root, maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("smp_daemon.maintenance._sessions", fail)
    assert not maintenance.run_now("decay", root)
    assert root.jobs["decay"].last_error == "[Errno 5] Input/output error"
    assert root.jobs["decay"].last_success is None


# Jobs.


def test_a_job_asked_for_many_times_while_it_runs_runs_once_more(
    memory: Memory, root: Root, maintenance: Maintenance, log_file: Path
) -> None:
    for name in "abc":
        memory.create_session(id=name)
    indexer.scan(root.memory, root.index)
    maintenance.ask_for("archive", root)
    maintenance.work()
    for _ in range(5):
        maintenance.ask_for("archive", root)
    finish(maintenance)
    assert root.jobs["archive"].did == {"sessions": 3}
    assert len(events(log_file, "archive")) == 2


@pytest.mark.parametrize("name", ["archive", "purge", "compaction"])
def test_nothing_is_removed_from_a_tree_that_is_not_as_it_was(
    memory: Memory, root: Root, maintenance: Maintenance, name: str
) -> None:
    """Jobs are skipped while most sessions have disappeared, and while the root itself has."""
    fill(memory, root, 0.97)
    root.problems["vanished"] = "3 of 4 sessions have disappeared at once"
    root.too_full["full"] = None
    maintenance.ask_for(name, root)
    finish(maintenance)
    assert root.jobs[name].last_success is None
    assert root.jobs[name].did == {"skipped": "the tree is not as it was"}
    (memory.root / ".smp/root.json").unlink()
    maintenance.ask_for("decay", root)
    finish(maintenance)
    assert "is missing, unmounted" in root.jobs["decay"].did["skipped"]


def test_a_scrub_that_is_interrupted_stays_asked_for(
    memory: Memory, root: Root, maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM does not wait for a vacuum: the index stays as it was, and the request stays."""
    session = memory.create_session(id="s1")
    for number in range(400):
        session.record_finding(f"stays {number}", discovered_by="a")
    indexer.scan(root.memory, root.index)
    sync.ask_for_scrub(memory)
    monkeypatch.setattr("smp_daemon.maintenance.STOP_CHECK_STEPS", 10)
    maintenance.look(root, 1000.0)
    finish(maintenance)
    assert root.jobs["scrub"].last_error == "interrupted"
    assert sync.asked_for(memory)
    asked = "SELECT COUNT(*) FROM memories WHERE type = 'finding'"
    assert root.index.connection.execute(asked).fetchone() == (400,)


def test_a_stop_inside_a_statement_of_sql_is_not_lost(
    root: Root, log: FilteringBoundLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "HEARTBEAT_S", 0.0)
    stopped = worker.Worker(log)
    stopped.add(root, {})
    stopped.stop()
    with interruptible(stopped._keep_going):
        assert stopped.is_interrupted()
        with pytest.raises(Stopping):
            step()


# Too full.


def fill(memory: Memory, root: Root, share: float) -> None:
    """Make a session so full, with its present content included."""
    if not (memory.root / "active/full").exists():
        memory.create_session(id="full", quota_bytes=QUOTA)
    path = memory.root / "active/full/filler.md"
    path.unlink(missing_ok=True)
    missing = round(share * QUOTA) - memory.session("full").size().total_bytes
    path.write_text("x" * missing)
    indexer.scan(root.memory, root.index)


def due_pct(memory: Memory, root: Root) -> float:
    due = root.fullness.due(memory.session("full"))
    return due[0] if due else 0.0


def note(memory: Memory, root: Root) -> None:
    root.fullness.note(memory.session("full"), "all of it must stay.")


def test_a_session_that_could_not_become_smaller_rests(memory: Memory, root: Root) -> None:
    """It is due again when it has grown by 1 %, but not for each write."""
    fill(memory, root, 0.85)
    note(memory, root)
    assert not root.problems
    fill(memory, root, 0.855)
    assert not due_pct(memory, root)
    fill(memory, root, 0.87)
    assert due_pct(memory, root)
    note(memory, root)
    fill(memory, root, 0.5)
    assert not due_pct(memory, root)
    fill(memory, root, 0.85)
    assert due_pct(memory, root)


def test_a_session_may_switch_compaction_off_and_status_says_that_it_is_full(
    memory: Memory, root: Root
) -> None:
    fill(memory, root, 0.5)
    memory.session("full").update_metadata(compaction_config={"auto_compact": False})
    fill(memory, root, 0.99)
    assert not due_pct(memory, root)
    assert "switched off" in root.problems["fullness of full"]


def test_every_time_in_the_settings_is_the_time_of_a_job() -> None:
    times = {key for key in SETTINGS if key.endswith(("cron", "every_s"))}
    assert times == {job.time for job in JOBS.values()} - {""}
