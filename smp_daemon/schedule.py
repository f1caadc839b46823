"""What runs by the clock. APScheduler only says when; it executes nothing but putting a name into the worker's queue.

It forgets everything at a restart, so when each job last succeeded is kept in `.smp/jobs.json`, and one that was missed while
the machine was off runs once at the start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from smp_client import Memory
from smp_client.timestamps import parse_time, render_time

JOBS_FILE = ".smp/jobs.json"


class Schedule:
    """`times` gives each job a cron expression or a number of seconds between two runs."""

    def __init__(self, times: Mapping[str, str | float], ask_for: Callable[[str], None]) -> None:
        self._triggers = {name: _trigger(when) for name, when in times.items()}
        self._ask_for = ask_for
        # A run that is late is still wanted, however late; several late ones are one.
        self._scheduler = BackgroundScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1}
        )

    def start(self, last_success: Mapping[str, str | None], now: datetime) -> list[str]:
        """Asks at once for what was missed; gives back what that was."""
        missed = [name for name, trigger in self._triggers.items() if _was_missed(trigger, last_success.get(name), now)]
        for name, trigger in self._triggers.items():
            self._scheduler.add_job(self._ask_for, trigger, args=[name], id=name)
        self._scheduler.start()
        for name in missed:
            self._ask_for(name)
        return missed

    def next_runs(self) -> dict[str, str]:
        return {job.id: render_time(job.next_run_time) for job in self._scheduler.get_jobs() if job.next_run_time}

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)


def load_successes(memory: Memory) -> dict[str, str | None]:
    try:
        known = json.loads(memory.tree.read(JOBS_FILE))
    except (FileNotFoundError, ValueError):
        return {}
    return {str(name): str(when) for name, when in known.items()} if isinstance(known, dict) else {}


def save_successes(memory: Memory, successes: Mapping[str, str | None]) -> None:
    memory.tree.replace_derived(JOBS_FILE, json.dumps({name: when for name, when in successes.items() if when}).encode())


def _trigger(when: str | float) -> BaseTrigger:
    if isinstance(when, str):
        return CronTrigger.from_crontab(when, timezone=UTC)
    return IntervalTrigger(seconds=max(1, round(when)), timezone=UTC)


def _was_missed(trigger: BaseTrigger, last_success: str | None, now: datetime) -> bool:
    """Whether the job should have run since it last succeeded. A time in the future tells nothing: the clock was wrong."""
    if last_success is None:
        return False
    try:
        last = parse_time(last_success)
    except ValueError:
        return False
    if last > now:
        return False
    due = last + trigger.interval if isinstance(trigger, IntervalTrigger) else trigger.get_next_fire_time(None, last)
    return due is not None and bool(due <= now)
