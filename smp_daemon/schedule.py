"""What runs by the clock. APScheduler only says when; it executes nothing but putting a name into the worker's queue.

It forgets everything at a restart, so when each job last succeeded is kept in `.smp/jobs.json`, and one that was missed while
the machine was off runs once at the start. It also believes the clock: left alone it counts every run that a leap forward skips,
sleeps through one, and after a leap back waits until the clock is there again; `follow` is for that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger

from smp_client import Memory, SMPError
from smp_client.timestamps import parse_time, render_time

JOBS_FILE = ".smp/jobs.json"
KNOWN_SINCE = "known_since"  # beside the jobs: when a daemon first looked after this root


class Schedule:
    """`times` gives each job a cron expression or a number of seconds between two runs."""

    def __init__(self, times: Mapping[str, str | float], ask_for: Callable[[str], None]) -> None:
        self._triggers = {name: _Trigger(when) for name, when in times.items()}
        self._ask_for = ask_for
        # A run that is late is still wanted, however late; several late ones are one.
        self._scheduler = BackgroundScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1}
        )

    def start(self, last_success: Mapping[str, str | None], now: datetime) -> list[str]:
        """Asks at once for what was missed; gives back what that was."""
        missed = [name for name, trigger in self._triggers.items() if _was_missed(trigger, last_success.get(name), now)]
        for name, trigger in self._triggers.items():
            self._scheduler.add_job(self._ask_for, trigger, args=[name], id=name, next_run_time=trigger.after(now))
        self._scheduler.start()
        for name in missed:
            self._ask_for(name)
        return missed

    def follow(self, now: datetime) -> None:
        """For a clock that may have been set, and a machine that may have slept: call it often, it costs nearly nothing."""
        for job in self._scheduler.get_jobs():
            soonest = self._triggers[job.id].after(now)
            if soonest is None or job.next_run_time is None:
                continue
            if job.next_run_time > soonest:
                job.modify(next_run_time=soonest)
            elif job.next_run_time <= now:
                self._scheduler.wakeup()

    def next_runs(self) -> dict[str, str]:
        return {job.id: render_time(job.next_run_time) for job in self._scheduler.get_jobs() if job.next_run_time}

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)


def load_successes(memory: Memory) -> dict[str, str | None]:
    try:
        known = json.loads(memory.tree.read(JOBS_FILE))
    except (OSError, SMPError, ValueError, RecursionError):
        return {}
    return {str(name): str(when) for name, when in known.items()} if isinstance(known, dict) else {}


def save_successes(memory: Memory, successes: Mapping[str, str | None]) -> None:
    memory.tree.replace_derived(JOBS_FILE, json.dumps({name: when for name, when in successes.items() if when}).encode())


class _Trigger(BaseTrigger):  # type: ignore[misc]
    """Every so many seconds, or by a cron expression. The next time is always after now, so that all that was missed is one run."""

    def __init__(self, when: str | float) -> None:
        self._cron = CronTrigger.from_crontab(when, timezone=UTC) if isinstance(when, str) else None
        self._every = timedelta(seconds=1 if isinstance(when, str) else max(1, round(when)))

    def get_next_fire_time(self, _previous: datetime | None, now: datetime) -> datetime | None:
        return self.after(now)

    def after(self, time: datetime) -> datetime | None:
        if self._cron is None:
            return time + self._every
        found: datetime | None = self._cron.get_next_fire_time(time, time)
        return found


def _was_missed(trigger: _Trigger, last_success: str | None, now: datetime) -> bool:
    """Whether the job should have run since it last succeeded; so it should where nothing is known of that, or it would never run
    on a machine that is off at its time. A time in the future tells nothing: the clock was wrong."""
    try:
        last = parse_time(last_success or "")
    except (ValueError, OverflowError):
        return True
    if last > now:
        return False
    due = trigger.after(last)
    return due is not None and due <= now
