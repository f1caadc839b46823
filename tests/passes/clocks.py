"""Clocks that tests set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from smp_client.passes import purge

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **time: float) -> None:
        self.now += timedelta(**time)


class Wall(Clock):
    """The clock on the wall, which anybody sets, beside the machine's own, which nobody can set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now: datetime = NOON) -> None:
        super().__init__(now)
        self.running_s = 1000.0
        monkeypatch.setattr(purge, "running_s", lambda: self.running_s)

    def leap(self, days: float) -> None:
        self.forward(days=days)

    def live(self, days: float) -> None:
        self.leap(days)
        self.running_s += days * 86_400
