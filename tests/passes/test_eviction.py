"""Compaction with real files and other writers, and the way back of evicted memories."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from crossing import at_the_exchange
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from smp_client import Invalid, Memory, MemoryNotFound, QuotaExceeded, Session
from smp_client.disk.bundle import read_members
from smp_client.passes import compaction

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=20)
HEADS = re.compile(rb"^(?:last_id: \d+|\*\*Last-Turn:\*\* \d+)\n", re.MULTILINE)


def opened(root: Path, **options: Any) -> Session:
    return Memory(root, **{"clock": lambda: NOW, "count_access": False, **options}).session("s1")


@pytest.fixture
def full(tmp_path: Path) -> Session:
    """Forty old turns, one of them pinned, and one of today; resolved and open findings; a
    decision; decayed preferences, the last of which stays as the last of its file."""
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
        session.record_preference(colour, confidence="uncertain", timestamp=long_ago)
    session.relate("DEC-001", "FIND-001", "resolves", timestamp=LONG_AGO)
    return opened(memory.root)


def folder(session: Session) -> Path:
    return session.scope.tree.root / session.scope.directory


def contents(session: Session) -> dict[str, bytes]:
    """Return the record files without the lines that note the last numbers."""
    paths = [folder(session) / kind.file for kind in session.kinds]
    return {path.name: HEADS.sub(b"", path.read_bytes()) for path in paths}


def everything(session: Session) -> dict[str, bytes]:
    root = session.scope.tree.root
    found = (path for path in root.rglob("*") if path.is_file() and ".smp" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def ids(session: Session) -> set[str]:
    return {record.id for kind in session.kinds for record in session.records(kind.name)}


def evicted(session: Session) -> set[str]:
    return {one.id for one in session.evicted()}


def bundles(session: Session) -> list[Path]:
    return sorted((session.scope.tree.root / "archived/s1").glob("evicted-*.tar.gz"))


def test_compaction_accounts_for_every_byte(full: Session) -> None:
    """Sizes are those on disk. A dry run changes nothing and has the actions of the real run."""
    before, size = contents(full), full.size().total_bytes
    tree = everything(full)
    planned = full.compact(reduction_pct=90, dry_run=True)
    assert everything(full) == tree
    result = full.compact(reduction_pct=90)
    assert planned.actions == result.actions
    assert result.counts["before_bytes"] == size
    assert result.counts["after_bytes"] == full.size().total_bytes
    shrunk = sum(map(len, before.values())) - sum(map(len, contents(full).values()))
    assert result.bytes_freed == shrunk > 20_000
    types = ["remove_decayed", "summarize_conversation", "archive_findings"]
    assert [action.type for action in result.actions] == types
    assert full.problems() == []


def test_evicted_memories_are_listed_with_their_reasons(full: Session) -> None:
    full.compact(reduction_pct=90)
    turns = {f"turn-{number}" for number in range(1, 41) if number != 20}
    assert evicted(full) == {*turns, "PREF-001", "FIND-001", "FIND-003", "FIND-005", "FIND-007"}
    listed = {one.id: one.facts for one in full.evicted()}
    finding, said = listed["FIND-003"], listed["turn-5"]
    assert (finding["operation"], finding["reason"]) == ("archive_findings", "it is resolved")
    assert (said["operation"], said["at"]) == ("summarize_conversation", "2026-03-01T12:00:00Z")
    (path,) = bundles(full)
    members = dict(read_members(full.scope.tree, f"archived/s1/{path.name}"))
    assert next(iter(members)) == "manifest.json"
    lengths = [item["length"] for item in json.loads(members["manifest.json"])["items"]
               if item["file"] == "findings.yaml"]  # fmt: skip
    assert sum(lengths) == len(members["records/findings.yaml"])


def test_a_summary_stands_in_the_place_of_the_turns(full: Session) -> None:
    """Two runs, before and behind the pinned turn: each is one turn that is found by its text."""
    full.compact(reduction_pct=90)
    later = opened(full.scope.tree.root, clock=lambda: NOW + timedelta(days=300))
    later.compact(reduction_pct=90)
    turns = full.turns()
    assert [turn.id for turn in turns] == ["turn-1", "turn-20", "turn-21", "turn-41"]
    assert turns[0].data["summarizes"] == {"first": "turn-1", "last": "turn-19", "turns": 19}
    assert "- turn-7 (user): We decided to do 7." in turns[0].text
    assert {record.id for record in full.search("decided")} >= {"turn-1", "turn-21"}


def test_numbers_are_never_given_again(full: Session) -> None:
    """Also where the last records were evicted or deleted and the notes of the locks are lost."""
    full.resolve_finding("FIND-002", resolved_by="user", action_taken="done")
    opened(full.scope.tree.root, clock=lambda: NOW + timedelta(days=200)).compact(reduction_pct=100)
    full.delete(["FIND-008", "turn-41", "PREF-002"], reason="test")
    shutil.rmtree(full.scope.tree.root / ".smp/locks")
    assert full.add_turn("user", "next").id == "turn-42"
    assert full.record_finding("next", discovered_by="a").id == "FIND-009"
    assert full.record_preference("next").id == "PREF-003"


def test_earlier_states_go_and_the_current_one_stays(full: Session) -> None:
    for mood in ("calm", "busy", "tired", "awake"):
        full.save_agent_state("veritas", {"mood": mood, "notes": "x" * 500})
    result = full.compact(reduction_pct=100)
    (action,) = (action for action in result.actions if action.type == "compress_agent_state")
    assert action.about == ("STATE-001", "STATE-002", "STATE-003")
    assert full.agent_state("veritas")["mood"] == "awake"
    assert full.agent_state_history("veritas") == []
    full.save_agent_state("veritas", {"mood": "alert"})
    full.bring_back()
    moods = [state["mood"] for state in full.agent_state_history("veritas")]
    assert moods == ["calm", "busy", "tired", "awake"]


# Others who write meanwhile.


def test_a_record_that_is_changed_after_the_plan_stays(
    full: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is planned again, so neither is the memory evicted nor its new text lost."""
    edits: list[Callable[[], object]] = [
        lambda: full.pin("turn-5"), lambda: full.update("FIND-003", severity="high"),
    ]  # fmt: skip
    planned = compaction.plan

    def meanwhile(*arguments: Any) -> Any:
        made = planned(*arguments)
        if edits:
            edits.pop()()
        return made

    monkeypatch.setattr(compaction, "plan", meanwhile)
    result = full.compact(reduction_pct=90)
    assert (edits, result.notes) == ([], [])
    assert full.get("turn-5").pinned
    assert full.get("FIND-003").data["severity"] == "high"
    assert {"turn-5", "FIND-003"}.isdisjoint(evicted(full))


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
    turn = b"## Turn 5 - 2026-01-01 00:00:00\n**Speaker:** a\n\nagain\n\n---\n\n## Turn 99\n\nx\n"
    finding = b"  - id: FIND-003\n    finding: again\n  - id: X-1\n    finding: x\n"
    for name, double in (("conversation.md", turn), ("findings.yaml", finding)):
        path = folder(full) / name
        path.write_bytes(path.read_bytes() + double)
    full.compact(reduction_pct=90)
    assert [turn.id for turn in full.turns()].count("turn-5") == 2
    assert [record.id for record in full.records("finding")].count("FIND-003") == 2
    assert {"turn-5", "FIND-003"}.isdisjoint(evicted(full))


def test_a_turn_that_is_only_written_in_part_stays(full: Session) -> None:
    path = folder(full) / "conversation.md"
    half = b"## Turn 99 - 2026-01-01 00:00:00\n**Speaker:** shell\n\nthe first half"
    path.write_bytes(path.read_bytes() + half)
    full.compact(reduction_pct=90)
    path.write_bytes(path.read_bytes() + b" and the second\n\n---\n\n")
    assert full.turns()[-1].text == "the first half and the second"


# Bringing back.


def test_some_can_be_brought_back(full: Session) -> None:
    """Any turn of a run brings back all of it, and its summary goes; other records stay away."""
    before = contents(full)
    full.compact(reduction_pct=90)
    outcome = full.bring_back(["turn-7", "FIND-003"])
    run = tuple(f"turn-{number}" for number in range(1, 20))
    assert [action.about for action in outcome.actions] == [run, ("FIND-003",)]
    assert [turn.id for turn in full.turns()] == [*run, "turn-20", "turn-21", "turn-41"]
    assert "FIND-001" in evicted(full)
    # In any order, each stands behind its predecessor again.
    for memory_id in ("FIND-007", "FIND-001", "FIND-005", "turn-30", "PREF-001"):
        assert full.bring_back([memory_id]).success
    assert contents(full) == before


def test_a_summary_that_was_read_goes_and_one_that_was_changed_stays(full: Session) -> None:
    """A changed summary is somebody's: the turn whose id it has stays evicted."""
    before = [turn.data["content"] for turn in full.turns()]
    full.compact(reduction_pct=90)
    reader = Memory(full.scope.tree.root, clock=lambda: NOW).session("s1")
    reader.get("turn-1")
    reader.decay()
    path = folder(full) / "conversation.md"
    assert b"**Decay:**" in path.read_bytes()
    edited = path.read_bytes().replace(b"- turn-25 (user): ", b"my own words, not those of ")
    path.write_bytes(edited)
    problems = full.bring_back().problems
    said = "turn-21 was not brought back: another one stands in conversation.md by now."
    assert (problems, evicted(full)) == ([said], {"turn-21"})
    after = [turn.data["content"] for turn in full.turns()]
    assert "my own words" in after.pop(20)
    assert after == before[:20] + before[21:]


def test_a_turn_that_was_deleted_while_it_was_evicted_stays_away(full: Session) -> None:
    """Its run comes back without it, and without the summary."""
    before = contents(full)
    full.compact(reduction_pct=90)
    full.delete("turn-3", reason="private")
    full.bring_back(["turn-4"])
    assert [turn.id for turn in full.turns()][:3] == ["turn-1", "turn-2", "turn-4"]
    full.restore("turn-3")
    full.bring_back()
    assert contents(full) == before


def test_nothing_comes_back_that_is_not_there_or_does_not_fit(full: Session) -> None:
    """An evicted memory is found all the same; a change of it says how it comes back."""
    full.compact(reduction_pct=90)
    tight = opened(full.scope.tree.root)
    tight.update_metadata(storage={"quota_bytes": tight.size().total_bytes + 5000})
    before = everything(full)
    with pytest.raises(Invalid):
        full.compact(reduction_pct=101)
    with pytest.raises(MemoryNotFound, match="smp compact s1 --list"):
        full.bring_back(["turn-1", "turn-20"])
    with pytest.raises(QuotaExceeded):
        tight.bring_back()
    assert everything(full) == before
    assert tight.bring_back(["FIND-001"]).success
    found = {record.id: record for record in full.search("finding 3", count_access=False)}
    assert found["FIND-003"].marks == ("evicted", "resolved")
    with pytest.raises(MemoryNotFound, match="smp compact s1 turn-3 --bring-back"):
        full.pin("turn-3")


def test_another_memory_of_the_same_id_is_left_alone(full: Session) -> None:
    """The evicted one is a problem, and comes back once the other one is gone."""
    full.compact(reduction_pct=90)
    findings, double = folder(full) / "findings.yaml", b"  - id: FIND-001\n    finding: another\n"
    findings.write_bytes(findings.read_bytes() + double)
    (problem,) = full.bring_back().problems
    assert problem.startswith("FIND-001 was not brought back")
    assert evicted(full) == {"FIND-001"}
    findings.write_bytes(findings.read_bytes().replace(double, b""))
    assert full.bring_back().success
    assert len(full.records("finding")) == 8


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


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60).filter(str.strip)
KINDS = ["turn", "turn", "turn", "decision", "finding", "preference", "learning"]
MEMORIES = st.tuples(st.sampled_from(KINDS), TEXTS, st.integers(1, 40), st.floats(0, 60),
                     st.booleans(), st.booleans())  # fmt: skip


def add(session: Session, kind: str, said: str, is_closed: bool, more: dict[str, Any]) -> None:
    if kind == "turn":
        session.add_turn("user", said, **more)
    elif kind == "decision":
        status = {"status": "closed"} if is_closed else {}
        session.record_decision(said, made_by="a", **status, **more)
    elif kind == "finding":
        resolution = {"status": "resolved" if is_closed else "open"}
        session.record_finding(said, discovered_by="a", resolution=resolution, **more)
    elif kind == "preference":
        session.record_preference(said, confidence="uncertain" if is_closed else "explicit", **more)
    else:
        session.record_learning(said, learned_by="a", **more)


@settings(max_examples=25, deadline=None, phases=(Phase.generate,),
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(st.lists(MEMORIES, max_size=25), st.integers(1, 100))
def test_compaction_and_back_lose_nothing(memories: list[tuple[Any, ...]], share: int) -> None:
    """Memories that must be preserved never go, and bringing back gives every file its bytes."""
    with tempfile.TemporaryDirectory() as directory:
        Memory(Path(directory), clock=lambda: NOW).create_session(id="s1", user="u")
        session = opened(Path(directory))
        for kind, text, times, age_days, is_pinned, is_closed in memories:
            more = {"timestamp": NOW - timedelta(days=age_days), "pinned": is_pinned or None}
            given = {name: value for name, value in more.items() if value is not None}
            add(session, kind, f"{text} " * times, is_closed, given)
        before, everybody = contents(session), ids(session)
        records = [record for kind in session.kinds for record in session.records(kind.name)]
        result = session.compact(reduction_pct=share)
        away = evicted(session)
        assert away.isdisjoint(record.id for record in records if _must_stay(record.data))
        assert everybody <= ids(session) | away
        assert away == set(result.ids)
        assert session.problems() == []
        assert session.bring_back().problems == []
        assert contents(session) == before


def _must_stay(data: dict[str, Any]) -> bool:
    status = data.get("status") or data.get("resolution", {}).get("status")
    is_new = NOW - datetime.fromisoformat(data["timestamp"]) < timedelta(hours=48)
    is_open = ("decision" in data or "finding" in data) and status not in ("closed", "resolved")
    return data.get("pinned") is True or is_new or is_open or data.get("confidence") == "explicit"
