"""Time that was really lived through: a clock that leaps makes nothing overdue for long enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from smp_client import Memory
from smp_client.passes import overdue
from smp_client.passes.overdue import DELETED, FILE, IDLE, Ledger, load, look, seen

DAY_S = 86_400.0


def test_uptime_adds_up_over_restarts_and_only_while_the_machine_runs() -> None:
    """A machine that was started anew has run at least since then; more nobody knows."""
    ledger = seen(Ledger(), 1000.0, DELETED, ["a"])
    assert ledger.waited_s(DELETED, "a") == 0
    ledger = seen(ledger, 1000.0 + DAY_S, DELETED, ["a"])
    assert ledger.waited_s(DELETED, "a") == DAY_S
    ledger = seen(ledger, 50.0, DELETED, ["a"])
    assert ledger.waited_s(DELETED, "a") == DAY_S + 50
    ledger = seen(ledger, 50.0 + 2 * DAY_S, DELETED, ["a", "b"])
    assert ledger.waited_s(DELETED, "a") == 3 * DAY_S + 50
    assert ledger.waited_s(DELETED, "b") == 0


def test_what_is_not_overdue_any_more_begins_anew() -> None:
    """As when the clock was set right again. The other sort is not concerned."""
    ledger = seen(seen(Ledger(), 0.0, IDLE, ["s"]), 0.0, DELETED, ["a"])
    ledger = seen(ledger, 5 * DAY_S, DELETED, [])
    ledger = seen(ledger, 6 * DAY_S, DELETED, ["a"])
    assert (ledger.waited_s(DELETED, "a"), ledger.waited_s(IDLE, "s")) == (0, 6 * DAY_S)


def test_what_was_never_seen_has_not_waited() -> None:
    assert Ledger(9 * DAY_S).waited_s(DELETED, "a") == 0


@pytest.mark.parametrize("content", [
    b"", b"[]", b"{}", b"\xff", b'{"version": 2, "uptime_s": 1, "running_s": 1, "first": {}}',
    b'{"version": 1, "uptime_s": 1e999, "running_s": 1, "first": {}}',
    b'{"version": 1, "uptime_s": 1, "running_s": -5, "first": {}}',
    b'{"version": 1, "uptime_s": 1, "running_s": 1, "first": {"deleted": {"a": NaN}}}',
    b'{"version": 1, "uptime_s": 1, "running_s": 1, "first": {"deleted": ["a"]}}',
])  # fmt: skip
def test_a_ledger_that_is_lost_or_makes_no_sense_only_delays(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    memory.create()
    monkeypatch.setattr(overdue, "running_s", lambda: 100.0)
    look(memory, DELETED, ["a"])
    monkeypatch.setattr(overdue, "running_s", lambda: 100.0 + 7 * DAY_S)
    assert look(memory, DELETED, ["a"], dry_run=True).waited_s(DELETED, "a") == 7 * DAY_S
    assert load(memory).waited_s(DELETED, "a") == 0  # for show nothing is written down
    Path(memory.root / FILE).write_bytes(content)
    assert load(memory) == Ledger()
    assert look(memory, DELETED, ["a"]).waited_s(DELETED, "a") == 0
