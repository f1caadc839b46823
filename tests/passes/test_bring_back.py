"""Bringing back what compaction took out: into its place, byte for byte, and nothing is lost on the
way.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import test_eviction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from test_eviction import (
    NOW,
    contents,
    everything,
    eviction_files,
    folder,
    ids,
    opened,
    without_heads,
)

from smp_client import Memory, MemoryNotFound, QuotaExceeded, Session
from smp_client.change.restore import bring_back
from smp_client.passes.compaction import compact

full = test_eviction.full  # the same fixture


def test_some_can_be_brought_back(full: Session) -> None:
    """Any turn of a run brings back all of it, and its summary goes; another run and other records
    stay away.
    """
    before = {record.id: record.data for record in full.records("turn")}
    compact(full, reduction_pct=90)
    outcome = bring_back(full, ["turn-7", "FIND-003"])
    assert outcome.success
    run = tuple(f"turn-{number}" for number in range(1, 20))
    assert [action.about for action in outcome.actions] == [run, ("FIND-003",)]
    turns = full.turns()
    assert [turn.id for turn in turns] == [*run, "turn-20", "turn-21", "turn-41"]
    assert [turn.data for turn in turns[:20]] == [before[turn.id] for turn in turns[:20]]
    assert [record.id for record in full.records("finding")] == [
        "FIND-002",
        "FIND-003",
        "FIND-004",
        "FIND-006",
        "FIND-008",
    ]
    assert {"turn-1", "turn-7", "FIND-003"}.isdisjoint(one.id for one in full.evicted())
    bring_back(full)
    assert {record.id: record.data for record in full.records("turn")} == before


def test_records_come_back_behind_their_predecessor(full: Session) -> None:
    """One after the other, in any order: behind the record that stood before it, or before that one
    where it is still away.
    """
    before = without_heads(contents(full))
    compact(full, reduction_pct=90)
    for memory_id in (
        "FIND-007",
        "FIND-001",
        "FIND-005",
        "FIND-003",
        "turn-30",
        "turn-2",
        "PREF-001",
    ):
        assert bring_back(full, [memory_id]).success
    assert without_heads(contents(full)) == before


def test_a_summary_that_was_read_goes_and_one_that_was_changed_stays(full: Session) -> None:
    """A summary that somebody changed is theirs: the turn whose id it has stays evicted, and the
    rest of its run comes back.
    """
    before = [turn.data["content"] for turn in full.turns()]
    compact(full, reduction_pct=90)
    reader = Memory(full.scope.tree.root, clock=lambda: NOW).session("s1")
    reader.get("turn-1")
    reader.decay()
    path = folder(full) / "conversation.md"
    assert b"**Decay:**" in path.read_bytes()
    path.write_bytes(
        path.read_bytes().replace(b"- turn-25 (user): ", b"my own words, not those of ")
    )
    outcome = bring_back(full)
    assert outcome.problems == [
        "turn-21 was not brought back: another one stands in conversation.md by now."
    ]
    assert [one.id for one in full.evicted()] == ["turn-21"]
    after = [turn.data["content"] for turn in full.turns()]
    assert "my own words" in after.pop(20)
    assert after == before[:20] + before[21:]


def test_a_turn_that_was_deleted_while_it_was_evicted_stays_away(full: Session) -> None:
    """Its run comes back without it, and without the summary; what is restored afterwards is in its
    place.
    """
    before = [turn.data for turn in full.turns()]
    compact(full, reduction_pct=90)
    full.delete("turn-3", reason="private")
    bring_back(full, ["turn-4"])
    assert [turn.id for turn in full.turns()][:3] == ["turn-1", "turn-2", "turn-4"]
    full.restore("turn-3")
    bring_back(full)
    assert [turn.data for turn in full.turns()] == before


def test_an_evicted_memory_is_found_and_read(full: Session) -> None:
    """Questions and get answer with it, marked as evicted; a change of it says how it comes back."""
    compact(full, reduction_pct=90)
    found = {record.id: record for record in full.search("finding 3", count_access=False)}
    assert found["FIND-003"].marks == ("evicted", "resolved")
    assert full.get("turn-3").text.startswith("This is what was said as number 3.")
    assert full.get("turn-3").marks == ("evicted",)
    with pytest.raises(MemoryNotFound) as caught:
        full.pin("turn-3")
    assert "smp compact s1 turn-3 --bring-back" in str(caught.value)
    with pytest.raises(MemoryNotFound, match="Check the id"):
        full.get("turn-999")


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
    assert [problem.split(":")[0] for problem in outcome.problems] == [
        "FIND-001 was not brought back"
    ]
    assert [one.id for one in full.evicted()] == ["FIND-001"]
    findings.write_bytes(
        findings.read_bytes().replace(b"  - id: FIND-001\n    finding: another one\n", b"")
    )
    assert bring_back(full).success
    assert len(full.records("finding")) == 8


def test_a_damaged_copy_hides_no_other(full: Session) -> None:
    """One file of what was taken out that the disk has damaged is told, and what is in the others
    comes back.
    """
    compact(full, reduction_pct=10)
    (first,) = eviction_files(full)
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 0xFF
    compact(full, reduction_pct=90)
    first.write_bytes(content)
    assert "FIND-001" in {one.id for one in full.evicted()}
    outcome = bring_back(full)
    assert len(outcome.problems) == 1
    assert first.name in outcome.problems[0]
    assert "FIND-001" in ids(full)
    assert eviction_files(full) == [first]


# Whatever a session holds.

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60).filter(
    lambda text: bool(text.strip())
)
MEMORIES = st.tuples(
    st.sampled_from(["turn", "turn", "turn", "decision", "finding", "preference", "learning"]), TEXTS, st.integers(1, 40),
    st.floats(0, 60), st.booleans(), st.booleans(),
)  # fmt: skip


def add(
    session: Session,
    what: str,
    text: str,
    times: int,
    age_days: float,
    is_pinned: bool,
    is_closed: bool,
) -> None:
    said = (text + " ") * times
    more: dict[str, Any] = {
        "timestamp": NOW - timedelta(days=age_days),
        **({"pinned": True} if is_pinned else {}),
    }
    if what == "turn":
        session.add_turn("user", said, **more)
    elif what == "decision":
        session.record_decision(
            said, made_by="a", **({"status": "closed"} if is_closed else {}), **more
        )
    elif what == "finding":
        session.record_finding(
            said,
            discovered_by="a",
            resolution={"status": "resolved" if is_closed else "open"},
            **more,
        )
    elif what == "preference":
        session.record_preference(said, confidence="uncertain" if is_closed else "explicit", **more)
    else:
        session.record_learning(said, learned_by="a", **more)


@settings(
    max_examples=25,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(MEMORIES, max_size=25), st.integers(1, 100))
def test_compaction_and_back_lose_nothing(memories: list[tuple[Any, ...]], share: int) -> None:
    """Whatever a session holds: what must be preserved never goes, and bringing back gives every
    file its bytes again.
    """
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
        away = {one.id for one in session.evicted()}
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
