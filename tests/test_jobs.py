"""Jobs in pieces: what fails, what has to wait, and which sessions are too full, without a daemon around them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemons import wait_until

from smp_client import LockTimeout, Memory
from smp_client.disk.locks import NO_PATIENCE, lock
from smp_client.model.outcome import Action, Outcome
from smp_client.model.policies import CompactionPolicy
from smp_client.model.record import DECISION
from smp_daemon.config.settings import Configuration
from smp_daemon.fullness import FORCED, GENTLE, LEFT_ALONE, Fullness
from smp_daemon.ingest import indexer
from smp_daemon.ingest.debounce import Debounce
from smp_daemon.ingest.notices import Cookie
from smp_daemon.jobs import Job, Piece, Run, Stopping
from smp_daemon.log import FilteringBoundLogger, Log
from smp_daemon.maintenance import Maintenance
from smp_daemon.root import Root

QUOTA = 100_000


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(log_file: Path) -> Iterator[FilteringBoundLogger]:
    log = Log(Configuration({"log.level": "debug", "log.format": "json", "log.file": log_file}))
    yield log.logger
    log.close()


@pytest.fixture
def root(memory: Memory) -> Iterator[Root]:
    """One that is led and indexed, and whose watcher does not run."""
    root = Root(memory, Debounce(0.05, 0.5), 2.0, lambda _root, _notice: None)
    root.lead()
    yield root
    root.close()


def test_whoever_waits_for_an_answer_goes_on_waiting_when_the_lead_is_taken(memory: Memory) -> None:
    """A request that was made while one daemon died and the next came is answered after its scan, not thrown away."""
    memory.create()
    request = memory.root / ".smp/cookies/sync-1"
    request.parent.mkdir(exist_ok=True)
    request.touch()
    heard: list[object] = []
    root = Root(memory, Debounce(0.05, 0.5), 2.0, lambda _root, notice: heard.append(notice))
    try:
        root.lead()
        assert request.exists()
        root.watcher.start()
        wait_until(lambda: Cookie("sync-1") in heard, "it is handed on")
    finally:
        root.close()


class Household:
    """A worker that only takes in."""

    def take_in(self, root: Root, paths: list[Any]) -> bool:
        indexer.take_in(root.memory, root.index, paths)
        return True

    def save_successes(self, root: Root) -> None:
        pass

    def go_on(self, pause_s: float) -> None:
        pass


@pytest.fixture
def maintenance(root: Root, log: FilteringBoundLogger) -> Maintenance:
    made = Maintenance(log, Household())
    root.jobs = {name: Job() for name in made.names}
    return made


def lines(log_file: Path, event: str) -> list[dict[str, Any]]:
    return [line for text in log_file.read_text().splitlines() if (line := json.loads(text))["event"] == event]


def scan(root: Root) -> None:
    indexer.scan(root.memory, root.index)


def finish(maintenance: Maintenance) -> int:
    """All that is asked for; gives back how many pieces that took."""
    count = 0
    while maintenance.has_work():
        maintenance.work()
        count += 1
        assert count < 1000
    return count


def failing(error: Exception) -> Callable[[], Outcome]:
    def fail() -> Outcome:
        raise error

    return fail


# One run


def done(session: str) -> Outcome:
    return Outcome([Action(session, "tidy_up", (session,), "it was untidy", 10)])


def test_every_failure_costs_its_session_only(root: Root, log: FilteringBoundLogger, log_file: Path) -> None:
    """Whatever a piece raises, also what nobody has thought of, the pieces behind it are done, and the error counts and names.

    Seen to fail with `except (OSError, SMPError)` in `Run._try`: the RecursionError came out of `step`."""
    errors = [OSError(5, "Input/output error"), RecursionError(), KeyError("x"), ValueError("odd")]
    bad = [Piece(f"bad{number}", failing(error)) for number, error in enumerate(errors)]
    good = [Piece(name, lambda name=name: done(name)) for name in ("a", "b", "c")]  # type: ignore[misc]
    run = Run("decay", root, iter([good[0], *bad, *good[1:]]))
    while not run.is_over:
        run.step(log)
    assert run.did == {"sessions": 7, "tidy_up": 3, "bytes_freed": 30}
    assert run.error is not None
    assert run.error.startswith("4 of 7 sessions: bad0: [Errno 5] Input/output error; bad1: RecursionError; bad2: 'x'; …")
    assert [line["session_id"] for line in lines(log_file, "decay failed")] == ["bad0", "bad1", "bad2", "bad3"]
    said = lines(log_file, "tidy_up")[0]
    assert (said["component"], said["session_id"], said["reason"], said["bytes_freed"]) == ("decay", "a", "it was untidy", 10)


def test_a_session_that_somebody_has_is_tried_again_after_the_others(root: Root, log: FilteringBoundLogger) -> None:
    """A piece that finds a lock taken comes once more at the end, and fails only when it is taken then too."""
    tried: list[str] = []

    def busy(name: str, times: int) -> Piece:
        def do() -> Outcome:
            tried.append(name)
            if tried.count(name) <= times:
                raise LockTimeout("somebody has it")
            return Outcome()

        return Piece(name, do)

    run = Run("decay", root, iter([busy("once", 1), busy("always", 9), busy("never", 0)]))
    while not run.is_over:
        run.step(log)
    assert tried == ["once", "always", "never", "once", "always"]
    assert run.error == "1 of 3 sessions: always: somebody has it Try again; if it stays, look at that process."


def test_being_told_to_stop_is_no_failure(root: Root, log: FilteringBoundLogger) -> None:
    """It comes out of the run, which is then not over and counts as never done."""
    run = Run("decay", root, iter([Piece("a", failing(Stopping()))]))
    with pytest.raises(Stopping):
        run.step(log)
    assert not run.is_over
    assert not run.failures


def test_pieces_that_cannot_be_told_end_the_run_as_a_failure(root: Root, log: FilteringBoundLogger) -> None:
    def pieces() -> Iterator[Piece]:
        yield Piece("a", lambda: done("a"))
        raise OSError(5, "Input/output error")

    run = Run("decay", root, pieces())
    while not run.is_over:
        run.step(log)
    assert run.error == "[Errno 5] Input/output error"
    assert not run.is_whole


# Jobs


def test_a_job_asked_for_many_times_while_it_runs_runs_once_more(memory: Memory, root: Root, maintenance: Maintenance) -> None:
    """Five requests during a run of three sessions are one further run."""
    for name in ("a", "b", "c"):
        memory.create_session(id=name)
    scan(root)
    maintenance.ask_for("archive", [root])
    maintenance.work()
    for _ in range(5):
        maintenance.ask_for("archive", [root])
    assert finish(maintenance) == 4 + 5  # each run begins with a look at the clock, and ends with a step that finds nothing left
    assert root.jobs["archive"].did == {"sessions": 3}


def test_a_locked_session_is_a_failure_of_its_own_and_the_run_still_counts(
    memory: Memory, root: Root, maintenance: Maintenance
) -> None:
    """Somebody holds a file of one session: the others are done, so is the run, and the error says who has it."""
    for name in ("a", "b", "c"):
        memory.create_session(id=name).record_decision("D", made_by="x", timestamp="2020-01-01T00:00:00Z")
    scan(root)
    with lock(memory.tree, "b", DECISION.file, NO_PATIENCE, "testing"):
        maintenance.ask_for("decay", [root])
        finish(maintenance)
    decay = root.jobs["decay"]
    assert decay.last_success is not None
    assert decay.last_error is not None
    assert decay.last_error.startswith("1 of 4 sessions: b: ")
    assert "testing" in decay.last_error
    maintenance.ask_for("decay", [root])
    finish(maintenance)
    assert decay.last_error is None


@pytest.mark.parametrize("name", ["archive", "purge", "compaction"])
def test_nothing_is_taken_out_of_a_tree_that_is_not_as_it_was(
    memory: Memory, root: Root, maintenance: Maintenance, name: str
) -> None:
    """While most sessions have disappeared, and while the root itself has: skipped, with the reason, and not counted as done."""
    fill(memory, root, 0.97, "a")
    root.problems["vanished"] = "3 of 4 sessions have disappeared at once"
    if name == "compaction":
        maintenance.note(root, "a")
        assert finish(maintenance) == 1
    else:
        maintenance.ask_for(name, [root])
        finish(maintenance)
        assert root.jobs[name].did == {"skipped": "the tree is not as it was"}
    assert root.jobs[name].last_success is None
    (memory.root / ".smp/root.json").unlink()
    maintenance.ask_for("decay", [root])
    finish(maintenance)
    assert "is missing, unmounted" in root.jobs["decay"].did["skipped"]


# Too full


def fill(memory: Memory, root: Root, share: float, session: str = "full") -> None:
    """Makes a session so full, with what is in it now included."""
    if not (memory.root / f"active/{session}").exists():
        memory.create_session(id=session, quota_bytes=QUOTA)
    path = memory.root / f"active/{session}/filler.md"
    path.unlink(missing_ok=True)
    path.write_text("x" * (round(share * QUOTA) - memory.session(session).size().total_bytes))
    scan(root)


@pytest.mark.parametrize(("share", "level"), [(0.79, LEFT_ALONE), (0.80, GENTLE), (0.94, GENTLE), (0.95, FORCED), (1.2, FORCED)])
def test_how_much_must_go_depends_on_how_full_it_is(memory: Memory, root: Root, share: float, level: int) -> None:
    fill(memory, root, share)
    found = Fullness().fill(root, "full")
    assert found is not None
    assert (found.level, found.quota_bytes) == (level, QUOTA)
    if level:
        assert found.reduction_pct == {GENTLE: 10, FORCED: 20}[level]


def test_a_session_that_could_not_be_made_smaller_is_left_alone_for_a_while(memory: Memory, root: Root) -> None:
    """It is due again when it has grown by 1 %, or reached 95 %, but not for each write; and when it is smaller nothing is kept."""
    fullness = Fullness()
    fill(memory, root, 0.85)
    assert fullness.is_due(root, "full")
    assert fullness.is_due(root, "full")
    fullness.note(root, "full", fullness.fill(root, "full"), "all of it must stay")
    assert not root.problems
    fill(memory, root, 0.855)
    assert not fullness.is_due(root, "full")
    fill(memory, root, 0.87)
    assert fullness.is_due(root, "full")
    fill(memory, root, 0.945)
    fullness.note(root, "full", fullness.fill(root, "full"), "all of it must stay")
    fill(memory, root, 0.951)
    assert fullness.is_due(root, "full")
    fill(memory, root, 0.5)
    assert not fullness.is_due(root, "full")
    fill(memory, root, 0.85)
    assert fullness.is_due(root, "full")


def test_status_says_that_a_session_is_full_until_it_is_smaller_or_gone(memory: Memory, root: Root) -> None:
    fullness = Fullness()
    fill(memory, root, 0.97)
    fullness.note(root, "full", fullness.fill(root, "full"), "all of it must stay.")
    assert list(root.problems.values()) == [
        "Session full is 97 % full and could not be compacted: all of it must stay; archive it or raise its quota."
    ]
    assert not fullness.is_due(root, "full")
    assert root.problems
    fill(memory, root, 0.90)
    fullness.is_due(root, "full")
    assert not root.problems
    fill(memory, root, 0.97)
    fullness.note(root, "full", fullness.fill(root, "full"), "all of it must stay")
    fullness.forget_others(root, {"another"})
    assert not root.problems


def test_one_that_switches_compaction_off_is_never_due_but_status_says_that_it_is_full(memory: Memory, root: Root) -> None:
    fill(memory, root, 0.5)
    memory.session("full").update_metadata(compaction_config={"auto_compact": False})
    fill(memory, root, 0.99)
    assert not Fullness().is_due(root, "full")
    assert "switched off" in root.problems["fullness of full"]


def test_a_session_that_will_be_full_within_a_day_is_due_before_it_is(memory: Memory, root: Root) -> None:
    """30 % were written today and 40 % before: at that rate it is full tomorrow. With half of that written today it is not, and
    neither is it where looking ahead is switched off."""
    session = memory.create_session(id="full", quota_bytes=QUOTA)
    session.add_turn("user", "x" * (QUOTA * 3 // 10))
    fill(memory, root, 0.71)
    fullness = Fullness()
    assert fullness.is_due(root, "full", ahead=True)
    assert not fullness.is_due(root, "full")
    fill(memory, root, 0.60)
    assert not fullness.is_due(root, "full", ahead=True)
    fill(memory, root, 0.71)
    root.memory.options = Memory(memory.root, compaction=CompactionPolicy(predict_days=0)).options
    assert not fullness.is_due(root, "full", ahead=True)
