"""Other layouts come in whole: what was read can be written again, and what is malformed is told with file, line and reason."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from layouts_data import (
    CHECKED_EXAMPLE,
    CONFIG_EXAMPLE,
    KNOWLEDGE_EXAMPLE,
    MANIFEST_EXAMPLE,
    METADATA_EXAMPLE,
    PER_KIND_EXAMPLE,
    PREFERENCES_EXAMPLE,
    SINGLE_EXAMPLE,
    Entry,
    checked_session,
    per_kind_session,
    single_session,
    with_checksum,
    write_checked,
    write_lines,
    write_per_kind,
)
from layouts_reading import (
    Records,
    bare,
    by_id,
    folder,
    ids_of,
    kind,
    live,
    multiset,
    on_disk,
    records,
    stream,
    take_in,
    written_checked,
    written_per_kind,
    written_single,
)

from smp_client import Memory, Session
from smp_client.exchange.layouts import checked, per_kind, shared
from smp_client.exchange.layouts.sessions import DELETED
from smp_client.exchange.layouts.shaping import IMPORTED, Ids

QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


# The examples of the documents.


def test_one_file_per_session(tmp_path: Path) -> None:
    """The lines of the document arrive as memories of our kinds, with who, when, how important and how often read."""
    path = write_lines(tmp_path / ".bmad/sessions/sess-1.jsonl", SINGLE_EXAMPLE)
    entries, problems = stream(path)
    found = by_id(entries)
    assert problems == []
    assert found["turn-1"]["speaker"] == "user"
    assert found["turn-1"]["content"] == "Hello"
    assert found["turn-1"]["imported_id"] == "m001"
    assert (found["m002"]["decision"], found["m002"]["made_by"]) == ("Use OAuth", "architect")
    assert found["m002"]["decay"] == {
        "priority": 0.95, "last_accessed": "2026-01-11T14:31:00Z", "access_count": 3, "base_priority": 0.95,
    }  # fmt: skip
    assert (found["m003"]["finding"], found["m003"]["severity"]) == ("Missing MFA", "critical")
    assert (found["m004"]["key"], found["m004"]["value"], found["m004"]["preference"]) == (
        "verification_depth", "thorough", "verification_depth: thorough",
    )  # fmt: skip
    assert written_single(records(entries)) == multiset(SINGLE_EXAMPLE)
    assert entries[0]["metadata"]["session"]["created_at"] == "2026-01-11T14:30:00Z"


def test_a_file_per_kind(tmp_path: Path) -> None:
    """The records of the document arrive under our names, references lead to turns, and all of it can be written again."""
    write_per_kind(tmp_path / "sessions/sess-2026-01-11-abc123", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    entries, problems = stream(tmp_path)
    found = by_id(entries)
    assert problems == []
    assert found["turn-2"]["speaker"] == "architect"
    assert found["turn-2"]["memory_refs"] == ["dec-001", "finding-003"]
    assert found["turn-2"]["context"]["parent_message_id"] == "turn-1"
    assert found["turn-2"]["tags"] == ["database_selection"]
    decision = found["dec-001"]
    assert decision["agreed_by"] == ["user-789"]
    assert decision["alternatives_considered"][0] == {"option": "MongoDB", "rejected_because": "Eventual consistency"}
    assert decision["references"] == ["turn-2", "msg-002", "finding-003"]
    assert decision["turn_ref"] == 2
    assert found["finding-003"]["finding"] == "Connection pooling is not configured"
    assert found["finding-003"]["resolution"] == {"status": "open"}
    assert found["pref-001"]["confidence"] == "inferred"
    session = entries[0]["metadata"]["session"]
    assert session["participants"]["user_id"] == "user-789"
    assert [agent["agent_id"] for agent in session["participants"]["agents"]] == ["bmad-master", "architect", "analyst"]
    assert session["context"]["project_name"] == "payment-system"
    assert session["statistics"]["total_messages"] == 127
    assert session["imported"]["manifest"] == {"version": "1.0"}
    assert per_kind.manifest_of(session) == MANIFEST_EXAMPLE
    assert written_per_kind(records(entries)) == {name: multiset(lines) for name, lines in PER_KIND_EXAMPLE.items()}


def test_what_is_shared_and_packed_and_configured(tmp_path: Path) -> None:
    """Shared preferences and knowledge go to `global/`, a packed session to the archive, the configuration is kept as it is."""
    write_per_kind(tmp_path / "sessions/s1", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/user-preferences.json").write_text(json.dumps(PREFERENCES_EXAMPLE))
    (tmp_path / "shared/agent-knowledge.json").write_text(json.dumps(KNOWLEDGE_EXAMPLE))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG_EXAMPLE))
    write_per_kind(tmp_path / "old", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    (tmp_path / "archive").mkdir()
    with tarfile.open(tmp_path / "archive/old.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "old", "old")
    (tmp_path / "archive/old.manifest.json").write_text(
        json.dumps({**MANIFEST_EXAMPLE, "archived_at": "2026-02-11T00:00:00Z", "original_size_bytes": 9}))  # fmt: skip
    for path in (tmp_path / "old").iterdir():
        path.unlink()
    entries, problems = stream(tmp_path)
    assert problems == []
    everywhere = [entry["record"] for entry in entries if entry.get("session") == "global" and entry["entry"] == "memory"]
    assert [(record["id"], record.get("preference") or record["pattern"]) for record in everywhere] == [
        ("pref-001", "response_style: concise_with_examples"), ("GPREF-002", "language: en"),
        ("PAT-001", "Prefers boring technology"), ("k-1", "Ask for numbers"),
    ]  # fmt: skip
    assert [record["learned_by"] for record in everywhere[2:]] == ["architect", "analyst"]
    assert shared.theirs(shared.FILES["agent-knowledge.json"], everywhere[3], Ids()) == KNOWLEDGE_EXAMPLE["analyst"][0]
    assert {entry["place"] for entry in entries if entry.get("session") == "old" and "place" in entry} == {"archived"}
    (summary,) = (entry["summary"] for entry in entries if entry["entry"] == "archive")
    assert summary["archived_at"] == "2026-02-11T00:00:00Z"
    assert any(entry["entry"] == "bytes" and json.loads(entry["text"]) == CONFIG_EXAMPLE for entry in entries)
    assert written_per_kind(records(entries, "old")) == written_per_kind(records(entries, "s1"))


def test_one_log_with_checksums(tmp_path: Path) -> None:
    """Entries with and without a checksum arrive; settings of the session are ours too; a deleted one comes as deleted."""
    log = [with_checksum(CHECKED_EXAMPLE[0]), CHECKED_EXAMPLE[1], with_checksum(CHECKED_EXAMPLE[2])]
    gone = {"id": "mem_002", "timestamp": "2026-01-11T00:00:00Z", "reason": "asked to"}
    lost = {"id": "mem_900", "timestamp": "2026-01-11T00:00:00Z", "reason": "compacted"}
    write_checked(tmp_path / "memory/sessions/sess_001", METADATA_EXAMPLE, log, [gone, lost])
    entries, problems = stream(tmp_path)
    found = by_id(entries)
    assert problems == []
    decision = found["mem_abc123xyz"]
    assert decision["alternatives_considered"] == [{"option": "Implicit flow"}, {"option": "PKCE"}]
    assert decision["references"] == ["turn-2"]
    assert decision["decay"]["base_priority"] == 0.85
    assert decision["decay"]["priority"] == pytest.approx(0.85 * 0.92)
    (deleted,) = (entry for entry in entries if entry["entry"] == DELETED)
    assert deleted["record"]["content"] == "Hi!"
    assert deleted["deletion"] == {"deleted_at": "2026-01-11T00:00:00Z", "reason": "asked to", "deleted_by": "import"}
    session = entries[0]["metadata"]["session"]
    assert session["decay_config"] == METADATA_EXAMPLE["decay_config"]
    assert session["preferences"] == METADATA_EXAMPLE["preferences"]
    assert session["imported"]["tombstones"] == [lost]
    assert session["imported"]["metadata"]["total_entries"] == 42
    assert checked.metadata_of(session) == METADATA_EXAMPLE
    held = records(entries)
    ids = ids_of(held)
    back = multiset(checked.theirs(kind(file), record, ids, "sess_001") for file, record in held)
    assert back == bare(log)


@pytest.mark.parametrize("form", checked.FORMS)
def test_a_checksum_may_be_taken_in_several_ways(tmp_path: Path, form: str) -> None:
    """Whatever a program made of "sorted keys, no blanks", its entries are sound; one that was changed afterwards is set aside."""
    entry = {**CHECKED_EXAMPLE[2], "content": {"decision": "Größe"}}
    good = {**entry, "checksum": checked.checksum(entry, form)}
    bad = {**good, "id": "mem_bad", "importance": 0.1}
    write_checked(tmp_path / "s1", METADATA_EXAMPLE, [good, bad, CHECKED_EXAMPLE[0]], [])
    entries, problems = stream(tmp_path / "s1")
    assert problems == ["memory.jsonl, line 2: its checksum does not fit what it says; it goes to quarantine/s1"]
    assert by_id(entries).keys() == {"mem_abc123xyz", "turn-1"}
    assert by_id(entries)["mem_abc123xyz"]["imported"].get("checksum", "canonical") == form
    aside, note = (entry for entry in entries if entry["entry"] == "bytes")
    assert json.loads(aside["text"]) == bad
    assert (aside["place"], "checksum does not fit" in note["text"]) == ("quarantine", True)


# Deleted.


def test_a_mark_deletes_what_stands_before_it(tmp_path: Path) -> None:
    """What is marked comes as deleted, a turn leaves its number, an id that is used again is another memory; both ids are kept."""
    first, second, *rest = SINGLE_EXAMPLE
    again = {**second, "data": {"decision": "Use SAML", "by": "architect"}}
    lines = [first, second, *rest, {"id": "m001", "deleted": True, "ts": "2026-01-12T00:00:00Z"},
             {"id": "m002", "deleted": True, "ts": "2026-01-12T00:00:00Z"}, again, {"id": "m777", "deleted": True}]  # fmt: skip
    entries, problems = stream(write_lines(tmp_path / "s1.jsonl", lines))
    assert problems == []
    gone = [entry["record"] for entry in entries if entry["entry"] == DELETED]
    said = [(record["id"], record.get("content") or record.get("decision")) for record in gone]
    assert said == [("turn-1", "Hello"), ("m002", "Use OAuth")]
    places = [entry["record"] for entry in entries if entry["entry"] == "memory" and entry["record"]["id"] == "turn-1"]
    assert places == [{"id": "turn-1", "turn": 1, "timestamp": "2026-01-11T14:30:00Z", "type": "deleted", "content": ""}]
    (new,) = (record for _, record in records(entries) if record.get("decision") == "Use SAML")
    assert (new["id"], new["imported_id"]) == ("m002-2", "m002")
    assert entries[0]["metadata"]["session"]["imported"]["tombstones"] == [{"id": "m777", "deleted": True}]
    assert written_single(records(entries)) == multiset(live(lines))


# Whatever was written, comes back: from the entries, and from the files of a real tree.


@QUICK
@given(single_session())
def test_any_single_file_can_be_written_again(lines: list[Entry]) -> None:
    with folder() as place:
        entries, _ = stream(write_lines(place / "s1.jsonl", lines), "jsonl")
    assert written_single(records(entries)) == multiset(live(lines))


@QUICK
@given(per_kind_session())
def test_any_file_per_kind_can_be_written_again(given: tuple[Entry, dict[str, list[Entry]]]) -> None:
    with folder() as place:
        write_per_kind(place / "s1", *given)
        entries, _ = stream(place / "s1")
    assert written_per_kind(records(entries)) == {name: multiset(lines) for name, lines in given[1].items()}
    assert multiset([per_kind.manifest_of(entries[0]["metadata"]["session"])]) == multiset([given[0]])


@QUICK
@given(checked_session())
def test_any_checked_log_can_be_written_again(given: tuple[Entry, list[Entry], list[Entry]]) -> None:
    with folder() as place:
        write_checked(place / "s1", *given)
        entries, problems = stream(place / "s1")
    assert not [problem for problem in problems if "checksum" in problem]
    assert written_checked(records(entries)) == bare(given[1])
    assert multiset([checked.metadata_of(entries[0]["metadata"]["session"])]) == multiset([given[0]])


def _round_trip(write: Callable[[Path], Path], written: Callable[[Records], Any], expected: Any) -> None:
    with folder() as place:
        memory = Memory(place / "root")
        path = write(place)
        result, _, problems = take_in(memory, path)
        assert (result.problems, problems) == ([], [])
        assert result.sessions.get("s1", "new") == "new"
        if "s1" in result.sessions:
            assert written(on_disk(memory, "s1")) == expected
            before = {path: path.read_bytes() for path in (place / "root/active").rglob("*") if path.is_file()}
            again, count, _ = take_in(memory, path)
            assert (again.added, count, again.sessions["s1"]) == (0, 0, "unchanged")
            assert before == {path: path.read_bytes() for path in (place / "root/active").rglob("*") if path.is_file()}


@settings(QUICK, max_examples=8)
@given(single_session())
def test_a_single_file_comes_back_from_a_tree(lines: list[Entry]) -> None:
    """And importing it a second time adds nothing."""
    lines = [line for line in lines if "ts" in line]
    _round_trip(lambda place: write_lines(place / "s1.jsonl", lines), written_single, multiset(live(lines)))


@settings(QUICK, max_examples=8)
@given(per_kind_session())
def test_a_file_per_kind_comes_back_from_a_tree(given: tuple[Entry, dict[str, list[Entry]]]) -> None:
    expected = {name: multiset(lines) for name, lines in given[1].items()}
    _round_trip(lambda place: write_per_kind(place / "s1", *given), written_per_kind, expected)


@settings(QUICK, max_examples=8)
@given(checked_session())
def test_a_checked_log_comes_back_from_a_tree(given: tuple[Entry, list[Entry], list[Entry]]) -> None:
    _round_trip(lambda place: write_checked(place / "s1", *given), written_checked, bare(given[1]))


# In a tree, they are memories like any other.


def test_what_came_as_deleted_can_be_restored(memory: Memory, tmp_path: Path) -> None:
    """And what was restored is not deleted again by another import."""
    marked = [*SINGLE_EXAMPLE, *({"id": one, "deleted": True, "ts": "2026-01-12T00:00:00Z"} for one in ("m001", "m002"))]
    path = write_lines(tmp_path / "s1.jsonl", marked)
    result, count, problems = take_in(memory, path)
    assert (result.added, count, problems) == (2, 2, [])
    session = memory.session("s1")
    assert {item.id: item.deleted_at for item in session.deleted()} == {
        "turn-1": "2026-01-12T00:00:00Z", "m002": "2026-01-12T00:00:00Z",
    }  # fmt: skip
    session.restore("m002")
    session.restore("turn-1")
    assert session.get("m002").text == "Use OAuth"
    assert session.turns()[0].text == "Hello"
    again, count, _ = take_in(memory, path)
    assert (again.added, count) == (0, 0)
    assert session.get("m002").text == "Use OAuth"


def test_the_number_of_a_deleted_memory_is_not_given_again(memory: Memory, tmp_path: Path) -> None:
    decision = {**SINGLE_EXAMPLE[1], "id": "DEC-009"}
    path = write_lines(tmp_path / "s1.jsonl", [decision, {"id": "DEC-009", "deleted": True}])
    take_in(memory, path)
    assert memory.session("s1").record_decision("New", made_by="me").id == "DEC-010"


def test_imported_memories_can_be_changed_like_any_other(memory: Memory, tmp_path: Path) -> None:
    """Also those that lack what a memory of ours must have, such as who found it."""
    write_lines(tmp_path / "s1.jsonl", SINGLE_EXAMPLE)
    take_in(memory, tmp_path / "s1.jsonl")
    session = memory.session("s1")
    session.pin("m003")
    session.resolve_finding("m003", resolved_by="me", action_taken="done")
    session.update("m004", value="quick")
    assert session.get("m003").pinned
    assert [record.id for record in session.search("verification depth")] == ["m004"]
    assert session.add_turn("user", "Next").id == "turn-2"


def test_what_has_only_decayed_since_is_not_imported_again(memory: Memory, tmp_path: Path) -> None:
    """The other program goes on writing how much each entry matters and how often it was read: that makes no new memory of it."""
    path = write_lines(tmp_path / "s1.jsonl", SINGLE_EXAMPLE)
    place = write_per_kind(tmp_path / "s2", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    for one in (path, place):
        take_in(memory, one)
    write_lines(path, [{**line, "priority": line["priority"] * 0.7, "access": 40} for line in SINGLE_EXAMPLE])
    newer = {"decay_factor": 0.4, "access_count": 3, "last_accessed": "2026-02-01T00:00:00Z", "last_decay_update": 17}
    later = {name: [{**line, **newer} for line in lines] for name, lines in PER_KIND_EXAMPLE.items()}
    write_per_kind(place, MANIFEST_EXAMPLE, later)
    for one in (path, place):
        assert take_in(memory, one)[0].added == 0


def test_decay_here_leaves_what_it_was_there(tmp_path: Path) -> None:
    """The daemon rewrites priorities and counts; the entry can still be written as it was, but for how often it was read."""
    lines = [{**line, "priority": 0.5} for line in SINGLE_EXAMPLE]
    memory = Memory(tmp_path / "root")
    take_in(memory, write_lines(tmp_path / "s1.jsonl", lines))
    memory.session("s1").get("m002")
    memory.session("s1").decay()
    held = on_disk(memory, "s1")
    assert [value["decay"]["access_count"] for _, value in held if value["id"] == "m002"] == [4]
    assert [value["decay"]["priority"] for _, value in held if value["id"] == "m002"] != [0.5]
    assert written_single(held) == multiset([*lines[:1], {**lines[1], "access": 4}, *lines[2:]])


def test_a_session_that_is_there_gets_what_it_lacks(memory: Memory, session: Session, tmp_path: Path) -> None:
    """Turns get new numbers, and what refers to them follows."""
    session.add_turn("user", "I was here before.")
    lines = [{**line, "session_id": "s1"} for line in CHECKED_EXAMPLE]
    write_checked(tmp_path / "from/s1", {**METADATA_EXAMPLE, "session_id": "s1"}, lines, [])
    result, _, problems = take_in(memory, tmp_path / "from")
    assert (result.added, problems) == (3, [])
    turn = next(one for one in session.turns() if one.text == "Hi!")
    assert session.get("mem_abc123xyz").data["references"] == [turn.id]
    again, _, _ = take_in(memory, tmp_path / "from")
    assert again.added == 0


def test_everything_of_a_project_arrives(memory: Memory, tmp_path: Path) -> None:
    """Sessions, a packed one, what is shared, quarantine: in one go into a new tree, and nothing is added the second time."""
    top = tmp_path / "from"
    write_per_kind(top / "sessions/s1", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    (top / "sessions/s1/notes.txt").write_text("mine")
    with (top / "sessions/s1/findings.jsonl").open("a") as file:
        file.write('{"id": "torn')
    (top / "shared").mkdir()
    (top / "shared/user-preferences.json").write_text(json.dumps(PREFERENCES_EXAMPLE))
    (top / "shared/agent-knowledge.json").write_text(json.dumps(KNOWLEDGE_EXAMPLE))
    (top / "config.json").write_text(json.dumps(CONFIG_EXAMPLE))
    (top / "archive").mkdir()
    with tarfile.open(top / "archive/old.tar.gz", "w:gz") as archive:
        for name, lines in PER_KIND_EXAMPLE.items():
            content = "".join(json.dumps(line) + "\n" for line in lines).encode()
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    result, _, problems = take_in(memory, top)
    assert (problems, result.sessions) == ([], {"global": "merged", "s1": "new", "old": "archived"})
    assert len(result.problems) == 1
    assert "findings.jsonl, line 2: the last line is cut off" in result.problems[0]
    assert (memory.root / "active/s1/imported/notes.txt").read_text() == "mine"
    assert [path.suffix for path in sorted((memory.root / "quarantine/s1").iterdir())] == [".bytes", ".yaml"]
    assert {record.id for record in memory.search("technology numbers language")} >= {"PAT-001", "k-1", "GPREF-002"}
    before = {path: path.read_bytes() for path in memory.root.rglob("*") if path.is_file() and ".smp" not in path.parts}
    again, _, _ = take_in(memory, top)
    assert again.added == 0
    assert before == {path: path.read_bytes() for path in memory.root.rglob("*") if path.is_file() and ".smp" not in path.parts}


def test_the_examples_need_no_copy_of_the_original(tmp_path: Path) -> None:
    """What the documents foresee is told by fields alone: the whole entry is only kept where something is odd."""
    write_lines(tmp_path / "a.jsonl", SINGLE_EXAMPLE)
    write_per_kind(tmp_path / "b", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    write_checked(tmp_path / "c", METADATA_EXAMPLE, CHECKED_EXAMPLE, [])
    entries, _ = stream(tmp_path)
    assert len(records(entries)) == 4 + 5 + 3
    assert not [record for _, record in records(entries) if "original" in record[IMPORTED]]
