"""`smp show --all-about`, and `smp show` of a memory that is not in its place or refers to one that is gone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from commands import HOSTILE, on_a_terminal

from smp_client import Memory, Session
from smp_client.passes.compaction import compact
from smp_daemon.cli import smp as command

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SMP_ROOT", str(tmp_path / "sessions"))
    return tmp_path / "sessions"


@pytest.fixture
def memory(root: Path) -> Memory:
    return Memory(root, clock=lambda: NOW, count_access=False)


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1")
    session.record_decision("Ask Jane Roe first", made_by="a")
    for _ in range(4):
        session.record_finding("jane roe " + "and more " * 40, discovered_by="a", severity="low", resolution={"status": "resolved"},
                               timestamp=NOW - timedelta(days=60))  # fmt: skip
    session.add_turn("user", "I am jane\nROE", memory_refs=["DEC-001", "FIND-001", "NOT-001"])
    return session


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["show", *arguments])


def shown(*arguments: str) -> str:
    done = ran(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def in_json(*arguments: str) -> Any:
    return json.loads(shown(*arguments, "--json"))


def test_every_place_is_a_row_below_its_session(session: Session, memory: Memory) -> None:
    session.delete("DEC-001", reason="privacy")
    other = memory.create_session(id="s2")
    other.save_artifact("a", "by Jane Roe")
    lines = shown("--all-about", "JANE roe").splitlines()
    rows = [line.split() for line in lines if line.startswith(("active/", "deleted/"))]
    assert lines.index("s1") < lines.index("s2")
    assert [row[:4] for row in rows if row[1] == "turn-1"] == [["active/s1/conversation.md:15", "turn-1", "turn", "active"]]
    (gone,) = [line for line in lines if line.startswith("deleted/")]
    assert gone.split()[2:7] == ["DEC-001", "decision", "deleted", "until", "2026-03-31"]
    assert any(line.endswith(", 7 memories.") for line in lines)
    assert "smp delete --all --text 'JANE roe' --reason … deletes the memories that hold it." in lines
    assert any(line.startswith("smp purge --batch ") for line in lines)


def test_the_line_that_is_named_holds_the_text(session: Session, memory: Memory) -> None:
    for one in in_json("--all-about", "jane roe")["occurrences"]:
        line = (memory.root / one["path"]).read_text().splitlines()[one["line"] - 1]
        assert "jane" in line.lower()
        assert one["excerpt"][one["start"] : one["end"]].lower() == "jane roe"


def test_one_session_alone_wherever_it_is(session: Session, memory: Memory) -> None:
    memory.create_session(id="s2").save_artifact("a", "by Jane Roe")
    memory.delete_session("s1", reason="privacy")
    told = in_json("--all-about", "jane roe", "s1")
    assert {(one["session"], one["place"]) for one in told["occurrences"]} >= {("s1", "deleted")}
    assert {one["session"] for one in told["occurrences"]} == {"s1"}
    assert {one["until"] for one in told["occurrences"] if one["place"] == "deleted"} == {"2026-03-31T12:00:00Z"}
    assert [one["id"] for one in in_json("--all-about", "jane roe", "s2")["occurrences"]] == ["a"]


def test_what_stands_nowhere_is_said_and_no_failure(session: Session, root: Path) -> None:
    assert shown("--all-about", "nobody") == f"'nobody' stands nowhere in {root}.\n"
    assert in_json("--all-about", "nobody")["occurrences"] == []


def test_what_could_not_be_looked_into_is_said(session: Session, root: Path) -> None:
    (root / "active/s1/link").symlink_to("/etc/passwd")
    assert "\nCOULD NOT BE SEARCHED\nactive/s1/link: " in shown("--all-about", "nobody")
    assert [one["path"] for one in in_json("--all-about", "nobody")["problems"]] == ["active/s1/link"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--all-about", "x"], 1, "at least 3 characters"), (["--all-about", ""], 1, "at least 3 characters"),
        (["--all-about", "xy", "s1", "DEC-001"], 2, "takes a SESSION, no --raw"), (["--all-about", "xy", "--raw"], 2, "no --raw"),
        (["--all-about", "xy", "nosuch"], 1, "There is no session"), ([], 2, "Missing argument 'SESSION'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(session: Session, arguments: list[str], code: int, said: str) -> None:
    done = ran(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in (done.stderr or str(done.exception))


def test_no_text_drives_the_terminal(session: Session, root: Path) -> None:
    """Not that of a memory, not what was looked for, and not the name of a file."""
    session.add_turn("user", f"Jane Roe {HOSTILE}", **{"remark": f"{HOSTILE} jane roe {HOSTILE}"})
    (root / "active/s1/artifacts/\x1b]0;jane roe\x07.md").write_text("x")
    for arguments in (("--all-about", "jane roe"), ("--all-about", f"jane roe {HOSTILE}"), ("--all-about", f"nobody {HOSTILE}")):
        for form in ((), ("--json",)):
            told = shown(*arguments, *form)
            assert not any(character in told for character in "\x1b\x07\x9b\u202e\r"), form
    told = on_a_terminal("show", "--all-about", "jane roe", "--root", str(root), columns=80)
    assert "\x1b]0;" not in told
    assert "\x07" not in told


# A memory that is not in its place.


def test_an_archived_memory_is_shown_with_its_file_and_lines(session: Session, memory: Memory, root: Path) -> None:
    raw = shown("s1", "DEC-001", "--raw")
    memory.archive_session("s1")
    told = shown("s1", "DEC-001").splitlines()
    assert told[0] == "DEC-001  decision in s1 [archived]"
    assert told[1].split(maxsplit=1) == ["where", f"{root}/archived/s1/archive.tar.gz, decisions.yaml, lines 3 to 8"]
    assert told[3].split(maxsplit=2) == ["bring", "back", "smp unarchive s1"]
    assert "decision: Ask Jane Roe first" in told
    assert shown("s1", "DEC-001", "--raw") == raw


def test_a_memory_that_compaction_took_out_is_shown(session: Session, root: Path) -> None:
    raw = shown("s1", "FIND-001", "--raw", "--no-count")
    compact(session, reduction_pct=100)
    assert "smp compact s1 FIND-001 --bring-back" in shown("s1", "FIND-001")
    told = in_json("s1", "FIND-001")
    assert (told["state"], told["member"], told["lines"]) == ("evicted", "findings.yaml", None)
    assert told["facts"]["at"] == "2026-03-01T12:00:00Z"
    assert told["text"].startswith("jane roe")
    assert shown("s1", "FIND-001", "--raw") == raw


def test_a_deleted_memory_is_shown_until_when_it_can_be_restored(session: Session) -> None:
    raw = shown("s1", "DEC-001", "--raw")
    session.delete("DEC-001", reason="privacy", deleted_by="jo")
    told = shown("s1", "DEC-001").splitlines()
    assert told[2].split(maxsplit=1) == ["deleted", "on 2026-03-01 12:00 by jo: privacy"]
    assert told[3].split(maxsplit=2)[2] == "smp restore s1 DEC-001, until 2026-03-31 12:00"
    assert shown("s1", "DEC-001", "--raw") == raw
    assert in_json("s1", "DEC-001")["until"] == "2026-03-31T12:00:00Z"


def test_a_memory_of_a_session_that_was_deleted_whole_is_shown(session: Session, memory: Memory) -> None:
    memory.delete_session("s1", reason="privacy")
    told = shown("s1", "turn-1")
    assert "with its session: privacy" in told
    assert "smp restore s1, until 2026-03-31 12:00" in told
    assert "content: |-" in told


def test_an_earlier_state_of_an_agent_is_shown(session: Session) -> None:
    session.save_agent_state("vera", {"mood": "good"})
    session.save_agent_state("vera", {"mood": "bad"})
    assert "mood: good" in shown("s1", "STATE-001")


@pytest.mark.parametrize("away", [False, True])
def test_one_that_never_was_is_not_found(session: Session, memory: Memory, away: bool) -> None:
    if away:
        memory.archive_session("s1")
    assert ran("s1", "DEC-099").exit_code == 1
    assert ran("../s1", "DEC-001").exit_code == 1


def test_the_file_and_the_lines_of_a_memory_in_its_place_are_named(session: Session, root: Path) -> None:
    told = in_json("s1", "turn-1")
    assert told["file"] == f"{root}/active/s1/conversation.md"
    first, last = told["lines"]
    lines = (root / "active/s1/conversation.md").read_text().splitlines()[first - 1 : last]
    assert "\n".join(lines) == shown("s1", "turn-1", "--raw").rstrip()
    assert f"conversation.md, lines {first} to {last}" in shown("s1", "turn-1")


# References.


def test_references_say_what_has_become_of_what_they_name(session: Session, memory: Memory) -> None:
    assert "references    DEC-001, FIND-001, NOT-001 (not known)\n" in shown("s1", "turn-1", "--no-count")
    session.delete("DEC-001", reason="privacy")
    compact(session, reduction_pct=100)
    gone = "references    DEC-001 (deleted 2026-03-01), FIND-001 (evicted 2026-03-01), NOT-001 (not known)\n"
    assert gone in shown("s1", "turn-1")
    told = [(one["id"], one["state"]) for one in in_json("s1", "turn-1")["references"]]
    assert told == [("DEC-001", "deleted"), ("FIND-001", "evicted"), ("NOT-001", "unknown")]
    Memory(memory.root, clock=lambda: NOW + timedelta(days=90)).purge(force=True)
    assert "DEC-001 (purged" in shown("s1", "turn-1")
