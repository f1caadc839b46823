"""An import that crosses a deletion or a purge of what it brings: what was removed stays away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smp_client import Conflict, Memory

Removal = Callable[[Memory], object]
REMOVALS: dict[str, Removal] = {
    "the session is deleted": lambda memory: memory.delete_session("crossed", reason="asked"),
    "the session is purged": lambda memory: memory.privacy.purge_now("crossed"),
    "the memory is purged": lambda memory: memory.privacy.purge_now("crossed", ["DEC-001"]),
    "the memory is deleted": lambda memory: memory.privacy.delete(
        "crossed", ["DEC-001"], reason="asked"
    ),
}


@pytest.mark.parametrize("removal", REMOVALS.values(), ids=REMOVALS.keys())
def test_what_is_removed_while_an_import_runs_stays_away(removal: Removal, tmp_path: Path) -> None:
    """An old export is read again; after it was begun, and before its session comes, that goes."""
    memory = Memory(tmp_path / "sessions")
    session = memory.create_session(id="crossed")
    session.record_decision("We chose the blue door.", made_by="a")
    session.record_decision("We chose the red door.", made_by="a")
    memory.exchange.export(tmp_path / "old.jsonl")
    steps: list[str] = []

    def advance() -> None:
        steps.append("entry")
        if len(steps) == 1:
            removal(memory)

    outcome = memory.exchange.import_(tmp_path / "old.jsonl", advance=advance)

    assert len(steps) > 2, "it happened before the session came"
    assert outcome.counts["added"] == 0
    assert not [one for one in memory.search("blue door") if "blue" in one.text]
    gone = [one.session for one in memory.deleted_sessions()]
    assert not {"crossed"} & {one.id for one in memory.sessions()} & {*gone}


def test_a_session_is_not_made_where_one_of_its_name_left_meanwhile(tmp_path: Path) -> None:
    """Nobody knows the name when an import comes to it; a session of it leaves before it writes."""
    memory = Memory(tmp_path / "sessions")
    memory.create_session(id="crossed").record_decision("We chose blue.", made_by="a")
    memory.exchange.export(tmp_path / "old.jsonl")
    memory.privacy.purge_now("crossed")
    (tmp_path / "sessions/deleted/purged.yaml").unlink()
    steps: list[str] = []

    def advance() -> None:
        steps.append("entry")
        if len(steps) == 3:
            memory.create_session(id="crossed")
            memory.delete_session("crossed", reason="asked")

    outcome = memory.exchange.import_(tmp_path / "old.jsonl", advance=advance)

    assert [one.id for one in memory.sessions()] == []
    assert "smp restore crossed" in outcome.problems[0]
    memory.undelete_session("crossed")
    with pytest.raises(Conflict):
        memory.create_session(id="crossed")
