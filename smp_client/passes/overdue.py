"""How long deleted bundles have been seen overdue, in time that was really lived through.

A clock that leaps makes deadlines pass that have not. So nothing is purged before it was seen
overdue twice, with `WAIT_S` of uptime between. Uptime is counted by a clock that nobody can set and
that runs while the machine sleeps. It adds up over restarts; time in which the machine was off does
not count.

The ledger is `.smp/overdue.json`. It is derived: losing it only delays.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..model.errors import StorageFailed

if TYPE_CHECKING:
    from ..disk.scopes import Place

FILE = ".smp/overdue.json"
WAIT_S = 6 * 86_400.0


@dataclass(frozen=True)
class Ledger:
    """The uptime until the last look, and at which uptime each bundle was first seen overdue."""

    uptime_s: float = 0.0
    running_s: float = 0.0  # of the machine, at the last look
    first: Mapping[str, float] = field(default_factory=dict)

    def waited_s(self, key: str) -> float:
        """Return the uptime since a bundle was first seen overdue; 0 where it never was."""
        return self.uptime_s - self.first.get(key, self.uptime_s)

    def seen(self, running_s: float, keys: Iterable[str]) -> Ledger:
        """Return the ledger after one more look, which saw exactly these overdue."""
        # A machine that was started anew has run since then at least; more is not known.
        passed_s = running_s - self.running_s if running_s >= self.running_s else running_s
        uptime_s = self.uptime_s + passed_s
        return Ledger(uptime_s, running_s, {key: self.first.get(key, uptime_s) for key in keys})


def look(memory: Place, keys: Iterable[str], *, dry_run: bool = False) -> Ledger:
    """Note that these bundles are overdue now, and no others. Return the ledger."""
    ledger = load(memory).seen(running_s(), keys)
    if not dry_run:
        try:
            memory.tree.replace_derived(FILE, json.dumps(asdict(ledger), indent=1).encode())
        except OSError as error:
            raise StorageFailed(f"{FILE} could not be written: {error}.") from error
    return ledger


def load(memory: Place) -> Ledger:
    """Return the ledger; an empty one where the file is missing, or makes no sense."""
    try:
        said: Any = json.loads(memory.tree.read(FILE))
        first = {str(key): float(at) for key, at in said["first"].items()}
        ledger = Ledger(float(said["uptime_s"]), float(said["running_s"]), first)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Ledger()
    # One that was first seen later than now would wait for ever, or not at all.
    is_sound = all(0 <= at <= ledger.uptime_s for at in first.values())
    is_sound = is_sound and 0 <= ledger.uptime_s < math.inf and 0 <= ledger.running_s < math.inf
    return ledger if is_sound else Ledger()


def running_s() -> float:
    """Return the seconds since the machine was started, asleep or not, which nobody can set."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
