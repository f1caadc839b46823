"""Deleting and restoring in every place where a memory is kept: files of any kind, `global`, the archive, what compaction holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from smp_client import Conflict, CorruptionDetected, Invalid, Memory, MemoryNotFound, Session
from smp_client.audit import read as audit_lines
from smp_client.maintain import evictions
from smp_client.maintain.traces import places_with
from smp_client.privacy.deleting import reworking
from smp_client.privacy.deleting.reworking import Change, rework
from smp_client.privacy.deleting.standing import Contents, Standing, standing
from smp_client.text.values import Value
from smp_client.tidy import tidy

pytestmark = pytest.mark.usefixtures("short_grace")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEEDLE = "zebra-quagga-4711"
LAST_ID = re.compile(rb"last_id: [0-9]+\n")


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=lambda: NOW)


@pytest.fixture
def session(memory: Memory) -> Session:
    """With a memory of every kind that holds the needle, and one of each that does not."""
    session = memory.create_session(id="s1", user="user-123", topic="authentication")
    for text in (f"about {NEEDLE}", "about something else"):
        session.add_turn("user", text)
        session.record_decision(text, made_by="architect")
        session.record_finding(text, discovered_by="veritas", severity="low")
        session.record_preference(text)
        session.record_learning(text, learned_by="veritas")
        session.relate("DEC-001", "FIND-001", text)
        memory.everywhere.record_preference(text)
        memory.everywhere.record_pattern(text)
    session.save_agent_state("veritas", {"working_memory": f"first {NEEDLE}"})
    session.save_agent_state("veritas", {"working_memory": f"then {NEEDLE}"})
    session.save_agent_state("other", {"working_memory": "mine"})
    session.save_artifact("report", f"# Report on {NEEDLE}\n", title="A report")
    session.save_artifact("plan", "# Plan\n")
    memory.everywhere.save_profile(name="Anna", notes=f"likes {NEEDLE}")
    return session


def files(memory: Memory) -> dict[str, bytes]:
    found = (path for path in sorted(memory.root.rglob("*")) if path.is_file())
    own = (".smp/", "audit.log")
    return {name: path.read_bytes() for path in found if not (name := str(path.relative_to(memory.root))).startswith(own)}


def lists(memory: Memory) -> dict[str, Any]:
    """What every record file says, without the note of the highest number ever given."""
    return {name: LAST_ID.sub(b"", content) for name, content in files(memory).items() if "deleted/" not in name}


def places(memory: Memory, text: str = NEEDLE) -> set[str]:
    return {place.partition("/")[0] for place in places_with(memory, [text.encode()])}


def with_needle(found: list[Standing]) -> Iterator[Change]:
    return (Change(one) for one in found if NEEDLE in json.dumps(one.value))


def delete_all(memory: Memory, name: str, **further: Any) -> reworking.Reworked:
    return rework(memory, name, lambda found: with_needle([*found]), reason="r", by="user-123", **further)


@pytest.mark.parametrize(
    "memory_id",
    ["turn-1", "DEC-001", "FIND-001", "PREF-001", "LEARN-001", "REL-001", "report", "plan", "veritas", "other"],
)
def test_a_memory_of_any_kind_is_deleted_and_restored_byte_for_byte(memory: Memory, session: Session, memory_id: str) -> None:
    """Also one that is a whole file."""
    before = lists(memory)
    deleted = session.delete(memory_id, reason="privacy")
    assert {one.id for one in deleted} >= {memory_id}
    with pytest.raises(MemoryNotFound):
        Memory(memory.root).session("s1").get(memory_id)
    assert lists(memory) != before
    session.restore(memory_id)
    assert lists(memory) == before
    assert session.deleted() == []


@pytest.mark.parametrize("memory_id", ["GPREF-001", "PAT-001", "user-profile"])
def test_what_holds_everywhere_is_deleted_and_restored(memory: Memory, session: Session, memory_id: str) -> None:
    before = lists(memory)
    memory.everywhere.delete(memory_id, reason="privacy")
    assert (memory.root / "deleted/global/deletion-record.yaml").exists()
    assert [one.id for one in memory.everywhere.deleted()] == [memory_id]
    assert lists(memory) != before
    memory.everywhere.restore(memory_id)
    assert lists(memory) == before
    assert not (memory.root / "deleted/global").exists()


@pytest.mark.parametrize("is_archived", [False, True])
def test_every_kind_at_once_goes_and_comes_back_as_a_batch(memory: Memory, session: Session, is_archived: bool) -> None:
    """Of a session in its place, and of one in the archive; then nothing but `deleted/` has the bytes."""
    if is_archived:
        memory.archive_session("s1")
    for name in ("s1", "global"):
        contents = {one.key: one.raw for one in standing(memory, name, [])}
        done = delete_all(memory, name)
        assert done.problems == []
        assert {one.batch for one in done} == {done.batch}
        left = {one.key: one.raw for one in standing(memory, name, [])}
        assert left.items() < contents.items()
        assert [one.id for one in memory.deleted(name)] == [one.id for one in done]
    assert [place for place in places_with(memory, [NEEDLE.encode()]) if not place.startswith("deleted/")] == []
    for name in ("s1", "global"):
        memory.restore(name, batch=memory.deleted(name)[0].batch)
    if is_archived:
        memory.restore_session("s1")
    assert {one.id for one in memory.session("s1").search(NEEDLE, limit=50)} == {
        "turn-1", "DEC-001", "FIND-001", "PREF-001", "LEARN-001", "REL-001", "veritas", "report",
    }  # fmt: skip
    assert not (memory.root / "deleted/s1").exists()


def test_an_archive_is_the_same_again_after_deleting_and_restoring(memory: Memory, session: Session) -> None:
    """Every member of it but for the note of the highest numbers, and the summary says of it what it said."""
    memory.archive_session("s1")
    before = dict(Contents(memory, "s1")._packed)
    summary = yaml.safe_load((memory.root / "archived/s1/summary.yaml").read_text())["archive"]
    memory.delete("s1", ["DEC-001", "turn-1", "report"], reason="r")
    without = yaml.safe_load((memory.root / "archived/s1/summary.yaml").read_text())["archive"]
    assert [one["id"] for one in without["decisions"]] == ["DEC-002"]
    assert NEEDLE not in str(without["decisions"]) + str(without["last_turns"])
    assert (without["archived_at"], without["reason"], without["state"]) == (summary["archived_at"], summary["reason"], "archived")
    assert memory.search("zebra", types=["summary"])[:1] != []
    memory.restore("s1", ["report", "turn-1", "DEC-001"])
    after = dict(Contents(memory, "s1")._packed)
    assert {name: content.replace(b"last_id: 2\n", b"") for name, content in after.items()} == before
    again = yaml.safe_load((memory.root / "archived/s1/summary.yaml").read_text())["archive"]
    assert {name: again[name] for name in ("decisions", "last_turns", "memories")} == {
        name: summary[name] for name in ("decisions", "last_turns", "memories")
    }  # fmt: skip
    assert memory.restore_session("s1").get("DEC-001").text == f"about {NEEDLE}"


def test_deleted_in_its_place_and_restored_in_the_archive(memory: Memory, session: Session) -> None:
    """And the other way round: the memory goes to where its session is."""
    session.delete("DEC-001", reason="r")
    memory.archive_session("s1")
    memory.restore("s1", ["DEC-001"])
    memory.delete("s1", ["FIND-001"], reason="r")
    back = memory.restore_session("s1")
    assert back.get("DEC-001").text == f"about {NEEDLE}"
    assert back.restore("FIND-001").text == f"about {NEEDLE}"


@pytest.fixture
def compacted(memory: Memory) -> Session:
    """Twenty old turns, of which compaction has taken most out, and one decision of which it holds an older state."""
    session = memory.create_session(id="s2")
    for number in range(1, 21):
        said = f"We decided to do number {number}, which is {NEEDLE}-{number}. " + "And so on. " * 40
        session.add_turn("user", said, timestamp=NOW - timedelta(days=20, hours=-number))
    session.compact(reduction_pct=80)
    assert [one.id for one in session.evicted()][:3] == ["turn-1", "turn-2", "turn-3"]
    return session


def test_what_compaction_holds_is_deleted_and_the_summary_says_nothing_of_it(memory: Memory, compacted: Session) -> None:
    """And comes back into what compaction holds, whence it can be brought back."""
    assert "number 3," in compacted.turns()[0].text
    compacted.delete("turn-3", reason="r")
    assert places(memory, f"{NEEDLE}-3. ") == {"deleted"}
    assert "number 3," not in compacted.turns()[0].text
    assert "number 2," in compacted.turns()[0].text
    assert "turn-3" not in [one.id for one in compacted.evicted()]
    with pytest.raises(MemoryNotFound):
        compacted.bring_back(["turn-3"])
    restored = compacted.restore("turn-3")
    assert f"{NEEDLE}-3." in restored.text
    compacted.bring_back(["turn-3"])
    assert f"{NEEDLE}-3." in compacted.get("turn-3").text


def test_a_summary_of_nothing_leaves_a_place_without_content(memory: Memory, compacted: Session) -> None:
    out = [one.id for one in compacted.evicted()]
    compacted.delete(out[1:], reason="r")
    assert places(memory, f"{NEEDLE}-2. ") == {"deleted"}
    compacted.delete(out[0], reason="r")
    assert compacted.evicted() == []
    assert "turn-1" not in [turn.id for turn in compacted.turns()]
    text = (memory.root / "active/s2/conversation.md").read_text()
    assert "## Turn 1 - " in text
    assert compacted.add_turn("user", "next").id == "turn-21" or compacted.turns()[-1].id > "turn-20"


def test_a_crash_between_the_places_is_finished_by_whoever_comes_next(
    memory: Memory, compacted: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the session is changed and the copy of compaction is not: the next pass, or the tidying, takes it out."""

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    for finish in (lambda: tidy(memory), lambda: compacted.delete("turn-20", reason="r")):
        wanted = compacted.evicted()[3].id
        monkeypatch.setattr(evictions, "change", die)
        monkeypatch.setattr(reworking, "suppress", die)  # what an exception would still put right
        with pytest.raises(KeyboardInterrupt):
            compacted.delete(wanted, reason="r")
        monkeypatch.undo()
        assert yaml.safe_load((memory.root / "deleted/s2/deletion-record.yaml").read_text())["deletion"]["unfinished"]
        finish()
        assert wanted in [one.id for one in compacted.deleted()]
        assert wanted not in [one.id for one in compacted.evicted()]
        assert "unfinished" not in yaml.safe_load((memory.root / "deleted/s2/deletion-record.yaml").read_text())["deletion"]


def _shouted(value: dict[str, Value]) -> dict[str, Value]:
    changed: dict[str, Value] = json.loads(json.dumps(value).replace(NEEDLE, NEEDLE.upper()))
    return changed


def _changed(found: list[Standing]) -> Iterator[Change]:
    for one in found:
        if NEEDLE in json.dumps(one.value):
            yield Change(one, one.raw.replace(NEEDLE.encode(), NEEDLE.upper().encode()) if one.is_file else _shouted(one.value))


@pytest.mark.parametrize("is_archived", [False, True])
def test_what_is_replaced_can_be_put_back(memory: Memory, session: Session, is_archived: bool) -> None:
    """Everywhere, as one batch; what was changed since is left alone."""
    delete_all(memory, "global")
    if is_archived:
        memory.archive_session("s1")
    before = {one.key: one.raw for one in standing(memory, "s1", [])}
    done = rework(memory, "s1", lambda found: _changed([*found]), reason="r", by="u", action="anonymize")
    assert len(done) == 9
    assert [place for place in places_with(memory, [NEEDLE.encode()]) if not place.startswith("deleted/")] == []
    after = {one.key: one.raw for one in standing(memory, "s1", [])}
    assert after.keys() == before.keys()
    assert sum(before[key] != after[key] for key in before) == 9
    memory.restore("s1", batch=done.batch)
    assert {one.key: one.raw for one in standing(memory, "s1", [])} == before


def test_a_replaced_memory_that_was_changed_since_is_not_overwritten(memory: Memory, session: Session) -> None:
    done = rework(memory, "s1", lambda found: _changed([*found]), reason="r", by="u", action="anonymize")
    session.update("DEC-001", rationale="since")
    with pytest.raises(Conflict):
        session.restore("DEC-001")
    assert session.get("DEC-001").data["rationale"] == "since"
    assert session.restore("FIND-001").text == f"about {NEEDLE}"
    assert {one.id for one in session.deleted()} == {one.id for one in done} - {"FIND-001"}


def test_what_happens_is_told_without_content(memory: Memory, session: Session) -> None:
    """One line for each deletion and restoration, in the order in which they happened; a failure says that it was one."""
    session.delete(["DEC-001", "FIND-001"], reason=f"because of {NEEDLE}", deleted_by="user-123")
    session.restore("DEC-001")
    session.delete("DEC-002", reason="r", dry_run=True)
    memory.delete_session("s1", reason="over")
    memory.undelete_session("s1")
    lines = audit_lines(memory.tree)
    assert [(line["action"], line["session"], line["count"], line.get("ids"), line["by"]) for line in lines] == [
        ("delete", "s1", 2, ["DEC-001", "FIND-001"], "user-123"), ("restore", "s1", 1, ["DEC-001"], "user"),
        ("delete", "s1", 1, None, "user"), ("restore", "s1", 1, None, "user"),
    ]  # fmt: skip
    assert NEEDLE.encode() not in (memory.root / "audit.log").read_bytes()


def test_a_line_that_a_crash_cut_off_swallows_none(memory: Memory, session: Session) -> None:
    (memory.root / "audit.log").write_bytes(b'{"at": "2026-')
    session.delete("DEC-001", reason="r")
    assert [line["action"] for line in audit_lines(memory.tree)] == ["delete"]


def test_metadata_are_no_memory(session: Session) -> None:
    with pytest.raises(Invalid, match="metadata"):
        session.delete("metadata", reason="r")


def test_an_artifact_that_is_there_again_is_not_overwritten(session: Session) -> None:
    session.delete("report", reason="r")
    session.save_artifact("report", "another")
    with pytest.raises(Conflict):
        session.restore("report")
    assert session.artifact("report").text == "another"
    session.delete("report", reason="r")
    assert session.restore("report").text == "another"


def test_an_archive_that_is_damaged_is_left_alone(memory: Memory, session: Session) -> None:
    memory.archive_session("s1")
    path = memory.root / "archived/s1/archive.tar.gz"
    path.write_bytes(path.read_bytes()[:-40])
    before = files(memory)
    with pytest.raises(CorruptionDetected):
        memory.delete("s1", ["DEC-001"], reason="r")
    assert files(memory) == before
