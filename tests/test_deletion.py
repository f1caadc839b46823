"""Deleting and restoring: gone from every answer at once, and back in its old place byte for byte."""

from __future__ import annotations

import errno
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from smp_client import Conflict, CorruptionDetected, Invalid, Memory, MemoryNotFound, Session, StorageFailed, TransactionPending
from smp_client.files import Tree
from smp_client.privacy.deleting.store import Store
from smp_client.transaction import Transaction


@pytest.fixture
def filled(session: Session) -> Session:
    for number in range(4):
        session.add_turn("vera", f"said {number}")
    for number in range(3):
        session.record_decision(f"decided {number}", made_by="vera", tags=["security"])
    session.record_finding("found", discovered_by="vera", severity="critical")
    session.relate("DEC-002", "FIND-001", "resolves")
    return session


def path_of(session: Session, file: str) -> Path:
    return Path(session.scope.tree.root / "active" / session.id / file)


def content(session: Session, file: str) -> bytes:
    return path_of(session, file).read_bytes()


def write_behind(session: Session, file: str, text: str) -> None:
    """As a person does who adds to a file by hand."""
    path_of(session, file).write_bytes(content(session, file) + text.encode())


def copies(memory: Memory) -> set[str]:
    with tarfile.open(memory.root / "deleted/s1/backup.tar.gz") as archive:
        return {name for name in archive.getnames() if not name.startswith("values/")}


@pytest.mark.parametrize("memory_id", ["DEC-001", "DEC-002", "DEC-003", "FIND-001", "turn-1", "turn-3", "turn-4"])
def test_what_is_deleted_is_gone_from_every_answer(filled: Session, memory: Memory, memory_id: str) -> None:
    """In this process and for another that comes new."""
    assert filled.search("decided said found", limit=50)
    filled.delete(memory_id, reason="privacy", deleted_by="user-123")
    for session in (filled, Memory(memory.root).session(filled.id)):
        every = [*session.search("decided said found", limit=50), *session.by_time("2000-01-01"), *session.by_agent("vera")]
        every += [*session.turns(), *session.turns(last=10), *session.records("decision"), *session.by_topic("security")]
        assert memory_id not in {record.id for record in every}
        assert memory_id not in {event.ref for event in session.timeline()}
        with pytest.raises(MemoryNotFound):
            session.get(memory_id)


@pytest.mark.parametrize(
    "order", [("DEC-001", "DEC-002", "DEC-003"), ("DEC-003", "DEC-001", "DEC-002"), ("turn-2", "turn-1", "turn-4")]
)
def test_restoring_gives_the_same_bytes(filled: Session, order: tuple[str, ...]) -> None:
    """Whatever the order; only the highest number ever given is noted in the head of a list."""
    file = "conversation.md" if order[0].startswith("turn") else "decisions.yaml"
    before = content(filled, file)
    for memory_id in order:
        filled.delete(memory_id, reason="r")
    assert before != content(filled, file)
    for memory_id in order:
        filled.restore(memory_id)
    assert content(filled, file).replace(b"last_id: 3\n", b"") == before
    assert filled.deleted() == []


def test_a_list_that_became_empty_gets_its_memory_back(filled: Session) -> None:
    filled.delete("FIND-001", reason="r")
    assert filled.restore("FIND-001").text == "found"
    assert [record.id for record in filled.records("finding")] == ["FIND-001"]


def test_the_record_says_what_when_why_and_until_when(filled: Session, memory: Memory) -> None:
    filled.delete(["turn-2", "DEC-001"], reason="personal", deleted_by="user-123")
    said = yaml.safe_load((memory.root / "deleted/s1/deletion-record.yaml").read_text())["deletion"]
    assert (said["session_id"], said["deleted_by"], said["reason"]) == ("s1", "user-123", "personal")
    items = [(item["type"], item["id"]) for item in said["deleted_items"]]
    assert items == [("conversation_turn", "turn-2"), ("decision", "DEC-001")]
    assert said["recovery_deadline"] > said["deleted_at"]
    assert (memory.root / said["backup_location"]).is_file()
    assert [item.id for item in filled.deleted()] == ["turn-2", "DEC-001"]


def test_a_deleted_turn_keeps_its_number_and_nothing_else(filled: Session) -> None:
    filled.delete("turn-4", reason="r")
    assert b"said 3" not in content(filled, "conversation.md")
    assert b"## Turn 4 - " in content(filled, "conversation.md")
    assert filled.add_turn("vera", "next").id == "turn-5"


def test_ids_of_deleted_memories_are_not_given_again(filled: Session) -> None:
    filled.delete("DEC-003", reason="r")
    assert filled.record_decision("next", made_by="vera").id == "DEC-004"
    filled.restore("DEC-003")
    assert [record.id for record in filled.records("decision")] == ["DEC-001", "DEC-002", "DEC-003", "DEC-004"]


def test_all_or_none(filled: Session) -> None:
    """One id that there is not, and nothing is deleted."""
    with pytest.raises(MemoryNotFound):
        filled.delete(["DEC-001", "DEC-009"], reason="r")
    with pytest.raises(Invalid):
        filled.delete("DEC-001", reason=" ")
    assert filled.get("DEC-001").text == "decided 0"
    assert filled.deleted() == []


@pytest.mark.parametrize("memory_id", ["DEC-001", "turn-2"])
@pytest.mark.parametrize(("owner", "step"), [(Store, "save"), (Transaction, "remove"), (Transaction, "commit")])
def test_a_change_in_between_is_not_deleted_unseen(
    filled: Session, monkeypatch: pytest.MonkeyPatch, memory_id: str, owner: type, step: str
) -> None:
    """The copy would be of an older one: nothing is deleted, and the record does not say so either."""
    original = getattr(owner, step)
    pending = ["one change"]

    def late(self: Any, *rest: Any, **further: Any) -> Any:
        if pending:
            pending.clear()
            filled.update(memory_id, note="acknowledged")
        return original(self, *rest, **further)

    monkeypatch.setattr(owner, step, late)
    with pytest.raises(Conflict):
        filled.delete([memory_id, "DEC-002"], reason="r")
    assert filled.get(memory_id).data["note"] == "acknowledged"
    assert filled.get("DEC-002").text == "decided 1"
    assert filled.deleted() == []


def test_a_damaged_backup_is_said_and_left_alone(filled: Session, memory: Memory) -> None:
    filled.delete("DEC-001", reason="r")
    backup = Path(memory.root / "deleted/s1/backup.tar.gz")
    backup.write_bytes(backup.read_bytes()[:40])
    with pytest.raises(CorruptionDetected):
        filled.restore("DEC-001")
    assert [item.id for item in filled.deleted()] == ["DEC-001"]


def test_restoring_what_is_not_deleted_says_so(filled: Session) -> None:
    with pytest.raises(MemoryNotFound, match="no deleted memory 'DEC-001'"):
        filled.restore("DEC-001")


def _flow(session: Session) -> None:
    records = ", ".join(f"{{id: {record.id}, decision: {record.text}, made_by: vera}}" for record in session.records("decision"))
    path_of(session, "decisions.yaml").write_text(f"version: 1\ndecisions: [{records}]\n")


def _no_line_end(session: Session) -> None:
    path_of(session, "decisions.yaml").write_bytes(content(session, "decisions.yaml").rstrip())


def _indented_anew(session: Session) -> None:
    lines = content(session, "decisions.yaml").decode().split("\n")
    path_of(session, "decisions.yaml").write_text("\n".join(line.removeprefix("  ") for line in lines))


def _other_line_ends(session: Session) -> None:
    path_of(session, "decisions.yaml").write_bytes(content(session, "decisions.yaml").replace(b"\n", b"\r\n"))


def _removed(session: Session) -> None:
    path_of(session, "decisions.yaml").unlink()


STYLES = [_flow, _no_line_end, _indented_anew, _other_line_ends, _removed]


@pytest.mark.parametrize("memory_ids", [["DEC-002"], ["DEC-003"], ["DEC-001", "DEC-002", "DEC-003"]], ids=["mid", "last", "all"])
@pytest.mark.parametrize("edit", STYLES)
def test_a_file_whose_style_changed_gets_its_memory_back(
    filled: Session, edit: Callable[[Session], None], memory_ids: list[str]
) -> None:
    """With every value as it was, no harm to the others, and whatever is written next finds the file in order."""
    was = {record.id: record.data for record in filled.records("decision")}
    filled.delete(memory_ids, reason="r")
    edit(filled)
    left = {record.id: record.data for record in filled.records("decision")}
    for memory_id in memory_ids:
        filled.restore(memory_id)
    new = filled.record_decision("next", made_by="vera")
    back = {memory_id: was[memory_id] for memory_id in memory_ids}
    assert {record.id: record.data for record in filled.records("decision")} == {**left, **back, new.id: new.data}
    assert (filled.problems(), filled.deleted()) == ([], [])


def test_what_stood_in_a_flow_list_goes_back_into_it(filled: Session) -> None:
    _flow(filled)
    filled.delete(["DEC-001", "DEC-002", "DEC-003"], reason="r")
    assert [filled.restore(memory_id).text for memory_id in ("DEC-002", "DEC-001")] == ["decided 1", "decided 0"]
    assert filled.problems() == []


def test_a_turn_goes_back_behind_one_without_a_line_end(filled: Session) -> None:
    """Also where somebody has taken out what stood in its place."""
    filled.delete("turn-4", reason="r")
    before, _, _ = content(filled, "conversation.md").partition(b"<!-- smp -->\n## Turn 4")
    path_of(filled, "conversation.md").write_bytes(before.rstrip())
    filled.restore("turn-4")
    assert [turn.text for turn in filled.turns()] == [f"said {number}" for number in range(4)]


def test_what_cannot_be_put_back_changes_nothing(filled: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """No way leads to a file that holds it and all the others: the file stays as it is, and so does the copy."""
    filled.delete("DEC-002", reason="r")
    before = content(filled, "decisions.yaml")
    attempts = [before + b"  - id: ]", before, b""]
    monkeypatch.setattr("smp_client.privacy.deleting.back_into_lists._attempts", lambda *_: iter(attempts))
    with pytest.raises(CorruptionDetected, match="cannot be put back"):
        filled.restore("DEC-002")
    assert content(filled, "decisions.yaml") == before
    monkeypatch.undo()
    assert filled.restore("DEC-002").text == "decided 1"


def test_the_copy_stays_until_the_memory_reads_back(filled: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.delete("DEC-002", reason="r")
    monkeypatch.setattr("smp_client.privacy.deleting.restoring._into", lambda *_: None)
    with pytest.raises(CorruptionDetected, match="does not read back"):
        filled.restore("DEC-002")
    monkeypatch.undo()
    assert filled.restore("DEC-002").text == "decided 1"


def test_another_memory_of_the_same_id_does_not_cost_the_deleted_one(filled: Session, memory: Memory) -> None:
    """Restoring says that its place is taken; deleting the other too keeps both."""
    filled.delete("DEC-001", reason="r")
    write_behind(filled, "decisions.yaml", "  - id: DEC-001\n    decision: another\n    made_by: bert\n")
    assert [item.id for item in filled.deleted()] == ["DEC-001"]
    filled.delete("DEC-002", reason="r")
    assert copies(memory) == {"decisions.yaml/DEC-001", "decisions.yaml/DEC-002"}
    with pytest.raises(Conflict, match=r"Another DEC-001 stands in decisions\.yaml"):
        filled.restore("DEC-001")
    filled.delete("DEC-001", reason="r")
    assert filled.restore("DEC-001").text == "another"
    write = path_of(filled, "decisions.yaml")
    write.write_bytes(write.read_bytes().replace(b"- id: DEC-001\n", b"- id: DEC-100\n"))
    assert filled.restore("DEC-001").text == "decided 0"
    assert [item.id for item in filled.deleted()] == ["DEC-002"]


def test_a_note_in_the_place_of_a_turn_does_not_cost_the_turn(filled: Session, memory: Memory) -> None:
    filled.delete("turn-1", reason="r")
    path = path_of(filled, "conversation.md")
    path.write_text(path.read_text().replace("**Type:** deleted\n", "**Type:** deleted\n\n(removed on request)\n", 1))
    filled.delete("turn-2", reason="r")
    assert copies(memory) == {"conversation.md/turn-1", "conversation.md/turn-2"}
    with pytest.raises(Conflict):
        filled.restore("turn-1")


@pytest.mark.parametrize(
    ("file", "text"),
    [("decisions.yaml", "  - id: DEC-001\n    decision: second\n    made_by: bert\n"),
     ("learnings.yaml", "  - id: DEC-001\n    learning: second\n    learned_by: bert\n")],
)  # fmt: skip
def test_of_a_doubled_id_none_is_deleted(filled: Session, file: str, text: str) -> None:
    """The older one would answer again: both are named instead, so that somebody can mend it."""
    filled.record_learning("first", learned_by="vera")
    write_behind(filled, file, text)
    before = content(filled, file)
    with pytest.raises(CorruptionDetected, match=rf"decisions.yaml line \d+, {file} line \d+; nothing was deleted"):
        filled.delete(["DEC-002", "DEC-001"], reason="r")
    assert (content(filled, file), filled.deleted()) == (before, [])


def test_a_turn_that_looks_deleted_is_refused(filled: Session) -> None:
    with pytest.raises(Invalid, match="must say something"):
        filled.add_turn("vera", "", type="deleted", attachment="important")
    filled.add_turn("vera", "", type="message")
    filled.add_turn("vera", "a text", type="deleted")
    assert [turn.id for turn in filled.turns(last=2)] == ["turn-5", "turn-6"]


@pytest.mark.parametrize("call", ["rename", "create_temporary", "make_directory"])
def test_a_disk_that_refuses_is_told_as_such(filled: Session, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """And all is as it was: what was to be deleted is there, what was deleted can be restored when the disk is well again."""
    filled.delete("turn-2", reason="r")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Tree, call, refuse)
    for action in (lambda: filled.delete("DEC-001", reason="r"), lambda: filled.restore("turn-2")):
        with pytest.raises(StorageFailed):
            action()
    monkeypatch.undo()
    assert filled.get("DEC-001").text == "decided 0"
    assert filled.restore("turn-2").text == "said 1"


def test_a_file_whose_deletion_is_only_recorded_is_gone(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, say: the deletion will happen, so whoever asks is told of no artifact and no state, in whatever way."""
    session.save_artifact("report", "a zebra in it")
    session.save_agent_state("vera", {"a": "lion"})

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("smp_client.journal.carry_out", refuse)
        with pytest.raises(TransactionPending):
            session.delete(["report", "vera"], reason="r")
        with pytest.raises(MemoryNotFound):
            session.artifact("report")
        assert (session.artifacts(), session.agent_states(), session.agent_state("vera")) == ([], [], {})
        assert session.search("zebra") == []
        assert {one.id for one in session.deleted()} == {"report", "vera"}
    assert session.restore("report").text == "a zebra in it"
    assert session.artifacts() == ["report"]


def test_a_deletion_that_is_only_recorded_keeps_its_copies(filled: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("smp_client.journal.carry_out", refuse)
    with pytest.raises(TransactionPending):
        filled.delete(["DEC-001", "turn-1"], reason="r")
    assert [item.id for item in filled.deleted()] == ["DEC-001", "turn-1"]
    monkeypatch.undo()
    assert [filled.restore(memory_id).text for memory_id in ("turn-1", "DEC-001")] == ["said 0", "decided 0"]


FOREIGN: list[Any] = [{"id": "DEC-009"}, {"file": "nosuch.yaml", "id": "DEC-009"}, {"file": "decisions.yaml"}, "DEC-009", None,
           {"file": "../../x", "id": "DEC-009"}, {"file": "conversation.md", "id": "turn-" + "9" * 5000}]  # fmt: skip


def test_what_a_person_wrote_into_the_record_is_left_alone(filled: Session, memory: Memory) -> None:
    """It is not listed, nothing fails on it, and it stays in the record."""
    filled.delete("DEC-001", reason="r")
    record = memory.root / "deleted/s1/deletion-record.yaml"
    said = yaml.safe_load(record.read_text())
    said["deletion"]["deleted_items"] += FOREIGN
    record.write_text(yaml.safe_dump(said))
    assert [item.id for item in filled.deleted()] == ["DEC-001"]
    filled.delete("DEC-002", reason="r")
    filled.restore("DEC-001")
    items = yaml.safe_load(record.read_text())["deletion"]["deleted_items"]
    assert items[:-1] == FOREIGN
    assert items[-1]["id"] == "DEC-002"
    with pytest.raises(MemoryNotFound):
        filled.restore("DEC-009")


@pytest.mark.parametrize("said", [
    {"reason": None}, {"reason": 5}, {"reason": "\ud800"}, {"deleted_by": None}, {"deleted_by": "\ud800"}, {"deleted_by": ""},
    {"id": 5}, {"id": None}, {"id": ["DEC-001", 5]}, {"id": b"DEC-001"}, {"id": "../x"},
])  # fmt: skip
def test_what_is_no_text_is_refused(filled: Session, said: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        filled.delete(**{"id": "DEC-001", "reason": "r", **said})
    assert filled.get("DEC-001").text == "decided 0"


def test_at_the_end_of_time_the_deadline_is_the_end(filled: Session, memory: Memory) -> None:
    late = Memory(memory.root, clock=lambda: datetime(9999, 12, 31, tzinfo=UTC)).session(filled.id)
    assert late.delete("DEC-001", reason="r")[0].recovery_deadline.startswith("9999-12-31T23:59:59")
    assert late.restore("DEC-001").text == "decided 0"


def test_an_id_in_another_file_than_its_form_says_is_found(filled: Session) -> None:
    write_behind(filled, "findings.yaml", "  - id: DEC-777 # by hand\n    finding: alien\n    severity: low\n")
    before = content(filled, "findings.yaml")
    assert filled.delete("DEC-777", reason="r")[0].type == "finding"
    with pytest.raises(MemoryNotFound):
        filled.get("DEC-777")
    assert filled.restore("DEC-777").text == "alien"
    assert content(filled, "findings.yaml").replace(b"last_id: 1\n", b"") == before
