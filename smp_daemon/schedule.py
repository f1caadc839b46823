"""The schedule: which jobs are due. The time is an argument, so the caller owns the clock.

`.smp/jobs.json` keeps the last success of each job. A job that was missed while the machine was
off is due once, at the start. Of APScheduler only the cron expressions are used: its scheduler
forgets everything at a restart, and believes a clock that leaps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from apscheduler.triggers.cron import CronTrigger

from smp_client import Memory, SMPError
from smp_client.model.times import parse_time, render_time

JOBS_FILE = ".smp/jobs.json"
KNOWN_SINCE = "known_since"  # beside the jobs: when a daemon first looked after the tree


def cron_trigger(expression: str) -> CronTrigger:
    """Return the trigger of a cron expression in UTC; ValueError says what is wrong with it."""
    trigger = CronTrigger.from_crontab(expression, timezone=UTC)
    if any(map(str.isdigit, expression.split()[4])):
        # Programs disagree on whether 0 is Sunday or Monday.
        raise ValueError("the day of the week must be a name, such as sun")
    return trigger


class Schedule:
    """`times` has a cron expression, or the seconds between two runs, for each job."""

    def __init__(
        self, times: Mapping[str, str | float], successes: Mapping[str, str | None], now: datetime
    ) -> None:
        self._triggers = {
            name: cron_trigger(when) if isinstance(when, str) else timedelta(seconds=max(1, when))
            for name, when in times.items()
        }
        self._next = {name: self._first(name, successes.get(name), now) for name in times}

    def due(self, now: datetime) -> list[str]:
        """Return the jobs that are due. Runs that were missed meanwhile are one. Call it often."""
        due = []
        for name, when in self._next.items():
            if when is None:  # it never comes true
                continue
            soonest = self._after(name, now)
            if when <= now:
                due.append(name)
                self._next[name] = soonest
            else:
                # Sooner, where the clock was set back.
                self._next[name] = min(when, soonest or when)
        return due

    def next_runs(self) -> dict[str, str]:
        return {name: render_time(when) for name, when in self._next.items() if when}

    def _first(self, name: str, last_success: str | None, now: datetime) -> datetime | None:
        """Return the first time: now for a job without a success, else it might never run."""
        try:
            return self._after(name, min(now, parse_time(last_success or "")))
        except (ValueError, OverflowError):
            return now

    def _after(self, name: str, time: datetime) -> datetime | None:
        trigger = self._triggers[name]
        if isinstance(trigger, timedelta):
            return time + trigger
        found: datetime | None = trigger.get_next_fire_time(time, time)
        return found


def load_successes(memory: Memory) -> dict[str, str | None]:
    try:
        known = json.loads(memory.tree.read(JOBS_FILE))
    except (OSError, SMPError, ValueError, RecursionError):
        return {}
    return {str(name): str(when) for name, when in known.items()} if isinstance(known, dict) else {}


def save_successes(memory: Memory, successes: Mapping[str, str | None]) -> None:
    known = {name: when for name, when in successes.items() if when}
    memory.tree.replace(JOBS_FILE, json.dumps(known).encode(), durable=False)
