"""Format versions: a step leads an older file to the present version, and a newer file is left
alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from daemons import smp
from earlier import earlier_states

from smp_client import Memory, NewerFormat, Session, SMPError
from smp_client.disk.tree import identity
from smp_client.model.record import DECISION, TURN
from smp_client.passes.check import check
from smp_client.passes.lifecycle import lifecycle
from smp_client.text import version
from smp_client.text.format import format_of
from smp_client.text.version import version_in

NOW = datetime(2026, 1, 12, 12, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    """A session with a file of every sort."""
    memory = Memory(tmp_path / "sessions", clock=lambda: NOW, count_access=False)
    session = memory.create_session(id="old")
    session.add_turn("user", "Which way shall we log in?")
    session.add_turn("veritas", "With OAuth.")
    session.record_decision("Use OAuth", made_by="veritas")
    session.record_decision("Rotate keys", made_by="veritas")
    session.record_finding("No MFA requirement", discovered_by="veritas")
    session.record_preference("Short answers", confidence="explicit")
    session.record_learning("Ask twice", learned_by="veritas")
    session.relate("FIND-001", "DEC-001", "supports")
    session.save_agent_state("veritas", {"task": "look"})
    session.save_agent_state("veritas", {"task": "look again"})
    session.save_artifact("report-1", "# Report\n")
    return memory


def contents(root: Path) -> dict[str, bytes]:
    """Every file but SMP's own."""
    files = ((str(path.relative_to(root)), path) for path in root.rglob("*") if path.is_file())
    own = (".smp/", "audit.log")
    return {name: path.read_bytes() for name, path in files if not name.startswith(own)}


# An older version.

OLD = {
    "decisions.yaml": b"version: 0\n# mine\ndecisions:\n"
    b"  - {id: DEC-001, text: Use OAuth, by: veritas}\n",
    "conversation.md": b"# Conversation History\n**Format-Version:** 0\n\n"
    b"## Turn 1\n**By:** user\n\nHello\n\n---\n",
    "agent-states/veritas.yaml": b"version: 0\nagent_state:\n  by: veritas\n  task: look\n",
    "artifacts/report-1.md": b"---\nversion: 0\nid: report-1\nby: veritas\n---\n# Report\n",
}
NAMES = {
    "decision": {"text": "decision", "by": "made_by"},
    "conversation_turn": {"by": "speaker"},
    "agent_state": {"by": "agent_id"},
    "artifact": {"by": "created_by"},
}


def from_0(name: str, fields: version.Fields) -> version.Fields:
    return {NAMES[name].get(field, field): value for field, value in fields.items()}


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session of a version 0, to which this test has made the step."""
    monkeypatch.setattr(version, "STEPS", {0: from_0})
    memory = Memory(tmp_path / "older", clock=lambda: NOW, count_access=False)
    session = memory.create_session(id="s")
    for file, content in OLD.items():
        path = tmp_path / "older/active/s" / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return session


def test_an_older_file_is_read_in_present_words_and_keeps_its_bytes(old: Session) -> None:
    """The fields have the names of this version, one by one, by a search and in an export."""
    decision = {"id": "DEC-001", "decision": "Use OAuth", "made_by": "veritas"}
    assert old.records("decision")[0].data == decision
    assert old.get("DEC-001").data["made_by"] == "veritas"
    assert [one.id for one in old.search("oauth")] == ["DEC-001"]
    assert old.turns(last=1)[0].data["speaker"] == "user"
    assert old.agent_state("veritas")["agent_id"] == "veritas"
    assert old.artifact("report-1").data["created_by"] == "veritas"
    memory = Memory(old.memory.root)
    memory.exchange.export(export := memory.root.parent / "export.jsonl")
    assert b'"decision": "Use OAuth", "made_by": "veritas"' in export.read_bytes()
    assert {file: old.scope.read(file) for file in OLD} == OLD


WRITES: dict[str, tuple[str, Callable[[Session], object]]] = {
    "append": ("decisions.yaml", lambda s: s.record_decision("one more", made_by="me")),
    "update": ("decisions.yaml", lambda s: s.update("DEC-001", confidence="low")),
    "turn": ("conversation.md", lambda s: s.add_turn("user", "one more")),
    "pin": ("conversation.md", lambda s: s.pin("turn-1")),
    "state": (
        "agent-states/veritas.yaml", lambda s: s.save_agent_state("veritas", {"task": "rest"})
    ),
    "artifact": ("artifacts/report-1.md", lambda s: s.save_artifact("report-1", "# Another\n")),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
def test_a_write_brings_the_whole_file_to_the_present_version(old: Session, write: str) -> None:
    """No record in old words ever stands below the present version, and other files keep theirs."""
    file, do = WRITES[write]
    do(old)
    after = old.scope.read(file)
    assert version_in(file, after) == 1
    assert not re.search(rb"\b(by|By):", after)
    assert old.agent_state("veritas")["agent_id"] == "veritas"
    assert [one.data["made_by"] for one in old.records("decision")][:1] == ["veritas"]
    assert {name: old.scope.read(name) for name in OLD} == {**OLD, file: after}
    quarantined = (old.memory.root / "quarantine").rglob("*.bytes")
    assert [path.read_bytes() for path in quarantined] == [OLD[file]]
    assert old.problems() == []


def test_a_version_without_a_step_is_refused(memory: Memory) -> None:
    """Nothing ever wrote version 0: nobody can tell what its words mean."""
    path = memory.root / "active/old/decisions.yaml"
    path.write_bytes(before := path.read_bytes().replace(b"version: 1", b"version: 0"))
    with pytest.raises(NewerFormat, match="version 0"):
        memory.session("old").record_decision("x", made_by="me")
    assert path.read_bytes() == before


# The version of a file.


def test_a_version_in_a_text_is_not_the_version_of_the_file(tmp_path: Path) -> None:
    """Only the head of a file says it: not a turn, a field of a record, or a foreign file."""
    session = Memory(tmp_path).create_session(id="s")
    session.add_turn("user", "version: 2\n**Format-Version:** 2\n")
    session.record_decision("as it is", made_by="me", version=2, library={"version": 2})
    session.save_artifact("plan", "version: 2\n")
    (tmp_path / "active/s/artifacts/plain.md").write_text("version: 2\n---\nversion: 2\n")
    for file, memory_id in ((TURN, "turn-1"), (DECISION, "DEC-001")):
        content = (tmp_path / "active/s" / file.file).read_bytes()
        assert format_of(file).find(content, memory_id) == format_of(file).parse(content).records[0]
    session.update("DEC-001", confidence="low")
    session.add_turn("user", "and so on")
    assert session.artifact("plan").text == "version: 2\n"
    assert session.artifact("plain").text.startswith("version: 2")
    assert check(Memory(tmp_path)) == []


# A newer version.

FILES = [
    "metadata.yaml", "conversation.md", "decisions.yaml", "findings.yaml", "preferences.yaml",
    "learnings.yaml", "relationships.yaml", "agent-states/veritas.yaml",
    "agent-states/history/veritas.yaml", "artifacts/report-1.md",
]  # fmt: skip


def make_newer(memory: Memory, file: str) -> bytes:
    path = memory.root / "active/old" / file
    stated = rb"(?m)^(version:|\*\*Format-Version:\*\*) 1$"
    later, count = re.subn(stated, rb"\1 2", path.read_bytes(), count=1)
    assert count == 1
    path.write_bytes(later)
    return later


def answers(memory: Memory) -> list[Any]:
    session = memory.session("old")
    ids = ("turn-1", "DEC-001", "veritas", "report-1")
    return [
        [session.records(kind.name) for kind in session.kinds],
        [session.get(name, count_access=False) for name in ids],
        session.metadata(), earlier_states(session, "veritas"), memory.search("oauth"),
        session.context(),
    ]  # fmt: skip


EVERYTHING: list[Callable[[Memory], object]] = [
    *(lambda memory, do=do: do(memory.session("old")) for _, do in WRITES.values()),
    lambda memory: memory.session("old").record_preference("one more", confidence="explicit"),
    lambda memory: memory.session("old").update_metadata(context={"project_phase": "design"}),
    lambda memory: memory.session("old").decay(),
    lambda memory: memory.session("old").compact(reduction_pct=50),
    lambda memory: memory.privacy.delete("old", ["DEC-001", "turn-1"], reason="privacy"),
    lambda memory: (memory.archive_session("old"), memory.restore_session("old")),
    lambda memory: memory.delete_session("old", reason="privacy"),
    lambda memory: memory.undelete_session("old"),
    lambda memory: memory.session("old").deactivate(),
    lambda memory: memory.privacy.anonymize("old"),
    lambda memory: memory.session("old").repair(),
    lambda memory: memory.session("old").bring_back(),
    lambda memory: lifecycle(memory),
    lambda memory: memory.privacy.purge_now("old", ["LEARN-001"]),
    answers,
]


@pytest.mark.parametrize("file", FILES)
def test_a_newer_file_is_left_alone_by_everything(memory: Memory, file: str) -> None:
    """It is refused with its name and version, or not looked at; its bytes and place stay."""
    later = make_newer(memory, file)
    path = memory.root / "active/old" / file
    refused: list[str] = []
    failed: list[str] = []
    memory = memory.with_options(clock=lambda: NOW + timedelta(days=200))
    for do in EVERYTHING:
        try:
            do(memory)
        except NewerFormat as error:
            refused.append(str(error))
        except SMPError as error:
            failed.append(f"{type(error).__name__}: {error}")
        assert path.read_bytes() == later
    assert len(refused) > 2
    assert all(file in said and "version 2" in said and "upgrade" in said for said in refused)
    assert [said for said in failed if not said.startswith(("MemoryNotFound", "SessionNotFound"))] == []
    assert [one.file for one in check(memory) if "version 2" in one.problem] in ([file], [])
    other = memory.create_session(id="other")
    assert other.record_decision("goes on", made_by="me").id == "DEC-001"


def test_a_note_that_a_later_version_left_is_not_believed(memory: Memory) -> None:
    """The note says that the file is the same, but the writer of another version left it."""
    session = memory.session("old")
    session.record_decision("one", made_by="me")
    later = make_newer(memory, "decisions.yaml")
    status = (memory.root / "active/old/decisions.yaml").stat()
    lock = memory.root / ".smp/locks/old/decisions.yaml.lock"
    held = json.loads(lock.read_text())
    held |= {"version": 2, "file": identity(status)}
    lock.write_text(json.dumps(held))
    with pytest.raises(NewerFormat):
        session.record_decision("two", made_by="me")
    assert (memory.root / "active/old/decisions.yaml").read_bytes() == later


def test_a_root_of_a_later_version_is_refused_as_a_whole(memory: Memory) -> None:
    """Nothing is read, written or made there; status does not say that it is well."""
    (memory.root / ".smp/root.json").write_text('{"version": 2}\n')
    before = contents(memory.root)
    make, ask = lambda: memory.create_session(id="x"), lambda: memory.search("oauth")
    for refused in (lambda: memory.session("old"), make, memory.create, ask):
        with pytest.raises(NewerFormat, match=r"root\.json"):
            refused()
    asked = smp("status", "--root", memory.root)
    assert asked.returncode == 3
    assert "version 2" in asked.stdout
    assert smp("run", "--root", memory.root).returncode == 1
    assert contents(memory.root) == before
