"""`smp show`: a session, a memory wherever it is, and every place of a text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commands import run, run_json

from smp_client import Memory, Session
from smp_client.passes.compaction import compact

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=lambda: NOW, count_access=False)


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(
        id="s1", project="Shop", topic="auth", user="jo", tags=["oauth"]
    )
    session.record_decision("Ask Jane Roe first", made_by="a")
    for _ in range(4):
        session.record_finding(
            "jane roe " + "and more " * 40, discovered_by="a", severity="low",
            resolution={"status": "resolved"}, timestamp=NOW - timedelta(days=60),
        )  # fmt: skip
    session.record_finding("No MFA", discovered_by="b", severity="critical")
    session.add_turn("user", "I am jane\nROE", memory_refs=["DEC-001", "FIND-001", "NOT-001"])
    return session


def test_a_session_is_shown_in_short(session: Session, memory: Memory) -> None:
    shown = run(memory.root, "show s1")
    for line in (r"tags +oauth", r"user +jo", r"size +\d.* KB, 0.0% full",
                 r"FIND-005 +0\.\d\d  critical +No MFA"):  # fmt: skip
        assert re.search(f"^{line}$", shown, re.MULTILINE), (line, shown)
    found = run_json(memory.root, "show s1")
    assert found["metadata"]["context"]["project_name"] == "Shop"
    assert found["size"]["quota_bytes"] == 10 * 1024**2
    assert [each["id"] for each in found["open_findings"]] == ["FIND-005"]
    memory.everywhere.save_profile(name="Ada")
    assert "name Ada" in run(memory.root, "show global")
    memory.archive_session("s1", "all done")
    assert run(memory.root, "show s1").startswith("s1  archived\n")


def test_a_memory_is_shown_with_its_place_and_its_neighbours(
    session: Session, memory: Memory
) -> None:
    said = run_json(memory.root, "show s1 turn-1")
    assert said["file"] == f"{memory.root}/active/s1/conversation.md"
    assert [one["id"] for one in said["related"]] == ["DEC-001", "FIND-001"]
    near = "related         turn-1 refers to DEC-001: Ask Jane Roe first\n"
    assert near in run(memory.root, "show turn-1")  # an id alone, which only one session has
    memory.create_session(id="s2").add_turn("user", "x")
    assert "s1" in run(memory.root, "show turn-1", code=2)


@pytest.mark.parametrize(
    ("away", "name", "head", "back"),
    [
        ("archive", "DEC-001", "DEC-001  decision in s1 [archived]", "smp unarchive s1"),
        ("evict", "FIND-001", "FIND-001  finding in s1 [evicted",
         "smp compact s1 FIND-001 --bring-back"),
        ("delete", "DEC-001", "DEC-001  decision in s1 [deleted]",
         "smp restore s1 DEC-001, until 2026-03-31 12:00"),
        ("delete all", "turn-1", "turn-1  turn in s1 [deleted]",
         "smp restore s1, until 2026-03-31 12:00"),
    ],
)  # fmt: skip
def test_a_memory_that_is_away_is_shown_with_the_way_back(
    session: Session, memory: Memory, away: str, name: str, head: str, back: str
) -> None:
    if away == "archive":
        memory.archive_session("s1")
    elif away == "evict":
        compact(session, reduction_pct=100)
    elif away == "delete":
        session.delete("DEC-001", reason="privacy", deleted_by="jo")
    else:
        memory.delete_session("s1", reason="privacy")
    told = run(memory.root, f"show s1 {name}")
    assert told.startswith(head)
    assert f"bring back      {back}\n" in told
    assert run_json(memory.root, f"show s1 {name}")["member"]
    assert "DEC-099" in run(memory.root, "show s1 DEC-099", code=1)


def test_every_place_of_a_text_is_a_row(session: Session, memory: Memory) -> None:
    session.delete("DEC-001", reason="privacy")
    memory.create_session(id="s2").save_artifact("a", "by Jane Roe")
    lines = run(memory.root, "show --all-about 'JANE roe'").splitlines()
    rows = [line.split() for line in lines]
    assert ["active/s1/conversation.md:15", "turn-1", "turn", "active"] in [row[:4] for row in rows]
    (gone,) = [line for line in lines if line.startswith("deleted/")]
    assert gone.split()[2:6] == ["DEC-001", "decision", "deleted", "2026-03-31"]
    deleting = "smp delete --all --text 'JANE roe' --reason … deletes the memories that hold it."
    assert deleting in lines
    for one in run_json(memory.root, "show --all-about 'jane roe' s1")["occurrences"]:
        assert one["session"] == "s1"
        assert "jane roe" in " ".join(one["excerpt"].lower().split())


def test_what_was_not_found_or_not_searched_is_said(session: Session, memory: Memory) -> None:
    said = run(memory.root, "show --all-about nobody")
    assert said == f"'nobody' stands nowhere in {memory.root}.\n"
    (memory.root / "active/s1/link").symlink_to("/etc/passwd")
    assert "\nnot searched: active/s1/link: " in run(memory.root, "show --all-about nobody")
    problems = run_json(memory.root, "show --all-about nobody")["problems"]
    assert [one["path"] for one in problems] == ["active/s1/link"]


def test_an_archived_session_that_cannot_be_read_is_named(session: Session, memory: Memory) -> None:
    memory.archive_session("s1")
    (memory.root / "archived/s1/archive.tar.gz").write_bytes(b"no archive")
    assert "'s1' is archived" in run(memory.root, "show s1", code=1)
