"""`smp new`, `add`, and the commands that change memories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from commands import completed, content, run, run_json, stocked
from daemons import smp
from once import copied

from smp_client import Memory, Session


def add(session: Session, line: str, said: str = "", **options: Any) -> str:
    return run(session.memory.root, f"add {session.id} {line}", input=said, **options).strip()


def test_new_prints_the_id_and_nothing_else(tmp_path: Path) -> None:
    """So that `S=$(smp new)` works; the tree is made on the way."""
    line = "new --user u --project P --phase review --topic auth --tag a --tag b --agent v"
    name = run(tmp_path / "s", f"{line} --quota-bytes 5000").removesuffix("\n")
    session = Memory(tmp_path / "s").session(name)
    metadata: Any = session.metadata()
    context = {"project_name": "P", "project_phase": "review", "primary_topic": "auth"}
    assert metadata["context"] == {**context, "tags": ["a", "b"]}
    assert metadata["participants"]["user_id"] == "u"
    assert [agent["agent_id"] for agent in metadata["participants"]["agents"]] == ["v"]
    assert session.quota_bytes() == 5000


def test_new_takes_the_configured_quota_and_a_given_id(tmp_path: Path) -> None:
    (tmp_path / "smp.yaml").write_text("quota_bytes: 123456\n")
    environment = {**os.environ, "SMP_CONFIG": str(tmp_path / "smp.yaml")}
    found = run_json(tmp_path / "s", "new --id mine", env=environment)
    assert found == {"id": "mine", "root": str(tmp_path / "s"), "quota_bytes": 123456}


def test_every_kind_is_written(session: Session) -> None:
    assert add(session, "turn Hello") == "turn-1"
    line = "decision 'Use OAuth' --by architect --rationale SSO --tag security"
    assert add(session, line) == "DEC-001"
    assert add(session, "finding F --by veritas --severity critical --turn 1") == "FIND-001"
    assert add(session, "preference MFA --topic mfa --confidence explicit") == "PREF-001"
    assert add(session, "learning L --by veritas --ref FIND-001") == "LEARN-001"
    assert add(session, "turn And? --by veritas --ref DEC-001 --tag mfa") == "turn-2"
    assert add(session, "artifact report-1 --by veritas", said="# Report\n") == "report-1"
    assert add(session, "state veritas --field mood=calm", said="ignored") == "veritas"
    assert (
        add(session, "state veritas -", said='{"current_context": {"focus": "auth"}}') == "veritas"
    )
    wanted: dict[str, dict[str, Any]] = {
        "turn-1": {"speaker": "user", "content": "Hello"},
        "DEC-001": {"decision": "Use OAuth", "made_by": "architect", "rationale": "SSO",
                    "tags": ["security"]},
        "FIND-001": {"discovered_by": "veritas", "severity": "critical", "turn_ref": 1},
        "PREF-001": {"preference": "MFA", "topic": "mfa", "confidence": "explicit"},
        "LEARN-001": {"learned_by": "veritas", "references": ["FIND-001"]},
        "turn-2": {"speaker": "veritas", "memory_refs": ["DEC-001"], "tags": ["mfa"]},
    }  # fmt: skip
    for name, fields in wanted.items():
        assert fields.items() <= session.get(name).data.items()
    assert session.artifact("report-1").text == "# Report\n"
    assert session.artifact("report-1").data["created_by"] == "veritas"
    state = session.agent_state("veritas")
    assert (state["mood"], state["current_context"]) == ("calm", {"focus": "auth"})


def test_global_holds_preferences_and_patterns(memory: Memory) -> None:
    """The tree is made on the way."""
    assert run(memory.root, "add global pattern P --by veritas") == "PAT-001\n"
    assert run(memory.root, "add global preference Tabs") == "GPREF-001\n"
    refused = run(memory.root, "add global decision D --by a", code=2)
    assert "global holds preference, pattern, not 'decision'" in refused


def test_fields_are_values_where_they_look_like_that_in_yaml(session: Session) -> None:
    fields = ["n=3", "share=0.5", "yes=true", "list=[a, 2]", "deep.er.x=1", "deep.y=see: this # 5",
              "quoted='7'", "eq=a=b", "no=no", "x=.nan"]  # fmt: skip
    given = [part for each in fields for part in ("--field", each)]
    line = "decision D --by a --pin --timestamp 2026-01-11T14:30:00+01:00"
    found = run_json(session.memory.root, f"add {session.id} {line}", *given)
    assert (found["id"], found["type"], found["text"]) == ("DEC-001", "decision", "D")
    assert found["timestamp"] == "2026-01-11T13:30:00Z"
    expected = {"n": 3, "share": 0.5, "yes": True, "list": ["a", 2], "quoted": "7", "eq": "a=b",
                "deep": {"er": {"x": 1}, "y": "see: this # 5"}, "no": "no", "pinned": True,
                "x": ".nan"}  # fmt: skip
    assert expected.items() <= found["data"].items()


def test_the_text_comes_from_where_it_is_said(session: Session, tmp_path: Path) -> None:
    """One line end is not part of the text."""
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbffrom a file\r\n")
    add(session, f"turn --file {tmp_path}/text")
    add(session, "turn -", said="two\nlines\n\n")
    add(session, "turn", said="日本語\n")
    assert smp(
        "add", session.id, "turn", "--root", session.memory.root, "--", "- no option"
    ).stdout
    texts = ["from a file", "two\nlines\n", "日本語", "- no option"]
    assert [turn.text for turn in session.turns()] == texts
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    refused = add(session, f"turn --file {tmp_path}/latin", code=2)
    assert refused.startswith("smp: the text is not UTF-8 at byte 3.")


def test_the_shell_completes_commands_kinds_and_sessions(memory: Memory, tmp_path: Path) -> None:
    for name in ("session-a", "session-b"):
        memory.create_session(id=name)
    memory.archive_session("session-b")
    assert completed("smp ses", memory.root) == ["sessions"]
    assert completed("smp add session-", memory.root) == ["session-a", "session-b"]
    assert completed("smp add g", memory.root) == ["global"]
    assert completed("smp add session-a de", memory.root) == ["decision"]
    assert completed("smp delete session-b --type st", memory.root) == ["state"]
    assert completed("smp add s", tmp_path / "nowhere") == []


# Changing.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied(stocked, tmp_path / "sessions")


def got(root: Path, name: str) -> dict[str, Any]:
    data: dict[str, Any] = run_json(root, f"show {name} --no-count")["data"]
    return data


def test_findings_are_resolved_all_or_none(root: Path) -> None:
    before = content(root)
    said = run(root, "resolve s1 FIND-001 FIND-009 --by dev --action Done", code=1)
    assert "There is no memory 'FIND-009' in s1." in said
    after = content(root)
    assert after.pop("active/s1/history.yaml") == b"version: 1\nhistory:\n"
    assert after == before
    done = smp("resolve", "s1", "FIND-001", "FIND-002", "--by", "dev", "--root", root,
               "--action", "It is password: hunter22secret")  # fmt: skip
    assert done.stdout == "FIND-001\nFIND-002\n"
    assert done.stderr == "note: redacted: password.\n"
    for name in ("s1/FIND-001", "s1/FIND-002"):
        resolution = got(root, name)["resolution"]
        assert (resolution["status"], resolution["resolved_by"]) == ("resolved", "dev")
        assert "hunter22secret" not in str(resolution)


def test_fields_are_changed_and_the_parts_of_a_mapping_kept(root: Path) -> None:
    line = "update s1 DEC-001 --text New --field location.line=3 --field by=jane"
    changed = run_json(root, f"{line} --field 'tags=[a, b]'")
    assert (changed["id"], changed["text"], changed["tags"]) == ("DEC-001", "New", ["a", "b"])
    data = got(root, "s1/DEC-001")
    assert (data["made_by"], data["location"]) == ("jane", {"file": "auth.py", "line": 3})
    run(root, "update s1 DEC-001 DEC-002 --field status=rejected --field location=null")
    assert {got(root, f"s1/DEC-00{number}")["status"] for number in (1, 2)} == {"rejected"}
    assert "location" not in got(root, "s1/DEC-001")


def test_memories_are_pinned_and_unpinned(root: Path) -> None:
    assert run(root, "pin s1/DEC-001 FIND-001") == "DEC-001\nFIND-001\n"
    names = ("s1/DEC-001", "s1/FIND-001", "s1/DEC-002")
    assert [got(root, name).get("pinned") for name in names] == [True, True, None]
    unpinned = run_json(root, "unpin s1 DEC-001 FIND-001")
    assert [one["id"] for one in unpinned] == ["DEC-001", "FIND-001"]
    assert [got(root, name).get("pinned") for name in names] == [None, None, None]


def test_superseded_and_resolved_memories_no_longer_hold(root: Path) -> None:
    """Also in another session; the answer says by which memory."""
    line = "supersede s1 old-1/DEC-001 DEC-002 --by DEC-001"
    assert run(root, line) == "REL-001\nREL-002\n"
    assert run(root, "relate s1 DEC-001 old-1/FIND-001 resolves") == "REL-003\n"
    found = {f"{one['session']}/{one['id']}": one["marks"] for one in run_json(root, "search")}
    assert found["old-1/DEC-001"] == ["superseded by s1/DEC-001"]
    assert found["s1/DEC-002"] == ["superseded by DEC-001"]
    assert found["old-1/FIND-001"] == ["resolved by s1/DEC-001"]
    assert found["s1/DEC-001"] == []
    # `global` has no file for relationships.
    line = "supersede global GPREF-001 GPREF-002 --by GPREF-003"
    assert run(root, line) == "GPREF-001\nGPREF-002\n"
    assert got(root, "global/GPREF-001")["superseded_by"] == "GPREF-003"


def test_many_memories_are_written_at_once_or_none(tmp_path: Path) -> None:
    session = Memory(tmp_path).create_session(id="s1")
    entries = "- {type: decision, text: Cards, by: a}\n- {type: finding, text: Slow, by: b}\n"
    assert run(tmp_path, "add s1 --yaml -", input=entries).split() == ["DEC-001", "FIND-001"]
    wrong = entries + "- {type: decison, text: Cash, by: a}\n"
    said = run(tmp_path, "add s1 --yaml -", input=wrong, code=2)
    assert "entry 3: 'type' must be one of" in said
    assert "did you mean 'decision'?" in said
    assert len(session.records("decision")) == 1
    for odd in ("- 1\n", "[]", "type: decision\n", "- {"):
        run(tmp_path, "add s1 --yaml -", input=odd, code=2)


def test_a_repetition_and_a_replacement_are_said(tmp_path: Path) -> None:
    Memory(tmp_path).create_session(id="s1")
    first = smp("add", "s1", "decision", "Use OAuth", "--by", "a", "--root", tmp_path)
    assert not first.stderr
    again = smp("add", "s1", "decision", "Use OAuth.", "--by", "b", "--root", tmp_path)
    assert again.stderr == "note: s1/DEC-001 says the same: Use OAuth\n"
    explicit = ["--topic", "language", "--confidence", "explicit", "--root", tmp_path]
    smp("add", "s1", "preference", "Write in German", *explicit)
    other = smp("add", "s1", "preference", "Write in English", *explicit)
    said = "note: It replaces s1/PREF-001, which no longer holds: Write in German\n"
    assert other.stderr == said


def test_superseding_needs_two_ids_alone(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    one, two = memory.create_session(id="s1"), memory.create_session(id="s2")
    one.record_decision("Cookies", made_by="a")
    one.record_finding("Slow", discovered_by="a")
    two.record_learning("Tokens", learned_by="a")
    run(tmp_path, "supersede DEC-001 s2/LEARN-001")
    run(tmp_path, "supersede s1 FIND-001 DEC-001")
    assert memory.get("s1/DEC-001").marks == ("superseded by s2/LEARN-001",)
    assert memory.get("s1/FIND-001").marks == ("superseded by DEC-001",)
    run(tmp_path, "supersede DEC-001", code=2)


def test_resolving_and_deleting_have_defaults(tmp_path: Path) -> None:
    session = Memory(tmp_path).create_session(id="s1")
    session.record_finding("Slow", discovered_by="a")
    run(tmp_path, "resolve s1 FIND-001")
    assert session.get("FIND-001").data["resolution"]["resolved_by"]
    run(tmp_path, "delete s1 FIND-001")
    assert session.records("finding") == []
