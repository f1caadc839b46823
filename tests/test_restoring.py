"""Restoring after anything: crashes, conflicts, other deletions in between; and what a crash in a deletion leaves."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from smp_client import Conflict, Invalid, Memory, MemoryNotFound, Session, StorageFailed
from smp_client.audit import read as audit_lines
from smp_client.maintain import archive, evictions
from smp_client.maintain.traces import places_with
from smp_client.privacy.deleting import restoring, reworking
from smp_client.rewrite import rewrite
from smp_client.tidy import tidy

pytestmark = pytest.mark.usefixtures("short_grace")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "zebra-quagga-4711"


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=lambda: NOW)


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1")
    for number in range(1, 5):
        session.record_decision(f"Decision {number}", made_by="architect", timestamp=NOW + timedelta(minutes=number))
    session.save_artifact("report", "the old report\n")
    return session


def _with_turns(session: Session) -> Session:
    for number in range(1, 21):
        said = f"We decided to do number {number}, which is animal{number}word. " + "And so on. " * 40
        session.add_turn("user", said, timestamp=NOW - timedelta(days=20, hours=-number))
    return session


@pytest.fixture
def compacted(memory: Memory) -> Session:
    """Twenty old turns, of which compaction has taken most out; the summary has the id of the first."""
    session = _with_turns(memory.create_session(id="s2"))
    session.compact(reduction_pct=80)
    assert [one.id for one in session.evicted()][:3] == ["turn-1", "turn-2", "turn-3"]
    return session


def died(work: Callable[[], Any], module: Any, at: str) -> None:
    """Does it in a process that dies at this call, as if it were killed."""
    child = os.fork()
    if child == 0:
        setattr(module, at, lambda *_, **__: os._exit(9))
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def places(memory: Memory, text: str = SECRET) -> list[str]:
    return sorted(places_with(memory, [text.encode()]))


def decisions(session: Session) -> list[str]:
    return [record.id for record in session.records("decision")]


# A crash in a deletion.


def test_a_session_that_is_deleted_after_a_crash_can_be_restored(memory: Memory, compacted: Session) -> None:
    """What was cut off is finished first, and what settles later leaves the record of the whole session alone."""
    died(lambda: memory.delete("s2", "turn-2", reason="r"), evictions, "change")
    memory.delete_session("s2", reason="whole")
    assert reworking.settle_all(memory) == []
    assert [one.session for one in memory.deleted_sessions()] == ["s2"]
    memory.undelete_session("s2")
    assert [one.id for one in memory.deleted("s2")] == ["turn-2"]


def test_what_settles_keeps_what_else_the_record_says(memory: Memory, compacted: Session) -> None:
    """Also of a whole session that was deleted under a mark which nobody could settle."""
    died(lambda: memory.delete("s2", "turn-2", reason="r"), evictions, "change")
    record = memory.root / "deleted/s2/deletion-record.yaml"
    record.write_text(record.read_text() + "  remark: of a person\n")
    assert reworking.settle_all(memory) == ["s2"]
    assert "remark: of a person" in record.read_text()
    assert "unfinished" not in record.read_text()


def test_what_was_never_taken_out_is_not_deleted_even_when_it_is_changed_since(memory: Memory, session: Session) -> None:
    finding = session.record_finding("A finding", discovered_by="veritas", severity="low").id
    died(lambda: session.delete(finding, reason="r"), reworking, "_carry_out")
    session.resolve_finding(finding, resolved_by="u", action_taken="done")
    assert session.deleted() == []
    tidy(memory)
    assert not (memory.root / "deleted/s1").exists()
    assert [record.id for record in session.records("finding")] == [finding]


def test_of_a_batch_that_never_went_nothing_is_listed(memory: Memory, session: Session) -> None:
    """Not even what compaction has taken out since."""
    _with_turns(session)
    died(lambda: session.delete(["turn-2", "DEC-001"], reason="r"), reworking, "_carry_out")
    session.compact(reduction_pct=60)
    assert "turn-2" in [one.id for one in session.evicted()]
    assert session.deleted() == []


def test_nothing_that_is_on_its_way_out_is_brought_back(memory: Memory, compacted: Session) -> None:
    """Else it would stand there and be deleted at once."""
    died(lambda: memory.delete("s2", "turn-2", reason="r"), evictions, "change")
    with pytest.raises(MemoryNotFound):
        compacted.bring_back("turn-2")
    assert [one.id for one in compacted.deleted()] == ["turn-2"]


@pytest.mark.parametrize("is_archived", [False, True])
def test_what_a_crash_left_standing_is_erased_with_its_copy(memory: Memory, session: Session, is_archived: bool) -> None:
    secret = session.record_decision(SECRET, made_by="architect").id
    if is_archived:
        memory.archive_session("s1")
    died(lambda: memory.delete("s1", secret, reason="r"), reworking, "_carry_out")
    assert memory.purge_now("s1", [secret]).problems == []
    assert places(memory) == []


def test_what_an_editor_saved_back_is_erased_with_its_copy(memory: Memory, session: Session) -> None:
    secret = session.record_decision(SECRET, made_by="architect").id
    file = memory.root / "active/s1/decisions.yaml"
    opened = file.read_bytes()
    session.delete(secret, reason="r")
    file.write_bytes(opened)
    assert memory.purge_now("s1", [secret]).problems == []
    assert places(memory) == []
    assert decisions(session) == ["DEC-001", "DEC-002", "DEC-003", "DEC-004"]


@pytest.mark.parametrize("is_purged", [False, True])
def test_what_a_crash_left_unpacked_is_removed_by_whoever_comes_next(memory: Memory, session: Session, is_purged: bool) -> None:
    secret = session.record_decision(SECRET, made_by="architect").id
    memory.archive_session("s1")
    reworking.rework(memory, "s1", lambda _: [], reason="r", by="u")  # so that nothing is left of it from before it was archived
    died(lambda: memory.delete("s1", secret, reason="r"), archive, "repack_changed")
    assert any(place.startswith(".smp/tmp/s1+unpacked+") for place in places(memory))
    if is_purged:
        memory.purge_now("s1", [secret])
    else:
        assert memory.delete("s1", secret, reason="r").problems == []
    assert [place for place in places(memory) if not place.startswith(("deleted/", ".smp/leaving"))] == []


# A restoration that cannot be.


def test_a_restoration_that_cannot_be_changes_nothing_and_is_not_made_up_for(memory: Memory, session: Session) -> None:
    """Neither at once, nor by whoever deletes something later, when nothing would be in its way any more."""
    batch = session.delete(["DEC-001", "report"], reason="r").batch
    session.save_artifact("report", "another report\n")
    with pytest.raises(Conflict):
        session.restore_batch(batch)
    assert decisions(session) == ["DEC-002", "DEC-003", "DEC-004"]
    assert [one.id for one in session.deleted()] == ["DEC-001", "report"]
    (memory.root / "active/s1/artifacts/report.md").unlink()
    session.delete("DEC-002", reason="r")
    assert [one.id for one in session.deleted()] == ["DEC-001", "report", "DEC-002"]
    assert session.artifacts() == []
    assert {record.id for record in session.restore_batch(batch)} == {"DEC-001", "report"}


def test_what_was_put_back_goes_again_where_the_rest_cannot(
    memory: Memory, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Somebody edits a file just when it is restored, or the disk is full."""
    batch = session.delete(["DEC-001", "report"], reason="r").batch
    before = (memory.root / "active/s1/decisions.yaml").read_bytes()

    def full(scope: Any, file: str, change: Any) -> bytes:
        if file.startswith("artifacts/"):
            raise OSError(28, "No space left on device")
        return rewrite(scope, file, change)

    monkeypatch.setattr(restoring, "rewrite", full)
    with pytest.raises(StorageFailed, match="No space"):
        session.restore_batch(batch)
    monkeypatch.undo()
    assert (memory.root / "active/s1/decisions.yaml").read_bytes() == before
    assert "restoring" not in (memory.root / "deleted/s1/deletion-record.yaml").read_text()
    assert len(session.restore_batch(batch)) == 2


def test_what_cannot_be_settled_keeps_no_other_waiting(memory: Memory, session: Session, compacted: Session) -> None:
    record = memory.root / "deleted/s1/deletion-record.yaml"
    session.delete(["DEC-001", "DEC-002"], reason="r")
    record.write_text(record.read_text() + "  unfinished: {: nothing that can be read\n")
    died(lambda: memory.delete("s2", "turn-2", reason="r"), evictions, "change")
    assert reworking.settle_all(memory) == ["s2"]


def test_of_a_batch_what_can_be_restored_is_and_the_rest_is_told(memory: Memory, session: Session) -> None:
    for name in ("a", "b", "c"):
        memory.create_session(id=name).record_decision(f"on {SECRET}", made_by="architect")
    batch = memory.delete_everywhere(text=SECRET, reason="r")["a"].batch
    memory.delete_session("b", reason="r")
    done = memory.restore_batch(batch)
    assert sorted(record.session for record in done) == ["a", "c"]
    assert [problem.partition(":")[0] for problem in done.problems] == ["b"]


def test_a_restoration_that_was_cut_off_is_told_as_done_when_it_is_asked_for_again(memory: Memory, session: Session) -> None:
    batch = session.delete(["DEC-002", "report"], reason="r").batch
    died(lambda: session.restore_batch(batch), restoring, "_put_back")
    assert {record.id for record in session.restore_batch(batch)} == {"DEC-002", "report"}
    assert session.deleted() == []
    with pytest.raises(MemoryNotFound, match="back already"):
        session.restore_batch(batch)
    assert [line["action"] for line in audit_lines(memory.tree)] == ["delete", "restore"]


def test_what_is_back_stays_back_when_it_is_changed_before_anybody_settles(memory: Memory, session: Session) -> None:
    finding = session.record_finding("A finding", discovered_by="veritas", severity="low").id
    session.delete(finding, reason="r")
    died(lambda: session.restore(finding), restoring, "_require_back")
    session.resolve_finding(finding, resolved_by="u", action_taken="done")
    assert session.deleted() == []
    tidy(memory)
    assert not (memory.root / "deleted/s1").exists()
    assert "action_taken" in str(session.get(finding).data)


def test_what_is_not_said_is_not_guessed(memory: Memory, session: Session) -> None:
    session.delete(["DEC-001", "DEC-002"], reason="r")
    nothing: Any = None
    wrong: list[Callable[[], Any]] = [lambda: memory.restore_batch(nothing), lambda: session.restore_batch("")]
    wrong.append(lambda: memory.restore("s1"))
    for ask in wrong:
        with pytest.raises(Invalid):
            ask()
    assert [record.id for record in memory.restore("s1", "DEC-001")] == ["DEC-001"]


# Where it comes back.


@pytest.mark.parametrize("out", [("2", "3"), ("3", "2"), ("1", "2", "3", "4"), ("4", "3", "2", "1"), ("2", "4", "3", "1")])
@pytest.mark.parametrize("is_forwards", [True, False])
def test_any_order_of_deleting_and_restoring_gives_the_old_order(session: Session, out: tuple[str, ...], is_forwards: bool) -> None:
    for number in out:
        session.delete(f"DEC-00{number}", reason="r")
    for number in out if is_forwards else out[::-1]:
        session.restore(f"DEC-00{number}")
    assert decisions(session) == ["DEC-001", "DEC-002", "DEC-003", "DEC-004"]


@pytest.mark.parametrize("count", [3, 6])
def test_in_an_order_that_a_person_made_each_comes_back_to_its_place(memory: Memory, session: Session, count: int) -> None:
    """As a batch, few or many, and one by one."""
    for number in range(5, 9):
        session.record_decision(f"Decision {number}", made_by="architect")
    file = memory.root / "active/s1/decisions.yaml"
    head, *records = re.split(r"(?m)^(?=  - id:)", file.read_text())
    file.write_text(head + "".join(records[place] for place in (4, 2, 7, 0, 1, 6, 3, 5)))
    order = decisions(session)
    assert order == [f"DEC-00{number}" for number in (5, 3, 8, 1, 2, 7, 4, 6)]
    chosen = [*order[:2], *order[3:]][:count]
    session.restore_batch(session.delete(chosen, reason="r").batch)
    assert decisions(session) == order
    for one in chosen:
        session.delete(one, reason="r")
    for one in sorted(chosen):
        session.restore(one)
    assert decisions(session) == order


def test_a_batch_of_evicted_turns_is_put_back_with_one_writing(
    memory: Memory, compacted: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [one.id for one in compacted.evicted()]
    batch = compacted.delete([one for one in before if one != "turn-1"], reason="r").batch
    written: list[str] = []
    really = evictions._save

    def save(tree: Any, name: str, *rest: Any) -> None:
        written.append(name)
        really(tree, name, *rest)

    monkeypatch.setattr(evictions, "_save", save)
    compacted.restore_batch(batch)
    assert len(written) == 1
    assert [one.id for one in compacted.evicted()] == before


# What a summary tells.


@pytest.mark.parametrize("is_one_batch", [False, True])
def test_a_deleted_summary_says_nothing_of_turns_that_stay_deleted_or_are_purged(
    memory: Memory, compacted: Session, is_one_batch: bool
) -> None:
    if is_one_batch:
        compacted.delete(["turn-1", "turn-2"], reason="r")
    else:
        compacted.delete("turn-1", reason="r")
        compacted.delete("turn-2", reason="r")
    compacted.restore("turn-1")
    assert "animal2word" not in compacted.get("turn-1").text
    assert "animal3word" in compacted.get("turn-1").text
    compacted.restore("turn-2")
    compacted.delete(["turn-1", "turn-2"], reason="r")
    assert memory.purge_now("s2", ["turn-2"]).problems == []
    assert places(memory, "animal2word") == []


def test_a_summary_that_is_deleted_first_loses_the_words_of_what_is_purged(memory: Memory, compacted: Session) -> None:
    compacted.delete("turn-1", reason="r")
    compacted.delete("turn-2", reason="r")
    assert memory.purge_now("s2", ["turn-2"]).problems == []
    assert places(memory, "animal2word") == []
    compacted.restore("turn-1")
    assert "animal3word" in compacted.get("turn-1").text


def test_where_a_text_stands_that_is_no_memory_is_told(memory: Memory) -> None:
    """The description of the session, and a comment in the head of a file."""
    session = memory.create_session(id="s1", topic=f"about {SECRET}")
    session.record_decision(f"on {SECRET}", made_by="architect")
    path = memory.root / "active/s1/decisions.yaml"
    path.write_text(f"# {SECRET}\n{path.read_text()}")
    done = memory.delete_everywhere(text=SECRET, reason="r")
    assert [one.id for one in done["s1"]] == ["DEC-001"]
    told = " ".join(done["s1"].notes)
    assert "active/s1/metadata.yaml" in told
    assert "active/s1/decisions.yaml" in told


COMMENTED = b"""version: 1
last_id: 9
decisions:
  # of the list
  - id: D1
    decision: first
  # above the second
  - id: D2
    decision: second
    # asked for by qqjane

      # phone 0170
  # above the third
  - id: D3
    # inside
    decision: third

  # above the fourth
  - id: D4
    decision: fourth
    # of the fourth
# behind all
"""


@pytest.mark.parametrize("back", [
    ["D1"], ["D2"], ["D3"], ["D4"], ["D1", "D2"], ["D2", "D3"], ["D3", "D2"], ["D4", "D3", "D1"], ["D1", "D2", "D3", "D4"],
    ["D3", "D1", "D4", "D2"],
], ids="-".join)  # fmt: skip
@pytest.mark.parametrize("way", ["one by one", "in the same order", "at once"])
def test_comments_below_the_last_field_go_and_come_with_a_record(memory: Memory, back: list[str], way: str) -> None:
    """All others stay where they are, and what is restored stands among them as before, byte for byte."""
    session = memory.create_session(id="commented")
    path = memory.root / "active/commented/decisions.yaml"
    path.write_bytes(COMMENTED)
    if way == "at once":
        batch = session.delete(back, reason="r").batch
        assert (b"qqjane" in path.read_bytes()) == ("D2" not in back)
        session.restore_batch(batch)
    else:
        for one in back:
            session.delete(one, reason="r")
        for one in back if way == "in the same order" else reversed(back):
            session.restore(one)
    assert path.read_bytes() == COMMENTED


def test_in_a_list_in_flow_style_each_comes_back_behind_the_one_before(memory: Memory) -> None:
    """The first write has rendered the file plain, and kept its bytes."""
    content = b"last_id: 9\ndecisions: [{id: D1, decision: a}, {id: D2, decision: b}, {id: D3, decision: c}]\n"
    session = memory.create_session(id="flow")
    (memory.root / "active/flow/decisions.yaml").write_bytes(content)
    for one in ("D1", "D2", "D3"):
        session.delete(one, reason="r")
        session.restore(one)
        assert [record.id for record in session.records("decision")] == ["D1", "D2", "D3"]
    assert [path.read_bytes() for path in (memory.root / "quarantine/flow").glob("*.bytes")] == [content]


def test_many_records_come_back_among_their_comments(memory: Memory) -> None:
    session = memory.create_session(id="commented")
    path = memory.root / "active/commented/decisions.yaml"
    one = "  # above {0}\n  - id: D{0}\n    decision: number {0}\n    # of {0}\n"
    content = "version: 1\nlast_id: 9\ndecisions:\n" + "".join(map(one.format, range(1, 10)))
    path.write_text(content)
    going = ["D1", "D3", "D4", "D5", "D8", "D9"]
    batch = session.delete(going, reason="r").batch
    assert "# of 4" not in path.read_text()
    session.restore_batch(batch)
    assert path.read_text() == content


_KEEPING = b"""version: 1
last_id: 9
decisions:
- id: D1
  decision: |+
    one
- id: D2
  # why two
  decision: b

- id: D3
  decision: |
    three
- id: D4
  decision: d
      \n- id: D5
  decision: |+
    five

"""


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("going", [["D2"], ["D4"], ["D1", "D2"], ["D2", "D3", "D4"], ["D1", "D2", "D3", "D4", "D5"]], ids="-".join)
def test_the_text_before_a_deleted_record_does_not_go_on_with_its_blank_lines(memory: Memory, going: list[str], end: bytes) -> None:
    session = memory.create_session(id="keeping")
    path = memory.root / "active/keeping/decisions.yaml"
    path.write_bytes(content := _KEEPING.replace(b"\n", end))
    texts = {record.id: record.text for record in session.records("decision")}
    batch = session.delete(going, reason="r").batch
    left = {record.id: record.text for record in session.records("decision")}
    assert left == {memory_id: text for memory_id, text in texts.items() if memory_id not in going}
    session.restore_batch(batch)
    assert path.read_bytes() == content


@pytest.mark.parametrize(("before", "change", "after"), [
    (b"- id: D1 # why\n  decision: a\n- id: D2\n  decision: |\n    b", lambda text: text.replace(b"\n", b"\n  "),
     b"  - id: D1 # why\n    decision: a\n  - id: D2\n    decision: |\n      b"),
    (b"- id: D2\n  decision: b\n- id: D1\n  # why\n  decision: |\n    a", lambda text: text + b"- id: D3\n  decision: c\n",
     b"- id: D2\n  decision: b\n- id: D3\n  decision: c\n- id: D1\n  # why\n  decision: |\n    a"),
], ids=["indented", "no last line end"])  # fmt: skip
def test_what_a_person_wrote_within_a_record_comes_back_whatever_the_style_is_by_now(
    memory: Memory, before: bytes, change: Callable[[bytes], bytes], after: bytes
) -> None:  # fmt: skip
    session = memory.create_session(id="restyled")
    path = memory.root / "active/restyled/decisions.yaml"
    head = b"version: 1\nlast_id: 9\ndecisions: "
    path.write_bytes(head + (b"\n" if before.startswith(b"-") else b"") + before)
    session.delete("D1", reason="r")
    left = path.read_bytes().removeprefix(head)
    path.write_bytes(head + change(left))
    session.restore("D1")
    assert path.read_bytes().removeprefix(head).lstrip(b"\n") == after


def test_a_comment_below_an_updated_record_stays(memory: Memory) -> None:
    session = memory.create_session(id="commented")
    path = memory.root / "active/commented/decisions.yaml"
    path.write_bytes(COMMENTED)
    session.update("D2", rationale="because", made_by="a")
    assert b"qqjane" in path.read_bytes()
    assert memory.purge_now("commented", ["D2"]).problems == []
    assert b"qqjane" not in path.read_bytes()
    assert places_with(memory, [b"qqjane"]) == []
