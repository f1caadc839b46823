"""A memory that is gone from its file, and that nobody deleted through SMP, is a deleted memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bundles import evict
from bytes_left import files_with
from daemons import running, smp

from smp_client import Memory, Session
from smp_client.index.sync import bring_up_to_date
from smp_client.model.layout import MARKER
from smp_client.passes.vanished import OUTSIDE, settle_here

OLD = "decisions.yaml"


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions")


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1", user="ada", project="atlas", quota_bytes=5_000_000)
    for number in range(1, 4):
        session.record_decision(f"Decision {number}", made_by="architect", tags=["auth"])
    session.add_turn("ada", "We need SAML")
    session.save_agent_state("veritas", {"task": "review"})
    session.save_artifact("notes", "The text of the notes\n", created_by="veritas")
    memory.search("Decision")  # the index knows them all
    return session


def path(session: Session, file: str = "") -> Path:
    return session.memory.root / "active" / session.id / file


def cut(session: Session, memory_id: str, file: str = OLD) -> None:
    """Remove a record with an editor."""
    head, *records = path(session, file).read_text().split("  - id: ")
    left = [one for one in records if not one.startswith(memory_id)]
    assert len(left) == len(records) - 1
    path(session, file).write_text("  - id: ".join([head, *left]))


def deleted(session: Session) -> list[str]:
    return [one.id for one in session.deleted()]


def settled(memory: Memory, *, is_believed: bool = False) -> list[tuple[str, ...]]:
    """Index everything without a daemon, and ask where memories went."""
    memory.search("Decision")  # a client that asks is the first to miss them
    bring_up_to_date(memory)
    outcome = settle_here(memory, is_believed=is_believed)
    return [action.about for action in outcome.actions]


def test_an_old_copy_over_a_newer_file_deletes_nothing_for_good(
    memory: Memory, session: Session
) -> None:
    before = session.get("DEC-003").data
    old = path(session, OLD).read_bytes().split(b"  - id: DEC-003")[0]
    path(session, OLD).write_bytes(old)
    assert settled(memory) == [("DEC-003",)]
    (held,) = session.deleted()
    assert (held.id, held.facts["why"], held.facts["by"]) == ("DEC-003", OUTSIDE, "smp")
    assert session.restore("DEC-003").data == before
    assert deleted(session) == []
    assert settled(memory) == []


def test_a_memory_in_the_middle_comes_back_into_its_place(memory: Memory, session: Session) -> None:
    before = path(session, OLD).read_bytes()
    cut(session, "DEC-002")
    assert settled(memory) == [("DEC-002",)]
    session.restore("DEC-002")
    assert path(session, OLD).read_bytes() == before


def test_a_turn_a_state_and_an_artifact_that_are_removed_can_be_restored(
    memory: Memory, session: Session
) -> None:
    turn = session.get("turn-1").data
    state = session.agent_state("veritas")
    artifact = session.artifact("notes").data
    path(session, "conversation.md").unlink()
    path(session, "agent-states/veritas.yaml").unlink()
    path(session, "artifacts/notes.md").unlink()
    assert sorted(settled(memory)) == [("notes",), ("turn-1",), ("veritas",)]
    for memory_id in ("turn-1", "veritas", "notes"):
        memory.privacy.restore("s1", [memory_id])
    assert session.get("turn-1").data == turn
    assert session.agent_state("veritas") == state
    assert session.artifact("notes").data == artifact


def test_a_session_that_is_removed_by_hand_is_a_deleted_session(
    memory: Memory, session: Session
) -> None:
    known = {one.id: one.data for one in session.records("decision")}
    context = session.metadata()["context"]
    shutil.rmtree(path(session))
    settled(memory)
    (one,) = memory.deleted_sessions()
    assert (one.session, one.why) == ("s1", OUTSIDE)
    memory.undelete_session("s1")
    again = memory.session("s1")
    assert {one.id: one.data for one in again.records("decision")} == known
    assert again.metadata()["context"] == context
    assert again.quota_bytes() == 5_000_000
    assert again.agent_state("veritas")["task"] == "review"
    assert again.artifact("notes").text == "The text of the notes\n"
    assert [turn.text for turn in again.turns()] == ["We need SAML"]
    assert settled(memory) == []


def test_an_archive_that_is_removed_by_hand_is_a_deleted_session(
    memory: Memory, session: Session
) -> None:
    memory.archive_session("s1")
    memory.search("Decision")
    shutil.rmtree(memory.root / "archived/s1")
    settled(memory)
    memory.undelete_session("s1")
    assert memory.session("s1").get("DEC-002").text == "Decision 2"


def test_nothing_that_smp_itself_removes_counts_as_vanished(
    memory: Memory, session: Session
) -> None:
    session.delete("DEC-001", reason="not needed")
    assert settled(memory) == []
    session.restore("DEC-001")
    assert settled(memory) == []
    evict(memory, "s1", "DEC-002")
    assert settled(memory) == []
    session.bring_back()
    assert settled(memory) == []
    memory.archive_session("s1")
    assert settled(memory) == []
    memory.restore_session("s1")
    assert settled(memory) == []
    memory.delete_session("s1", reason="not needed")
    assert settled(memory) == []
    memory.undelete_session("s1")
    assert settled(memory) == []
    memory.privacy.anonymize("s1", reason="asked for")
    assert settled(memory) == []
    memory.privacy.purge_now("s1", ["DEC-003"])
    assert settled(memory) == []
    memory.privacy.purge_now("s1")
    assert settled(memory) == []
    assert memory.deleted_sessions() == []


def test_a_purged_memory_leaves_no_byte_and_does_not_come_back(
    memory: Memory, session: Session
) -> None:
    session.record_decision("Unforgettable words", made_by="ada")
    memory.search("Unforgettable")
    cut(session, "DEC-004")
    memory.search("Unforgettable")
    assert files_with(memory.root, b"Unforgettable")  # in the index, until somebody asks
    assert settled(memory) == [("DEC-004",)]
    memory.privacy.purge_now("s1", ["DEC-004"])
    assert not files_with(memory.root, b"Unforgettable")
    assert settled(memory) == []


def test_a_secret_that_somebody_cut_out_of_a_file_is_not_kept(
    memory: Memory, session: Session
) -> None:
    token = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    with path(session, OLD).open("a") as file:
        file.write(f"  - id: DEC-004\n    made_by: ada\n    decision: The token is {token}\n")
    memory.search("token")
    cut(session, "DEC-004")
    assert settled(memory) == [("DEC-004",)]
    assert token not in str(session.deleted()[0].value)


def test_a_memory_that_stands_again_is_not_deleted_any_more(
    memory: Memory, session: Session
) -> None:
    """`git checkout` of an old branch, and back."""
    new = path(session, OLD).read_bytes()
    cut(session, "DEC-002")
    settled(memory)
    assert deleted(session) == ["DEC-002"]
    path(session, OLD).write_bytes(new)
    settled(memory)
    assert deleted(session) == []
    cut(session, "DEC-002")
    assert settled(memory) == [("DEC-002",)]


def test_a_session_that_is_back_leaves_only_what_it_lacks_deleted(
    memory: Memory, session: Session, tmp_path: Path
) -> None:
    shutil.move(path(session), tmp_path / "aside")
    settled(memory)
    assert memory.deleted_sessions()
    shutil.move(tmp_path / "aside", path(session))
    cut(session, "DEC-002")
    settled(memory)
    assert memory.deleted_sessions() == []
    assert deleted(session) == ["DEC-002"]
    memory.delete_session("s1", reason="not needed")
    assert [one.session for one in memory.deleted_sessions()] == ["s1"]


def test_an_unreadable_record_is_not_a_deletion(memory: Memory, session: Session) -> None:
    whole = path(session, OLD).read_text()
    path(session, OLD).write_text(whole.replace("Decision 2", '"Decision 2'))
    assert settled(memory) == []
    assert deleted(session) == []
    path(session, OLD).write_text(whole)
    assert settled(memory) == []
    assert session.get("DEC-002").text == "Decision 2"


def test_if_most_sessions_are_gone_at_once_none_is_deleted(memory: Memory) -> None:
    for name in ("a", "b", "c", "d"):
        memory.create_session(id=name).record_decision(f"Decision of {name}", made_by="ada")
    memory.search("Decision")
    for name in ("a", "b", "c"):
        shutil.rmtree(memory.root / "active" / name)
    bring_up_to_date(memory)
    outcome = settle_here(memory)
    assert outcome.actions == []
    assert "3 of 4 sessions have disappeared at once" in outcome.problems[0]
    assert memory.deleted_sessions() == []
    assert smp("reindex", "--root", memory.root).returncode == 0
    assert len(memory.deleted_sessions()) == 3


def test_without_its_marker_nothing_of_a_tree_is_deleted(memory: Memory, session: Session) -> None:
    cut(session, "DEC-002")
    memory.search("Decision")
    (memory.root / MARKER).unlink()
    assert settle_here(memory).actions == []


def test_a_rebuild_forgets_no_memory_that_only_the_index_knew(
    memory: Memory, session: Session
) -> None:
    cut(session, "DEC-002")
    assert smp("reindex", "--root", memory.root).returncode == 0
    assert deleted(session) == ["DEC-002"]


def test_an_id_of_a_memory_that_an_old_copy_removed_is_not_given_again(
    memory: Memory, session: Session
) -> None:
    old = path(session, OLD).read_bytes().split(b"  - id: DEC-003")[0]
    path(session, OLD).write_bytes(old)
    settled(memory)
    assert session.record_decision("Another", made_by="ada").id == "DEC-004"
    assert session.restore("DEC-003").text == "Decision 3"


def test_a_purge_takes_the_history_of_a_memory_that_an_editor_removed(
    memory: Memory, session: Session
) -> None:
    session.record_decision("okapi first", made_by="ada")
    session.update("DEC-004", decision="numbat second")
    session.update("DEC-001", decision="Decision one")
    session.save_agent_state("veritas", {"task": "okapi third"})
    session.save_agent_state("veritas", {"task": "numbat fourth"})
    memory.search("numbat")
    cut(session, "DEC-004")
    path(session, "agent-states/veritas.yaml").unlink()
    assert sorted(settled(memory)) == [("DEC-004",), ("veritas",)]
    outcome = memory.privacy.purge_now("s1", ["DEC-004", "veritas"])
    assert (outcome.problems, outcome.notes) == ([], [])
    assert files_with(memory.root, b"okapi", b"numbat") == []
    assert len(session.history("DEC-001")) == 1


def test_a_memory_that_waits_in_the_index_can_be_purged(memory: Memory, session: Session) -> None:
    session.record_decision("okapi", made_by="ada")
    memory.search("okapi")
    cut(session, "DEC-004")
    memory.search("Decision")
    memory.privacy.purge_now("s1", "DEC-004")
    assert files_with(memory.root, b"okapi") == []
    assert settled(memory) == []


def test_a_name_in_a_memory_that_waits_in_the_index_is_reported(
    memory: Memory, session: Session
) -> None:
    session.record_decision("Barnaby wants SAML", made_by="ada")
    memory.search("Barnaby")
    cut(session, "DEC-004")
    memory.search("Decision")
    outcome = memory.privacy.anonymize("s1", names=["Barnaby"], now=True)
    assert deleted(session) == ["DEC-004"]
    assert any("deleted/s1" in note for note in outcome.notes)


def test_beside_a_daemon_a_purge_waits_until_a_removed_memory_is_deleted(
    memory: Memory, session: Session, tmp_path: Path
) -> None:
    session.record_decision("okapi", made_by="ada")
    with running(memory.root, log=tmp_path / "log"):
        memory.search("okapi")
        bring_up_to_date(memory)
        cut(session, "DEC-004")
        memory.privacy.purge_now("s1", "DEC-004")
    assert files_with(memory.root, b"okapi") == []
    assert deleted(session) == []


def test_a_purge_goes_on_when_somebody_destroys_the_index_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(tmp_path / "sessions")
    memory.create_session(id="s1").record_decision("Use OAuth", made_by="ada")
    memory.search("oauth")
    memory.close()

    def destroyed(memory: Memory, **_: object) -> str:
        (memory.root / ".smp/index.db").write_bytes(b"no database")
        return "daemon"

    monkeypatch.setattr("smp_client.passes.vanished.bring_up_to_date", destroyed)
    assert memory.privacy.purge_now("s1", ["DEC-001"]).problems == []
