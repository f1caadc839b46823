"""The layouts of other programs: read with every field, written so that a small reader reads them.

The readers here are written from the documents of the layouts, and use nothing of SMP.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from smp_client import Conflict, Invalid, Memory

Values = dict[str, Any]

SINGLE: list[Values] = [
    {"id": "m001", "type": "conversation", "ts": "2026-01-11T14:30:00Z",
     "data": {"role": "user", "content": "Hello"}, "priority": 1.0, "access": 0},
    {"id": "m002", "type": "decision", "ts": "2026-01-11T14:31:00Z",
     "data": {"decision": "Use OAuth", "by": "architect"}, "priority": 0.95, "access": 3},
    {"id": "m003", "type": "finding", "ts": "2026-01-11T14:32:00Z",
     "data": {"issue": "Missing MFA", "severity": "critical"}, "priority": 0.9, "access": 1},
    {"id": "m004", "type": "preference", "ts": "2026-01-11T14:33:00Z",
     "data": {"key": "verification_depth", "value": "thorough"}, "priority": 0.85, "access": 5},
]  # fmt: skip
MANIFEST: Values = {
    "session_id": "s1", "created_at": "2026-01-11T10:00:00Z", "updated_at": "2026-01-11T14:30:00Z",
    "user_id": "user-789", "agent_ids": ["bmad-master", "architect"],
    "metadata": {"project_name": "payment-system", "session_type": "architecture_review",
                 "tags": ["architecture", "payments"]},
    "statistics": {"total_messages": 127}, "version": "1.0",
}  # fmt: skip
PER_KIND: dict[str, Values] = {
    "conversation": {
        "id": "msg-001", "timestamp": "2026-01-11T10:05:23Z", "agent_id": "architect",
        "role": "assistant", "content": "I recommend PostgreSQL.", "decay_factor": 1.0,
        "context": {"conversation_id": "conv-xyz", "topic": "database_selection"},
        "metadata": {"tokens": 15, "references": ["dec-001"]}},
    "decisions": {
        "id": "dec-001", "timestamp": "2026-01-11T10:10:00Z", "made_by": "architect",
        "approved_by": ["user-789"], "decision": "Use PostgreSQL", "rationale": "ACID",
        "alternatives_considered": [{"option": "MongoDB", "rejected_reason": "Eventual"}],
        "impact": "high", "tags": ["database", "two words"], "decay_factor": 0.5,
        "references": {"conversations": ["msg-001"], "findings": ["finding-003"]}},
    "findings": {
        "id": "finding-003", "timestamp": "2026-01-11T10:08:15Z", "discovered_by": "analyst",
        "category": "scalability", "severity": "blocker", "description": "No pooling",
        "evidence": "missing", "recommendation": "HikariCP", "status": "open",
        "tags": ["performance"], "decay_factor": 1.0},
    "preferences": {
        "id": "pref-001", "timestamp": "2026-01-11T10:00:00Z", "category": "communication",
        "key": "response_style", "value": "concise", "context": "brief", "confidence": 0.9,
        "learned_from": ["sess-1"], "decay_factor": 1.0},
}  # fmt: skip
CHECKED: list[Values] = [
    {"id": "mem_001", "session_id": "s1", "timestamp": "2026-01-10T14:23:45.678Z",
     "type": "decision", "importance": 0.9, "decay_factor": 1.0,
     "content": {"decision": "Use code flow", "rationale": "safe", "alternatives": ["PKCE"]},
     "tags": ["oauth2"], "references": ["mem_002"]},
    {"id": "mem_002", "session_id": "s1", "timestamp": "2026-01-10T14:23:44Z",
     "type": "conversation", "importance": 0.8, "decay_factor": 0.5,
     "content": {"role": "user", "message": "How do I do é OAuth2?", "metadata": {"x": 1}},
     "tags": ["oauth2"], "references": []},
]  # fmt: skip


def write_lines(path: Path, lines: list[Values]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def checksum(entry: Values, **form: Any) -> str:
    bare = {key: value for key, value in entry.items() if key != "checksum"}
    return "sha256:" + hashlib.sha256(json.dumps(bare, **form).encode()).hexdigest()


STRICT: Values = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}


# Reading.


def test_jsonl(memory: Memory, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in/s1.jsonl", SINGLE)
    assert dict(memory.exchange.import_(source).counts) == {"added": 4}
    session = memory.session("s1")
    assert (session.get("turn-1").text, session.get("turn-1").data["speaker"]) == ("Hello", "user")
    decision = session.get("m002", count_access=False).data
    assert (decision["decision"], decision["made_by"]) == ("Use OAuth", "architect")
    assert decision["timestamp"] == SINGLE[1]["ts"]
    assert (decision["decay"]["priority"], decision["decay"]["access_count"]) == (0.95, 3)
    finding, preference = session.get("m003").data, session.get("m004").data
    assert (finding["finding"], finding["severity"]) == ("Missing MFA", "critical")
    assert (preference["key"], preference["value"]) == ("verification_depth", "thorough")
    assert preference["topic"] == "verification_depth"
    write_lines(source, [*SINGLE, {**SINGLE[0], "id": "m005"}])
    assert dict(memory.exchange.import_(source).counts) == {"known": 4, "added": 1}
    assert session.turns()[-1].id == "turn-2"
    write_lines(source, [*SINGLE, {"id": "m001", "deleted": True, "reason": "private"}])
    assert memory.exchange.import_(source).counts["deleted"] == 1
    (gone,) = session.deleted()
    assert (gone.id, gone.facts["why"]) == ("turn-1", "private")
    session.restore("turn-1")
    assert dict(memory.exchange.import_(source).counts) == {"known": 3}, "a mark deletes once"


def test_jsonl_marks_ids_and_unknown_types(memory: Memory, tmp_path: Path) -> None:
    again = {**SINGLE[1], "data": {"decision": "Use SAML", "by": "dev"}}
    odd = {"id": "a b/c", "type": "insight", "ts": "2026-01-11 15:40+01:00", "data": "Words",
           "extra": {"deep": [1]}}  # fmt: skip
    nameless = {"type": "finding", "data": {"issue": "No id"}}
    mark = {"id": "m003", "deleted": True, "ts": "2026-01-12T00:00:00Z"}
    lines = [*SINGLE, SINGLE[0], again, odd, nameless, mark]
    source = write_lines(tmp_path / "s1.jsonl", lines)
    assert memory.exchange.import_(source).counts["added"] == 6
    session = memory.session("s1")
    assert {record.text for record in session.records("decision")} == {"Use OAuth", "Use SAML"}
    (learning,) = session.records("learning")
    data = learning.data
    assert (data["imported_id"], data["original_type"]) == ("a b/c", "insight")
    assert (learning.text, data["extra"]) == ("Words", {"deep": [1]})
    assert data["timestamp"] == "2026-01-11T14:40:00Z"
    assert [record.text for record in session.records("finding")] == ["No id"]
    assert memory.exchange.import_(source).counts["added"] == 0
    assert memory.exchange.verify(source).success


def test_jsonl_per_kind(memory: Memory, tmp_path: Path) -> None:
    top = tmp_path / "p/.bmad/memory"
    for name, line in PER_KIND.items():
        write_lines(top / f"sessions/s1/{name}.jsonl", [line])
    write_lines(top / "sessions/s1/manifest.json", [MANIFEST])
    shared = {"style": "short", "tools": [{"id": "p1", "key": "a", "value": 1}]}
    write_lines(top / "shared/user-preferences.json", [shared])
    done = memory.exchange.import_(tmp_path / "p")
    assert (done.problems, done.counts["added"]) == ([], 6)
    session = memory.session("s1")
    turn = session.turns()[0].data
    assert (turn["speaker"], turn["role"]) == ("architect", "assistant")
    assert (turn["memory_refs"], turn["tags"]) == (["dec-001"], ["database_selection"])
    assert turn["metadata"] == PER_KIND["conversation"]["metadata"]
    decision = session.get("dec-001", count_access=False).data
    assert (decision["agreed_by"], decision["impact"]) == (["user-789"], "high")
    assert (decision["tags"], decision["references"]) == (["database"], ["turn-1", "finding-003"])
    kept = {name: PER_KIND["decisions"][name] for name in ("tags", "references")}
    assert decision["imported"] == {"layout": "jsonl-per-kind", **kept}
    worn = decision["decay"]
    assert (worn["priority"], worn["imported"]) == (0.475, {"decay_factor": 0.5})
    finding = session.get("finding-003").data
    assert (finding["severity"], finding["imported"]["severity"]) == ("critical", "blocker")
    assert finding["resolution"] == {"status": "open"}
    assert (finding["evidence"], finding["recommendation"]) == ("missing", "HikariCP")
    preference = session.get("pref-001").data
    assert (preference["confidence"], preference["imported"]["confidence"]) == ("inferred", 0.9)
    about: Any = session.metadata()
    assert about["context"] == MANIFEST["metadata"]
    left = {"statistics": {"total_messages": 127}, "version": "1.0"}
    assert about["imported"]["manifest"] == left
    everywhere = {record.text for record in memory.everywhere.records("preference")}
    assert everywhere == {"style: short", "a: 1"}
    assert memory.exchange.import_(tmp_path / "p").counts["known"] == 6


@pytest.mark.parametrize("form", [
    STRICT, {"separators": (",", ":"), "ensure_ascii": False}, {"sort_keys": True}, {},
])  # fmt: skip
def test_jsonl_checked(memory: Memory, tmp_path: Path, form: Values) -> None:
    """A checksum may be over any usual form of JSON. An entry that it does not fit is reported."""
    folder = tmp_path / "memory/sessions/s1"
    lines = [{**entry, "checksum": checksum(entry, **form)} for entry in CHECKED]
    write_lines(folder / "memory.jsonl", [*lines, {**lines[0], "id": "mem_003"}])
    decay = {"enabled": True, "half_life_hours": 168}
    about = {"session_id": "s1", "created_at": "2026-01-10T14:00:00.000Z", "decay_config": decay}
    write_lines(folder / "metadata.json", [about])
    done = memory.exchange.import_(tmp_path / "memory")
    assert done.counts["added"] == 2
    assert [problem.partition("memory.jsonl")[2] for problem in done.problems] == [
        ", line 3: its checksum does not fit what it says"]  # fmt: skip
    session = memory.session("s1")
    decision = session.get("mem_001", count_access=False).data
    assert (decision["alternatives"], decision["references"]) == (["PKCE"], ["turn-1"])
    assert decision["timestamp"] == CHECKED[0]["timestamp"]
    assert session.turns()[0].text == "How do I do é OAuth2?"
    assert session.metadata()["decay_config"] == decay
    mark = {"id": "mem_001", "timestamp": "2026-01-11T00:00:00Z", "reason": "asked"}
    write_lines(folder / "tombstones.jsonl", [mark])
    assert memory.exchange.import_(tmp_path / "memory").counts["deleted"] == 1
    assert session.deleted()[0].facts["why"] == "asked"


def test_bad_lines_are_reported_with_file_line_and_reason(memory: Memory, tmp_path: Path) -> None:
    bad = {
        "{nope": "not JSON", '{"id": "x", "id": "y"}': "stands twice", '["a"]': "in braces",
        '{"id": "x"}': "neither a type",
        '{"type": "finding", "data": {"issue": NaN}}': "a number that is none",
        '{"type": "finding", "data": "\\ud800"}': "surrogate",
        '{"type": "finding", "data": ' + "[" * 100 + "]" * 100 + "}": "deeper",
    }  # fmt: skip
    good = [json.dumps(line) for line in SINGLE]
    content = "\n".join([*good, *bad]).encode() + b'\n{"id": "\xff"}\n\n{"id": "cut'
    (tmp_path / "s1.jsonl").write_bytes(content)
    done = memory.exchange.import_(tmp_path / "s1.jsonl")
    assert done.counts["added"] == 4
    words = {**dict(zip(range(5, 12), bad.values(), strict=True)), 12: "utf-8", 14: "cut off"}
    for (number, word), problem in zip(words.items(), done.problems, strict=True):
        assert problem.startswith(f"s1.jsonl, line {number}: ")
        assert word in problem


def test_nothing_to_import_is_said(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "data.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "readme.md").write_text("# Title\n\nUsage: run it\nNote: this\n")
    for source in ("empty", "data.jsonl", "readme.md", "nowhere", ""):
        with pytest.raises(Invalid):
            memory.exchange.import_(tmp_path / source)


# Logs.

CHAT = """# Kickoff
Participants: user-1, Rosa

**User:** Which database?

**Rosa**: PostgreSQL.
```
User: not a speaker
```
Decision: Use PostgreSQL 16

[2026-01-11 14:31] user: Fine.
"""


def test_a_log(memory: Memory, tmp_path: Path) -> None:
    """A log that grew goes on with its session; one that was edited is a new session."""
    log = tmp_path / "kickoff.md"
    log.write_text(CHAT)
    assert dict(memory.exchange.import_(log).counts) == {"added": 4}
    session = memory.session("kickoff")
    assert [record.text for record in session.records("decision")] == ["Use PostgreSQL 16"]
    assert [(turn.data["speaker"], turn.text.partition("\n")[0]) for turn in session.turns()] == [
        ("User", "Which database?"), ("Rosa", "PostgreSQL."), ("user", "Fine.")]  # fmt: skip
    assert session.turns()[2].data["timestamp"] == "2026-01-11T14:31:00Z"
    assert session.metadata()["context"] == {"title": "Kickoff"}
    session.delete("turn-1", reason="private")
    log.write_text(CHAT + "\nUser: One more\n")
    assert dict(memory.exchange.import_(log).counts) == {"left_deleted": 1, "known": 3, "added": 1}
    assert [turn.id for turn in session.turns()] == ["turn-2", "turn-3", "turn-4"]
    log.write_text(CHAT.replace("PostgreSQL.", "SQLite."))
    said = "kickoff.md does not go on with session kickoff: it became the new session kickoff-2"
    assert said in memory.exchange.import_(log).notes
    assert memory.session("kickoff-2").turns()[1].text.startswith("SQLite.")
    for text in (CHAT, log.read_text()):
        log.write_text(text)
        assert memory.exchange.import_(log).counts["added"] == 0


def test_logs_of_one_name_or_not_in_utf_8(memory: Memory, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "talk.md").write_text(f"User: Hi {folder}\nAssistant: Ho\n")
    (tmp_path / "swiss.txt").write_bytes("User: hoi\nUser: grüezi\n".encode("cp1252"))
    done = memory.exchange.import_(tmp_path)
    assert {session.id for session in memory.sessions()} == {"talk", "talk-2", "swiss"}
    assert done.problems[0].startswith("swiss.txt: line 2: not UTF-8")


@pytest.mark.parametrize("text", [
    "User: Hi\nAssistant: Ho", "**User:** Hi\n\n**Assistant:** Ho",
    "### User\nHi\n\n### Assistant\nHo", "[2026-01-11 14:30] user: Hi\n[14:31] bob: Ho",
    "---\nsession: talk\n---\nUser: Hi\nChatGPT: Ho",
])  # fmt: skip
def test_the_forms_of_a_log(memory: Memory, tmp_path: Path, text: str) -> None:
    (tmp_path / "talk.txt").write_text(text)
    memory.exchange.import_(tmp_path / "talk.txt")
    assert [turn.text for turn in memory.session("talk").turns()] == ["Hi", "Ho"]


MEMLOG = """---
topic: Onboarding
goal: lift retention
updated: 2026-06-07T14:22
---

- (note) user picked SCAMPER
- (question) is consent too heavy?
- (assumption by user) people have one bank
- (constraint) works offline
- (direction by coach) optimize for the first-timer
- (decision by user) one account first
- (insight) both are one lever
- (gap) no numbers yet
- (by coach) well done
- plain
"""


def test_a_memlog_with_all_its_tags(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1/.memlog.md").write_text(MEMLOG)
    done = memory.exchange.import_(tmp_path)
    assert (done.problems, done.counts["added"]) == ([], 17)
    session = memory.session("run-1")
    assert [f"{turn.data['type']} {turn.data['speaker']}" for turn in session.turns()] == [
        "note unknown", "question unknown", "assumption user", "constraint unknown",
        "direction coach", "decision user", "insight unknown", "gap unknown", "note coach",
        "note unknown"]  # fmt: skip
    kinds = ("decision", "finding", "learning")
    found = [record for kind in kinds for record in session.records(kind)]
    assert {record.text: record.data.get("category") for record in found} == {
        "works offline": "constraint", "optimize for the first-timer": "direction",
        "one account first": None, "is consent too heavy?": "question",
        "people have one bank": "assumption", "no numbers yet": "gap",
        "both are one lever": "insight"}  # fmt: skip
    context = {"primary_topic": "Onboarding", "goal": "lift retention"}
    assert session.metadata()["context"] == context
    with (tmp_path / "run-1/.memlog.md").open("a") as log:
        log.write("- (risk) too slow\n")
    assert dict(memory.exchange.import_(tmp_path).counts) == {"known": 17, "added": 2}
    assert session.by_topic("risk")


# Writing.


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    memory = Memory(tmp_path_factory.mktemp("wide") / "sessions")
    session = memory.create_session(id="my-session", user="u1", project="Shop")
    session.add_turn("user", "Hello", tags=["oauth"])
    facts = {"tags": ["security"], "references": ["turn-1"], "agreed_by": ["user"]}
    session.record_decision("Use OAuth", made_by="architect", **facts)
    session.record_finding("No MFA", discovered_by="qa", severity="high")
    session.record_preference("short", topic="style", confidence="explicit")
    for text in ("Ask", "Gone"):
        session.record_learning(text, learned_by="dev")
    session.delete("LEARN-002", reason="wrong")
    session.relate("DEC-001", "FIND-001", "resolves")
    session.save_artifact("report", "text")
    memory.everywhere.record_preference("Tea", topic="drinks")
    return memory


def rows(path: Path) -> list[Values]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_written_as_jsonl(wide: Memory, tmp_path: Path) -> None:
    """A reader after the document: one line an entry; `deleted` hides the lines before it."""
    done = wide.exchange.export_layout(tmp_path / "out", layout="jsonl")
    entries = {entry["id"]: entry for entry in rows(tmp_path / "out/my-session.jsonl")}
    assert entries.pop("LEARN-002")["deleted"] is True
    for entry in entries.values():
        assert entry.keys() == {"id", "type", "ts", "data", "priority", "access"}
    types = ["conversation", "decision", "finding", "finding", "preference"]
    assert sorted(entry["type"] for entry in entries.values()) == types
    data = {name: entry["data"] for name, entry in entries.items()}
    assert data["turn-1"]["role"] == "user"
    assert (data["DEC-001"]["decision"], data["DEC-001"]["by"]) == ("Use OAuth", "architect")
    finding = {"issue": "No MFA", "severity": "high", "status": "resolved"}
    assert data["FIND-001"] | finding == data["FIND-001"]
    assert (data["PREF-001"]["key"], data["PREF-001"]["value"]) == ("style", "short")
    assert {note.partition(" has no place for ")[2] for note in done.notes} == {
        "1 × artifact", "1 × global memory", "1 × relationship"}  # fmt: skip


def test_written_as_jsonl_per_kind(wide: Memory, tmp_path: Path) -> None:
    """A reader after the document: the manifest counts, and the files hold."""
    wide.exchange.export_layout(tmp_path / "out", layout="jsonl-per-kind")
    folder = tmp_path / "out/sessions/my-session"
    manifest = json.loads((folder / "manifest.json").read_text())
    found = {path.stem: rows(path) for path in folder.glob("*.jsonl")}
    statistics = manifest["statistics"]
    assert (statistics["total_messages"], statistics["total_findings"]) == (1, 2)
    assert statistics["size_bytes"] == sum(path.stat().st_size for path in folder.glob("*.jsonl"))
    assert (manifest["session_id"], manifest["metadata"]["project_name"]) == ("my-session", "Shop")
    (message,), (decision,) = found["conversation"], found["decisions"]
    assert (message["role"], message["content"], message["decay_factor"]) == ("user", "Hello", 1.0)
    assert decision["approved_by"] == ["user"]
    assert decision["references"]["conversations"] == ["turn-1"]
    preference = {"key": "style", "value": "short", "confidence": 1.0}
    assert found["preferences"][0] | preference == found["preferences"][0]
    severities = {row["description"]: row["severity"] for row in found["findings"]}
    assert severities == {"No MFA": "high", "Ask": "info"}
    shared = json.loads((tmp_path / "out/shared/user-preferences.json").read_text())
    assert shared["preferences"][0]["value"] == "Tea"


def test_written_as_jsonl_checked(wide: Memory, tmp_path: Path) -> None:
    """A reader after the document: validate ids, verify checksums, drop tombstones."""
    wide.exchange.export_layout(tmp_path / "out", ["my-session"], layout="jsonl-checked")
    folder = tmp_path / "out/sessions/my_session"
    metadata = json.loads((folder / "metadata.json").read_text())
    entries = rows(folder / "memory.jsonl")
    for entry in entries:
        assert entry["checksum"] == checksum(entry, **STRICT)
        assert re.fullmatch(r"\w{1,32}", entry["id"], re.ASCII)
        assert entry["session_id"] == metadata["session_id"] == "my_session"
        assert 0 <= entry["importance"] <= 1
    assert [entry["id"] for entry in entries if "security" in entry["tags"]] == ["DEC_001"]
    counts = {"conversations": 1, "decisions": 1, "findings": 2, "preferences": 1}
    assert (metadata["total_entries"], metadata["statistics"]) == (len(entries), counts)
    files = ("memory.jsonl", "tombstones.jsonl")
    assert metadata["total_size_bytes"] == sum((folder / name).stat().st_size for name in files)
    (gone,) = rows(folder / "tombstones.jsonl")
    assert (gone["id"], gone["reason"]) == ("LEARN_002", "wrong")


@pytest.mark.parametrize("layout", ["jsonl", "jsonl-per-kind", "jsonl-checked"])
def test_an_export_in_a_layout_is_read_by_us_too(wide: Memory, tmp_path: Path, layout: str) -> None:
    wide.exchange.export_layout(tmp_path / "out", ["my-session"], layout=layout)
    with pytest.raises(Conflict):
        wide.exchange.export_layout(tmp_path / "out", layout=layout)
    other = Memory(tmp_path / "other")
    assert other.exchange.import_(tmp_path / "out").problems == []
    (session,) = other.sessions()
    assert [turn.text for turn in session.turns()] == ["Hello"]
    found = [record for kind in ("decision", "finding") for record in session.records(kind)]
    assert {record.text for record in found} == {"Use OAuth", "No MFA", "Ask"}
