"""Compaction with real files and other writers, and the way back of evicted memories."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from crossing import at_the_exchange
from earlier import earlier_states

from smp_client import Memory, MemoryNotFound, QuotaExceeded, Session
from smp_client.model.record import REVISION
from smp_client.passes import compaction

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=20)
HEADS = re.compile(rb"^(?:last_id: \d+|\*\*Last-Turn:\*\* \d+)\n", re.MULTILINE)


def opened(root: Path, **options: Any) -> Session:
    return Memory(root, **{"clock": lambda: NOW, "count_access": False, **options}).session("s1")


@pytest.fixture
def full(tmp_path: Path) -> Session:
    """Forty old turns, one of them pinned, and one of today; resolved and open findings; a
    decision; decayed learnings, the last of which stays as the last of its file."""
    memory = Memory(tmp_path / "sessions", clock=lambda: NOW)
    session = memory.create_session(id="s1", user="user-123", topic="authentication")
    for number in range(1, 41):
        said = f"This was said as number {number}. We decided to do {number}. "
        at = LONG_AGO + timedelta(hours=number)
        session.add_turn("user", said + "And so on. " * 60, timestamp=at)
    session.pin("turn-20")
    session.add_turn("user", "And this is from today. " * 10, timestamp=NOW - timedelta(hours=1))
    for number in range(1, 9):
        status = {"status": "resolved" if number % 2 else "open"}
        session.record_finding(f"finding {number} " * 20, discovered_by="veritas", severity="low",
                               timestamp=LONG_AGO, resolution=status)  # fmt: skip
    session.record_decision("Use OAuth", made_by="architect", timestamp=LONG_AGO)
    for colour in ("dark", "light"):
        long_ago = NOW - timedelta(days=90)
        session.record_learning(colour, learned_by="veritas", timestamp=long_ago)
    session.relate("DEC-001", "FIND-001", "resolves", timestamp=LONG_AGO)
    return opened(memory.root)


def folder(session: Session) -> Path:
    return session.memory.root / session.scope.directory


def contents(session: Session) -> dict[str, bytes]:
    """Return the record files without the lines that note the last numbers."""
    paths = [folder(session) / kind.file for kind in (*session.kinds, REVISION)]
    return {path.name: HEADS.sub(b"", path.read_bytes()) for path in paths}


def everything(session: Session) -> dict[str, bytes]:
    root = session.memory.root
    found = (path for path in root.rglob("*") if path.is_file() and ".smp" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def ids(session: Session) -> set[str]:
    return {record.id for kind in session.kinds for record in session.records(kind.name)}


def evicted(session: Session) -> set[str]:
    return {one.id for one in session.evicted()}


def bundles(session: Session) -> list[Path]:
    return sorted((session.memory.root / "archived/s1").glob("evicted-*.tar.gz"))


def test_compaction_accounts_for_every_byte(full: Session) -> None:
    """Sizes are those on disk. A dry run changes nothing and has the actions of the real run."""
    before, size, tree = contents(full), full.size().total_bytes, everything(full)
    planned = full.compact(reduction_pct=90, dry_run=True)
    assert everything(full) == tree
    result = full.compact(reduction_pct=90)
    assert planned.actions == result.actions
    assert result.counts["before_bytes"] == size
    assert result.counts["after_bytes"] == full.size().total_bytes
    shrunk = sum(map(len, before.values())) - sum(map(len, contents(full).values()))
    assert result.bytes_freed == shrunk > 20_000
    types = ["evict_history", "remove_decayed", "summarize_conversation", "archive_findings"]
    assert [action.type for action in result.actions] == types
    turns = {f"turn-{number}" for number in range(1, 41) if number != 20}
    assert evicted(full) == {*turns, "REV-001", "LEARN-001", "FIND-001", "FIND-003", "FIND-005", "FIND-007"}
    facts = next(one.facts for one in full.evicted() if one.id == "FIND-003")
    assert (facts["operation"], facts["reason"]) == ("archive_findings", "it is resolved")
    assert full.problems() == []


def test_a_summary_stands_in_the_place_of_the_turns(full: Session) -> None:
    """Two runs, before and behind the pinned turn: each is one turn that is found by its text."""
    full.compact(reduction_pct=90)
    later = opened(full.memory.root, clock=lambda: NOW + timedelta(days=300))
    later.compact(reduction_pct=90)
    turns = full.turns()
    assert [turn.id for turn in turns] == ["turn-1", "turn-20", "turn-21", "turn-41"]
    assert turns[0].data["summarizes"] == {"first": "turn-1", "last": "turn-19", "turns": 19}
    assert "- turn-7 (user): We decided to do 7." in turns[0].text
    assert {record.id for record in full.search("decided")} >= {"turn-1", "turn-21"}


def test_numbers_are_never_given_again(full: Session) -> None:
    """Also where the last records were evicted or deleted and the notes of the locks are lost."""
    full.resolve_finding("FIND-002", resolved_by="user", action_taken="done")
    opened(full.memory.root, clock=lambda: NOW + timedelta(days=200)).compact(reduction_pct=100)
    full.delete(["FIND-008", "turn-41", "LEARN-002"], reason="test")
    shutil.rmtree(full.memory.root / ".smp/locks")
    assert full.add_turn("user", "next").id == "turn-42"
    assert full.record_finding("next", discovered_by="a").id == "FIND-009"
    assert full.record_learning("next", learned_by="veritas").id == "LEARN-003"


def test_earlier_states_go_and_the_current_one_stays(full: Session) -> None:
    for mood in ("calm", "busy", "tired", "awake"):
        full.save_agent_state("veritas", {"mood": mood, "notes": "x" * 500})
    result = full.compact(reduction_pct=100)
    (action,) = (action for action in result.actions if action.type == "compress_agent_state")
    assert action.about == ("STATE-001", "STATE-002", "STATE-003")
    assert full.agent_state("veritas")["mood"] == "awake"
    assert earlier_states(full, "veritas") == []
    full.save_agent_state("veritas", {"mood": "alert"})
    full.bring_back()
    moods = [state["mood"] for state in earlier_states(full, "veritas")]
    assert moods == ["calm", "busy", "tired", "awake"]


def test_a_record_that_is_changed_after_the_plan_stays(
    full: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is planned again, so neither is the memory evicted nor its new text lost."""
    planned, edits = compaction.plan, ["turn-5"]

    def meanwhile(*arguments: Any) -> Any:
        made = planned(*arguments)
        if edits:
            full.pin(edits.pop())
        return made

    monkeypatch.setattr(compaction, "plan", meanwhile)
    assert full.compact(reduction_pct=90).notes == []
    assert (edits, full.get("turn-5").pinned) == ([], True)
    assert "turn-5" not in evicted(full)


def test_an_edit_at_the_very_moment_of_the_exchange_stays(
    full: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person saves the conversation just before it is exchanged: the edited turn stays."""
    path = folder(full) / "conversation.md"

    def edit() -> None:
        path.write_bytes(path.read_bytes().replace(b"said as number 7.", b"said as number seven."))

    with at_the_exchange(monkeypatch, before=edit):
        result = full.compact(reduction_pct=60)
    assert result.notes == ["turn-7 was changed meanwhile, and stays"]
    assert "said as number seven." in full.get("turn-7").text
    assert "turn-7" not in evicted(full)
    assert "turn-8" in evicted(full)
    assert full.bring_back().success
    assert len(full.turns()) == 41


def test_of_two_with_one_id_neither_goes(full: Session) -> None:
    """Without the last the first would answer again."""
    findings = folder(full) / "findings.yaml"
    double = b"  - id: FIND-003\n    finding: again\n  - id: X-1\n    finding: x\n"
    findings.write_bytes(findings.read_bytes() + double)
    full.compact(reduction_pct=90)
    assert [record.id for record in full.records("finding")].count("FIND-003") == 2
    assert "FIND-003" not in evicted(full)


def test_a_turn_that_is_only_written_in_part_stays(full: Session) -> None:
    path = folder(full) / "conversation.md"
    half = b"## Turn 99 - 2026-01-01 00:00:00\n**Speaker:** shell\n\nthe first half"
    path.write_bytes(path.read_bytes() + half)
    full.compact(reduction_pct=90)
    path.write_bytes(path.read_bytes() + b" and the second\n\n---\n\n")
    assert full.turns()[-1].text == "the first half and the second"


def test_some_can_be_brought_back(full: Session) -> None:
    """Any turn of a run brings back all of it, and its summary goes; other records stay away.

    A turn that was deleted meanwhile stays away. In any order, each stands behind its predecessor.
    """
    before = contents(full)
    full.compact(reduction_pct=90)
    full.delete("turn-3", reason="private")
    outcome = full.bring_back(["turn-7", "FIND-003"])
    run = tuple(f"turn-{number}" for number in range(1, 20) if number != 3)
    assert [action.about for action in outcome.actions] == [run, ("FIND-003",)]
    assert [turn.id for turn in full.turns()] == [*run, "turn-20", "turn-21", "turn-41"]
    assert "FIND-001" in evicted(full)
    full.restore("turn-3")
    for memory_id in ("turn-3", "FIND-007", "FIND-001", "FIND-005", "turn-30", "LEARN-001", "REV-001"):
        assert full.bring_back([memory_id]).success
    assert contents(full) == before


def turns_with_ids(session: Session) -> list[str]:
    head = re.compile(r"^## Turn (\d+) ", re.MULTILINE)
    return head.findall((folder(session) / "conversation.md").read_text())


def test_a_turn_that_is_restored_stands_without_its_summary(full: Session) -> None:
    """The turn and its summary have one id, so both are deleted. The rest of the run came back."""
    before = contents(full)
    full.compact(reduction_pct=100)
    (summary,) = [one for one in full.turns() if one.data["type"] == "summary"][:1]
    full.delete(summary.id, reason="test")
    full.bring_back()
    full.restore(summary.id)
    numbers = turns_with_ids(full)
    assert len(numbers) == len(set(numbers))
    assert contents(full) == before


def test_a_turn_comes_back_also_if_its_summary_was_pinned(full: Session) -> None:
    before = ids(full)
    full.compact(reduction_pct=100)
    summary = next(one for one in full.turns() if one.data["type"] == "summary")
    full.pin(summary.id)
    assert full.bring_back().problems == []
    assert ids(full) == before


def test_a_turn_that_is_restored_takes_the_place_of_its_summary(full: Session) -> None:
    """The words that were deleted stand in the turns, not in their summaries, which stayed."""
    before = contents(full)
    full.compact(reduction_pct=100)
    batch = full.delete(text="And so on", reason="test").batch
    full.bring_back()
    full.restore_batch(batch)
    assert contents(full) == before


def test_nothing_comes_back_that_is_not_there_or_does_not_fit(full: Session) -> None:
    """An evicted memory is found all the same; a change of it says how it comes back."""
    full.compact(reduction_pct=90)
    tight = opened(full.memory.root)
    tight.update_metadata(storage={"quota_bytes": tight.size().total_bytes + 5000})
    before = everything(full)
    with pytest.raises(MemoryNotFound, match="smp compact s1 --list"):
        full.bring_back(["turn-1", "turn-20"])
    with pytest.raises(QuotaExceeded):
        tight.bring_back()
    assert everything(full) == before
    found = {record.id: record for record in full.search("finding 3")}
    assert found["FIND-003"].marks == ("evicted", "resolved")
    with pytest.raises(MemoryNotFound, match="smp compact s1 turn-3 --bring-back"):
        full.pin("turn-3")


def test_another_memory_of_the_same_id_is_left_alone(full: Session) -> None:
    """A changed summary is such a one. The evicted memory comes back once the other is gone."""
    full.compact(reduction_pct=90)
    findings, double = folder(full) / "findings.yaml", b"  - id: FIND-001\n    finding: another\n"
    findings.write_bytes(findings.read_bytes() + double)
    turns, words = folder(full) / "conversation.md", b"my own words, not those of "
    turns.write_bytes(turns.read_bytes().replace(b"- turn-25 (user): ", words))
    problems = full.bring_back().problems
    assert [problem.split(" was not brought back")[0] for problem in problems] == [
        "turn-21", "FIND-001",
    ]  # fmt: skip
    assert evicted(full) == {"FIND-001", "turn-21"}
    assert "my own words" in full.get("turn-21").text
    findings.write_bytes(findings.read_bytes().replace(double, b""))
    full.bring_back()
    assert (evicted(full), len(full.records("finding"))) == ({"turn-21"}, 8)


def test_a_damaged_bundle_hides_no_other(full: Session) -> None:
    full.compact(reduction_pct=10)
    (first,) = bundles(full)
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 0xFF
    full.compact(reduction_pct=90)
    first.write_bytes(content)
    assert "FIND-001" in evicted(full)
    (problem,) = full.bring_back().problems
    assert first.name in problem
    assert "FIND-001" in ids(full)
    assert bundles(full) == [first]
