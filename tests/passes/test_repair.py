"""A repair sets broken bytes aside, brings back what is known of them, and says what it did."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from daemons import running, smp, wait_until

from smp_client import Memory, Session
from smp_client.disk.quarantine import quarantined


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions")


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1", user="ada", project="atlas", quota_bytes=3_000_000)
    for number in range(1, 4):
        session.record_decision(f"Decision {number}", made_by="architect", rationale="Because")
    session.add_turn("ada", "We need SAML")
    session.save_agent_state("veritas", {"task": "review"})
    memory.search("Decision")
    return session


def path(session: Session, file: str) -> Path:
    return session.memory.root / "active" / session.id / file


def spoil(session: Session, file: str, old: str, new: str) -> None:
    text = path(session, file).read_text()
    assert old in text
    path(session, file).write_text(text.replace(old, new, 1))


def done(session: Session) -> list[tuple[str, str]]:
    """Repair, after a dry run that says the same and changes nothing."""
    before = path(session, "decisions.yaml").read_bytes()
    planned = session.repair(dry_run=True)
    assert path(session, "decisions.yaml").read_bytes() == before
    outcome = session.repair()
    assert [one.about for one in outcome.actions] == [one.about for one in planned.actions]
    assert outcome.problems == planned.problems
    return [(one.type, one.about[0]) for one in outcome.actions]


def pieces(memory: Memory) -> bytes:
    return b"".join((memory.root / name).read_bytes() for name in quarantined(memory.tree))


def test_a_broken_record_comes_back_from_the_index(memory: Memory, session: Session) -> None:
    whole = path(session, "decisions.yaml").read_bytes()
    spoil(session, "decisions.yaml", "Decision 2", '"Decision 2')
    assert done(session) == [("set_aside", "decisions.yaml"), ("bring_back", "DEC-002")]
    assert path(session, "decisions.yaml").read_bytes() == whole
    assert b'"Decision 2' in pieces(memory)
    assert session.repair().actions == []


def test_the_last_record_comes_back_too(memory: Memory, session: Session) -> None:
    spoil(session, "decisions.yaml", "Decision 3", '"Decision 3')
    assert done(session) == [("set_aside", "decisions.yaml"), ("bring_back", "DEC-003")]
    assert session.get("DEC-003").text == "Decision 3"


def test_a_file_that_is_no_yaml_any_more_comes_back_whole(memory: Memory, session: Session) -> None:
    path(session, "decisions.yaml").write_bytes(b"\xff\x00 the disk has failed")
    assert [about for type, about in done(session) if type == "bring_back"] == [
        "DEC-001",
        "DEC-002",
        "DEC-003",
    ]
    assert [one.text for one in session.records("decision")] == [
        "Decision 1",
        "Decision 2",
        "Decision 3",
    ]
    assert b"the disk has failed" in pieces(memory)


def test_broken_metadata_come_back_from_the_index(memory: Memory, session: Session) -> None:
    known = session.metadata()
    path(session, "metadata.yaml").write_text("session: [")
    assert done(session) == [("set_aside", "metadata.yaml"), ("make_metadata", "metadata.yaml")]
    assert session.metadata() == known
    assert b"session: [" in pieces(memory)


def test_without_an_index_metadata_are_made_from_the_files(
    memory: Memory, session: Session
) -> None:
    memory.close()
    shutil.rmtree(memory.root / ".smp")
    memory.create()
    path(session, "metadata.yaml").write_text("session: [")
    session.repair()
    assert session.metadata()["created_at"] == session.get("DEC-001").data["timestamp"]


def test_a_broken_state_comes_back_from_the_index(memory: Memory, session: Session) -> None:
    known = session.agent_state("veritas")
    path(session, "agent-states/veritas.yaml").write_text("agent_state: [")
    memory.search("Decision")
    assert done(session) == [
        ("set_aside", "agent-states/veritas.yaml"),
        ("bring_back", "veritas"),
    ]
    assert session.agent_state("veritas") == known


def test_without_an_index_a_record_comes_back_from_its_history(
    memory: Memory, session: Session
) -> None:
    session.update("DEC-002", decision="Decision 2, changed")
    memory.close()
    spoil(session, "decisions.yaml", "Decision 2, changed", '"Decision 2, changed')
    shutil.rmtree(memory.root / ".smp")
    memory.create()
    outcome = session.repair()
    assert [one.reason for one in outcome.actions if one.type == "bring_back"] == [
        "DEC-002, from its history, as it was before a change"
    ]
    assert session.get("DEC-002").text == "Decision 2"


def test_a_record_of_which_nothing_is_known_is_named(memory: Memory, session: Session) -> None:
    memory.close()
    spoil(session, "decisions.yaml", "Decision 2", '"Decision 2')
    shutil.rmtree(memory.root / ".smp")
    memory.create()
    outcome = session.repair()
    assert any("DEC-002: nothing is known of it" in one for one in outcome.problems)
    assert [one.id for one in session.records("decision")] == ["DEC-001", "DEC-003"]
    assert b'"Decision 2' in pieces(memory)


def test_doctor_mends_while_a_daemon_runs(memory: Memory, session: Session, tmp_path: Path) -> None:
    with running(memory.root, log=tmp_path / "log") as daemon:
        spoil(session, "decisions.yaml", "Decision 2", '"Decision 2')
        wait_until(lambda: daemon.said("unreadable"), "the daemon has seen it")
        said = smp("doctor", "--fix", "--root", memory.root).stdout
        assert "s1 set aside: line" in said
        assert "s1 bring back: DEC-002, from the index" in said
        assert session.get("DEC-002").text == "Decision 2"
        assert smp("sync", "--root", memory.root).returncode == 0
        assert not daemon.said("removed outside of SMP")
    assert session.deleted() == []


def test_metadata_that_are_removed_under_a_daemon_come_back_with_their_project(
    memory: Memory, session: Session, tmp_path: Path
) -> None:
    context = session.metadata()["context"]
    with running(memory.root, log=tmp_path / "log"):
        path(session, "metadata.yaml").unlink()
        wait_until(path(session, "metadata.yaml").exists, "the metadata are back")
    assert session.metadata()["context"] == context
    assert session.quota_bytes() == 3_000_000
