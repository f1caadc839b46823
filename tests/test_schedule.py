"""What runs by the clock: what was missed runs once, and a clock that leaps makes nothing spin, hang or stay undone."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apscheduler.schedulers.base
import pytest
from daemons import Daemon, running, settings_file, smp, status, wait_until

from smp_client import Memory
from smp_client.model.times import now as real_now
from smp_client.model.times import parse_time, render_time
from smp_daemon.schedule import JOBS_FILE, Schedule, load_successes, save_successes

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
TIMES: dict[str, str | float] = {"scan": 3600.0, "rebuild": "0 3 * * *"}
UPKEEP: dict[str, str | float] = {"decay": "0 */6 * * *", "lifecycle": 600.0, "archive": "0 4 * * *", "purge": "0 5 * * sun"}
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


class Clock:
    """The one that APScheduler reads, and the asker that it calls."""

    def __init__(self) -> None:
        self.time = NOON
        self.asked: Counter[str] = Counter()
        self.read = 0

    def ask_for(self, job: str) -> None:
        self.asked[job] += 1

    def now(self, _zone: object = None) -> datetime:
        self.read += 1
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    class Datetime(datetime):
        now = clock.now  # type: ignore[assignment]

    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Datetime)
    return clock


@pytest.fixture
def started(clock: Clock) -> Iterator[Callable[..., Schedule]]:
    made: list[Schedule] = []

    def start(times: dict[str, str | float] = TIMES, **last_success: str | None) -> Schedule:
        made.append(Schedule(times, clock.ask_for))
        known = dict.fromkeys(times, render_time(clock.time)) | last_success
        made[-1].start(known, clock.time)
        return made[-1]

    yield start
    for schedule in made:
        schedule.stop()


def ago(time: timedelta) -> str:
    return render_time(NOON - time)


@pytest.mark.parametrize(
    ("last_success", "missed"),
    [
        ({"scan": ago(HOUR / 2), "rebuild": ago(9 * HOUR)}, []),
        ({"scan": ago(HOUR / 2), "rebuild": ago(9 * HOUR + HOUR / 60)}, ["rebuild"]),
        ({"scan": ago(2 * HOUR), "rebuild": ago(30 * DAY)}, ["scan", "rebuild"]),
        ({"scan": ago(400 * DAY), "rebuild": ago(400 * DAY)}, ["scan", "rebuild"]),
        ({"scan": ago(-2 * DAY), "rebuild": ago(-400 * DAY)}, []),
        ({"scan": "9999-12-31T23:59:59Z", "rebuild": "0001-01-01T00:00:00Z"}, ["rebuild"]),
        ({"scan": "0001-01-01T00:00:00+23:00", "rebuild": "yesterday"}, ["scan", "rebuild"]),
        ({"scan": None}, ["scan", "rebuild"]),
        ({}, ["scan", "rebuild"]),
    ],
)
def test_what_was_missed_while_off_is_asked_for_once(clock: Clock, last_success: dict[str, str | None], missed: list[str]) -> None:
    """However often it was missed; not where the time of the last success is in the future, which only a wrong clock can have
    said. Of what nothing is known it is asked for too: `rebuild` never ran on a machine that is off at three in the morning,
    because it had never succeeded, and so nothing counted as missed (by reading; no broken variant was run)."""
    schedule = Schedule(TIMES, clock.ask_for)
    try:
        assert schedule.start(last_success, NOON) == missed
        assert clock.asked == Counter(missed)
    finally:
        schedule.stop()


@pytest.mark.parametrize("times", [TIMES, {"scan": 1.0, "rebuild": "* * * * *"}, UPKEEP], ids=["usual", "often", "upkeep"])
def test_400_days_forward_ask_for_each_job_once(
    clock: Clock, started: Callable[..., Schedule], times: dict[str, str | float]
) -> None:
    """The clock leaps while the daemon runs: each job is asked for once and without counting the runs between.

    Not run against a broken variant yet. APScheduler's own triggers list every run between, 34,560,000 for the job of every second,
    and without the wakeup in `follow` it sleeps on, by the monotonic clock."""
    schedule = started(times)
    clock.time += 400 * DAY
    schedule.follow(clock.time)
    wait_until(lambda: len(clock.asked) == len(times), "all are asked for")
    schedule.follow(clock.time)
    assert clock.asked == dict.fromkeys(times, 1)
    assert all(parse_time(due) > clock.time for due in schedule.next_runs().values())


def test_two_days_back_delay_nothing_by_two_days(clock: Clock, started: Callable[..., Schedule]) -> None:
    """The clock goes back while the daemon runs: nothing runs for that, and the next run of each job is as far away as ever.

    Not run against a broken variant yet. Without `follow` the hourly scan would be next due in 49 hours."""
    schedule = started()
    clock.time -= 2 * DAY
    schedule.follow(clock.time)
    due = {name: parse_time(when) - clock.time for name, when in schedule.next_runs().items()}
    assert due == {"scan": HOUR, "rebuild": 15 * HOUR}
    assert not clock.asked
    clock.time += HOUR
    schedule.follow(clock.time)
    wait_until(lambda: clock.asked, "the scan is asked for")
    assert clock.asked == {"scan": 1}


def test_two_days_back_delay_no_job_of_the_sessions(clock: Clock, started: Callable[..., Schedule]) -> None:
    """Monday noon becomes Saturday noon: nothing runs for that, each job is due at its next time from there.

    Seen to fail without `follow`: the look at the sessions, of every ten minutes, was due in 48 hours, and so on."""
    schedule = started(UPKEEP)
    clock.time -= 2 * DAY
    schedule.follow(clock.time)
    due = {name: parse_time(when) - clock.time for name, when in schedule.next_runs().items()}
    assert due == {"decay": 6 * HOUR, "lifecycle": HOUR / 6, "archive": 16 * HOUR, "purge": 17 * HOUR}
    assert not clock.asked


def test_following_a_clock_that_just_runs_changes_nothing(clock: Clock, started: Callable[..., Schedule]) -> None:
    """1,000 looks within a minute: the next runs stay as they are, and the scheduler is not woken for each."""
    schedule = started()
    before = schedule.next_runs()
    read = clock.read
    for _ in range(1_000):
        clock.time += timedelta(milliseconds=60)
        schedule.follow(clock.time)
    assert schedule.next_runs() == before
    assert clock.read - read < 10
    assert not clock.asked


def test_a_cron_expression_that_never_comes_true_harms_nothing(clock: Clock, started: Callable[..., Schedule]) -> None:
    """30 February: it has no next run, and the other job goes on."""
    schedule = started({"never": "0 0 30 2 *", "scan": 60.0})
    schedule.follow(clock.time)
    assert list(schedule.next_runs()) == ["scan"]


def test_jobs_are_asked_for_again_and_again(started: Callable[..., Schedule], clock: Clock) -> None:
    """Each minute of a fake hour, by the real scheduler: sixty times, neither more nor less."""
    schedule = started({"often": 60.0})
    for number in range(1, 61):
        clock.time += timedelta(seconds=60, milliseconds=1)
        schedule.follow(clock.time)
        wait_until(lambda wanted=number: clock.asked["often"] >= wanted, "it is asked for")
        wait_until(lambda: parse_time(schedule.next_runs()["often"]) > clock.time, "it has a next run")
    assert clock.asked == {"often": 60}


@pytest.mark.parametrize(
    "garbage",
    [b"", b"{", b"null", b"[1, 2]", b'"scan"', b'{"scan": [1], "rebuild": {"a": null}}', b"\xff\xfe", b"[" * 100_000, b"\0" * 4096],
)
def test_garbage_in_the_file_of_successes_is_as_nothing(memory: Memory, clock: Clock, garbage: bytes) -> None:
    """It is read without an exception, both jobs run once, and the next success is written over it."""
    memory.create()
    (memory.root / JOBS_FILE).write_bytes(garbage)
    schedule = Schedule(TIMES, clock.ask_for)
    try:
        assert schedule.start(load_successes(memory), NOON) == ["scan", "rebuild"]
    finally:
        schedule.stop()
    save_successes(memory, {"scan": ago(HOUR), "rebuild": None})
    assert load_successes(memory) == {"scan": ago(HOUR)}


def test_a_directory_or_link_in_place_of_the_file_of_successes(memory: Memory, tmp_path: Path) -> None:
    memory.create()
    (memory.root / JOBS_FILE).symlink_to(tmp_path / "elsewhere")
    assert load_successes(memory) == {}
    (memory.root / JOBS_FILE).unlink()
    (memory.root / JOBS_FILE).mkdir()
    assert load_successes(memory) == {}


def test_stopping_ends_the_thread(started: Callable[..., Schedule]) -> None:
    before = threading.active_count()
    schedule = started()
    schedule.stop()
    schedule.stop()
    wait_until(lambda: threading.active_count() <= before, "its thread has ended")


# The same with a real daemon.


def jobs(memory: Memory) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((memory.root / JOBS_FILE).read_text())
    return found


def caught_up(daemon: Daemon) -> list[str]:
    """Which of the jobs of the index were; a first start catches up all that it knows nothing of."""
    return [line["job"] for line in daemon.said("catching up") if line["job"] in TIMES]


def test_a_daemon_keeps_the_successes_of_the_one_before(memory: Memory, tmp_path: Path) -> None:
    """A rebuild is remembered over a kill and a restart, in which none is caught up.

    No broken variant was run. By reading: the scan at the start used to write the file anew with only its own success."""
    memory.create_session(id="s").record_decision("D", made_by="a")
    with running(memory.root, log=tmp_path / "log"):
        smp("reindex", "--root", memory.root)
        rebuilt = wait_until(lambda: jobs(memory).get("rebuild"), "the rebuild is written down")
    with running(memory.root, log=tmp_path / "log") as daemon:
        assert jobs(memory)["rebuild"] == rebuilt
        assert wait_until(lambda: status(memory.root)["jobs"].get("rebuild"), "it says so")["last_success"] == rebuilt
        assert not caught_up(daemon)
        assert jobs(memory)["scan"] > rebuilt


def test_a_daemon_that_was_off_at_night_rebuilds_at_the_start_once(memory: Memory, tmp_path: Path) -> None:
    """Three days off, then two starts: the first one rebuilds, the second does not."""
    memory.create_session(id="s").record_decision("D", made_by="a")
    smp("sync", "--root", memory.root)
    save_successes(memory, {"rebuild": render_time(real_now() - 3 * DAY)})
    with running(memory.root, log=tmp_path / "first") as daemon:
        wait_until(lambda: daemon.said("rebuild"), "it is rebuilt")
        assert caught_up(daemon) == ["rebuild"]
        wait_until(lambda: parse_time(jobs(memory)["rebuild"]) > real_now() - HOUR, "that is written down")
    with running(memory.root, log=tmp_path / "second") as daemon:
        assert not caught_up(daemon)


def test_a_daemon_whose_clock_was_ahead_starts_and_does_not_catch_up(memory: Memory, tmp_path: Path) -> None:
    """All successes lie two days in the future: it is ready, runs nothing for that, and stops when told."""
    memory.create_session(id="s")
    smp("sync", "--root", memory.root)
    ahead = render_time(real_now() + 2 * DAY)
    known = ("scan", "rebuild", "tidy", "decay", "lifecycle", "archive", "purge")
    save_successes(memory, dict.fromkeys(known, ahead))
    with running(memory.root, log=tmp_path / "log", config=settings_file(tmp_path, scan={"every_s": 3600})) as daemon:
        assert not daemon.said("catching up")
        assert status(memory.root)["health"] in ("ok", "degraded")
        assert daemon.stop() == 0


def test_the_first_start_does_not_index_everything_twice(memory: Memory, tmp_path: Path) -> None:
    """A scan into an empty index is a rebuild, and is written down as one."""
    memory.create_session(id="s").record_decision("D", made_by="a")
    daemon = Daemon([memory.root], tmp_path / "log")
    try:
        daemon.wait_ready()
        assert not caught_up(daemon)
        assert jobs(memory).keys() >= {"scan", "rebuild"}
    finally:
        daemon.kill()
