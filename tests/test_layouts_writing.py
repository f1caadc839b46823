"""Our exports in other layouts are read by programs that know only those, and come back as what they were."""

from __future__ import annotations

import json
import stat
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from layout_readers import PER_KIND, CheckedSession, PerKindSession, checksum, decayed, lines, query_single
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
from layouts_reading import bare, folder, live, multiset, on_disk, take_in
from smp_client.maintain.archive import load_summary

from smp_client import Memory, Session, audit
from smp_client.errors import Conflict, Invalid
from smp_client.exchange.layouts import checked
from smp_daemon.cli import smp as main_command

QUICK = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
LAYOUTS = ("jsonl", "jsonl-per-kind", "jsonl-checked")
TEXT = "Größe: 10 \u2028 lines,\nnot one"


def entries_in(place: Path, layout: str, session: str) -> list[Entry]:
    """What a program of the layout finds of a session, after it has looked at all that stands beside it."""
    if layout == "jsonl":
        return query_single(place / f"{session}.jsonl")
    if layout == "jsonl-per-kind":
        one = PerKindSession(place / "sessions" / session)
        one.check()
        return one.entries
    log = CheckedSession(place / "sessions" / session)
    log.check()
    return log.log


@pytest.fixture
def full(session: Session) -> Session:
    """One of ours with something of everything."""
    session.add_turn("user", TEXT, tags=["size"])
    session.add_turn("architect", "I would take PostgreSQL.", memory_refs=["DEC-001"])
    session.record_decision("Use PostgreSQL", made_by="architect", rationale="ACID", tags=["database"], turn_ref=2,
                            alternatives_considered=[{"option": "MySQL", "rejected_because": "licence"}])  # fmt: skip
    session.record_finding("No pooling", discovered_by="analyst", severity="high", tags=["database"])
    session.resolve_finding("FIND-001", resolved_by="me", action_taken="configured")
    session.record_preference("Short answers", confidence="explicit", topic="style", created_by="user")
    session.record_learning("Ask for numbers", learned_by="analyst", tags=["numbers"])
    session.relate("DEC-001", "FIND-001", "addresses")
    session.save_artifact("plan", "# The plan\n\nFirst this.\n")
    session.save_agent_state("architect", {"current_task": "schema"})
    session.save_agent_state("architect", {"current_task": "review"})
    session.pin("DEC-001")
    return session


# Programs of each layout read what we write.


def test_one_file_per_session_is_read(memory: Memory, full: Session, tmp_path: Path) -> None:
    """Every entry has a type that the document knows, so that its own decay can be taken; topics are found in the data."""
    done = memory.export_layout(tmp_path / "out", layout="jsonl")
    assert done.problems == []
    path = tmp_path / "out/s1.jsonl"
    found = query_single(path)
    assert done.entries == len(found) == 10
    assert [one["data"]["content"] for one in query_single(path, "conversation")] == [TEXT, "I would take PostgreSQL."]
    assert [one["data"]["role"] for one in query_single(path, "conversation")] == ["user", "assistant"]
    assert {one["id"] for one in query_single(path, topic="PostgreSQL")} == {"turn-2", "DEC-001"}
    assert all(decayed(one, datetime(2030, 1, 1, tzinfo=UTC)) >= 0 for one in found)
    (decision,) = query_single(path, "decision")
    assert [decision["data"][name] for name in ("decision", "by", "rationale")] == ["Use PostgreSQL", "architect", "ACID"]
    finding = next(one for one in found if one["id"] == "FIND-001")
    assert (finding["data"]["issue"], finding["data"]["severity"], finding["data"]["status"]) == ("No pooling", "high", "resolved")
    (preference,) = query_single(path, "preference")
    assert (preference["data"]["key"], preference["data"]["value"]) == ("style", "Short answers")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700


def test_a_file_per_kind_is_read(memory: Memory, full: Session, tmp_path: Path) -> None:
    """Counts, sizes and the lists of the index are right, and each kind has the fields that the document shows."""
    memory.export_layout(tmp_path / "out", layout="jsonl-per-kind")
    one = PerKindSession(tmp_path / "out/sessions/s1")
    one.check()
    assert [len(one.files[name]) for name in PER_KIND] == [2, 1, 6, 1]
    message, decision = one.by_id["turn-2"], one.by_id["DEC-001"]
    assert (message["agent_id"], message["role"], message["content"]) == ("architect", "assistant", "I would take PostgreSQL.")
    assert message["metadata"]["references"] == ["DEC-001"]
    assert decision["references"]["conversations"] == ["turn-2"]
    assert decision["alternatives_considered"] == [{"option": "MySQL", "rejected_reason": "licence"}]
    assert (one.by_id["FIND-001"]["description"], one.by_id["FIND-001"]["status"]) == ("No pooling", "resolved")
    assert (one.by_id["PREF-001"]["key"], one.by_id["PREF-001"]["confidence"]) == ("style", 1.0)
    assert one.search("postgresql") == {"turn-2", "DEC-001"}
    assert one.index["inverted_index"]["größe"] == ["turn-1"]
    assert one.index["topic_index"]["database"] == ["DEC-001", "FIND-001"]
    assert [found for ids in one.index["temporal_index"].values() for found in ids].count("DEC-001") == 1
    hours = {entry["timestamp"][:13] for entry in one.entries}
    assert set(one.index["temporal_index"]) == hours
    assert one.manifest["session_id"] == "s1"
    assert one.manifest["user_id"] == "user-123"
    assert one.manifest["metadata"]["project_name"] == "E-Commerce"
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["memory_config"]["storage"]["format"] == "jsonl"


def test_a_log_with_checksums_is_read(memory: Memory, full: Session, tmp_path: Path) -> None:
    """Each entry is found at its byte offset, its checksum fits, and metadata and indexes say what is there."""
    memory.export_layout(tmp_path / "out", layout="jsonl-checked")
    log = CheckedSession(tmp_path / "out/sessions/s1")
    log.check()
    assert log.read("turn-1")["content"]["message"] == TEXT
    assert {entry["type"] for entry in log.log} == {"conversation", "decision", "finding", "preference"}
    assert {entry["id"] for entry in log.by_tag("database")} == {"DEC-001", "FIND-001"}
    assert log.read("turn-2")["references"] == ["DEC-001"]
    assert log.metadata["user_id"] == "user-123"
    assert [entry["id"] for entry in log.log if entry["type"] == "conversation"] == ["turn-1", "turn-2"]
    everywhere = json.loads((tmp_path / "out/indices/global_index.json").read_text())
    assert everywhere["sessions"]["s1"]["total_entries"] == len(log.log)
    assert json.loads((tmp_path / "out/indices/topic_index.json").read_text())["topics"]["database"] == ["s1"]
    assert json.loads((tmp_path / "out/config.json").read_text())["integrity"]["enable_checksums"] is True


def test_the_readers_find_what_is_wrong(memory: Memory, full: Session, tmp_path: Path) -> None:
    """A byte more before an entry, or a count that is off: so the tests above can fail."""
    memory.export_layout(tmp_path / "checked", layout="jsonl-checked")
    memory.export_layout(tmp_path / "per-kind", layout="jsonl-per-kind")
    path = tmp_path / "checked/sessions/s1/memory.jsonl"
    path.write_bytes(path.read_bytes().replace(b"ACID", b"BASE"))
    with pytest.raises(AssertionError):
        CheckedSession(path.parent).check()
    path = tmp_path / "per-kind/sessions/s1/findings.jsonl"
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[1:]) + b"\n")
    with pytest.raises(AssertionError):
        PerKindSession(path.parent).check()


# Each layout, through ours, back into the same.


def _through(place: Path, write: Callable[[Path], object], layout: str) -> Path:
    """Takes in what `write` makes of a path, and writes it again; gives back where."""
    memory = Memory(place / "root")
    write(place / "from")
    result, _, problems = take_in(memory, place / "from", layout)
    assert (result.problems, problems) == ([], [])
    done = memory.export_layout(place / "out", layout=layout)
    assert done.problems == []
    return place / "out"


def _standing(given: list[Entry]) -> list[Entry]:
    """Lines without those that a mark behind them deletes, and without the marks."""
    found: list[Entry] = []
    for line in given:
        if line.get("deleted") is True and "type" not in line:
            found = [one for one in found if one["id"] != line["id"]]
        else:
            found.append(line)
    return found


@QUICK
@given(single_session())
def test_any_single_file_comes_out_as_it_went_in(given: list[Entry]) -> None:
    """Every entry that stands, equal in all its fields; every mark of a deletion, and nothing of what was deleted."""
    given = [line for line in given if "ts" in line]
    with folder() as place:
        out = _through(place, lambda path: write_lines(path / "s1.jsonl", given), "jsonl")
        if not live(given):
            return
        found = lines(out / "s1.jsonl")
    assert multiset(live(found)) == multiset(live(_standing(given)))
    marks = [line for line in found if "type" not in line]
    gone = {line["id"] for line in given if "type" not in line}
    assert {mark["id"] for mark in marks} == gone
    assert all(mark.keys() <= {"id", "deleted", "ts", "reason"} for mark in marks)


@QUICK
@given(per_kind_session())
def test_any_file_per_kind_comes_out_as_it_went_in(given: tuple[Entry, dict[str, list[Entry]]]) -> None:
    manifest, files = given
    with folder() as place:
        out = _through(place, lambda path: write_per_kind(path / "sessions/s1", *given), "jsonl-per-kind")
        one = PerKindSession(out / "sessions/s1")
        one.check()
    assert {name: multiset(found) for name, found in one.files.items()} == {name: multiset(files[name]) for name in PER_KIND}
    assert multiset([_uncounted(one.manifest, "statistics")]) == multiset([_uncounted(manifest, "statistics")])


@QUICK
@given(checked_session())
def test_any_checked_log_comes_out_as_it_went_in(given: tuple[Entry, list[Entry], list[Entry]]) -> None:
    """Equal but for the checksums, which every entry has now; tombstones too, unless the id stands for another entry."""
    metadata, log, tombstones = given
    gone = {mark["id"] for mark in tombstones}
    with folder() as place:
        out = _through(place, lambda path: write_checked(path / "sessions/s1", *given), "jsonl-checked")
        found = lines(out / "sessions/s1/memory.jsonl")
        one = CheckedSession(out / "sessions/s1")
    assert bare(found) == bare(entry for entry in log if entry["id"] not in gone)
    assert all(checksum(entry) == entry["checksum"] for entry in found)
    assert multiset(one.tombstones) == multiset(tombstones)
    counted = ("statistics", "total_entries", "total_size_bytes")
    assert multiset([_uncounted(one.metadata, *counted)]) == multiset([_uncounted(metadata, *counted)])


def _uncounted(entry: Entry, *names: str) -> Entry:
    return {name: value for name, value in entry.items() if name not in names}


def test_the_example_of_a_file_per_kind_comes_out_as_it_went_in(tmp_path: Path) -> None:
    """With what stands beside the sessions: shared preferences and knowledge, settings, a file of nobody."""
    top = tmp_path / "from"
    write_per_kind(top / "sessions/s1", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    (top / "sessions/s1/notes.txt").write_text("mine")
    (top / "shared").mkdir()
    (top / "shared/user-preferences.json").write_text(json.dumps(PREFERENCES_EXAMPLE))
    (top / "shared/agent-knowledge.json").write_text(json.dumps(KNOWLEDGE_EXAMPLE))
    (top / "config.json").write_text(json.dumps(CONFIG_EXAMPLE))
    memory = Memory(tmp_path / "root")
    take_in(memory, top)
    out = tmp_path / "out"
    done = memory.export_layout(out, layout="jsonl-per-kind")
    assert (done.problems, done.left_out) == ([], [])
    assert json.loads((out / "shared/user-preferences.json").read_text()) == PREFERENCES_EXAMPLE
    assert json.loads((out / "shared/agent-knowledge.json").read_text()) == KNOWLEDGE_EXAMPLE
    assert json.loads((out / "config.json").read_text()) == CONFIG_EXAMPLE
    assert (out / "sessions/s1/notes.txt").read_text() == "mine"
    one = PerKindSession(out / "sessions/s1")
    one.check()
    assert one.files == PER_KIND_EXAMPLE
    assert _uncounted(one.manifest, "statistics") == _uncounted(MANIFEST_EXAMPLE, "statistics")
    assert one.index["topic_index"]["database_selection"] == ["msg-001"]
    assert one.index["temporal_index"]["2026-01-11T10"] == ["pref-001", "msg-000", "msg-001", "finding-003", "dec-001"]


@pytest.mark.parametrize("form", checked.FORMS)
def test_a_checksum_is_taken_as_the_program_took_it(tmp_path: Path, form: str) -> None:
    entry = {**CHECKED_EXAMPLE[2], "content": {"decision": "Größe"}}
    given = {**entry, "checksum": checked.checksum(entry, form)}
    write_checked(tmp_path / "from/sessions/sess_001", METADATA_EXAMPLE, [given], [])
    memory = Memory(tmp_path / "root")
    take_in(memory, tmp_path / "from")
    memory.export_layout(tmp_path / "out", layout="jsonl-checked")
    assert lines(tmp_path / "out/sessions/sess_001/memory.jsonl") == [given]


def test_what_decays_here_stays_what_it_is_there(tmp_path: Path) -> None:
    """Passes change priorities and counts; text, times, tags and references are what they were."""
    memory = Memory(tmp_path / "root")
    take_in(memory, write_lines(tmp_path / "a.jsonl", SINGLE_EXAMPLE))
    take_in(memory, write_per_kind(tmp_path / "b", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE))
    take_in(memory, write_checked(tmp_path / "c", METADATA_EXAMPLE, [with_checksum(entry) for entry in CHECKED_EXAMPLE], []))
    for name in "abc":
        memory.session(name).decay()
        memory.session(name).get("m002" if name == "a" else "dec-001" if name == "b" else "mem_abc123xyz")
    changing = ("priority", "access", "decay_factor", "access_count", "last_accessed", "checksum")
    every = [entry for name in PER_KIND for entry in PER_KIND_EXAMPLE[name]]
    for layout, name, wanted in zip(LAYOUTS, "abc", (SINGLE_EXAMPLE, every, CHECKED_EXAMPLE), strict=True):
        memory.export_layout(tmp_path / layout, [name], layout=layout)
        found = entries_in(tmp_path / layout, layout, name)
        assert multiset(_uncounted(one, *changing) for one in found) == multiset(_uncounted(one, *changing) for one in wanted)


def test_what_was_changed_here_is_not_told_as_it_was(memory: Memory, tmp_path: Path) -> None:
    """Also where the whole original is kept: what goes out is what we know now, under the id that it had there."""
    odd = {**SINGLE_EXAMPLE[1], "data": {"decision": "Use OAuth", "by": ["several", "people"]}}
    take_in(memory, write_lines(tmp_path / "s1.jsonl", [SINGLE_EXAMPLE[0], odd, SINGLE_EXAMPLE[2]]))
    memory.session("s1").update("m002", decision="Use SAML")
    memory.session("s1").resolve_finding("m003", resolved_by="me", action_taken="done")
    memory.export_layout(tmp_path / "out", layout="jsonl")
    found = {one["id"]: one for one in query_single(tmp_path / "out/s1.jsonl")}
    assert found.keys() == {"m001", "m002", "m003"}
    assert found["m001"] == SINGLE_EXAMPLE[0]
    assert found["m002"]["data"]["decision"] == "Use SAML"
    assert found["m003"]["data"]["status"] == "resolved"


# Our own, there and back.


@pytest.mark.parametrize("layout", LAYOUTS)
def test_our_own_sessions_come_back(memory: Memory, full: Session, tmp_path: Path, layout: str) -> None:
    """Into an empty tree every record is the same, with states and artifacts; into the same tree nothing is added."""
    full.add_turn("user", "To be deleted")
    full.add_turn("veritas", "After it", tags=["size"])
    full.delete("turn-3", reason="asked to")
    memory.export_layout(tmp_path / "out", layout=layout)
    other = Memory(tmp_path / "other")
    result, _, problems = take_in(other, tmp_path / "out", layout)
    assert (result.problems, problems) == ([], [])
    theirs = {(file, value["id"]): value for file, value in on_disk(other, "s1")}
    ours = {(file, value["id"]): value for file, value in on_disk(memory, "s1") if value.get("id") != "turn-3"}
    assert theirs == ours
    assert other.session("s1").artifact("plan") == full.artifact("plan")
    assert other.session("s1").agent_state("architect") == full.agent_state("architect")
    if layout != "jsonl":
        assert other.session("s1").metadata() == full.metadata()
    again, _, _ = take_in(memory, tmp_path / "out", layout)
    assert again.added == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_another_program_has_changed_is_taken_as_it_says(memory: Memory, full: Session, tmp_path: Path, layout: str) -> None:
    """What we wrote beside an entry is only believed while the entry says what it did."""
    memory.export_layout(tmp_path / "out", layout=layout)
    for path in (tmp_path / "out").rglob("*.jsonl"):
        entries = lines(path)
        for entry in entries:
            fields: Entry = entry if layout == "jsonl-per-kind" else entry.get("data") or entry["content"]
            if entry["id"] == "LEARN-001":
                fields |= {name: "Ask for more" for name, value in fields.items() if value == "Ask for numbers"}
            if "checksum" in entry:
                entry["checksum"] = checksum(entry)
        write_lines(path, entries)
    other = Memory(tmp_path / "other")
    result, _, _ = take_in(other, tmp_path / "out", layout)
    assert result.problems == []
    session = other.session("s1")
    assert (session.get("LEARN-001").type, session.get("LEARN-001").text) == ("finding", "Ask for more")
    assert session.get("DEC-001").data == full.get("DEC-001").data


@pytest.mark.parametrize("layout", LAYOUTS)
def test_from_one_layout_into_another(memory: Memory, tmp_path: Path, layout: str) -> None:
    """What came from one can be written as any, and read by a program of that one."""
    take_in(memory, write_lines(tmp_path / "s1.jsonl", SINGLE_EXAMPLE))
    memory.export_layout(tmp_path / "out", layout=layout)
    found = {one["id"]: one for one in entries_in(tmp_path / "out", layout, "s1")}
    assert found.keys() == {"m001", "m002", "m003", "m004"}
    said = json.dumps(found["m002"])
    assert "Use OAuth" in said
    other = Memory(tmp_path / "other")
    take_in(other, tmp_path / "out", layout)
    assert dict(on_disk(other, "s1")).keys() == dict(on_disk(memory, "s1")).keys()
    assert multiset(value for _, value in on_disk(other, "s1")) == multiset(value for _, value in on_disk(memory, "s1"))


# What was deleted, what was put away, what holds everywhere.


def test_what_was_deleted_is_marked_and_not_told(memory: Memory, full: Session, tmp_path: Path) -> None:
    """Its id, when and why; not a word of what it said, in any of the files. The layout without marks says that it has none."""
    full.delete("FIND-001", reason="asked to")
    full.delete("turn-1", reason="private")
    for layout in LAYOUTS:
        done = memory.export_layout(tmp_path / layout, layout=layout)
        ids = {entry["id"] for entry in entries_in(tmp_path / layout, layout, "s1")}
        assert not ids & {"FIND-001", "turn-1"}
        everything = b"".join(path.read_bytes() for path in (tmp_path / layout).rglob("*") if path.is_file())
        assert b"pooling" not in everything
        assert "Größe".encode() not in everything
        assert ("the fact that memories were deleted: s1" in done.left_out) == (layout == "jsonl-per-kind")
    at = {one.id: one.deleted_at for one in full.deleted()}
    marks = [one for one in lines(tmp_path / "jsonl/s1.jsonl") if "type" not in one]
    wanted = [("FIND-001", "asked to"), ("turn-1", "private")]
    assert marks == [{"id": one, "deleted": True, "ts": at[one], "reason": why} for one, why in wanted]
    tombstones = lines(tmp_path / "jsonl-checked/sessions/s1/tombstones.jsonl")
    assert tombstones == [{"id": one, "timestamp": at[one], "reason": why} for one, why in wanted]
    full.restore("FIND-001")
    memory.export_layout(tmp_path / "again", layout="jsonl-checked")
    assert [mark["id"] for mark in lines(tmp_path / "again/sessions/s1/tombstones.jsonl")] == ["turn-1"]


def test_what_came_as_deleted_goes_as_deleted(memory: Memory, tmp_path: Path) -> None:
    """With the mark that it came with; where its id was given again since, that entry is not marked."""
    mark = {"id": "mem_002", "timestamp": "2026-01-11T00:00:00Z", "reason": "asked to"}
    lost = {"id": "mem_900", "timestamp": "2026-01-11T00:00:00Z", "reason": "compacted"}
    write_checked(tmp_path / "from/sessions/sess_001", METADATA_EXAMPLE, CHECKED_EXAMPLE, [mark, lost])
    given = [SINGLE_EXAMPLE[0], {"id": "m001", "deleted": True, "ts": "2026-01-12T00:00:00Z"}, {**SINGLE_EXAMPLE[1], "id": "m001"}]
    write_lines(tmp_path / "other/s2.jsonl", given)
    for path in (tmp_path / "from", tmp_path / "other"):
        take_in(memory, path)
    memory.export_layout(tmp_path / "checked", ["sess_001"], layout="jsonl-checked")
    log = CheckedSession(tmp_path / "checked/sessions/sess_001")
    log.check()
    assert log.tombstones == [mark, lost]
    assert set(log.index["entries"]) == {"mem_001", "mem_abc123xyz"}
    memory.export_layout(tmp_path / "single", ["s2"], layout="jsonl")
    assert lines(tmp_path / "single/s2.jsonl") == given[1:]


def test_archived_sessions_and_what_holds_everywhere(memory: Memory, full: Session, tmp_path: Path) -> None:
    """The layout that packs sessions gets them packed, with a manifest beside; what holds everywhere comes back from `shared/`."""
    memory.everywhere.record_preference("Tea", confidence="explicit", topic="drinks")
    memory.archive_session("s1", "done")
    done = memory.export_layout(tmp_path / "out", layout="jsonl-per-kind")
    assert done.problems == []
    shared = json.loads((tmp_path / "out/shared/user-preferences.json").read_text())
    assert [(one["key"], one["value"]) for one in shared["preferences"]] == [("drinks", "Tea")]
    manifest = json.loads((tmp_path / "out/archive/s1.manifest.json").read_text())
    packed = tmp_path / "out/archive/s1.tar.gz"
    assert manifest["compressed_size_bytes"] == packed.stat().st_size
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    PerKindSession(tmp_path / "unpacked/s1").check()
    other = Memory(tmp_path / "other")
    result, _, _ = take_in(other, tmp_path / "out")
    assert (result.problems, result.sessions["s1"]) == ([], "archived")
    there, here = (load_summary(one.tree, "s1") for one in (memory, other))
    assert [name for name in ("memories", "decisions", "preferences", "learnings", "last_turns") if there[name] != here[name]] == []
    assert {found.session for found in other.search("PostgreSQL")} == {"s1"}
    assert [value for _, value in on_disk(other, "global")] == [value for _, value in on_disk(memory, "global")]
    told = memory.export_layout(tmp_path / "checked", layout="jsonl-checked").left_out
    assert "1 memory that holds everywhere" in told
    assert "the fact that it is archived: s1" in told


def test_a_selection_and_an_anonymous_one(memory: Memory, full: Session, tmp_path: Path) -> None:
    """Only what is wanted, without marks of what else there was; and names replaced, also in what is kept of an original."""
    odd = {**SINGLE_EXAMPLE[1], "data": {"decision": "Jane Doe decides", "by": ["Jane Doe"]}}
    take_in(memory, write_lines(tmp_path / "s2.jsonl", [odd]))
    full.delete("turn-1", reason="private")
    memory.export_layout(tmp_path / "some", layout="jsonl", wanted=lambda *given: given[2] == "decision")
    assert {one["id"] for path in (tmp_path / "some").glob("*.jsonl") for one in lines(path)} == {"DEC-001", "m002"}
    for layout in LAYOUTS:
        changed = memory.anonymous_export(["s2"], names=["Jane Doe"])
        memory.export_layout(tmp_path / layout, ["s2"], layout=layout, transform=changed)
        everything = b"".join(path.read_bytes() for path in (tmp_path / layout).rglob("*") if path.is_file())
        assert b"Jane" not in everything
        assert len(entries_in(tmp_path / layout, layout, "s2")) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_cannot_be_read_is_told_as_a_problem(memory: Memory, full: Session, tmp_path: Path, layout: str) -> None:
    """A record, a file of a later version, one that is no text, a state, an archive; and the rest of each goes out."""
    directory = memory.root / "active/s1"
    memory.everywhere.record_preference("Tea")
    memory.create_session(id="packed").add_turn("user", "hello")
    memory.archive_session("packed", "done")
    packed = next((memory.root / "archived/packed").glob("*.tar*"))
    packed.write_bytes(packed.read_bytes()[:-20])
    with (directory / "decisions.yaml").open("ab") as file:
        file.write(b'  - id: DEC-009\n    decision: "broken quote\n')
    with (directory / "preferences.yaml").open("ab") as file:
        file.write(b"  - id: PREF-9\n    preference: \xff\n")
    (directory / "findings.yaml").write_bytes((directory / "findings.yaml").read_bytes().replace(b"version: 1", b"version: 7", 1))
    (memory.root / "global/cross-session-preferences.yaml").write_text("version: 7\npreferences:\n")
    (directory / "agent-states").mkdir(exist_ok=True)
    (directory / "agent-states/torn.yaml").write_text("agent_state: [")
    problems = memory.export_layout(tmp_path / "out", layout=layout).problems
    for told in ("s1/decisions.yaml: 1 record that cannot be read was left out.", "s1/preferences.yaml: 1 record",
                 "s1: nothing of findings.yaml is in it", "global: nothing of cross-session-preferences.yaml is in it",
                 "s1: agent-states/torn.yaml cannot be read", f"packed: {packed.name} cannot be read"):  # fmt: skip
        assert [problem for problem in problems if problem.startswith(told)], (told, problems)
    ids = {entry["id"] for entry in entries_in(tmp_path / "out", layout, "s1")}
    assert {"DEC-001", "PREF-001"} <= ids


# Where it is written.


def test_nothing_is_overwritten_unasked(memory: Memory, full: Session, tmp_path: Path) -> None:
    """Neither a file nor a folder; with leave to, only an export as it was written. What fails leaves nothing behind."""
    out = tmp_path / "out"
    memory.export_layout(out, ["s1"], layout="jsonl-checked")
    with pytest.raises(Conflict):
        memory.export_layout(out, ["s1"], layout="jsonl-per-kind")
    memory.export_layout(out, ["s1"], layout="jsonl-per-kind", overwrite=True)
    assert not (out / "indices").exists()
    PerKindSession(out / "sessions/s1").check()
    (out / "thesis.tex").write_text("mine")
    with pytest.raises(Conflict, match=r"thesis\.tex"):
        memory.export_layout(out, ["s1"], layout="jsonl", overwrite=True)
    assert (out / "thesis.tex").read_text() == "mine"
    with pytest.raises(Invalid, match="does not exist"):
        memory.export_layout(tmp_path / "nowhere/out", ["s1"], layout="jsonl")
    (tmp_path / "empty").mkdir()
    memory.export_layout(tmp_path / "empty", ["s1"], layout="jsonl")
    memory.export_layout(tmp_path / "one.jsonl", ["s1"], layout="jsonl")
    assert lines(tmp_path / "one.jsonl") == lines(tmp_path / "empty/s1.jsonl")
    with pytest.raises(Conflict):
        memory.export_layout(tmp_path / "one.jsonl", ["s1"], layout="jsonl")
    with pytest.raises(Invalid):
        memory.export_layout(tmp_path / "x", ["s1"], layout="xml")

    def broken() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        memory.export_layout(tmp_path / "x", ["s1"], layout="jsonl-checked", advance=broken)
    names = {"out", "empty", "one.jsonl", "sessions"}
    assert {path.name for path in tmp_path.iterdir()} == names
    last = audit.read(memory.tree)[-1]
    assert (last["action"], last["layout"], last["session"], last["failed"]) == ("export", "jsonl-checked", "s1", "RuntimeError")


def test_what_another_program_has_written_is_never_replaced(memory: Memory, full: Session, tmp_path: Path) -> None:
    """Another session of theirs, a line behind ours, a link, or a folder of theirs: refused, and named."""
    out = tmp_path / "out"

    def export() -> None:
        memory.export_layout(out, ["s1"], layout="jsonl-per-kind", overwrite=True)

    export()
    export()
    theirs = out / "sessions/theirs/decisions.jsonl"
    theirs.parent.mkdir()
    theirs.write_text("{}\n")
    with pytest.raises(Conflict, match=r"'sessions/theirs/decisions\.jsonl' was added"):
        export()
    theirs.unlink()
    theirs.symlink_to(tmp_path)
    with pytest.raises(Conflict, match="was added"):
        export()
    theirs.unlink()
    with (out / "sessions/s1/decisions.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(Conflict, match=r"'sessions/s1/decisions\.jsonl' was changed"):
        export()
    (out / ".smp-export.json").unlink()
    with pytest.raises(Conflict, match="no folder that smp export has written"):
        export()
    assert lines(out / "sessions/s1/decisions.jsonl")[-1] == {}
    assert {path.name for path in tmp_path.iterdir()} == {"out", "sessions"}


def test_from_the_command_line(memory: Memory, full: Session, tmp_path: Path) -> None:
    """What was written, in one line; what the layout has no place for, on stderr; what cannot be asked for, said."""

    def run(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(main_command, ["export", *arguments, "--root", str(memory.root)])
        assert done.exit_code == code, done.output
        return done

    memory.everywhere.record_preference("Tea")
    (memory.root / "quarantine/s1").mkdir()
    (memory.root / "quarantine/s1/torn.bytes").write_bytes(b"- id")
    out = str(tmp_path / "out")
    said = run("--all", "--layout", "jsonl-checked", "-o", out)
    assert "note: jsonl-checked has no place for what is in quarantine: s1\n" in said.stderr
    assert "1 session as 10 entries of jsonl-checked" in said.stdout
    assert "jsonl-checked has no place for 1 memory that holds everywhere" in said.stderr
    CheckedSession(tmp_path / "out/sessions/s1").check()
    assert "is there already" in str(run("--all", "--layout", "jsonl", "-o", out, code=1).exception)
    run("s1", "--id", "DEC-001", "--layout", "jsonl", "-o", out, "--force")
    assert [one["id"] for one in lines(tmp_path / "out/s1.jsonl")] == ["DEC-001"]
    told = json.loads(run("s1", "--layout", "jsonl-per-kind", "-o", out, "--force", "--json").stdout)
    assert (told["format"], told["entries"], told["problems"]) == ("jsonl-per-kind", 10, [])
    for wrong in ([], ["-o", out, "--deleted"], ["-o", out, "--format", "json"]):
        assert "--layout" in run("s1", "--layout", "jsonl", *wrong, code=2).output


def test_what_compaction_has_put_away_goes_with_the_rest(memory: Memory, session: Session, tmp_path: Path) -> None:
    """The layouts keep no memory apart from the others, so it stands among them."""
    for number in range(1, 21):
        session.add_turn("user", f"Number {number}. " + "And so on. " * 40, timestamp=f"2026-01-{number:02d}T12:00:00Z")
    session.compact(reduction_pct=80)
    gone = {one.id for one in session.evicted()}
    assert gone
    for layout in LAYOUTS:
        memory.export_layout(tmp_path / layout, layout=layout)
        assert gone < {entry["id"] for entry in entries_in(tmp_path / layout, layout, "s1")}
