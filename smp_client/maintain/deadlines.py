"""Deadlines that were really waited for: a clock that jumped must not make anything be purged early.

The daemon looks at what is deleted about once an hour, and adds up how much time has really passed for each: no more than the clock
says that nobody can set. What was watched for as long as it could still be restored may be purged after its deadline. What was
overdue when it was first seen must be seen so for a week of running time. While the machine is off nothing is watched: up to a
few days of that are believed, and after a longer time all begins anew, as if seen for the first time.
Sessions do not age by a leap of the clock either: `lived` says how much time has really passed.

All of it is in `.smp/deadlines.json`; losing the file only delays a purge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..layout import MARKER
from ..timestamps import parse_time, render_time
from .doomed import Doomed, all_doomed

if TYPE_CHECKING:
    from ..place import Place

FILE = ".smp/deadlines.json"
OVERDUE_S = 7 * 86_400.0  # how long something must be seen overdue that nobody saw coming due
OFF_S = 4 * 86_400.0  # for so long a machine may be off without anybody wondering: a long weekend
SLACK_S = 3600.0  # between two observations; and clocks are set right by a little now and then
_VERSION = 1
_LEAPS = 20  # so many are remembered


@dataclass(frozen=True)
class Watch:
    """One thing that is watched."""

    first_at: datetime  # when it was first seen,
    left_s: float  # and how long it could still be restored then; nothing, or less, where it was overdue
    passed_s: float = 0.0  # how much time has passed since, as far as that is sure


@dataclass(frozen=True)
class Leap:
    """Time that the clock says has passed between two looks, and that nobody can say was lived through."""

    until: datetime  # the first time after it that the clock can have shown
    seconds: float


@dataclass(frozen=True)
class Seen:
    """What was observed until now."""

    at: datetime | None = None
    running_s: float = 0.0
    watches: Mapping[str, Watch] = field(default_factory=dict)
    leaps: tuple[Leap, ...] = ()


@dataclass(frozen=True)
class Interval:
    """The time between two observations."""

    ran_s: float  # that the machine has run
    passed_s: float  # that has passed, where time when the machine was off is believed
    is_known: bool  # whether the machine ran all the time
    leapt_s: float  # by how much the clock on the wall says more

    @property
    def is_doubtful(self) -> bool:
        """Nobody can say whether the machine was off for so long, or its clock is wrong."""
        return not self.is_known and self.leapt_s > OFF_S


def observed(seen: Seen, doomed: list[Doomed], now: datetime, running_s: float) -> Seen:
    """What is known after one more look."""
    interval = _interval(seen, now, running_s)
    watches: dict[str, Watch] = {}
    for one in doomed:
        watch = seen.watches.get(one.key)
        if watch is None or interval is None or interval.is_doubtful:
            watches[one.key] = _first(one, seen, interval, now)
        elif watch.first_at > now:
            # The clock was set back. It may have been wrong then, or be so now: whatever waits longer.
            watches[one.key] = max(_first(one, seen, interval, now), replace(watch, first_at=now), key=_still_s)
        else:
            more_s = interval.passed_s if watch.left_s > 0 else interval.ran_s
            watches[one.key] = Watch(watch.first_at, watch.left_s, watch.passed_s + more_s)
    return Seen(now, running_s, watches, _leaps(seen, now, running_s))


def lived(seen: Seen, since: datetime, now: datetime, running_s: float) -> timedelta:
    """Return how much time has really passed since then: what the clock says, less every leap of it."""
    leapt_s = sum(leap.seconds for leap in _leaps(seen, now, running_s) if since < leap.until)
    return max(now - since - timedelta(seconds=leapt_s), timedelta())


def _leaps(seen: Seen, now: datetime, running_s: float) -> tuple[Leap, ...]:
    """Return the leaps until now. One that ends in the future was taken back when the clock was set right."""
    interval = _interval(seen, now, running_s)
    new = []
    if interval and interval.leapt_s > (SLACK_S if interval.is_known else OFF_S):
        new = [Leap(now - timedelta(seconds=interval.ran_s), interval.leapt_s)]
    return tuple(leap for leap in (*seen.leaps, *new) if leap.until <= now)[-_LEAPS:]


def _interval(seen: Seen, now: datetime, running_s: float) -> Interval | None:
    if seen.at is None:
        return None
    wall_s, ran_s = (now - seen.at).total_seconds(), running_s - seen.running_s
    if ran_s >= 0:
        sure_s = max(0.0, min(wall_s, ran_s))
        return Interval(sure_s, sure_s, True, max(0.0, wall_s - ran_s))
    # The machine was started anew.
    leapt_s = max(0.0, wall_s - running_s)
    return Interval(max(0.0, min(wall_s, running_s)), max(0.0, wall_s), False, leapt_s)


def _first(one: Doomed, seen: Seen, interval: Interval | None, now: datetime) -> Watch:
    deleted_at = _time_of(one.deleted_at)
    if deleted_at and seen.at and seen.at <= deleted_at <= now and interval is not None and interval.is_known:
        # Deleted since the last look: it is known how long it was to be kept, and how much of that can have passed.
        since_s = min((now - deleted_at).total_seconds() - interval.leapt_s, interval.ran_s)
        return Watch(now, (one.deadline - deleted_at).total_seconds(), max(0.0, since_s))
    return Watch(now, (one.deadline - now).total_seconds())


def _still_s(watch: Watch) -> float:
    return (watch.left_s if watch.left_s > 0 else OVERDUE_S) - watch.passed_s


def _time_of(stamp: str) -> datetime | None:
    try:
        return parse_time(stamp)
    except (ValueError, OverflowError):
        return None


def verdict(seen: Seen, one: Doomed, now: datetime) -> tuple[bool, str]:
    """Whether its time is over, and why or why not."""
    until = render_time(one.deadline)
    if now < one.deadline:
        return False, f"it can be restored until {until}"
    watch = seen.watches.get(one.key)
    if watch is None or watch.first_at > now:
        return False, f"its deadline was {until}, but no daemon has watched it come"
    if watch.left_s > 0:
        if watch.passed_s + SLACK_S >= watch.left_s:
            return True, f"it could be restored until {until}, and that was waited for"
        still = _days(watch.left_s - watch.passed_s)
        return False, f"its deadline was {until} by a clock that has jumped: {still} of its time have not really passed yet"
    if watch.passed_s >= OVERDUE_S:
        return True, f"it could be restored until {until}, and has been overdue for {_days(watch.passed_s)}"
    still = _days(OVERDUE_S - watch.passed_s)
    return False, f"it was overdue, since {until}, when a daemon first saw it: it is kept for {still} of running time more"


def _days(seconds: float) -> str:
    return f"{max(0.0, seconds) / 86_400:.1f} days"


def observe(memory: Place, now: datetime, running_s: float) -> None:
    """Looks once more. `running_s` is of a clock that runs while the machine sleeps and that nobody can set."""
    if not memory.tree.exists(MARKER):
        return
    seen = observed(load(memory), all_doomed(memory)[0], now, running_s)
    watches = {key: [render_time(watch.first_at), watch.left_s, watch.passed_s] for key, watch in seen.watches.items()}
    leaps = [[render_time(leap.until), leap.seconds] for leap in seen.leaps]
    content = {"version": _VERSION, "at": render_time(now), "running_s": running_s, "watches": watches, "leaps": leaps}
    memory.tree.replace_derived(FILE, json.dumps(content, indent=1).encode() + b"\n")


def load(memory: Place) -> Seen:
    """What was observed; nothing where the file is missing, or makes no sense."""
    try:
        said: Any = json.loads(memory.tree.read(FILE))
        if said["version"] != _VERSION:
            return Seen()
        watches = {str(key): Watch(parse_time(at), float(left_s), float(passed_s))
                   for key, (at, left_s, passed_s) in said["watches"].items()}  # fmt: skip
        leaps = tuple(Leap(parse_time(until), float(seconds)) for until, seconds in said.get("leaps", []))
        return Seen(parse_time(said["at"]), float(said["running_s"]), watches, leaps)
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return Seen()
