"""Exports of SMP and their import: values travel, ids decide, ours stays."""

from __future__ import annotations

import gzip
import io
import json
import math
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smp_client import Conflict, Invalid, Memory, SessionNotFound
from smp_client.disk import audit
from smp_client.exchange.entry import Entry
from smp_client.exchange.forms import FORMATS

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def filled(root: Path) -> Memory:
    """A memory with one of everything: active, archived, evicted-like texts, global."""
    memory = Memory(root)
    session = memory.create_session(
        id="s1", user="user-123", project="Shop", agents=["architect"], tags=["oauth"]
    )
    session.add_turn("user", "Hello\n\n---\n## Turn 9\n```yaml\nentry: end\n```", tags=["greeting"])
    session.add_turn("architect", "  It's 007, no: `on` \u2028 \u0085 é 漢 \U0001f600\n")
    decision = session.record_decision("Use OAuth: 2.0", made_by="architect", score=math.inf,
        tags=["security.oauth"],
                                       alternatives_considered=[{"option": "SAML",
                                           "rejected_because": "# heavy"}])  # fmt: skip
    finding = session.record_finding(
        "No MFA",
        discovered_by="veritas",
        severity="critical",
        nested={"a": [1, 2.0, None, True, {}]},
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
        if entry.get("entry") in (None, "end", "session"):
            continue
        said = {part: value for part, value in entry["record"].items() if part != "redacted"}
        found[entry["session"], entry["file"], said["id"]] = said
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    return filled(tmp_path_factory.mktemp("source") / "sessions")


@pytest.mark.parametrize("form", FORMATS)
def test_every_value_travels(source: Memory, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"all.{form}"
    done = source.exchange.export(file, format=form)
    assert (done.problems, done.counts["sessions"]) == ([], 2)
    other = Memory(tmp_path / "other")
    taken = other.exchange.import_(file)
    assert taken.problems == []
    assert values(other) == values(source)
    assert taken.counts["added"] == len(values(source))
    again = other.exchange.import_(file)
    assert dict(again.counts) == {"known": len(values(source))}
    assert other.exchange.verify(file).success


def test_metadata_travel(source: Memory, tmp_path: Path) -> None:
    source.exchange.export(tmp_path / "all.jsonl")
    other = Memory(tmp_path / "other")
    other.exchange.import_(tmp_path / "all.jsonl")
    ours, theirs = other.session("s1").metadata(), source.session("s1").metadata()
    assert {name: ours[name] for name in ("id", "context", "participants", "created_at")} == {
        name: theirs[name] for name in ("id", "context", "participants", "created_at")}  # fmt: skip
    assert other.session("old").state == "active"


def test_an_exact_export_holds_the_files_and_is_imported(source: Memory, tmp_path: Path) -> None:
    file = tmp_path / "all.tar.gz"
    done = source.exchange.export(file, exact=True)
    assert done.problems == []
    with tarfile.open(file) as packed:
        assert packed.getnames()[0] == "manifest.json"
        listed = json.load(packed.extractfile("manifest.json"))  # type: ignore[arg-type]
        held = packed.extractfile("files/active/s1/decisions.yaml")
        assert held is not None
        assert held.read() == (source.root / "active/s1/decisions.yaml").read_bytes()
    assert listed["kind"] == "export"
    assert {item["file"] for item in listed["items"]} >= {
        "active/s1/conversation.md",
        "archived/old/archive.tar.gz",
    }
    other = Memory(tmp_path / "other")
    assert other.exchange.import_(file).problems == []
    assert values(other) == values(source)


def test_streams_packed_files_and_pipes(source: Memory, tmp_path: Path) -> None:
    stream = io.BytesIO()
    source.exchange.export(stream, ["s1"], format="jsonl")
    file = tmp_path / "s1.jsonl.gz"
    file.write_bytes(gzip.compress(stream.getvalue()))
    for number, given in enumerate(
        (file, io.BytesIO(stream.getvalue()), io.BytesIO(file.read_bytes()))
    ):
        other = Memory(tmp_path / str(number))
        assert other.exchange.import_(given).problems == []
        assert values(other) == {
            key: value for key, value in values(source).items() if key[0] == "s1"
        }
    with pytest.raises(Invalid, match="no export"):
        Memory(tmp_path / "none").exchange.import_(io.BytesIO(b"hello"))
    assert not (tmp_path / "none").exists() or values(Memory(tmp_path / "none")) == {}


def test_ours_stays_and_the_conflict_is_listed(tmp_path: Path) -> None:
    memory = filled(tmp_path / "one")
    memory.exchange.export(tmp_path / "all.yaml")
    memory.session("s1").update("DEC-001", decision="Use SAML")
    memory.session("s1").pin("FIND-001")
    memory.session("s1").save_agent_state("architect", {"mood": "other"})
    done = memory.exchange.import_(tmp_path / "all.yaml", dry_run=True)
    conflicts = {one.about for one in done.actions if one.type == "conflict"}
    assert conflicts == {("architect", "DEC-001")}
    assert memory.exchange.import_(tmp_path / "all.yaml").counts["conflicts"] == 2
    assert memory.session("s1").get("DEC-001").text == "Use SAML"
    verified = memory.exchange.verify(tmp_path / "all.yaml")
    assert not verified.success
    assert [one.about for one in verified.actions if one.type == "differ"] == [
        ("architect", "DEC-001")
    ]
    taken = memory.exchange.import_(tmp_path / "all.yaml", replace=True)
    assert taken.counts["replaced"] == 2
    assert memory.session("s1").get("DEC-001").text == "Use OAuth: 2.0"
    assert memory.session("s1").agent_state("architect")["mood"] == "better"
    assert memory.exchange.verify(tmp_path / "all.yaml").success


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    memory = filled(tmp_path / "one")
    memory.exchange.export(tmp_path / "all.jsonl", ["s1"])
    other = Memory(tmp_path / "other")
    other.exchange.import_(tmp_path / "all.jsonl")
    memory.session("s1").record_decision("One more", made_by="dev")
    memory.exchange.export(tmp_path / "all.jsonl", ["s1"], overwrite=True)
    verified = other.exchange.verify(tmp_path / "all.jsonl")
    assert [(one.type, one.about) for one in verified.actions if one.type == "missing"] == [
        ("missing", ("DEC-002",))
    ]
    assert verified.counts["missing"] == 1
    assert other.exchange.import_(tmp_path / "all.jsonl").counts["added"] == 1
    assert other.session("s1").record_decision("Mine", made_by="me").id == "DEC-003"


def test_a_tombstone_deletes_once(tmp_path: Path) -> None:
    memory = filled(tmp_path / "one")
    memory.exchange.export(tmp_path / "before.jsonl")
    other = Memory(tmp_path / "other")
    other.exchange.import_(tmp_path / "before.jsonl")
    memory.session("s1").delete("FIND-001", reason="wrong")
    memory.exchange.export(tmp_path / "after.jsonl", deleted=True)
    assert other.exchange.import_(tmp_path / "after.jsonl", dry_run=True).counts["deleted"] == 1
    assert other.session("s1").get("FIND-001").text == "No MFA"
    assert other.exchange.import_(tmp_path / "after.jsonl").counts["deleted"] == 1
    assert [one.id for one in other.session("s1").deleted()] == ["FIND-001"]
    other.session("s1").restore("FIND-001")
    assert other.exchange.import_(tmp_path / "after.jsonl").counts["deleted"] == 0
    assert other.session("s1").get("FIND-001").text == "No MFA"


def test_a_memory_that_was_deleted_or_purged_here_stays_away(tmp_path: Path) -> None:
    memory = filled(tmp_path / "one")
    memory.exchange.export(tmp_path / "all.jsonl")
    memory.session("s1").delete("FIND-001", reason="wrong")
    memory.privacy.purge_now("s1", ["DEC-001", "turn-1"])
    memory.delete_session("old", reason="gone")
    done = memory.exchange.import_(tmp_path / "all.jsonl")
    assert (done.counts["added"], done.counts["purged"], done.counts["left_deleted"]) == (0, 2, 2)
    assert {one.about for one in done.actions if one.type == "left_out"} == {("turn-1", "DEC-001")}
    back = memory.exchange.import_(tmp_path / "all.jsonl", purged=True)
    assert back.counts["added"] == 2
    assert memory.session("s1").get("DEC-001").text == "Use OAuth: 2.0"
    assert audit.read(memory.tree)[-1]["count"] == 2


def test_a_purged_session_stays_away(tmp_path: Path) -> None:
    memory = filled(tmp_path / "one")
    memory.exchange.export(tmp_path / "all.jsonl", ["s1"])
    memory.privacy.purge_now("s1")
    assert memory.exchange.import_(tmp_path / "all.jsonl").counts["added"] == 0
    assert [session.id for session in memory.sessions()] == []
    assert memory.exchange.import_(tmp_path / "all.jsonl", purged=True).counts["added"] > 5


def test_secrets_are_redacted_at_the_door(tmp_path: Path) -> None:
    entries: list[Entry] = [
        {"smp_export": 1},
        {"entry": "session", "session": "s1", "metadata": {"context": {"goal": f"rotate {TOKEN}"}}},
        {"entry": "memory", "session": "s1", "file": "decisions.yaml", "type": "decision",
         "record": {"id": "DEC-001", "decision": f"Use {TOKEN}", "made_by": "a"}},
        {"entry": "memory", "session": "s1", "file": "conversation.md", "type": "turn",
         "record": {"id": "turn-1", "turn": 1, "speaker": "a", "content": f"Here: {TOKEN}"}},
        {"entry": "memory", "session": "s1", "file": "agent-states/a.yaml", "type": "agent_state",
         "record": {"id": "a", "key": TOKEN}},
        {"entry": "memory", "session": "s1", "file": "artifacts/r.md", "type": "artifact",
         "record": {"id": "r", "content": f"so {TOKEN} it is"}},
        {"entry": "session", "session": TOKEN.replace("_", "-"), "metadata": {}},
        {"entry": "end", "entries": 6},
    ]  # fmt: skip
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    memory = Memory(tmp_path / "one")
    done = memory.exchange.import_(tmp_path / "x.jsonl")
    assert done.counts["added"] == 4
    held = b"".join(
        path.read_bytes() for path in (memory.root / "active").rglob("*") if path.is_file()
    )
    assert TOKEN.encode() not in held
    assert held.count(b"[redacted: github token]") == 5
    assert memory.exchange.import_(tmp_path / "x.jsonl").counts["known"] == 4


def test_an_archived_session_is_compared_and_not_written(tmp_path: Path) -> None:
    memory = filled(tmp_path / "one")
    memory.exchange.export(tmp_path / "all.jsonl", ["s1"])
    other = Memory(tmp_path / "other")
    other.exchange.import_(tmp_path / "all.jsonl")
    other.archive_session("s1")
    assert other.exchange.import_(tmp_path / "all.jsonl").counts["known"] > 5
    memory.session("s1").record_decision("One more", made_by="dev")
    memory.exchange.export(tmp_path / "all.jsonl", ["s1"], overwrite=True)
    done = other.exchange.import_(tmp_path / "all.jsonl")
    assert (done.counts["added"], done.counts["left_out"]) == (0, 1)
    assert "is archived" in done.problems[0]
    other.restore_session("s1")
    assert other.exchange.import_(tmp_path / "all.jsonl").counts["added"] == 1


def test_a_selection_and_a_change_on_the_way(source: Memory, tmp_path: Path) -> None:
    source.exchange.export(
        tmp_path / "d.jsonl", ["s1"], wanted=lambda session, file, type, value: type == "decision"
    )
    other = Memory(tmp_path / "other")
    assert other.exchange.import_(tmp_path / "d.jsonl").counts["added"] == 1

    def louder(entry: Entry) -> Entry | None:
        if entry["entry"] == "memory":
            entry["record"]["decision"] = str(entry["record"].get("decision")).upper()
        return None if entry["entry"] == "tombstone" else entry

    third = Memory(tmp_path / "third")
    third.exchange.import_(tmp_path / "d.jsonl", transform=louder)
    assert third.session("s1").get("DEC-001").text == "USE OAUTH: 2.0"


@pytest.mark.parametrize(("cut", "said"), [
    (lambda text: text[: len(text) // 2], "not whole"),
    (lambda text: text.replace('"smp_export": 1', '"smp_export": 2', 1), "version 2"),
    (lambda text: text.replace('"entry": "memory"', '"entry": "thing"', 1), "no kind of entry"),
    (lambda text: text.replace("decisions.yaml", "../decisions.yaml"), "no memories are kept"),
    (lambda text: text.replace('"session": "s1"', '"session": "../s1"'), "no id of a session"),
    (lambda text: text.replace('"DEC-001"', "7", 1), "id that is a text"),
])  # fmt: skip
def test_a_damaged_export_says_where(
    source: Memory, tmp_path: Path, cut: Callable[[str], str], said: str
) -> None:
    source.exchange.export(tmp_path / "all.jsonl", ["s1"])
    (tmp_path / "all.jsonl").write_text(cut((tmp_path / "all.jsonl").read_text()))
    done = Memory(tmp_path / "other").exchange.import_(tmp_path / "all.jsonl")
    assert any(said in problem and "all.jsonl" in problem for problem in done.problems), (
        done.problems
    )


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


def test_an_import_waits_for_no_reader_and_loses_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody records a decision between the look and the write: both are there, each with its
    own id."""
    memory = filled(tmp_path / "one")
    memory.exchange.export(tmp_path / "all.jsonl", ["s1"])
    other = Memory(tmp_path / "other")
    other.create_session(id="s1")
    from smp_client.exchange import intake

    honest = intake.append_many
    crossed: list[str] = []

    def crossing(scope: Any, kind: Any, given: Any, size: int) -> Any:
        if kind.file == "decisions.yaml" and not crossed:
            crossed.append(
                Memory(other.root).session("s1").record_decision("Mine", made_by="me").id
            )
        return honest(scope, kind, given, size)

    monkeypatch.setattr(intake, "append_many", crossing)
    other.exchange.import_(tmp_path / "all.jsonl")
    texts = [record.text for record in other.session("s1").records("decision")]
    assert crossed == ["DEC-001"]
    assert texts == ["Mine"]
    assert [
        one.about for one in other.exchange.import_(tmp_path / "all.jsonl").actions if one.type == "conflict"
    ] == [("DEC-001",)]


def test_exchange_is_imported_late() -> None:
    import subprocess
    import sys

    code = "import sys, smp_client; assert not [name for name in sys.modules if 'exchange' in name]"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
