"""`smp export` and `smp import` as a person runs them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from daemons import smp

from smp_client import Memory

LOG = "User: Which database?\n\nAssistant: PostgreSQL.\n\nDecision: Use PostgreSQL 16\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    memory = Memory(tmp_path / ".bmad/sessions")
    session = memory.create_session(id="s1", project="Shop")
    session.add_turn("user", "Hello")
    session.record_decision("Use OAuth", made_by="architect")
    return memory.root


def ran(*arguments: object, code: int = 0, **options: Any) -> str:
    done = smp(*arguments, **options)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def in_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    done = smp(*arguments, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_there_and_back(root: Path, tmp_path: Path) -> None:
    other = ("--root", tmp_path / "other")
    for name in ("all.yaml", "all.md", "all.json", "all.jsonl"):
        said = ran("export", "--all", "-o", tmp_path / name, "--root", root)
        assert "1 session as 3 entries" in said
    said = ran("import", tmp_path / "all.md", "--dry-run", *other)
    assert "2 added; nothing was changed" in said
    assert not (tmp_path / "other").exists()
    assert "2 added" in ran("import", tmp_path / "all.md", *other)
    assert in_json("import", tmp_path / "all.json", *other)["counts"] == {"known": 2}
    counts = in_json("import", tmp_path / "all.jsonl", "--verify", *other)["counts"]
    assert counts["missing"] == 0
    export = ran("export", "s1", "--root", root, "--format", "jsonl")
    assert "2 added" in ran("import", "-", "--root", tmp_path / "third", input=export)
    call = ("export", "--all", "--layout", "jsonl", "-o", tmp_path / "out", "--root", root)
    Memory(root).session("s1").save_artifact("report", "text")
    assert "note: jsonl has no place for 1 × artifact" in smp(*call).stderr
    assert "is there already" in ran(*call, code=1)
    said = ran("import", tmp_path / "out", "--root", tmp_path / "fifth")
    assert "2 added" in said
    for since, counts in (("2999-01-01", {}), ("today", {"added": 1})):
        chosen = ("--type", "decision", "--since", since, "--force", "-o", tmp_path / "d.jsonl")
        ran("export", "s1", *chosen, "--root", root)
        taken = in_json("import", tmp_path / "d.jsonl", "--root", tmp_path / "fourth")
        assert taken["counts"] == counts
    assert "since: " in ran("export", "s1", "--since", "sometime", "--root", root, code=2)


def test_a_migration(root: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "kickoff.md").write_text(LOG)
    good = {"type": "decision", "ts": "2026-01-11T14:30:00Z", "data": {"decision": "x"}}
    (notes / "bad.jsonl").write_text(json.dumps(good) + "\nnope\n")
    (notes / "torn.jsonl").write_text(json.dumps(good)[:-1])
    done = in_json("import", notes, "--migrate", "--root", root, code=1)
    assert any(note.startswith("torn.jsonl was not read: ") for note in done["notes"])
    assert [problem.partition(": ")[0] for problem in done["problems"]] == ["bad.jsonl, line 2"]
    counts = done["counts"]
    assert (counts["added"], counts["missing"], counts["differ"]) == (4, 0, 0)
    types = {action["type"] for action in done["actions"]}
    assert {"import", "refresh_priorities", "compare"} <= types
    (backup,) = (root.parent / "backup-pre-smp").glob("notes-*.tar.gz")
    with tarfile.open(backup) as packed:
        held = packed.extractfile("files/kickoff.md")
        assert held is not None
        assert held.read().decode() == LOG
    assert {found["layout"] for found in done["found"]} == {"jsonl", "markdown-log"}
    assert in_json("import", notes, "--migrate", "--root", root, code=1)["counts"]["known"] == 4
    assert (notes / "kickoff.md").read_text() == LOG


def test_errors_are_one_sentence(root: Path, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\x00\x01")
    said = ran("import", tmp_path / "x.bin", "--root", root, code=2)
    assert said.startswith("smp: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", [
    "export", "export s1 --all", "export --all --json", "export --all --layout jsonl",
    "export --all --exact --format yaml", "export s1 --name x",
    "import nowhere", "import - --migrate", "import . --migrate --verify",
    "import . --migrate --dry-run",
])  # fmt: skip
def test_usage(root: Path, arguments: str) -> None:
    said = ran(*arguments.split(), "--root", root, code=2)
    assert ('"error"' if "--json" in arguments else "Usage") in said
