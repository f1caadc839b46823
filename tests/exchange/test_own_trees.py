"""Imports of what SMP keeps itself: another tree, one session, a bundle of files."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from daemons import smp
from test_own_forms import filled, values

from smp_client import Invalid, Memory


@pytest.fixture
def source(tmp_path: Path) -> Memory:
    return filled(tmp_path / "theirs/.bmad/sessions")


@pytest.fixture
def other(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "ours/.bmad/sessions")


def bytes_below(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def imported(*arguments: object, code: int = 0) -> dict[str, Any]:
    ran = smp("import", *arguments, "--json")
    assert ran.returncode == code, ran.stderr
    done: dict[str, Any] = json.loads(ran.stdout)
    return done


def test_an_exact_export_comes_in_again(source: Memory, other: Memory, tmp_path: Path) -> None:
    file = tmp_path / "all.tar.gz"
    source.exchange.export(file, exact=True)
    assert other.exchange.import_(file, dry_run=True).counts["added"] == len(values(source))
    done = other.exchange.import_(file)
    assert (done.problems, done.counts["added"]) == ([], len(values(source)))
    assert values(other) == values(source)
    ours = other.session("s1").metadata()
    theirs = source.session("s1").metadata()
    for name in ("id", "context", "participants", "created_at"):
        assert ours[name] == theirs[name]
    assert dict(other.exchange.import_(file).counts) == {"known": len(values(source))}
    assert other.exchange.verify(file).success


def test_an_exact_export_by_command(source: Memory, tmp_path: Path) -> None:
    file = tmp_path / "all.tar.gz"
    exported = smp("export", "--all", "--exact", "-o", file, "--root", source.root)
    assert exported.returncode == 0, exported.stderr
    root = ("--root", tmp_path / "tree")
    done = imported(file, *root)
    assert done["counts"]["added"] == len(values(source))
    assert [found["layout"] for found in done["found"]] == ["smp"]
    assert imported(file, "--migrate", *root)["counts"]["missing"] == 0
    (backup,) = (tmp_path / "backup-pre-smp").glob("all-*.tar.gz")
    with tarfile.open(backup) as packed:
        assert "files/all.tar.gz" in packed.getnames()


def test_an_exact_export_from_a_stream(source: Memory, other: Memory) -> None:
    stream = io.BytesIO()
    source.exchange.export(stream, ["s1"], exact=True)
    stream.seek(0)
    assert other.exchange.import_(stream).problems == []
    assert other.session("s1").get("DEC-001").text == "Use OAuth: 2.0"


def test_deleted_memories_of_an_exact_export_are_deleted(
    source: Memory, other: Memory, tmp_path: Path
) -> None:
    file = tmp_path / "all.tar.gz"
    source.exchange.export(file, exact=True)
    other.exchange.import_(file)
    source.session("s1").delete("FIND-001", reason="wrong")
    for deleted, count in ((False, 0), (True, 1)):
        source.exchange.export(file, exact=True, deleted=deleted, overwrite=True)
        assert other.exchange.import_(file).counts["deleted"] == count
    assert [one.id for one in other.session("s1").deleted()] == ["FIND-001"]


@pytest.mark.parametrize("below", ["", ".bmad/sessions"])
@pytest.mark.parametrize("is_marked", [True, False])
def test_another_tree(source: Memory, other: Memory, below: str, is_marked: bool) -> None:
    """The project or the tree; a copy by hand may be without `.smp/`. The source is only read."""
    project = source.root.parent.parent
    if not is_marked:
        shutil.rmtree(source.root / ".smp")
    expected = values(source)
    before = bytes_below(project)
    done = other.exchange.import_(project / below)
    assert (done.problems, done.counts["added"]) == ([], len(expected))
    assert bytes_below(project) == before
    assert values(other) == expected
    assert dict(other.exchange.import_(project / below).counts) == {"known": len(expected)}


def test_a_tree_with_evicted_and_deleted_memories(source: Memory, other: Memory) -> None:
    """Evicted turns come themselves. What is deleted there is not deleted here."""
    session = source.create_session(id="long")
    for number in range(30):
        long_ago = datetime(2026, 1, 1, number % 24, tzinfo=UTC)
        session.add_turn("user", f"Turn {number} " + "And so on. " * 60, timestamp=long_ago)
    other.exchange.import_(source.root)
    session.compact(reduction_pct=90)
    assert list((source.root / "archived/long").glob("evicted-*"))
    source.session("s1").delete("FIND-001", reason="wrong")
    done = other.exchange.import_(source.root)
    assert (done.problems, done.counts["added"], done.counts["conflicts"]) == ([], 0, 0)
    assert done.counts["deleted"] == 0
    fresh = Memory(other.root.parent / "fresh")
    assert fresh.exchange.import_(source.root).problems == []
    assert len(fresh.session("long").turns()) == 30
    assert all("FIND-001" not in key for key in values(fresh))


def test_the_tree_itself_is_left_out(source: Memory) -> None:
    project = source.root.parent.parent
    (project / "talk.md").write_text("User: Hi\nAssistant: Ho\n")
    done = source.exchange.import_(project)
    assert dict(done.counts) == {"added": 2}
    with pytest.raises(Invalid, match="into itself"):
        source.exchange.import_(source.root)
    ran = smp("import", source.root, "--root", source.root)
    assert ran.returncode == 2
    assert "into itself" in ran.stderr


@pytest.mark.parametrize("named", ["", "metadata.yaml", "conversation.md"])
def test_one_session_directory(source: Memory, other: Memory, tmp_path: Path, named: str) -> None:
    folder = tmp_path / "copy of s1"
    shutil.copytree(source.root / "active/s1", folder)
    done = imported(folder / named, "--root", other.root)
    expected = {key: value for key, value in values(source).items() if key[0] == "s1"}
    assert (done["problems"], done["counts"]) == ([], {"added": len(expected)})
    assert values(other) == expected
    assert other.session("s1").metadata()["context"] == source.session("s1").metadata()["context"]


def test_a_session_directory_without_metadata(other: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "kick off"
    folder.mkdir()
    (folder / "decisions.yaml").write_text(
        'decisions:\n  - id: "DEC-007"\n    made_by: pm\n    decision: Use OAuth\n'
    )
    (folder / "conversation.md").write_text("## Turn 2\n**Speaker:** pm\n\nDecision: Use OAuth\n")
    assert dict(other.exchange.import_(folder).counts) == {"added": 2}
    (session,) = other.sessions()
    assert session.id.startswith("kick-off-")
    assert session.get("DEC-007").text == "Use OAuth"
    assert [turn.id for turn in session.turns()] == ["turn-2"]


def test_an_archive_of_one_session(source: Memory, other: Memory) -> None:
    other.exchange.import_(source.root / "archived/old/archive.tar.gz")
    assert [turn.text for turn in other.session("old").turns()] == ["Long ago"]


def test_records_that_cannot_be_read_are_named(
    source: Memory, other: Memory, tmp_path: Path
) -> None:
    """Also by an export: a copy that lacks a memory says so."""
    session = source.session("s1")
    session.record_decision("Two", made_by="a")
    file = source.root / "active/s1/decisions.yaml"
    file.write_text(file.read_text().replace("decision: Two", "decision: [Two"))
    (source.root / "active/s1/inbox/late.yaml").write_text("type: decision\n")
    done = other.exchange.import_(source.root)
    line = next(at for at, text in enumerate(file.read_text().split("\n"), 1) if "[Two" in text)
    assert [one.partition(": did")[0] for one in done.problems] == [
        f"active/s1: decisions.yaml, line {line + 1}"
    ]
    assert other.session("s1").get("DEC-001").text == "Use OAuth: 2.0"
    assert any("active/s1/inbox" in note for note in done.notes)
    exported = source.exchange.export(tmp_path / "all.jsonl")
    assert [one.partition(": it")[0] for one in exported.problems] == [
        f"active/s1/decisions.yaml, line {line + 1}"
    ]


def test_an_unfinished_change_of_the_source_is_named(source: Memory, other: Memory) -> None:
    (source.root / ".smp/journal/s1+1.json").write_text("{}")
    done = other.exchange.import_(source.root)
    assert any("unfinished" in note for note in done.notes)


def test_a_packed_file_that_is_no_bundle(other: Memory, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "other.tar.gz", "w:gz") as packed:
        packed.add(__file__, "x.py")
    (tmp_path / "torn.gz").write_bytes(b"\x1f\x8b\x08\x00")
    for name in ("other.tar.gz", "torn.gz"):
        with pytest.raises(Invalid, match="it is not an exact export"):
            other.exchange.import_(tmp_path / name)
