"""Fields of the documents that are ours under another name: importance, status, key and value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from daemons import smp

from smp_client import Invalid, Memory

PREFERENCE = {"id": "m004", "type": "preference", "ts": "2026-01-11T14:33:00Z",
              "data": {"key": "verification_depth", "value": "thorough"}, "priority": 0.85,
              "access": 5}  # fmt: skip
METADATA = {
    "session_id": "sess_1", "user_id": "user123", "created_at": "2026-01-10T14:00:00.000Z",
    "preferences": {"language": "en", "verbosity": "medium", "custom": {}},
}  # fmt: skip
ENTRY = {"id": "mem_1", "type": "decision", "timestamp": "2026-01-10T14:00:00Z",
         "content": {"decision": "Use OAuth"}, "importance": 0.35, "decay_factor": 1.0}  # fmt: skip


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "tree")


def written(path: Path, *values: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_003_1_3_a_preference_comes_back_as_it_was(memory: Memory, tmp_path: Path) -> None:
    memory.exchange.import_(written(tmp_path / "in/s1.jsonl", PREFERENCE))
    memory.exchange.export_layout(tmp_path / "out", layout="jsonl")
    (row,) = map(json.loads, (tmp_path / "out/s1.jsonl").read_text().splitlines())
    assert {name: row["data"][name] for name in ("key", "value")} == PREFERENCE["data"]
    assert "preference" not in row["data"]
    for layout, file in (("jsonl-per-kind", "preferences.jsonl"), ("jsonl-checked", "memory.jsonl")):
        memory.exchange.export_layout(tmp_path / layout, layout=layout)
        (row,) = map(json.loads, (tmp_path / layout / "sessions/s1" / file).read_text().splitlines())
        said = row if layout == "jsonl-per-kind" else row["content"]
        assert (said["key"], said["value"]) == ("verification_depth", "thorough")
    again = Memory(tmp_path / "again")
    again.exchange.import_(tmp_path / "out")
    assert again.session("s1").get("m004").text == "verification_depth: thorough"
    memory.session("s1").update("m004", preference="verification_depth: quick")
    memory.exchange.export_layout(tmp_path / "edited", layout="jsonl")
    (row,) = map(json.loads, (tmp_path / "edited/s1.jsonl").read_text().splitlines())
    assert row["data"]["value"] == "verification_depth: quick", "the new words, not the old value"


def test_004_3_2_2_preferences_of_a_session_are_memories(memory: Memory, tmp_path: Path) -> None:
    written(tmp_path / "in/sess_1/metadata.json", METADATA)
    written(tmp_path / "in/sess_1/memory.jsonl", ENTRY)
    assert dict(memory.exchange.import_(tmp_path / "in").counts) == {"added": 3}
    session = memory.session("sess_1")
    found = {one.data["topic"]: one.text for one in session.records("preference")}
    assert found == {"language": "language: en", "verbosity": "verbosity: medium"}
    assert "language: en" in str(memory.context(session="sess_1"))
    assert dict(memory.exchange.import_(tmp_path / "in").counts) == {"known": 3}
    memory.exchange.export_layout(tmp_path / "out", layout="jsonl-checked")
    metadata = json.loads((tmp_path / "out/sessions/sess_1/metadata.json").read_text())
    assert metadata["preferences"] == {"language": "en", "verbosity": "medium"}


def test_004_3_1_2_importance_of_a_memory(memory: Memory, tmp_path: Path) -> None:
    session = memory.create_session(id="s1")
    session.record_decision("Use tabs for OAuth", made_by="dev", importance=0.05)
    session.record_decision("Use OAuth", made_by="dev")
    session.record_decision("Use OAuth always", made_by="dev", importance=1.0)
    decay = session.get("DEC-001", count_access=False).data["decay"]
    assert (decay["base_priority"], decay["priority"]) == (0.05, 0.05)
    order = [one.id for one in memory.search("OAuth", sort="importance")]
    assert order[-1] == "DEC-001"
    assert next(iter(memory.search(sort="priority"))).id == "DEC-003"
    for wrong in (2, -0.1, "high", True):
        with pytest.raises(Invalid, match="importance"):
            session.record_decision("x", made_by="dev", importance=wrong)
    written(tmp_path / "in/sess_1/memory.jsonl", ENTRY)
    memory.exchange.import_(tmp_path / "in")
    (record,) = memory.session("sess_1").records("decision")
    assert record.data["importance"] == record.data["decay"]["base_priority"] == 0.35
    ran = smp("add", "s1", "decision", "y", "--by", "dev", "--field", "importance=7",
              "--root", memory.root)  # fmt: skip
    assert ran.returncode == 2
    assert "'importance' must be a number from 0 to 1" in ran.stderr


def test_001_3_4_status_of_a_finding(memory: Memory) -> None:
    session = memory.create_session(id="s1")
    session.record_finding("One", discovered_by="qa", status="closed")
    root = ("--root", memory.root)
    smp("add", "s1", "finding", "Two", "--by", "qa", "--field", "status=resolved", *root)
    session.record_finding("Three", discovered_by="qa", status="open")
    session.record_finding("Four", discovered_by="qa")
    session.update("FIND-004", status="resolved")
    found = {one.text: one.data for one in session.records("finding")}
    states = {text: data["resolution"]["status"] for text, data in found.items()}
    assert states == {"One": "closed", "Two": "resolved", "Three": "open", "Four": "resolved"}
    assert all("status" not in data for data in found.values())
    assert {one.text: one.holds for one in memory.search(types=["finding"])} == {
        "One": False, "Two": False, "Three": True, "Four": False}  # fmt: skip
