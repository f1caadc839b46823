"""An export of chosen memories, and the endings of its file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from daemons import smp

from smp_client import Invalid, InvalidQuery, Memory

OLD = datetime(2026, 1, 11, 14, 30, tzinfo=UTC)
ALL = {"turn-1", "DEC-001", "DEC-002", "FIND-001", "architect"}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    memory = Memory(tmp_path_factory.mktemp("chosen") / "sessions")
    session = memory.create_session(id="s1")
    session.add_turn("user", "Which login?", timestamp=OLD)
    session.record_decision(
        "Use OAuth", made_by="architect", tags=["security.oauth"], timestamp=OLD
    )
    session.record_decision("Use tabs", made_by="dev", timestamp=OLD + timedelta(days=9))
    session.record_finding(
        "No MFA", discovered_by="architect", severity="high", tags=["ux"],
        timestamp=OLD + timedelta(days=2))  # fmt: skip
    session.save_agent_state("architect", {"mood": "fine"})
    session.update("DEC-001", rationale="known")
    memory.create_session(id="old").record_decision("Long ago", made_by="architect", timestamp=OLD)
    memory.archive_session("old")
    return memory


def ids(memory: Memory, **conditions: Any) -> set[str]:
    found = memory.exchange.entries(["s1"], **conditions)
    return {entry["record"]["id"] for entry in found if entry.get("entry") == "memory"}


CONDITIONS: list[tuple[dict[str, Any], list[str], set[str]]] = [
    ({"tags": "security"}, ["--tag", "security"], {"DEC-001"}),
    ({"tags": ["security", "ux"]}, ["--tag", "security", "--tag", "ux"], {"DEC-001", "FIND-001"}),
    ({"agent": "architect"}, ["--agent", "architect"], {"DEC-001", "FIND-001", "architect"}),
    ({"until": "2026-01-11"}, ["--until", "2026-01-11"], {"turn-1", "DEC-001"}),
    ({"until": "2026-01-13", "since": "2026-01-12"},
     ["--until", "2026-01-13", "--since", "2026-01-12"], {"FIND-001"}),
    ({"types": ["decision"], "agent": "dev"}, ["--type", "decision", "--agent", "dev"],
     {"DEC-002"}),
    ({"text": "login"}, ["--text", "login"], {"turn-1"}),
    ({"topic": "ux"}, ["--topic", "ux"], {"FIND-001"}),
    ({}, [], ALL),
]  # fmt: skip


@pytest.mark.parametrize(("conditions", "options", "expected"), CONDITIONS)
def test_an_export_holds_the_chosen_memories(
    memory: Memory, tmp_path: Path, conditions: dict[str, Any], options: list[str],
    expected: set[str],
) -> None:  # fmt: skip
    assert ids(memory, **conditions) == expected
    file = tmp_path / "some.jsonl"
    ran = smp("export", "s1", *options, "-o", file, "--root", memory.root)
    assert ran.returncode == 0, ran.stderr
    other = Memory(tmp_path / "other")
    other.exchange.import_(file)
    assert ids(other) == expected


def test_archived_sessions_and_other_layouts(memory: Memory, tmp_path: Path) -> None:
    done = memory.exchange.export(tmp_path / "all.jsonl", agent="architect", types="decision")
    assert done.counts["entries"] == 4, "two sessions, and a decision of each"
    out = tmp_path / "out"
    call = ("--agent", "dev", "--layout", "jsonl", "-o", out, "--root", memory.root)
    assert smp("export", "s1", *call).returncode == 0
    lines = (out / "s1.jsonl").read_text().splitlines()
    assert len(lines) == 1


def test_conditions_that_fit_nothing_are_said(memory: Memory, tmp_path: Path) -> None:
    done = memory.exchange.export(tmp_path / "none.jsonl", tags=["nowhere"])
    assert done.notes == ["No memory fits the conditions: the export holds no memory."]
    with pytest.raises(InvalidQuery):
        memory.exchange.export(tmp_path / "x.jsonl", until="sometime")
    with pytest.raises(Invalid):
        memory.exchange.export(tmp_path / "x.tar.gz", exact=True, agent="dev")
    with pytest.raises(TypeError):
        memory.exchange.export(tmp_path / "x.jsonl", agnet="dev")  # type: ignore[call-arg]
    assert not (tmp_path / "x.jsonl").exists()
    ran = smp("export", "s1", "--until", "sometime", "--root", memory.root)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "until" in ran.stderr


def test_an_unknown_ending_is_an_error(memory: Memory, tmp_path: Path) -> None:
    for name in ("x.foo", "x.yaml.bak", "x.tar.gz"):
        with pytest.raises(Invalid, match=r"\.yaml, \.yml, \.json, \.jsonl, \.markdown, \.md"):
            memory.exchange.export(tmp_path / name)
        ran = smp("export", "s1", "-o", tmp_path / name, "--root", memory.root)
        assert ran.returncode == 2
        assert "--format" in ran.stderr
        assert not (tmp_path / name).exists()
    assert "--exact" in ran.stderr
    memory.exchange.export(tmp_path / "x.foo", format="json")
    memory.exchange.export(tmp_path / "backup")
    assert (tmp_path / "backup").read_text().startswith("---\nsmp_export")
    with pytest.raises(Invalid, match=r"\.tar\.gz"):
        memory.exchange.export(tmp_path / "x.yaml", exact=True)
    memory.exchange.export(tmp_path / "x.bundle", exact=True)
