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
    {"id": "m001", "type": "conversation", "ts": "2026-01-11T14:30:00Z", "data": {"role": "user",
     "content": "Hello"},
     "priority": 1.0, "access": 0},
    {"id": "m002", "type": "decision", "ts": "2026-01-11T14:31:00Z",
     "data": {"decision": "Use OAuth", "by": "architect"},
     "priority": 0.95, "access": 3},
    {"id": "m003", "type": "finding", "ts": "2026-01-11T14:32:00Z", "data": {"issue": "Missing MFA",
     "severity": "critical"},
     "priority": 0.9, "access": 1},
    {"id": "m004", "type": "preference", "ts": "2026-01-11T14:33:00Z",
     "data": {"key": "verification_depth", "value": "thorough"}, "priority": 0.85, "access": 5},
]  # fmt: skip
MANIFEST: Values = {
    "session_id": "s1", "created_at": "2026-01-11T10:00:00Z", "updated_at": "2026-01-11T14:30:00Z",
    "user_id": "user-789",
    "agent_ids": ["bmad-master", "architect"],
    "metadata": {"project_name": "payment-system", "session_type": "architecture_review",
    "tags": ["architecture", "payments"]},
    "statistics": {"total_messages": 127}, "version": "1.0",
}  # fmt: skip
PER_KIND: dict[str, list[Values]] = {
    "conversation": [
        {"id": "msg-001", "timestamp": "2026-01-11T10:05:23Z", "agent_id": "architect",
         "role": "assistant",
         "content": "I recommend PostgreSQL.", "context": {"conversation_id": "conv-xyz",
         "topic": "database_selection"},
         "metadata": {"tokens": 15, "references": ["dec-001"]}, "decay_factor": 1.0}],
    "decisions": [
        {"id": "dec-001", "timestamp": "2026-01-11T10:10:00Z", "made_by": "architect",
         "approved_by": ["user-789"],
         "decision": "Use PostgreSQL", "rationale": "ACID",
         "alternatives_considered": [{"option": "MongoDB",
         "rejected_reason": "Eventual consistency risk"}], "impact": "high",
         "tags": ["database", "two words"], "references": {"conversations": ["msg-001"],
         "findings": ["finding-003"]},
         "decay_factor": 0.5}],
    "findings": [
        {"id": "finding-003", "timestamp": "2026-01-11T10:08:15Z", "discovered_by": "analyst",
         "category": "scalability",
         "severity": "blocker", "description": "No pooling", "evidence": "missing",
         "recommendation": "HikariCP",
         "status": "open", "tags": ["performance"], "decay_factor": 1.0}],
    "preferences": [
        {"id": "pref-001", "timestamp": "2026-01-11T10:00:00Z", "category": "communication",
         "key": "response_style",
         "value": "concise", "context": "brief", "confidence": 0.9, "learned_from": ["sess-1"],
         "decay_factor": 1.0}],
}  # fmt: skip
CHECKED: list[Values] = [
    {"id": "mem_001", "session_id": "s1", "timestamp": "2026-01-10T14:23:45.678Z",
     "type": "decision",
     "content": {"decision": "Use code flow", "rationale": "safe", "alternatives": ["PKCE"]},
     "importance": 0.9,
     "decay_factor": 1.0, "tags": ["oauth2"], "references": ["mem_002"]},
    {"id": "mem_002", "session_id": "s1", "timestamp": "2026-01-10T14:23:44Z",
     "type": "conversation",
     "content": {"role": "user", "message": "How do I do é OAuth2?", "metadata": {"x": 1}},
     "importance": 0.8,
     "decay_factor": 0.5, "tags": ["oauth2"], "references": []},
]  # fmt: skip


def write_lines(path: Path, lines: list[Values]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def checksum(entry: Values) -> str:
    text = json.dumps({key: value for key, value in entry.items() if key != "checksum"},
        sort_keys=True,
                      separators=(",", ":"), ensure_ascii=False)  # fmt: skip
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def write_per_kind(folder: Path) -> Path:
    for name, lines in PER_KIND.items():
        write_lines(folder / f"{name}.jsonl", lines)
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    return folder


def write_checked(folder: Path) -> Path:
    write_lines(
        folder / "memory.jsonl", [{**entry, "checksum": checksum(entry)} for entry in CHECKED]
    )
    (folder / "metadata.json").write_text(json.dumps({
        "session_id": "s1", "user_id": "user123", "created_at": "2026-01-10T14:00:00.000Z",
        "total_entries": 42,
        "decay_config": {"enabled": True, "half_life_hours": 168},
            "preferences": {"language": "en"}}))  # fmt: skip
    write_lines(
        folder / "tombstones.jsonl",
        [{"id": "mem_009", "timestamp": "2026-01-11T00:00:00Z", "reason": "asked"}],
    )
    return folder


# Reading.


def test_jsonl(memory: Memory, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in/s1.jsonl", SINGLE)
    assert dict(memory.exchange.import_(source).counts) == {"added": 4}
    session = memory.session("s1")
    assert (session.get("turn-1").text, session.get("turn-1").data["speaker"]) == ("Hello", "user")
    decision = session.get("m002", count_access=False).data
    assert (decision["decision"], decision["made_by"], decision["timestamp"]) == (
        "Use OAuth",
        "architect",
        SINGLE[1]["ts"],
    )
    assert (decision["decay"]["priority"], decision["decay"]["access_count"]) == (0.95, 3)
    assert (session.get("m003").data["finding"], session.get("m003").data["severity"]) == (
        "Missing MFA",
        "critical",
    )
    preference = session.get("m004").data
    assert (preference["key"], preference["value"], preference["topic"]) == (
        "verification_depth",
        "thorough",
        "verification_depth",
    )
    write_lines(source, [*SINGLE, {**SINGLE[0], "id": "m005"}])
    assert dict(memory.exchange.import_(source).counts) == {"known": 4, "added": 1}
    assert session.turns()[-1].id == "turn-2"


def test_jsonl_marks_ids_and_unknown_types(memory: Memory, tmp_path: Path) -> None:
    again = {**SINGLE[1], "data": {"decision": "Use SAML", "by": "dev"}}
    odd = {
        "id": "a b/c",
        "type": "insight",
        "ts": 1768142400,
        "data": "Words",
        "extra": {"deep": [1]},
    }
    source = write_lines(tmp_path / "s1.jsonl", [*SINGLE, SINGLE[0], again, odd, {"type": "finding",
    "data": {"issue": "No id"}},
                                                 {"id": "m003", "deleted": True,
                                                  "ts": "2026-01-12T00:00:00Z"}])  # fmt: skip
    assert memory.exchange.import_(source).counts["added"] == 6
    session = memory.session("s1")
    assert {record.text for record in session.records("decision")} == {"Use OAuth", "Use SAML"}
    (learning,) = session.records("learning")
    assert (learning.data["imported_id"], learning.data["original_type"], learning.text) == (
        "a b/c",
        "insight",
        "Words",
    )
    assert (learning.data["extra"], learning.data["timestamp"]) == (
        {"deep": [1]},
        "2026-01-11T14:40:00Z",
    )
    assert [record.text for record in session.records("finding")] == ["No id"]
    assert memory.exchange.import_(source).counts["added"] == 0
    assert memory.exchange.verify(source).success


def test_a_mark_deletes_once(memory: Memory, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "s1.jsonl", SINGLE)
    memory.exchange.import_(source)
    write_lines(
        source,
        [
            *SINGLE,
            {"id": "m001", "deleted": True, "ts": "2026-01-12T00:00:00Z", "reason": "private"},
        ],
    )
    assert memory.exchange.import_(source).counts["deleted"] == 1
    (gone,) = memory.session("s1").deleted()
    assert (gone.id, gone.reason) == ("turn-1", "private")
    assert memory.exchange.import_(source).counts["added"] == 0
    memory.session("s1").restore("turn-1")
    assert memory.exchange.import_(source).counts["deleted"] == 0
    assert memory.session("s1").turns()[0].text == "Hello"


def test_jsonl_per_kind(memory: Memory, tmp_path: Path) -> None:
    write_per_kind(tmp_path / "p/.bmad/memory/sessions/s1")
    (tmp_path / "p/.bmad/memory/shared").mkdir()
    shared = {"style": "short", "tools": [{"id": "p1", "key": "a", "value": 1}]}
    (tmp_path / "p/.bmad/memory/shared/user-preferences.json").write_text(json.dumps(shared))
    done = memory.exchange.import_(tmp_path / "p")
    assert (done.problems, done.counts["added"]) == ([], 6)
    session = memory.session("s1")
    turn = session.turns()[0].data
    assert (turn["speaker"], turn["role"]) == ("architect", "assistant")
    assert (turn["memory_refs"], turn["tags"]) == (["dec-001"], ["database_selection"])
    assert turn["metadata"] == PER_KIND["conversation"][0]["metadata"]
    decision = session.get("dec-001", count_access=False).data
    assert (decision["agreed_by"], decision["impact"], decision["tags"]) == (
        ["user-789"],
        "high",
        ["database"],
    )
    assert decision["references"] == ["turn-1", "finding-003"]
    assert decision["imported"]["tags"] == ["database", "two words"]
    assert decision["imported"]["references"] == PER_KIND["decisions"][0]["references"]
    assert (decision["decay"]["priority"], decision["decay"]["imported"]) == (
        0.475,
        {"decay_factor": 0.5},
    )
    finding = session.get("finding-003").data
    assert (finding["severity"], finding["imported"]["severity"]) == ("critical", "blocker")
    assert finding["resolution"] == {"status": "open"}
    assert (finding["evidence"], finding["recommendation"]) == ("missing", "HikariCP")
    preference = session.get("pref-001").data
    assert (preference["confidence"], preference["imported"]["confidence"]) == ("inferred", 0.9)
    about = session.metadata()
    assert about["context"] == MANIFEST["metadata"]
    assert about["imported"]["manifest"] == {
        "statistics": {"total_messages": 127},
        "version": "1.0",
    }  # type: ignore[index,call-overload]
    assert {record.text for record in memory.everywhere.records("preference")} == {
        "style: short",
        "a: 1",
    }
    assert memory.exchange.import_(tmp_path / "p").counts["known"] == 6


def test_jsonl_checked(memory: Memory, tmp_path: Path) -> None:
    folder = write_checked(tmp_path / "memory/sessions/s1")
    assert memory.exchange.import_(tmp_path / "memory").counts["added"] == 2
    session = memory.session("s1")
    decision = session.get("mem_001", count_access=False).data
    assert (decision["alternatives"], decision["references"]) == (["PKCE"], ["turn-1"])
    assert decision["timestamp"] == CHECKED[0]["timestamp"]
    assert session.turns()[0].text == "How do I do é OAuth2?"
    assert session.metadata()["decay_config"] == {"enabled": True, "half_life_hours": 168}
    write_lines(
        folder / "tombstones.jsonl",
        [{"id": "mem_001", "timestamp": "2026-01-11T00:00:00Z", "reason": "asked"}],
    )
    assert memory.exchange.import_(tmp_path / "memory").counts["deleted"] == 1
    assert session.deleted()[0].reason == "asked"


@pytest.mark.parametrize("form", [
    {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}, {"separators": (",", ":"),
     "ensure_ascii": False},
    {"sort_keys": True}, {},
])  # fmt: skip
def test_checksums_over_any_usual_form_of_json(
    memory: Memory, tmp_path: Path, form: Values
) -> None:
    lines = [
        {
            **entry,
            "checksum": "sha256:" + hashlib.sha256(json.dumps(entry, **form).encode()).hexdigest(),
        }
        for entry in CHECKED
    ]
    lines.append({**lines[0], "id": "mem_003"})
    write_lines(tmp_path / "s1/memory.jsonl", lines)
    done = memory.exchange.import_(tmp_path / "s1")
    assert done.counts["added"] == 2
    assert done.problems == ["memory.jsonl, line 3: its checksum does not fit what it says"]


def test_bad_lines_are_reported_with_file_line_and_reason(memory: Memory, tmp_path: Path) -> None:
    good = [json.dumps(line) for line in SINGLE]
    bad = ["{nope", '{"id": "x", "id": "y"}', '["a"]', '{"id": "x"}',
        '{"type": "finding", "data": {"issue": NaN}}',
           '{"type": "finding", "data": "\\ud800"}',
               '{"type": "finding", "data": ' + "[" * 100 + "]" * 100 + "}"]  # fmt: skip
    (tmp_path / "s1.jsonl").write_bytes(
        "\n".join([*good, *bad]).encode() + b'\n{"id": "\xff"}\n\n{"id": "cut'
    )
    done = memory.exchange.import_(tmp_path / "s1.jsonl")
    assert done.counts["added"] == 4
    told = [re.fullmatch(r"s1\.jsonl, line (\d+): (.+)", problem) for problem in done.problems]
    assert [int(one[1]) for one in told if one] == [5, 6, 7, 8, 9, 10, 11, 12, 14]
    for number, word in ((1, "stands twice"), (2, "in braces"), (3, "neither a type"), (5,
        "surrogate"), (6, "deeper"),
                         (7, "UTF-8"), (8, "cut off")):  # fmt: skip
        assert word in (told[number] or [""])[0]


def test_nothing_to_import_is_said(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "data.jsonl").write_text('{"a": 1}\n')
    for source in ("empty", "data.jsonl", "nowhere"):
        with pytest.raises(Invalid):
            memory.exchange.import_(tmp_path / source)
    with pytest.raises(Invalid, match="must be one of"):
        memory.exchange.import_(tmp_path, layout="xml")
    assert memory.exchange.import_(tmp_path / "data.jsonl", layout="jsonl").problems


# Logs.

CHAT = """# Kickoff
Participants: user-1, Rosa

**User:** Which database?

**Rosa** (2026-01-11 14:30): PostgreSQL.
```
User: not a speaker
```
Decision: Use PostgreSQL 16

[2026-01-11 14:31] user: Fine.
Finding (Rosa): No backups
"""


def test_a_log_and_what_it_marks(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "kickoff.md").write_text(CHAT)
    done = memory.exchange.import_(tmp_path / "kickoff.md")
    assert dict(done.counts) == {"added": 5}
    session = memory.session("kickoff")
    assert [(turn.data["speaker"], turn.text.partition("\n")[0]) for turn in session.turns()] == [
        ("User", "Which database?"), ("Rosa", "PostgreSQL."), ("user", "Fine.")]  # fmt: skip
    assert session.turns()[2].data["timestamp"] == "2026-01-11T14:31:00Z"
    decision, finding = session.get("DEC-001").data, session.get("FIND-001").data
    assert (decision["decision"], decision["made_by"], decision["turn_ref"]) == (
        "Use PostgreSQL 16",
        "Rosa",
        2,
    )
    assert (finding["finding"], finding["discovered_by"]) == ("No backups", "Rosa")
    assert session.metadata()["context"] == {"title": "Kickoff"}
    assert (
        Memory(tmp_path / "bare").exchange.import_(tmp_path / "kickoff.md", extract=False).counts["added"]
        == 3
    )


def test_a_log_that_grows_is_gone_on_with(memory: Memory, tmp_path: Path) -> None:
    log = tmp_path / "kickoff.md"
    log.write_text(CHAT)
    memory.exchange.import_(log)
    memory.session("kickoff").delete("turn-1", reason="private")
    log.write_text(CHAT + "\nUser: One more\n")
    assert dict(memory.exchange.import_(log).counts) == {"left_deleted": 1, "known": 4, "added": 1}
    assert [turn.id for turn in memory.session("kickoff").turns()] == ["turn-2", "turn-3", "turn-4"]
    log.write_text(CHAT)
    assert memory.exchange.import_(log).counts["added"] == 0


def test_a_log_that_was_edited_is_a_new_session_and_that_is_said(
    memory: Memory, tmp_path: Path
) -> None:
    log = tmp_path / "kickoff.md"
    log.write_text(CHAT)
    memory.exchange.import_(log)
    log.write_text(CHAT.replace("PostgreSQL.", "SQLite."))
    done = memory.exchange.import_(log)
    assert done.notes == [
        "kickoff.md does not go on with session kickoff: it became the new session kickoff-2"
    ]
    assert memory.session("kickoff-2").turns()[1].text.startswith("SQLite.")
    assert memory.exchange.import_(log).counts["added"] == 0
    assert len(memory.session("kickoff").turns()) == 3


def test_two_logs_of_one_name(memory: Memory, tmp_path: Path) -> None:
    for folder, text in (("a", "User: Hi\nAssistant: Ho\n"), ("b", "User: Other\nAssistant: Ho\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "talk.md").write_text(text)
    memory.exchange.import_(tmp_path)
    assert {session.id for session in memory.sessions()} == {"talk", "talk-2"}


@pytest.mark.parametrize("text", [
    "User: Hi\nAssistant: Ho", "**User:** Hi\n\n**Assistant:** Ho",
    "### User\nHi\n\n### Assistant\nHo",
    "[2026-01-11 14:30] user: Hi\n[14:31] bob: Ho", "14:30 User: Hi\n14:31 Assistant: Ho",
    "## Turn 1 - 2026-01-11 14:30:00\n**Speaker:** user\n\nHi\n\n---\n\n"
    "## Turn 2\n**Speaker:** bob\n\nHo\n\n---\n",
    "---\nsession: talk\n---\nUser said: Hi\nChatGPT said: Ho",
])  # fmt: skip
def test_the_forms_of_a_log(memory: Memory, tmp_path: Path, text: str) -> None:
    (tmp_path / "talk.txt").write_text(text)
    memory.exchange.import_(tmp_path / "talk.txt")
    assert [turn.text for turn in memory.session("talk").turns()] == ["Hi", "Ho"]


def test_a_text_without_speakers_is_no_log(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "readme.md").write_text("# Title\n\nUsage: run it\nNote: this\n")
    with pytest.raises(Invalid):
        memory.exchange.import_(tmp_path)
    (tmp_path / "talk.txt").write_bytes("Rosa: hoi\nUrs: grüezi\n".encode("cp1252"))
    done = memory.exchange.import_(tmp_path / "talk.txt", layout="markdown-log")
    assert done.counts["added"] == 2
    assert done.problems[0].startswith("talk.txt, line 2: not UTF-8")


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
    assert [(turn.data["speaker"], turn.data["type"]) for turn in session.turns()] == [
        ("unknown", "note"), ("unknown", "question"), ("user", "assumption"), ("unknown",
         "constraint"), ("coach", "direction"),
        ("user", "decision"), ("unknown", "insight"), ("unknown", "gap"), ("coach", "note"),
         ("unknown", "note")]  # fmt: skip
    found = [
        record for kind in ("decision", "finding", "learning") for record in session.records(kind)
    ]
    kept = {record.text: record.data.get("category") for record in found}
    assert kept == {"works offline": "constraint", "optimize for the first-timer": "direction",
        "one account first": None,
                    "is consent too heavy?": "question", "people have one bank": "assumption",
                    "no numbers yet": "gap",
                    "both are one lever": "insight"}  # fmt: skip
    about = session.metadata()
    assert about["context"] == {"primary_topic": "Onboarding", "goal": "lift retention"}
    with (tmp_path / "run-1/.memlog.md").open("a") as log:
        log.write("- (risk) too slow\n")
    assert dict(memory.exchange.import_(tmp_path).counts) == {"known": 17, "added": 2}
    assert session.by_topic("risk")


# Writing.


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    memory = Memory(tmp_path_factory.mktemp("wide") / "sessions")
    session = memory.create_session(
        id="my-session", user="u1", project="Shop", agents=["architect"]
    )
    session.add_turn("user", "Hello", tags=["oauth"], timestamp="2026-01-11T14:30:00Z")
    session.record_decision("Use OAuth", made_by="architect", tags=["security"],
        references=["turn-1"], agreed_by=["user"],
                            timestamp="2026-01-11T14:31:00Z")  # fmt: skip
    session.record_finding(
        "No MFA", discovered_by="qa", severity="high", timestamp="2026-01-11T14:32:00Z"
    )
    session.record_preference(
        "short", topic="style", confidence="explicit", timestamp="2026-01-11T14:33:00Z"
    )
    session.record_learning("Ask", learned_by="dev", timestamp="2026-01-11T14:34:00Z")
    session.record_learning("Gone", learned_by="dev", timestamp="2026-01-11T14:35:00Z")
    session.delete("LEARN-002", reason="wrong")
    session.relate("DEC-001", "FIND-001", "resolves")
    session.save_artifact("report", "text")
    memory.everywhere.record_preference("Tea", topic="drinks")
    return memory


def read_single(folder: Path) -> list[Values]:
    """A reader after the document: one line an entry; a later line with `deleted` hides the id."""
    entries: dict[str, Values] = {}
    for line in (folder / "my-session.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry.get("deleted"):
            entries.pop(entry["id"], None)
            continue
        assert entry.keys() == {"id", "type", "ts", "data", "priority", "access"}
        assert entry["type"] in ("conversation", "decision", "finding", "preference")
        entries[entry["id"]] = entry
    return sorted(entries.values(), key=lambda entry: entry["ts"])


def test_written_as_jsonl(wide: Memory, tmp_path: Path) -> None:
    done = wide.exchange.export_layout(tmp_path / "out", layout="jsonl")
    entries = read_single(tmp_path / "out")
    assert [entry["type"] for entry in entries] == [
        "conversation",
        "decision",
        "finding",
        "preference",
        "finding",
    ]
    assert entries[0]["data"]["role"] == "user"
    assert (entries[1]["data"]["decision"], entries[1]["data"]["by"]) == ("Use OAuth", "architect")
    finding = entries[2]["data"]
    assert (finding["issue"], finding["severity"], finding["status"]) == (
        "No MFA",
        "high",
        "resolved",
    )
    assert (entries[3]["data"]["key"], entries[3]["data"]["value"]) == ("style", "short")
    assert '"deleted": true' in (tmp_path / "out/my-session.jsonl").read_text()
    assert {note.partition(" has no place for ")[2] for note in done.notes} == {
        "1 × artifact", "1 × global memory", "1 × relationship"}  # fmt: skip


def test_written_as_jsonl_per_kind(wide: Memory, tmp_path: Path) -> None:
    """A reader after the document: the manifest counts, and the files hold."""
    wide.exchange.export_layout(tmp_path / "out", layout="jsonl-per-kind")
    folder = tmp_path / "out/sessions/my-session"
    manifest = json.loads((folder / "manifest.json").read_text())
    rows = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in folder.glob("*.jsonl")
    }
    assert manifest["statistics"]["total_messages"] == len(rows["conversation"]) == 1
    assert manifest["statistics"]["total_findings"] == len(rows["findings"]) == 2
    assert manifest["statistics"]["size_bytes"] == sum(
        path.stat().st_size for path in folder.glob("*.jsonl")
    )
    assert (manifest["session_id"], manifest["metadata"]["project_name"]) == ("my-session", "Shop")
    (message,), (decision,), (preference,) = (
        rows["conversation"],
        rows["decisions"],
        rows["preferences"],
    )
    assert (message["role"], message["content"], message["decay_factor"]) == ("user", "Hello", 1.0)
    assert (decision["approved_by"], decision["references"]["conversations"]) == (
        ["user"],
        ["turn-1"],
    )
    assert (preference["key"], preference["value"], preference["confidence"]) == (
        "style",
        "short",
        1.0,
    )
    assert {row["description"]: row["severity"] for row in rows["findings"]} == {
        "No MFA": "high",
        "Ask": "info",
    }
    shared = json.loads((tmp_path / "out/shared/user-preferences.json").read_text())
    assert shared["preferences"][0]["value"] == "Tea"


def test_written_as_jsonl_checked(wide: Memory, tmp_path: Path) -> None:
    """A reader after the document: validate ids, verify checksums, drop tombstones."""
    wide.exchange.export_layout(tmp_path / "out", ["my-session"], layout="jsonl-checked")
    folder = tmp_path / "out/sessions/my_session"
    metadata = json.loads((folder / "metadata.json").read_text())
    entries = [json.loads(line) for line in (folder / "memory.jsonl").read_bytes().splitlines()]
    for entry in entries:
        assert entry["checksum"] == checksum(entry)
        assert re.fullmatch(r"\w{1,32}", entry["id"], re.ASCII)
        assert entry["session_id"] == metadata["session_id"] == "my_session"
        assert entry["type"] in ("conversation", "decision", "finding", "preference")
        assert 0 <= entry["importance"] <= 1
    assert [entry["id"] for entry in entries if "security" in entry["tags"]] == ["DEC_001"]
    assert metadata["total_entries"] == len(entries) == 5
    assert metadata["statistics"] == {
        "conversations": 1,
        "decisions": 1,
        "findings": 2,
        "preferences": 1,
    }
    files = ("memory.jsonl", "tombstones.jsonl")
    assert metadata["total_size_bytes"] == sum((folder / name).stat().st_size for name in files)
    (gone,) = [json.loads(line) for line in (folder / "tombstones.jsonl").read_text().splitlines()]
    assert (gone["id"], gone["reason"]) == ("LEARN_002", "wrong")


@pytest.mark.parametrize("layout", ["jsonl", "jsonl-per-kind", "jsonl-checked"])
def test_an_export_in_a_layout_is_read_by_us_too(wide: Memory, tmp_path: Path, layout: str) -> None:
    wide.exchange.export_layout(tmp_path / "out", ["my-session"], layout=layout)
    other = Memory(tmp_path / "other")
    assert other.exchange.import_(tmp_path / "out").problems == []
    (session,) = other.sessions()
    assert [turn.text for turn in session.turns()] == ["Hello"]
    assert {
        record.text for kind in ("decision", "finding") for record in session.records(kind)
    } == {"Use OAuth", "No MFA", "Ask"}


def test_a_folder_is_replaced_only_if_it_is_such_an_export(wide: Memory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    wide.exchange.export_layout(out, layout="jsonl")
    with pytest.raises(Conflict):
        wide.exchange.export_layout(out, layout="jsonl")
    wide.exchange.export_layout(out, layout="jsonl-per-kind", overwrite=True)
    assert not (out / "my-session.jsonl").exists()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(Conflict, match=r"mine\.txt"):
        wide.exchange.export_layout(out, layout="jsonl", overwrite=True)
    assert (out / "mine.txt").read_text() == "mine"
    with pytest.raises(Invalid):
        wide.exchange.export_layout(tmp_path / "x", layout="xml")
