"""Exports of SMP and their import: values travel, ids decide, ours stays."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smp_client import Conflict, Invalid, Memory, SessionNotFound
from smp_client.exchange import intake
from smp_client.exchange.entry import Entry
from smp_client.exchange.forms import FORMATS

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def filled(root: Path) -> Memory:
    """A memory with one of everything: active, archived, texts that look like a form, global."""
    memory = Memory(root)
    session = memory.create_session(
        id="s1", user="user-123", project="Shop", agents=["architect"], tags=["oauth"]
    )
    session.add_turn("user", "Hello\n\n---\n## Turn 9\n```yaml\nentry: end\n```", tags=["greeting"])
    session.add_turn("architect", "  It's 007, no: `on` \u2028 \u0085 é 漢 \U0001f600\n")
    rejected = [{"option": "SAML", "rejected_because": "# heavy"}]
    decision = session.record_decision(
        "Use OAuth: 2.0", made_by="architect", score=1.5, tags=["security.oauth"],
        alternatives_considered=rejected)  # fmt: skip
    nested = {"a": [1, 2.0, None, True, {}]}
    finding = session.record_finding(
        "No MFA", discovered_by="veritas", severity="critical", nested=nested
    )
    session.record_preference("short answers", topic="style", confidence="explicit")
    session.record_learning("Retries help", learned_by="dev")
    session.relate(decision.id, finding.id, "resolves")
    session.save_agent_state("architect", {"mood": "fine"})
    session.save_agent_state("architect", {"mood": "better"})
    session.save_artifact("report", "# Report\n\n---\ntext", author="architect")
    memory.create_session(id="old").add_turn("user", "Long ago")
    memory.archive_session("old")
    memory.everywhere.record_preference("Tea", topic="drinks")
    memory.everywhere.record_pattern("Ask twice")
    memory.everywhere.save_profile(name="J. D.")
    return memory


def values(memory: Memory) -> dict[tuple[str, str, str], Any]:
    """What every memory says, by session, file and id."""
    found: dict[tuple[str, str, str], Any] = {}
    for entry in memory.exchange.entries():
        if entry.get("entry") == "memory":
            said = {part: value for part, value in entry["record"].items() if part != "redacted"}
            found[entry["session"], entry["file"], said["id"]] = said
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    return filled(tmp_path_factory.mktemp("source") / "sessions")


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return filled(tmp_path / "one")


@pytest.fixture
def other(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "other")


@pytest.fixture
def file(memory: Memory, tmp_path: Path) -> Path:
    """An export of everything in the memory."""
    memory.exchange.export(tmp_path / "all.jsonl")
    return tmp_path / "all.jsonl"


@pytest.mark.parametrize("form", FORMATS)
def test_every_value_travels(source: Memory, other: Memory, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"all.{form}"
    done = source.exchange.export(file, format=form)
    assert (done.problems, done.counts["sessions"]) == ([], 2)
    taken = other.exchange.import_(file)
    assert taken.problems == []
    assert values(other) == values(source)
    assert taken.counts["added"] == len(values(source))
    assert dict(other.exchange.import_(file).counts) == {"known": len(values(source))}
    assert other.exchange.verify(file).success
    ours, theirs = other.session("s1").metadata(), source.session("s1").metadata()
    for name in ("id", "context", "participants", "created_at"):
        assert ours[name] == theirs[name]
    assert other.session("old").state == "active"


def test_an_exact_export_is_unpacked_with_tar(source: Memory, tmp_path: Path) -> None:
    file = tmp_path / "all.tar.gz"
    assert source.exchange.export(file, exact=True).problems == []
    with tarfile.open(file) as packed:
        assert packed.getnames()[0] == "manifest.json"
        listed = json.load(packed.extractfile("manifest.json"))  # type: ignore[arg-type]
        held = packed.extractfile("files/active/s1/decisions.yaml")
        assert held is not None
        assert held.read() == (source.root / "active/s1/decisions.yaml").read_bytes()
    assert listed["kind"] == "export"
    assert "archived/old/archive.tar.gz" in {item["file"] for item in listed["items"]}
    root = tmp_path / "unpacked"
    root.mkdir()
    command = ["tar", "-xzf", str(file), "--strip-components=1", "-C", str(root)]
    subprocess.run(command, check=True)
    assert values(Memory(root)) == values(source)


def test_ours_stays_and_the_conflict_is_listed(memory: Memory, file: Path) -> None:
    session = memory.session("s1")
    session.update("DEC-001", decision="Use SAML")
    session.pin("FIND-001")
    session.save_agent_state("architect", {"mood": "other"})
    done = memory.exchange.import_(file, dry_run=True)
    about = {one.about for one in done.actions if one.type == "conflict"}
    assert about == {("architect", "DEC-001")}
    assert memory.exchange.import_(file).counts["conflicts"] == 2
    assert session.get("DEC-001").text == "Use SAML"
    verified = memory.exchange.verify(file)
    assert not verified.success
    assert {one.about for one in verified.actions if one.type == "differ"} == about
    assert memory.exchange.import_(file, replace=True).counts["replaced"] == 2
    assert session.get("DEC-001").text == "Use OAuth: 2.0"
    assert session.agent_state("architect")["mood"] == "better"
    assert memory.exchange.verify(file).success


def test_a_tombstone_deletes_once(memory: Memory, other: Memory, file: Path) -> None:
    other.exchange.import_(file)
    memory.session("s1").delete("FIND-001", reason="wrong")
    memory.exchange.export(file, ["s1"], deleted=True, overwrite=True)
    session = other.session("s1")
    assert other.exchange.import_(file, dry_run=True).counts["deleted"] == 1
    assert session.get("FIND-001").text == "No MFA"
    assert other.exchange.import_(file).counts["deleted"] == 1
    assert [one.id for one in session.deleted()] == ["FIND-001"]
    session.restore("FIND-001")
    assert other.exchange.import_(file).counts["deleted"] == 0
    assert session.get("FIND-001").text == "No MFA"


def test_a_memory_that_was_deleted_or_purged_stays_away(memory: Memory, file: Path) -> None:
    memory.session("s1").delete("FIND-001", reason="wrong")
    memory.privacy.purge_now("s1", ["DEC-001", "turn-1"])
    memory.delete_session("old", reason="gone")
    done = memory.exchange.import_(file)
    assert (done.counts["added"], done.counts["purged"], done.counts["left_deleted"]) == (0, 2, 2)
    assert {one.about for one in done.actions if one.type == "left_out"} == {("turn-1", "DEC-001")}
    assert '"count": 0' in (memory.root / "audit.log").read_text().splitlines()[-1]
    memory.privacy.purge_now("s1")
    assert memory.exchange.import_(file).counts["added"] == 0


def test_secrets_are_redacted_at_the_door(other: Memory, tmp_path: Path) -> None:
    def entry(file: str, type: str, **record: Any) -> Entry:
        return {"entry": "memory", "session": "s1", "file": file, "type": type, "record": record}

    entries: list[Entry] = [
        {"smp_export": 1},
        {"entry": "session", "session": "s1", "metadata": {"context": {"goal": f"rotate {TOKEN}"}}},
        entry("decisions.yaml", "decision", id="DEC-001", decision=f"Use {TOKEN}", made_by="a"),
        entry("conversation.md", "turn", id="turn-1", speaker="a", content=f"Here: {TOKEN}"),
        entry("agent-states/a.yaml", "agent_state", id="a", key=TOKEN),
        entry("artifacts/r.md", "artifact", id="r", content=f"so {TOKEN} it is"),
        {"entry": "session", "session": TOKEN.replace("_", "-"), "metadata": {}},
        {"entry": "end", "entries": 6},
    ]  # fmt: skip
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert other.exchange.import_(tmp_path / "x.jsonl").counts["added"] == 4
    files = [path for path in (other.root / "active").rglob("*") if path.is_file()]
    held = b"".join(path.read_bytes() for path in files)
    assert TOKEN.encode() not in held
    assert held.count(b"[redacted: github token]") == 5
    assert other.exchange.import_(tmp_path / "x.jsonl").counts["known"] == 4


def test_an_archived_session_is_compared_and_not_written(
    memory: Memory, other: Memory, file: Path
) -> None:
    """A comparison names the memories that are missing."""
    other.exchange.import_(file)
    other.archive_session("s1")
    assert other.exchange.import_(file).counts["known"] > 5
    memory.session("s1").record_decision("One more", made_by="dev")
    memory.exchange.export(file, ["s1"], overwrite=True)
    done = other.exchange.import_(file)
    assert (done.counts["added"], done.counts["left_out"]) == (0, 1)
    assert "is archived" in done.problems[0]
    other.restore_session("s1")
    verified = other.exchange.verify(file)
    assert [one.about for one in verified.actions if one.type == "missing"] == [("DEC-002",)]
    assert verified.counts["missing"] == 1
    assert other.exchange.import_(file).counts["added"] == 1
    assert other.session("s1").record_decision("Mine", made_by="me").id == "DEC-003"


@pytest.mark.parametrize(("cut", "said"), [
    (lambda text: text[: len(text) // 2], "not whole"),
    (lambda text: text.replace('"smp_export": 1', '"smp_export": 2', 1), "version 2"),
    (lambda text: text.replace('"entry": "memory"', '"entry": "thing"', 1), "no kind of entry"),
    (lambda text: text.replace("decisions.yaml", "../decisions.yaml"), "no memories are kept"),
    (lambda text: text.replace('"session": "s1"', '"session": "../s1"'), "no id of a session"),
    (lambda text: text.replace('"DEC-001"', "7", 1), "id that is a text"),
])  # fmt: skip
def test_a_damaged_export_says_where(
    source: Memory, other: Memory, tmp_path: Path, cut: Callable[[str], str], said: str
) -> None:
    file = tmp_path / "all.jsonl"
    source.exchange.export(file, ["s1"])
    file.write_text(cut(file.read_text()))
    problems = other.exchange.import_(file).problems
    assert any(said in problem and "all.jsonl" in problem for problem in problems), problems


def test_files_are_not_overwritten_and_names_are_checked(source: Memory, tmp_path: Path) -> None:
    (tmp_path / "there.yaml").write_text("mine")
    with pytest.raises(Conflict):
        source.exchange.export(tmp_path / "there.yaml")
    assert (tmp_path / "there.yaml").read_text() == "mine"
    source.exchange.export(tmp_path / "there.yaml", overwrite=True)
    with pytest.raises(SessionNotFound):
        source.exchange.export(tmp_path / "x.yaml", ["nowhere"])
    with pytest.raises(Invalid):
        source.exchange.export(tmp_path / "x.yaml", format="xml")
    assert list(tmp_path.glob(".*")) == []


def test_a_file_that_cannot_be_read_is_a_problem_of_the_export(
    memory: Memory, other: Memory, tmp_path: Path
) -> None:
    (memory.root / "active/s1/agent-states/architect.yaml").write_text("{nope")
    (problem,) = memory.exchange.export(tmp_path / "all.jsonl").problems
    assert problem.startswith("s1/agent-states/architect.yaml ")
    assert other.exchange.import_(tmp_path / "all.jsonl").problems == []
    assert other.session("s1").get("DEC-001").text == "Use OAuth: 2.0"


def test_an_import_loses_no_writer(
    other: Memory, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody records a decision between the look and the write: ours stays, and is listed."""
    session = other.create_session(id="s1")
    honest, crossed = intake.append_many, list[str]()

    def crossing(scope: Any, kind: Any, given: Any, size: int) -> Any:
        if kind.file == "decisions.yaml" and not crossed:
            crossed.append(session.record_decision("Mine", made_by="me").id)
        return honest(scope, kind, given, size)

    monkeypatch.setattr(intake, "append_many", crossing)
    assert "written meanwhile" in other.exchange.import_(file).problems[0]
    assert crossed == ["DEC-001"]
    assert [record.text for record in session.records("decision")] == ["Mine"]
    again = other.exchange.import_(file)
    assert [one.about for one in again.actions if one.type == "conflict"] == [("DEC-001",)]
