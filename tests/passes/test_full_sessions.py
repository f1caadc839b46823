"""Sessions that are full or nearly so: warnings, room that is made, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from daemons import running, settings_file, smp, status, wait_until

from smp_client import Memory, QuotaExceeded, Session
from smp_client.model.policies import CompactionPolicy
from smp_client.model.times import now
from smp_client.passes.compaction import summarise_turns, trigger

QUOTA = 100_000
LONG_AGO = "2020-01-06T09:00:00Z"
WORDS = "What was said about the login of the shop, long ago and at some length. "


def filled(memory: Memory, pct: float, when: str | None = LONG_AGO) -> Session:
    """A session with turns of this time that take up so many percent of its quota."""
    session = memory.create_session(id="s1", quota_bytes=QUOTA)
    texts = [f"{number} {WORDS * 14}"[:1000] for number in range(100)]
    with session.transaction(100) as together:
        for text in texts[: int(pct * 0.8)]:
            together.add_turn("user", text, timestamp=when)
    while session.size().utilization_pct < pct - 1:
        session.add_turn("user", WORDS * 10, timestamp=when)
    return session


# At the quota.


def test_a_write_that_does_not_fit_compacts_the_session_and_succeeds(memory: Memory) -> None:
    session = filled(memory, 97)
    before = len(session.turns())
    made = session.record_decision("Use OAuth " + WORDS * 50, made_by="a")
    assert session.get(made.id).text.startswith("Use OAuth")
    assert len(session.turns()) < before
    assert session.evicted(), "what went can be brought back"
    assert session.size().utilization_pct < 90


def test_a_transaction_and_an_update_make_room_too(memory: Memory) -> None:
    session = filled(memory, 93)
    small = session.record_decision("Small", made_by="a")
    session.update(small.id, rationale=WORDS * 100)
    assert session.evicted()
    assert session.get(small.id).data["rationale"].startswith("What was said")


def test_where_nothing_may_go_the_error_says_what_stays_and_what_would_help(
    memory: Memory,
) -> None:
    session = filled(memory, 97, when=None)
    with pytest.raises(QuotaExceeded) as caught:
        session.record_decision(WORDS * 50, made_by="a")
    said = str(caught.value)
    assert "A compaction freed 0 bytes." in said
    assert "said within the last 24 hours" in said
    assert "raise its storage.quota_bytes" in said
    assert "Archive it" in said


def test_a_compaction_that_did_not_help_is_not_tried_again_for_the_same_session(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the whole session."""
    filled(memory, 97, when=None)
    counted: list[str] = []
    from smp_client.passes import compaction

    real = compaction.compact

    def compact(session: Session, **how: Any) -> Any:
        counted.append(session.id)
        return real(session, **how)

    monkeypatch.setattr(compaction, "compact", compact)
    for _ in range(3):
        with pytest.raises(QuotaExceeded, match="freed 0 bytes"):
            memory.session("s1").record_decision(WORDS * 50, made_by="a")
    # Its first try notes the time in the metadata, which makes the session another one once.
    assert len(counted) <= 2


def test_a_session_whose_compaction_is_off_is_left_alone(memory: Memory) -> None:
    session = filled(memory, 97)
    session.update_metadata(compaction_config={"auto_compact": False})
    with pytest.raises(QuotaExceeded, match="compaction is switched off"):
        session.record_decision(WORDS * 50, made_by="a")
    assert not session.evicted()


def test_a_write_larger_than_the_quota_evicts_nothing(memory: Memory) -> None:
    session = filled(memory, 50)
    with pytest.raises(QuotaExceeded, match="larger than the session may become"):
        session.record_decision("x" * 2 * QUOTA, made_by="a")
    assert not session.evicted()


# Near the quota.


def test_a_write_at_80_percent_answers_with_a_warning(memory: Memory, tmp_path: Path) -> None:
    session = filled(memory, 70)
    assert session.record_decision("One", made_by="a").notes == ()
    session.record_learning(WORDS * 150, learned_by="a")
    made = session.record_decision("Two", made_by="a")
    assert made.notes[0].startswith("Session s1 is 8")
    assert "% full" in made.notes[0]
    assert session.update(made.id, decision="Three").notes
    with session.transaction() as together:
        together.record_decision("Four", made_by="a")
    assert together.notes
    root = ("--root", str(memory.root))
    added = smp("add", "s1", "decision", "Five", "--by", "a", *root)
    assert "note: Session s1 is 8" in added.stderr
    answer = json.loads(smp("add", "s1", "decision", "Six", "--by", "a", "--json", *root).stdout)
    assert "% full" in answer["notes"][0]


def test_status_doctor_and_sessions_show_how_full_a_session_is(memory: Memory) -> None:
    filled(memory, 88)
    root = ("--root", str(memory.root))
    assert any("Session s1 is 8" in note for note in status(memory.root)["notes"])
    assert "Session s1 is 8" in smp("doctor", *root).stdout
    (row,) = json.loads(smp("sessions", "--json", *root).stdout)
    assert 80 <= row["utilization_pct"] < 95
    assert (row["quota_bytes"], row["level"]) == (QUOTA, "warning")
    assert f"{row['utilization_pct']:.0f} %" in smp("sessions", *root).stdout


def test_a_large_session_gets_the_hint_to_compact_it(memory: Memory) -> None:
    """From 5 MB on, however large its quota is."""
    session = memory.create_session(id="s1", quota_bytes=50_000_000)
    for _ in range(6):
        session.save_artifact(f"report-{_}", "x" * 1_000_000)
    (hint,) = [note for note in status(memory.root)["notes"] if "s1" in note]
    assert "Session s1 holds 6.0 MB" in hint
    assert "smp compact s1" in hint
    assert session.record_decision("D", made_by="a").notes == ()


def test_a_daemon_warns_once_at_80_percent(memory: Memory, tmp_path: Path) -> None:
    config = settings_file(tmp_path, compaction={"automatic": False})
    session = filled(memory, 70)
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        session.record_learning(WORDS * 200, learned_by="a")
        (line,) = wait_until(lambda: daemon.said("session is nearly full"), "it is warned")
        assert (line["level"], line["session_id"]) == ("warning", "s1")
        assert line["utilization_pct"] >= 80
        session.record_learning("One more", learned_by="a")
        smp("sync", "--root", memory.root)
        assert len(daemon.said("session is nearly full")) == 1


# What a daemon says of compactions.


def test_a_compaction_is_logged_with_its_sizes(memory: Memory, tmp_path: Path) -> None:
    filled(memory, 88)
    with running(memory.root, log=tmp_path / "log") as daemon:
        (line,) = wait_until(lambda: daemon.said("compacted"), "it is compacted")
        assert line["before_size"] > line["after_size"] > 0
        assert line["removed_count"] > 3
        assert (line["level"], line["session_id"]) == ("info", "s1")


def test_a_compaction_that_frees_nothing_is_a_warning(memory: Memory, tmp_path: Path) -> None:
    filled(memory, 88, when=None)
    with running(memory.root, log=tmp_path / "log") as daemon:
        (line,) = wait_until(lambda: daemon.said("compaction freed nothing"), "it is warned")
        assert line["level"] == "warning"
        assert line["removed_count"] == 0
        assert "said within the last 24 hours" in line["why"][0]
        assert not daemon.said("compacted")


# Long conversations.


def talk(session: Session, turns: int, when: str) -> None:
    with session.transaction(turns) as together:
        for number in range(turns):
            together.add_turn("user", f"Turn {number} about the shop", timestamp=when)


def test_a_conversation_of_more_than_500_turns_is_summarised(
    memory: Memory, tmp_path: Path
) -> None:
    session = memory.create_session(id="s1")
    talk(session, 520, LONG_AGO)
    with running(memory.root, log=tmp_path / "log"):
        wait_until(lambda: len(session.turns()) <= 402, "the oldest turns are summarised")
        first = session.turns()[0]
        assert first.data["type"] == "summary"
        assert len(session.evicted()) == 520 - 400
        assert session.turns()[-1].text == "Turn 519 about the shop"
    session.bring_back()
    assert len(session.turns()) == 520


def test_turns_of_today_are_not_summarised_however_many_there_are(memory: Memory) -> None:
    session = memory.create_session(id="s1")
    talk(session, 510, now().isoformat())
    done = summarise_turns(session)
    assert done.actions == []
    assert done.notes == ["s1: nothing was freed, because nothing may go"]
    assert len(session.turns()) == 510


def test_how_many_turns_are_too_many_is_a_setting(memory: Memory, tmp_path: Path) -> None:
    session = memory.create_session(id="s1")
    talk(session, 40, LONG_AGO)
    config = settings_file(tmp_path, compaction={"summarized_above_turns": 20})
    with running(memory.root, log=tmp_path / "log", config=config):
        wait_until(lambda: len(session.turns()) <= 17, "it is summarised")
    size = session.size()
    assert trigger(size, CompactionPolicy(summarized_above_turns=0), 9999) is None
    assert trigger(size, CompactionPolicy(automatic=False), 9999) is None
