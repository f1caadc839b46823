"""Jobs by the clock: a missed one runs once, and a leap of the clock makes none spin or wait."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from smp_client import Memory
from smp_client.model.times import parse_time, render_time
from smp_daemon.schedule import JOBS_FILE, Schedule, load_successes, save_successes

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)  # a Monday
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
TIMES: dict[str, str | float] = {"scan": 3600.0, "rebuild": "0 3 * * *"}
UPKEEP: dict[str, str | float] = {
    "decay": "0 */6 * * *", "lifecycle": 600.0, "archive": "0 4 * * *", "purge": "0 5 * * sun",
}  # fmt: skip


def ago(time: timedelta) -> str:
    return render_time(NOON - time)


def started(times: dict[str, str | float] = TIMES) -> Schedule:
    """Return a schedule whose jobs have all just succeeded."""
    return Schedule(times, dict.fromkeys(times, ago(timedelta())), NOON)


@pytest.mark.parametrize(
    ("successes", "missed"),
    [
        ({"scan": ago(HOUR / 2), "rebuild": ago(9 * HOUR)}, []),
        ({"scan": ago(HOUR / 2), "rebuild": ago(9 * HOUR + HOUR / 60)}, ["rebuild"]),
        ({"scan": ago(400 * DAY), "rebuild": ago(400 * DAY)}, ["scan", "rebuild"]),
        ({"scan": ago(-2 * DAY), "rebuild": ago(-400 * DAY)}, []),
        ({"scan": "9999-12-31T23:59:59Z", "rebuild": "0001-01-01T00:00:00Z"}, ["rebuild"]),
        ({"scan": "0001-01-01T00:00:00+23:00", "rebuild": "yesterday"}, ["scan", "rebuild"]),
        ({"scan": None}, ["scan", "rebuild"]),
    ],
)
def test_a_job_that_was_missed_is_due_once(
    successes: dict[str, str | None], missed: list[str]
) -> None:
    """However often it was missed, and where nothing is known."""
    schedule = Schedule(TIMES, successes, NOON)
    assert schedule.due(NOON) == missed
    assert schedule.due(NOON) == []


@pytest.mark.parametrize("times", [TIMES, {"scan": 1.0, "rebuild": "* * * * *"}, UPKEEP])
def test_400_days_forward_make_each_job_due_once(times: dict[str, str | float]) -> None:
    schedule, later = started(times), NOON + 400 * DAY
    assert schedule.due(later) == list(times)
    assert schedule.due(later) == []
    assert all(parse_time(when) > later for when in schedule.next_runs().values())


def test_two_days_back_delay_no_job_by_two_days() -> None:
    """Monday noon becomes Saturday noon: each job is due at its next time from there."""
    schedule, before = started(UPKEEP), NOON - 2 * DAY
    assert schedule.due(before) == []
    due = {name: parse_time(when) - before for name, when in schedule.next_runs().items()}
    assert due == {
        "decay": 6 * HOUR, "lifecycle": HOUR / 6, "archive": 16 * HOUR, "purge": 17 * HOUR,
    }  # fmt: skip


def test_jobs_are_due_again_and_again() -> None:
    """Looked at every second of an hour; an expression that never comes true harms nothing."""
    schedule = started({"often": 60.0, "cron": "*/20 * * * *", "never": "0 0 30 2 *"})
    due: Counter[str] = Counter()
    for second in range(1, 3601):
        due.update(schedule.due(NOON + timedelta(seconds=second)))
    assert due == {"often": 60, "cron": 3}
    assert "never" not in schedule.next_runs()


@pytest.mark.parametrize(
    "garbage",
    [b"", b"[1, 2]", b'{"scan": [1], "rebuild": {"a": null}}', b"\xff\xfe", b"[" * 100_000],
)
def test_garbage_in_the_file_of_successes_is_as_nothing(memory: Memory, garbage: bytes) -> None:
    memory.create()
    (memory.root / JOBS_FILE).write_bytes(garbage)
    assert Schedule(TIMES, load_successes(memory), NOON).due(NOON) == ["scan", "rebuild"]
    save_successes(memory, {"scan": ago(HOUR), "rebuild": None})
    assert load_successes(memory) == {"scan": ago(HOUR)}
