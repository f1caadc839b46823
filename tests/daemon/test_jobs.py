"""Jobs in pieces: failures, sessions that must wait, and sessions that are too full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from smp_client import LockTimeout, Memory
from smp_client.model.outcome import Action, Outcome
from smp_daemon.config.settings import SETTINGS, Configuration
from smp_daemon.ingest import indexer
from smp_daemon.jobs import JOBS, Job, Maintenance, Run
from smp_daemon.log import Log
from smp_daemon.root import Root

QUOTA = 100_000


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def root(memory: Memory, log_file: Path) -> Iterator[Root]:
    """A tree that is led, and whose watcher does not run."""
    log = Log(Configuration({"log.level": "debug", "log.file": log_file})).logger
    root = Root(memory, 2.0, lambda _root, _notice: None, log)
    root.lead()
    root.jobs = {name: Job() for name in JOBS}
    yield root
    root.close()


@pytest.fixture
def maintenance() -> Maintenance:
    """Jobs, with a worker that only takes in."""

    def take_in(root: Root, paths: list[str]) -> bool:
        indexer.take_in(root.memory, root.index, paths)
        return True

    worker = SimpleNamespace(take_in=take_in, save_successes=lambda root: None)
    return Maintenance(cast("Any", worker))


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
    assert run.error == "4 of 7 sessions: bad0: [Errno 5] Input/output error"
    assert [line["session_id"] for line in events(log_file, "decay failed")] == [*bad]
    said = events(log_file, "tidy_up")[0]
    assert (said["component"], said["session_id"]) == ("decay", "a")
    assert said["reason"] == "it was untidy"


def test_a_session_in_use_is_left_to_the_next_run(root: Root) -> None:
    def work(_: str) -> Outcome:
        raise LockTimeout("somebody has it")

    run = Run("decay", root)
    assert len([*run.each(["a", "b"], work)]) == 2
    assert run.error is None


# Jobs.


@pytest.mark.parametrize("name", ["archive", "purge", "compaction"])
def test_nothing_is_removed_from_a_tree_that_is_not_as_it_was(
    memory: Memory, root: Root, maintenance: Maintenance, name: str
) -> None:
    """Jobs are skipped while most sessions have disappeared, and while the root itself has."""
    fill(memory, root, 0.97)
    root.problems["vanished"] = "3 of 4 sessions have disappeared at once"
    root.too_full["full"] = (20.0, "it is full")
    maintenance.ask_for(name, root)
    finish(maintenance)
    assert root.jobs[name].last_success is None
    assert root.jobs[name].did == {"skipped": "the tree is not as it was"}
    (memory.root / ".smp/root.json").unlink()
    maintenance.ask_for("decay", root)
    finish(maintenance)
    assert "is missing, unmounted" in root.jobs["decay"].did["skipped"]


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


def test_a_session_that_could_not_become_smaller_rests(
    memory: Memory, root: Root, maintenance: Maintenance, log_file: Path
) -> None:
    """It is due again when it has grown by 1 %, or was small, but not for each write."""
    for share, times in ((0.85, 1), (0.855, 1), (0.87, 2), (0.5, 2), (0.85, 3)):
        fill(memory, root, share)
        maintenance.weigh(root, "full")
        finish(maintenance)
        assert len(events(log_file, "compacting")) == times
    assert not root.problems


def test_every_time_in_the_settings_is_the_time_of_a_job() -> None:
    times = {key for key in SETTINGS if key.endswith(("cron", "every_s"))}
    assert times == {job.time for job in JOBS.values()} - {""}
