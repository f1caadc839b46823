"""`smp resolve`, `update`, `pin`, `unpin`, `relate` and `supersede`, as people and scripts use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from daemons import smp
from once import copied

from smp_client import Memory


def stocked(root: Path) -> None:
    memory = Memory(root)
    old = memory.create_session(id="old-1", project="Shop")
    old.record_decision("Use OAuth 2.0", made_by="architect")
    old.record_finding("The login has no rate limit", discovered_by="reviewer")
    new = memory.create_session(id="new-1", project="Shop")
    new.record_decision("Use OAuth 2.1", made_by="architect", location={"file": "auth.py", "line": 1})
    new.record_decision("Keep tokens in a cookie", made_by="architect")
    new.record_finding("The tokens never expire", discovered_by="reviewer")
    new.record_finding("The log has tokens in it", discovered_by="reviewer")
    new.add_turn("user", "Hello")
    new.save_artifact("report", "# Report")
    for text in ("Tabs", "Spaces", "Whatever the file has"):
        memory.everywhere.record_preference(text, confidence="explicit")
    memory.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied(stocked, tmp_path / "sessions")


def run(root: Path, *arguments: object, code: int = 0) -> str:
    """What the command prints; where it is to fail, what it says."""
    done = smp(*arguments, "--root", root)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def got(root: Path, session: str, memory_id: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(run(root, "show", session, memory_id, "--json", "--no-count"))["data"]
    return data


def content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*.yaml")}


def test_findings_are_resolved_all_or_none(root: Path) -> None:
    before = content(root)
    said = run(root, "resolve", "new-1", "FIND-001", "FIND-009", "--by", "dev", "--action", "Done", code=1)
    assert "There is no memory 'FIND-009' in new-1." in said
    assert content(root) == before
    assert run(root, "resolve", "new-1", "FIND-001", "FIND-002", "--by", "dev", "--action", "Done") == "FIND-001\nFIND-002\n"
    for memory_id in ("FIND-001", "FIND-002"):
        resolution = got(root, "new-1", memory_id)["resolution"]
        assert (resolution["status"], resolution["resolved_by"], resolution["action_taken"]) == ("resolved", "dev", "Done")


def test_a_secret_in_what_was_done_is_taken_out_and_said(root: Path) -> None:
    done = smp("resolve", "new-1", "FIND-001", "--by", "dev", "--action", "It is password: hunter22secret", "--root", root)
    assert done.stderr == "note: 1 password was taken out.\n"
    assert "hunter22secret" not in str(got(root, "new-1", "FIND-001"))


def test_fields_are_changed_and_the_parts_of_a_mapping_kept(root: Path) -> None:
    arguments = ["--text", "Use OAuth 2.1 only", "--field", "location.line=3", "--field", "by=jane", "--field", "tags=[a, b]"]
    changed = json.loads(run(root, "update", "new-1", "DEC-001", *arguments, "--json"))
    assert (changed["id"], changed["text"], changed["tags"]) == ("DEC-001", "Use OAuth 2.1 only", ["a", "b"])
    data = got(root, "new-1", "DEC-001")
    assert (data["decision"], data["made_by"], data["location"]) == ("Use OAuth 2.1 only", "jane", {"file": "auth.py", "line": 3})
    run(root, "update", "new-1", "DEC-001", "DEC-002", "--field", "status=rejected", "--field", "location=null")
    assert [got(root, "new-1", one)["status"] for one in ("DEC-001", "DEC-002")] == ["rejected", "rejected"]
    assert "location" not in got(root, "new-1", "DEC-001")
    run(root, "update", "global", "GPREF-001", "--text", "Spaces")
    assert got(root, "global", "GPREF-001")["preference"] == "Spaces"


def test_memories_are_pinned_and_unpinned(root: Path) -> None:
    assert run(root, "pin", "new-1/DEC-001", "FIND-001") == "DEC-001\nFIND-001\n"
    assert [got(root, "new-1", one).get("pinned") for one in ("DEC-001", "FIND-001", "DEC-002")] == [True, True, None]
    unpinned = json.loads(run(root, "unpin", "new-1", "DEC-001", "FIND-001", "--json"))
    assert [one["id"] for one in unpinned] == ["DEC-001", "FIND-001"]
    assert [got(root, "new-1", one).get("pinned") for one in ("DEC-001", "FIND-001")] == [None, None]


def test_what_is_superseded_or_resolved_no_longer_holds(root: Path) -> None:
    """Also in another session; the answer says by what."""
    assert run(root, "supersede", "new-1", "old-1/DEC-001", "DEC-002", "--by", "DEC-001") == "REL-001\nREL-002\n"
    assert run(root, "relate", "new-1", "DEC-001", "old-1/FIND-001", "resolves") == "REL-003\n"
    assert run(root, "relate", "new-1", "DEC-001", "FIND-001", "resolves") == "REL-004\n"
    found = {(one["session"], one["id"]): one["marks"] for one in json.loads(run(root, "search", "--json"))}
    assert found["old-1", "DEC-001"] == ["superseded by new-1/DEC-001"]
    assert found["new-1", "DEC-002"] == ["superseded by DEC-001"]
    assert found["old-1", "FIND-001"] == ["resolved by new-1/DEC-001"]
    assert got(root, "new-1", "FIND-001")["resolution"]["status"] == "resolved"
    assert found["new-1", "DEC-001"] == []


def test_what_holds_everywhere_is_superseded_without_a_relationship(root: Path) -> None:
    """Several in one transaction as well: `global/` has no file for relationships."""
    assert run(root, "supersede", "global", "GPREF-001", "GPREF-002", "--by", "GPREF-003") == "GPREF-001\nGPREF-002\n"
    successors = [got(root, "global", f"GPREF-00{number}").get("superseded_by") for number in (1, 2, 3)]
    assert successors == ["GPREF-003", "GPREF-003", None]
    assert not (root / "global/relationships.yaml").exists()
    assert "relationships belong to a session" in run(root, "relate", "global", "GPREF-001", "GPREF-002", "led_to", code=2)


WRONG: list[tuple[list[str], int, str]] = [
    (["pin", "new-1"], 2, "Missing argument 'ID...'."),
    (["pin"], 2, "Missing argument 'SESSION'."),
    (["pin", "new-1", "DEC-1"], 1, "There is no memory 'DEC-1' in new-1."),
    (["resolve", "new-1", "FIND-001", "--by", "dev"], 2, "Missing option '--action'"),
    (["resolve", "new-1", "DEC-001", "--by", "dev", "--action", "x"], 2, "DEC-001 is a decision; only a finding can be resolved."),
    (["update", "new-1", "DEC-001"], 2, "Say what changes: --text TEXT or --field NAME=VALUE."),
    (["update", "new-1", "DEC-001", "DEC-002", "--text", "x"], 2, "--text goes with one memory."),
    (["update", "new-1", "DEC-001", "--field", "x"], 2, "field 'x' must be NAME=VALUE"),
    (["update", "new-1", "turn-1", "--text", "x"], 2, "'content' of a turn cannot be changed."),
    (["relate", "new-1", "DEC-001", "FIND-001"], 2, "Missing argument 'RELATION'."),
    (["relate", "new-1", "old-1/DEC-001", "DEC-001", "supersedes"], 2, "old-1/DEC-001 is no memory of new-1"),
    (["supersede", "new-1", "DEC-002", "--by", "DEC-77"], 1, "There is no memory 'DEC-77' in new-1."),
    (["supersede", "new-1", "DEC-001", "--by", "DEC-001"], 2, "DEC-001 cannot be related to itself."),
    (["supersede", "new-1", "DEC-002"], 2, "Missing option '--by'"),
]


@pytest.mark.parametrize(("arguments", "code", "sentence"), WRONG, ids=[" ".join(arguments) for arguments, *_ in WRONG])
def test_a_wrong_call_says_what_is_right_and_changes_nothing(root: Path, arguments: list[str], code: int, sentence: str) -> None:
    before = content(root)
    assert sentence in run(root, *arguments, code=code)
    assert content(root) == before
