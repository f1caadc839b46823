"""The schedule: which jobs are due. APScheduler only puts a job's name into the worker's queue.

It forgets everything at a restart. So `.smp/jobs.json` keeps the last success of each job, and a
job that was missed while the machine was off runs once at the start. It also believes the clock:
it counts every run that a leap forward skips, and after a leap back it waits. `follow` mends that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger

from smp_client import Memory, SMPError
from smp_client.model.times import parse_time, render_time

JOBS_FILE = ".smp/jobs.json"
KNOWN_SINCE = "known_since"  # beside the jobs: when a daemon first looked after the tree


class Schedule:
    """`times` gives each job a cron expression or a number of seconds between two runs."""

    def __init__(self, times: Mapping[str, str | float], ask_for: Callable[[str], None]) -> None:
        self._triggers = {name: _Trigger(when) for name, when in times.items()}
        self._ask_for = ask_for
        # A run that is late is still wanted, however late; several late ones are one.
        defaults = {"coalesce": True, "misfire_grace_time": None, "max_instances": 1}
        self._scheduler = BackgroundScheduler(timezone=UTC, job_defaults=defaults)

    def start(self, last_success: Mapping[str, str | None], now: datetime) -> list[str]:
        """Start, ask at once for the jobs that were missed, and return their names."""
        missed = []
        for name, trigger in self._triggers.items():
            if _was_missed(trigger, last_success.get(name), now):
                missed.append(name)
            self._scheduler.add_job(
                self._ask_for, trigger, args=[name], id=name, next_run_time=trigger.after(now)
            )
        self._scheduler.start()
        for name in missed:
            self._ask_for(name)
        return missed

    def follow(self, now: datetime) -> None:
        """Adapt to a clock that was set and a machine that slept. It is cheap: call it often."""
        for job in self._scheduler.get_jobs():
            soonest = self._triggers[job.id].after(now)
            if soonest is None or job.next_run_time is None:
                continue
            if job.next_run_time > soonest:
                job.modify(next_run_time=soonest)
            elif job.next_run_time <= now:
                self._scheduler.wakeup()

    def next_runs(self) -> dict[str, str]:
        jobs = self._scheduler.get_jobs()
        return {job.id: render_time(job.next_run_time) for job in jobs if job.next_run_time}

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
    known = {name: when for name, when in successes.items() if when}
    memory.tree.replace_derived(JOBS_FILE, json.dumps(known).encode())


class _Trigger(BaseTrigger):  # type: ignore[misc]
    """Every so many seconds, or by a cron expression. All runs that were missed become one."""

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
    """Return whether the job should have run since it last succeeded.

    A job without a known success was missed: else it would never run on a machine that is off at
    its time. A success in the future says nothing, for the clock was wrong.
    """
    try:
        last = parse_time(last_success or "")
    except (ValueError, OverflowError):
        return True
    if last > now:
        return False
    due = trigger.after(last)
    return due is not None and due <= now
