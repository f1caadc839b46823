"""Bringing back what compaction took out: into its place, byte for byte, and nothing is lost on the way."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import test_compacting
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_compacting import HEADS, NOW, contents, everything, eviction_files, folder, ids, opened, with_command, without_heads

from smp_client import Memory, MemoryNotFound, QuotaExceeded, Session
from smp_client.maintain.compacting import compact
from smp_client.maintain.evictions import bring_back, evicted

full = test_compacting.full  # the same fixture


def test_some_can_be_brought_back(full: Session) -> None:
    """The turn that has a summary in its place takes it again; another goes where its number says; the rest stays away."""
    before = {record.id: record.data for record in full.records("turn")}
    compact(full, reduction_pct=90)
    outcome = bring_back(full, ["turn-1", "turn-7", "FIND-003"])
    assert outcome.success
    assert {action.about for action in outcome.actions} == {("turn-1", "turn-7"), ("FIND-003",)}
    turns = full.turns()
    assert [turn.id for turn in turns] == ["turn-1", "turn-7", "turn-20", "turn-21", "turn-41"]
    assert [turn.data for turn in turns[:2]] == [before["turn-1"], before["turn-7"]]
    assert [record.id for record in full.records("finding")] == ["FIND-002", "FIND-003", "FIND-004", "FIND-006", "FIND-008"]
    assert {"turn-1", "turn-7", "FIND-003"}.isdisjoint(one.id for one in evicted(full))
    bring_back(full)
    assert {record.id: record.data for record in full.records("turn")} == before


def test_a_summary_says_nothing_of_a_turn_that_is_back(full: Session) -> None:
    """Its lines go with the same rewrite and its counts are right; what a person wrote into it stays. So a turn that is brought
    back, deleted and purged leaves no word.

    While a summary stayed as it was, the words of such a turn were still found in it."""
    before = contents(full)
    compact(full, reduction_pct=90)
    path = folder(full) / "conversation.md"
    path.write_bytes(path.read_bytes().replace(b"- turn-5 (user)", b"my own words\n- turn-5 (user)"))
    assert bring_back(full, ["turn-3", "turn-19"]).success
    summary, third, *_ = full.turns()
    assert (summary.id, third.id) == ("turn-1", "turn-3")
    assert summary.data["summarizes"] == {"first": "turn-1", "last": "turn-18", "turns": 17}
    assert summary.text.startswith("Summary of 17 turns, turn-1 to turn-18, 2026-02-09 13:00 to ")
    assert "\n\n- turn-1 (user): We decided to do 1.\n- turn-2 (user): We decided to do 2.\n- turn-4 (user): " in summary.text
    assert "my own words\n- turn-5 (user)" in summary.text
    assert summary.text.endswith("- turn-18 (user): We decided to do 18.")
    full.delete("turn-3", reason="private")
    memory = Memory(full.scope.tree.root, clock=lambda: NOW + timedelta(days=99))
    assert memory.purge(force=True).success
    assert b"decided to do 3." not in path.read_bytes()
    bring_back(full)
    assert path.read_bytes().count(b"## Turn ") == before["conversation.md"].count(b"## Turn ")
    assert full.get("turn-18").data["content"].startswith("This is what was said as number 18.")


def test_the_turns_that_a_summary_does_not_name_are_counted_anew(full: Session) -> None:
    """Also where what comes back was one of them, or was the last that was named."""
    for number in range(42, 142):
        full.add_turn("user", f"We decided to do {number}. " + "And so on. " * 60, timestamp=NOW - timedelta(days=10))
    full.add_turn("user", "today", timestamp=NOW)
    full.pin("turn-41")
    compact(full, reduction_pct=100)
    named = re.findall(r"^- (turn-\d+) ", full.get("turn-42").text, re.MULTILINE)
    assert full.get("turn-42").text.endswith("\n… and 60 more turns")
    other = next(f"turn-{number}" for number in range(50, 142) if f"turn-{number}" not in named)
    bring_back(full, [other])
    assert full.get("turn-42").text.endswith("\n… and 59 more turns")
    bring_back(full, named[:10])
    assert full.get("turn-42").text.endswith("\n… and 59 more turns")
    bring_back(full, named[10:])
    assert re.fullmatch(r"Summary of 59 turns, turn-42 to turn-1\d\d, .* Said by user \(59\)\.", full.get("turn-42").text)
    assert bring_back(full).success
    assert len(full.turns()) == 142


def test_a_commands_summary_gives_way_to_ours_when_a_turn_is_back(full: Session) -> None:
    """It says of no sentence whose it is: what is left is summarised by us."""
    before = contents(full)
    compact(with_command(full, "print('they decided to do 3 and 4')"), reduction_pct=90)
    bring_back(full, ["turn-3"])
    summary = full.turns()[0]
    assert summary.text.startswith("Summary of 18 turns, turn-1 to turn-19, ")
    assert "We decided to do 4." in summary.text
    assert "decided to do 3" not in summary.text
    assert full.get("turn-21").text == "they decided to do 3 and 4"
    bring_back(full)
    assert without_heads(contents(full)) == before


def test_what_was_taken_out_or_deleted_says_how_it_comes_back(full: Session) -> None:
    """Whoever asks for it, changes it or, once it is deleted, deletes it is told, not that the id may be wrong."""
    compact(full, reduction_pct=90)
    said = (
        "There is no memory 'turn-3' in s1: compaction took it out on 2026-03-01 12:00 UTC. To bring it back: smp compact s1"
        " turn-3 --bring-back, or session.bring_back(['turn-3'])."
    )
    for ask in (full.get, full.pin):
        with pytest.raises(MemoryNotFound) as caught:
            ask("turn-3")
        assert str(caught.value) == said
    with pytest.raises(MemoryNotFound, match="Check the id"):
        full.get("turn-999")
    bring_back(full)
    full.delete("turn-3", reason="r")
    for ask in (full.get, full.pin, lambda one: full.delete(one, reason="r")):
        with pytest.raises(MemoryNotFound) as caught:
            ask("turn-3")
        assert str(caught.value) == (
            "There is no memory 'turn-3' in s1: it was deleted on 2026-03-01 12:00 UTC. To restore it: smp restore s1 turn-3,"
            " or session.restore('turn-3')."
        )


def test_what_was_taken_out_is_listed_with_what_it_says(full: Session) -> None:
    """Only if asked for; whole, and nothing where the bytes cannot be read."""
    full.add_turn("user", "two\nlines " * 200, timestamp=NOW - timedelta(days=10))
    full.add_turn("user", "today", timestamp=NOW)
    full.save_agent_state("veritas", {"mood": "calm"})
    full.save_agent_state("veritas", {"mood": "busy"})
    compact(full, reduction_pct=100)
    assert {one.text for one in evicted(full)} == {""}
    texts = {one.id: one.text for one in full.evicted(texts=True)}
    assert texts["FIND-003"].strip() == ("finding 3 " * 20).strip()
    assert texts["turn-42"].strip() == ("two\nlines " * 200).strip()
    assert texts["turn-7"].startswith("This is what was said as number 7. We decided to do 7. And so on.")
    assert texts["STATE-001"] == ""


def test_nothing_is_left_in_the_archive_when_all_is_back(full: Session) -> None:
    compact(full, reduction_pct=90)
    bring_back(full)
    assert list((full.scope.tree.root / "archived").iterdir()) == []


def test_an_id_that_is_not_evicted_is_refused(full: Session) -> None:
    compact(full, reduction_pct=90)
    before = everything(full)
    with pytest.raises(MemoryNotFound, match="smp compact s1 --list"):
        bring_back(full, ["turn-1", "turn-20"])
    assert everything(full) == before


def test_nothing_comes_back_that_does_not_fit(full: Session) -> None:
    """QuotaExceeded, with every byte as it was."""
    compact(full, reduction_pct=90)
    tight = opened(full.scope.tree.root)
    tight.update_metadata(storage={"quota_bytes": tight.size().total_bytes + 5000})
    before = everything(full)
    with pytest.raises(QuotaExceeded):
        bring_back(tight)
    assert everything(full) == before
    assert bring_back(tight, ["FIND-001"]).success


def test_another_memory_of_the_same_id_is_left_alone(full: Session) -> None:
    """The copy stays, is told as a problem, and comes back once the other one is gone."""
    compact(full, reduction_pct=90)
    findings = folder(full) / "findings.yaml"
    ours = findings.read_bytes()
    findings.write_bytes(ours + b"  - id: FIND-001\n    finding: another one\n")
    outcome = bring_back(full)
    assert [problem.split(":")[0] for problem in outcome.problems] == ["FIND-001 was not brought back"]
    assert [one.id for one in evicted(full)] == ["FIND-001"]
    findings.write_bytes(findings.read_bytes().replace(b"  - id: FIND-001\n    finding: another one\n", b""))
    assert bring_back(full).success
    assert len(full.records("finding")) == 8


def test_a_copy_of_what_still_stands_does_not_count(full: Session, tmp_path: Path) -> None:
    """What a crash leaves, a copy without the removal, is no eviction; the next pass drops it."""
    compact(full, reduction_pct=90)
    (copy,) = eviction_files(full)
    shutil.copy(copy, tmp_path / "kept")
    bring_back(full)
    copy.parent.mkdir()
    shutil.copy(tmp_path / "kept", copy)
    before = contents(full)
    assert evicted(full) == []
    assert bring_back(full).actions == []
    assert eviction_files(full) == []
    assert contents(full) == before


def test_a_damaged_copy_hides_no_other(full: Session) -> None:
    """One file of what was taken out that the disk has damaged is told, and what is in the others comes back."""
    compact(full, reduction_pct=10)
    (first,) = eviction_files(full)
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 0xFF
    compact(full, reduction_pct=90)
    first.write_bytes(content)
    assert "FIND-001" in {one.id for one in evicted(full)}
    outcome = bring_back(full)
    assert len(outcome.problems) == 1
    assert first.name in outcome.problems[0]
    assert "FIND-001" in ids(full)
    assert eviction_files(full) == [first]


def test_a_list_in_another_style_gives_and_takes(full: Session) -> None:
    """Records in flow style, as a person may have made them, go out and come back, in whatever order."""
    found = [{"id": f"FIND-00{number}", "finding": "x" * 300, "timestamp": "2026-01-01T00:00:00Z", "discovered_by": "a",
              "decay": {"priority": 0.1, "base_priority": 0.1, "last_accessed": "2026-01-01T00:00:00Z", "access_count": 0},
              "resolution": {"status": "resolved" if number < 3 else "open"}} for number in range(1, 5)]  # fmt: skip
    (folder(full) / "findings.yaml").write_text(json.dumps({"version": 1, "findings": found}))
    before = {record.id: record.data for record in full.records("finding")}
    compact(full, reduction_pct=100)
    assert [record.id for record in full.records("finding")] == ["FIND-003", "FIND-004"]
    assert bring_back(full).success
    assert {record.id: record.data for record in full.records("finding")} == before
    assert full.record_finding("next", discovered_by="a").id == "FIND-009"


def test_a_conversation_with_other_line_ends_and_a_persons_own_words(full: Session) -> None:
    """Lines that end in CR LF stay. Words between two turns are the first one's: they go and come back with it."""
    path = folder(full) / "conversation.md"
    theirs = path.read_bytes().replace(b"<!-- smp -->\n## Turn 10 ", b"my own words\n\n## Turn 10 ")
    path.write_bytes(theirs.replace(b"\n", b"\r\n"))
    before, turns = path.read_bytes(), [turn.data for turn in full.turns()]
    compact(full, reduction_pct=90)
    assert len(full.turns()) < 10
    assert bring_back(full).success
    assert [turn.data for turn in full.turns()] == turns
    assert HEADS.sub(b"", path.read_bytes()).replace(b"\r\n", b"\n") == before.replace(b"\r\n", b"\n")


# Whatever a session holds.

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60).filter(lambda text: bool(text.strip()))
MEMORIES = st.tuples(
    st.sampled_from(["turn", "turn", "turn", "decision", "finding", "preference", "learning"]), TEXTS, st.integers(1, 40),
    st.floats(0, 60), st.booleans(), st.booleans(),
)  # fmt: skip


def add(session: Session, what: str, text: str, times: int, age_days: float, is_pinned: bool, is_closed: bool) -> None:
    said = (text + " ") * times
    more: dict[str, Any] = {"timestamp": NOW - timedelta(days=age_days), **({"pinned": True} if is_pinned else {})}
    if what == "turn":
        session.add_turn("user", said, **more)
    elif what == "decision":
        session.record_decision(said, made_by="a", **({"status": "closed"} if is_closed else {}), **more)
    elif what == "finding":
        session.record_finding(said, discovered_by="a", resolution={"status": "resolved" if is_closed else "open"}, **more)
    elif what == "preference":
        session.record_preference(said, confidence="uncertain" if is_closed else "explicit", **more)
    else:
        session.record_learning(said, learned_by="a", **more)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MEMORIES, max_size=25), st.integers(1, 100))
def test_compaction_and_back_lose_nothing(memories: list[tuple[Any, ...]], share: int) -> None:
    """Whatever a session holds: what must be preserved never goes, and bringing back gives every file its bytes again."""
    with tempfile.TemporaryDirectory() as directory:
        Memory(Path(directory), clock=lambda: NOW, fsync="batch").create_session(id="s1", user="u")
        session = opened(Path(directory), fsync="batch")
        for one in memories:
            add(session, *one)
        before = contents(session)
        records = [record for kind in session.kinds for record in session.records(kind.name)]
        preserved = {record.id for record in records if _must_stay(record.type, record.data)}
        everybody = ids(session)
        result = compact(session, reduction_pct=share)
        away = {one.id for one in evicted(session)}
        assert not away & preserved
        assert everybody <= ids(session) | away
        assert away == {memory_id for action in result.actions for memory_id in action.about}
        assert session.problems() == []
        assert bring_back(session).problems == []
        assert without_heads(contents(session)) == without_heads(before)


def _must_stay(type: str, data: dict[str, Any]) -> bool:
    status = data.get("status") or data.get("resolution", {}).get("status")
    is_new = NOW - datetime.fromisoformat(data["timestamp"]) < timedelta(hours=48)
    is_open = type in ("decision", "finding") and status not in ("closed", "resolved")
    return data.get("pinned") is True or is_new or is_open or data.get("confidence") == "explicit"
