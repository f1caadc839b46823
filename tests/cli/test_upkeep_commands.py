"""`smp decay`, `compact`, `archive`, `delete`, `purge`, `check --repair` and their counterparts, as people and scripts use them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from commands import COLOUR, actions, answered, completed, content, days_ago, on_a_terminal, run, run_json
from daemons import smp
from once import copied

from smp_client import Memory
from smp_daemon.cli.progress import progress

pytestmark = pytest.mark.usefixtures("short_grace")
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[2J\nnext"
SHAPE = {"dry_run", "actions", "problems", "bytes_freed"}


def stocked(root: Path) -> None:
    old = Memory(root, clock=days_ago(400)).create_session(id="old", project="E-Commerce")
    for number in range(40):
        old.record_learning(f"Finding {number} " + "word " * 40, learned_by="veritas")
    memory = Memory(root)
    new = memory.create_session(id="new-1")
    for text in ("Use OAuth 2.0", "Use JWT", "Use MFA"):
        new.record_decision(text, made_by="architect")
    new.delete("DEC-003", reason="no longer true")
    memory.create_session(id="packed-1").add_turn("user", "Which tokens do we use?")
    memory.archive_session("packed-1", "done with it")
    memory.create_session(id="gone-1").add_turn("user", "Hello")
    memory.delete_session("gone-1", reason="made by mistake")
    memory.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An old session with much that has decayed, a new one, one in the archive, one deleted, and memories deleted of another."""
    return copied(stocked, tmp_path / "sessions")


# Each with its plan.


COMMANDS: list[tuple[list[str], list[tuple[str, str]]]] = [
    (["decay"], [("old", "refresh_priorities")]),
    (["decay", "old"], [("old", "refresh_priorities")]),
    (["compact", "old", "--reduce", "10"], [("old", "remove_decayed")]),
    (["compact", "--all"], []),
    (["compact", "old", "--bring-back"], []),
    (["archive", "new", "--reason", "done"], [("new-1", "archive")]),
    (["unarchive", "packed"], [("packed-1", "unarchive")]),
    (["unarchive", "latest"], [("packed-1", "unarchive")]),
    (["archive", "--due"], [("old", "archive")]),
    (["activate", "old"], []),
    (["deactivate", "old"], [("old", "become_idle")]),
    (["delete", "old", "--reason", "r"], [("old", "delete_session")]),
    (["delete", "packed", "--reason", "r"], [("packed-1", "delete_session")]),
    (["delete", "new-1", "DEC-001", "DEC-002", "--reason", "r"], [("new-1", "delete_memories")]),
    (["restore", "gone"], [("gone-1", "undelete_session")]),
    (["delete", "new-1/DEC-001", "DEC-002", "--reason", "r"], [("new-1", "delete_memories")]),
    (["restore", "new-1", "DEC-003"], [("new-1", "restore_memories")]),
    (["restore", "new-1", "DEC-003"], [("new-1", "restore_memories")]),
    (["purge", "new-1", "DEC-001", "DEC-003", "--now"], [("new-1", "purge_memories")]),
    (["purge"], []),
    (["purge", "--force"], []),
    (["check", "--repair"], []),
    (["check", "old", "--repair"], []),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "expected"), COMMANDS, ids=lambda value: " ".join(map(str, value)))
def test_a_plan_changes_nothing_and_is_what_is_done(root: Path, arguments: list[str], expected: list[tuple[str, str]]) -> None:
    """Every action has its reason; the plan and the run name the same ones, and only the run changes a byte."""
    before = content(root)
    planned = run_json(root, *arguments, "--dry-run")
    assert set(planned) >= SHAPE
    assert planned["dry_run"] is True
    assert actions(planned) == expected
    assert all(action["reason"] and action["about"] for action in planned["actions"])
    assert "nothing was changed" in run(root, *arguments, "--dry-run").stdout or not expected
    assert content(root) == before
    done = run_json(root, *arguments)
    assert done["dry_run"] is False
    assert actions(done) == expected
    assert (content(root) != before) == bool(expected)


def test_what_is_printed_is_a_line_for_each_action_and_a_total(root: Path) -> None:
    """And where there is nothing to do, that is said."""
    titles = ["SESSION", "ACTION", "WHAT", "FREED", "REASON"]
    assert run(root, "delete", "new-1", "DEC-001", "--reason", "r", "--dry-run").stdout.splitlines()[0].split() == titles
    lines = run(root, "archive", "new-1", "--reason", "all done").stdout.splitlines()
    assert lines[0].split()[:3] == ["SESSION", "ACTION", "WHAT"]
    assert lines[1].split()[:3] == ["new-1", "archive", "-"]
    assert lines[1].endswith("  all done")
    assert lines[2].startswith("1 action, ")
    assert lines[3] == "smp unarchive new-1 brings it back."
    lines = run(root, "unarchive", "new-1", "--dry-run").stdout.splitlines()
    assert lines[0].split() == ["SESSION", "ACTION", "WHAT", "FREED", "REASON"]
    assert lines[1].split()[3].startswith("-")
    assert " would be taken up; " in lines[2]
    run(root, "decay")
    assert run(root, "decay").stdout == "There is nothing to do.\n"


def test_a_reason_cannot_drive_the_terminal(root: Path) -> None:
    """Neither in the plan nor in what is listed later."""
    for arguments in (["archive", "new-1", "--reason", HOSTILE, "--dry-run"], ["delete", "new-1", "--reason", HOSTILE],
                      ["restore", "--list"], ["restore", "--list", "--json"]):  # fmt: skip
        said = run(root, *arguments).stdout
        assert "red" in said
        assert not {"\x1b", "\x07"} & set(said)


# Compaction.


def test_compaction_says_what_it_freed_and_brings_it_back(root: Path) -> None:
    before = content(root)["active/old/findings.yaml"]
    estimated = run_json(root, "compact", "old", "--estimate")
    assert estimated["session"] == "old"
    assert 0 < estimated["estimate_bytes"] < estimated["total_bytes"]
    found = run_json(root, "compact", "old", "--reduce", 30)
    assert found["success"] is True
    assert found["before_bytes"] - found["after_bytes"] == found["bytes_freed"] >= found["target_bytes"] > 0
    taken = run_json(root, "compact", "old", "--list")
    assert {one["id"] for one in taken} == {memory_id for action in found["actions"] for memory_id in action["about"]}
    first = taken[0]["id"]
    assert run_json(root, "compact", "old", "--bring-back", first, "--dry-run")["actions"][0]["about"] == [first]
    assert run_json(root, "compact", "old", "--bring-back", first)["actions"][0]["about"] == [first]
    assert [one["id"] for one in run_json(root, "compact", "old", "--list")] == [one["id"] for one in taken[1:]]
    assert first in run(root, "show", "old", first).stdout
    listed = run(root, "compact", "old", "--list").stdout
    assert all(" ".join(one["text"].split()) in listed for one in taken[1:])
    assert "conversation_turn" not in listed
    run(root, "archive", "old")
    assert "first unarchive a session." in run(root, "compact", "--all", "--list").stdout
    assert len(run_json(root, "compact", "--all", "--list")) == len(taken) - 1
    run(root, "unarchive", "old")
    run(root, "compact", "old", "--bring-back")
    assert content(root)["active/old/findings.yaml"] == before
    assert run(root, "compact", "old", "--list").stderr == "There are no evicted memories.\n"


def test_a_target_that_cannot_be_reached_is_a_problem(root: Path) -> None:
    """It exits with 1, and says what stays."""
    found = run_json(root, "compact", "new-1", "--reduce", 50, code=1)
    assert found["success"] is False
    assert len(found["problems"]) == 1
    said = run(root, "compact", "new-1", "--reduce", 50, code=1)
    assert "these stay" in said.stderr
    assert said.stderr.startswith("smp: ")


def test_all_compacts_only_what_is_nearly_full(root: Path) -> None:
    """Unless it is said by how much; a session that says no in its metadata is left out."""
    old = Memory(root).session("old")
    old.update_metadata(storage={"quota_bytes": round(old.size().total_bytes / 0.9)})
    assert actions(run_json(root, "compact", "--all", "--dry-run")) == [("old", "remove_decayed")]
    old.update_metadata(compaction_config={"auto_compact": False})
    assert actions(run_json(root, "compact", "--all", "--dry-run")) == []
    everything = run_json(root, "compact", "--all", "--reduce", 5, "--dry-run", code=1)
    assert actions(everything) == [("old", "remove_decayed")]
    (problem,) = everything["problems"]
    assert problem.startswith("new-1: ")  # in which nothing may go


@pytest.mark.parametrize("arguments", [
    ["compact"], ["compact", "old", "--all"], ["compact", "old", "--estimate", "--list"], ["compact", "old", "turn-1"],
    ["compact", "--all", "--bring-back", "turn-1"], ["compact", "old", "--list", "--reduce", "5"], ["delete", "old"],
    ["restore"], ["restore", "new-1", "DEC-003", "--list"],
    ["compact", "old", "--reduce", "0"], ["compact", "old", "--reduce", "101"],
    ["archive", "old", "--reason", ""], ["delete", "old", "--reason", " "],
    ["delete", "old", "--reason", "r", "--by", ""], ["activate", "old", "--reason", "\n"], ["archive"], ["archive", "old", "--due"],
    ["archive", "--due", "--reason", "r"], ["sessions", "--state", "archvd"],
])  # fmt: skip
def test_what_makes_no_sense_is_refused_before_anything_is_done(root: Path, arguments: list[str]) -> None:
    before = content(root)
    run(root, *arguments, code=2)
    assert content(root) == before


# Deleting, restoring, and names.


def test_what_can_be_restored_is_listed_with_its_deadline(root: Path) -> None:
    """Sessions and memories; of a session that is deleted itself, with what must be done first."""
    run(root, "delete", "new-1", "--reason", "r")
    found = run_json(root, "restore", "--list")["restorable"]
    said = [(one["session"], one["id"], one["type"]) for one in found]
    assert said == [("gone-1", None, "session"), ("new-1", None, "session"), ("new-1", "DEC-003", "decision")]
    assert [(one["deleted_by"], one["reason"], one["text"]) for one in found][2] == ("user", "no longer true", "Use MFA")
    assert not any(one["is_overdue"] for one in found)
    assert all(one["recovery_deadline"] > one["deleted_at"] for one in found)
    text = run(root, "restore", "--list").stdout
    assert "made by mistake" in text
    run(root, "restore", "new-1")
    found = run_json(root, "restore", "--list", "new-1")["restorable"]
    assert [(one["id"], one["reason"]) for one in found] == [("DEC-003", "no longer true")]
    delete_long_ago(root)
    lines = run(root, "restore", "--list").stdout.splitlines()
    assert [line.split()[:2] for line in lines if "(overdue)" in line] == [["old", "-"], ["new-1", "DEC-001"]]
    assert lines[0].split()[-1] == "TEXT"
    assert any(line.endswith("Use OAuth 2.0") for line in lines)




def test_what_is_so_already_is_not_done_again(root: Path) -> None:
    """Neither activating what is active nor deactivating what rests writes anything."""
    assert run(root, "activate", "old").stdout == "old is active: there is nothing to do.\n"
    assert actions(run_json(root, "deactivate", "old")) == [("old", "become_idle")]
    before = content(root)
    assert run(root, "deactivate", "old").stdout == "old is idle: there is nothing to do.\n"
    assert content(root) == before
    assert actions(run_json(root, "activate", "old")) == [("old", "become_active")]


def test_on_a_terminal_deleting_is_asked_for(root: Path) -> None:
    """Only a yes deletes; a script, which has no terminal, and --yes are not asked; nor is a plan. Only the answer is on stdout."""
    arguments = ["delete", "old", "--reason", "r", "--json", "--root", root]
    before = content(root)
    for answer in ("n\n", "\n", "\x04"):
        code, shown, printed = answered(answer, *arguments, forked=answer != "n\n")
        assert (code, printed) == (1, "")
        assert "Delete 1 session of old (old, " in shown
        assert "[y/N]" in shown
        assert content(root) == before
    assert answered("", *arguments, "--dry-run")[:2] == (0, "")
    assert content(root) == before
    code, _, printed = answered("y\n", *arguments)
    assert code == 0
    assert actions(json.loads(printed)) == [("old", "delete_session")]
    code, shown, _ = answered("", "delete", "new-1", "DEC-001", "--reason", "r", "--root", root, "--yes")
    assert (code, shown) == (0, "")
    assert smp("delete", "new-1", "--reason", "r", "--root", root, stdin=subprocess.DEVNULL).returncode == 0


def test_the_shell_completes_what_is_where(root: Path) -> None:
    assert completed("smp unarchive ", root) == ["packed-1", "latest"]
    assert completed("smp restore ", root) == ["gone-1", "new-1", "old", "packed-1", "latest", "global"]
    assert completed("smp restore new-1 ", root) == ["DEC-003"]
    assert completed("smp restore new-1 ", root) == ["DEC-003"]
    assert completed("smp delete p", root) == ["packed-1"]
    assert completed("smp archive n", root) == ["new-1"]


def test_all_sessions_are_listed_wherever_they_are(root: Path) -> None:
    found = {one["id"]: one["state"] for one in run_json(root, "sessions", "--all")}
    assert found == {"new-1": "active", "old": "active", "packed-1": "archived", "gone-1": "deleted"}
    (gone,) = run_json(root, "sessions", "--state", "deleted")
    assert (gone["id"], gone["deleted_at"]) == ("gone-1", Memory(root).deleted_sessions()[0].at)
    assert gone["total_bytes"] > 0
    assert re.search(r"^gone-1 +deleted +- +20", run(root, "sessions", "--all").stdout, re.MULTILINE)


# Purging.


def delete_long_ago(root: Path) -> None:
    memory = Memory(root, clock=days_ago(60))
    memory.session("new-1").delete("DEC-001", reason="r")
    memory.delete_session("old", reason="r")


def test_a_purge_says_why_what_is_overdue_stays(root: Path) -> None:
    """What no daemon has watched come due goes only with --force; what can still be restored, not even then."""
    delete_long_ago(root)
    before = content(root)
    done = run(root, "purge")
    waiting = "Waiting: gone-1, new-1, old; smp restore --list names the memories."
    assert done.stdout == f"Nothing is due yet. {waiting}\n"
    notes = done.stderr.splitlines()
    assert sorted(note.partition(" since ")[0] for note in notes[:2]) == [
        "note: new-1 keeps DEC-001: it is overdue", "note: old keeps old: it is overdue"]  # fmt: skip
    assert all(note.endswith("smp purge --force destroys it now.") for note in notes)
    kept = run_json(root, "purge")["kept"]
    assert sorted((one["session"], *one["about"]) for one in kept) == [
        ("gone-1", "gone-1"), ("new-1", "DEC-001"), ("new-1", "DEC-003"), ("old", "old")
    ]  # fmt: skip
    assert content(root) == before
    found = run_json(root, "purge", "--force")
    assert sorted(actions(found)) == [("new-1", "purge_memories"), ("old", "purge_session")]
    assert found["bytes_freed"] > 0
    assert run_json(root, "restore", "--list")["restorable"] != []
    assert "old" not in {one["session"] for one in run_json(root, "restore", "--list")["restorable"]}
    Memory(root).undelete_session("gone-1")
    Memory(root).session("new-1").restore("DEC-003")
    assert run(root, "purge").stdout == "There is nothing to do.\n"


def test_on_a_terminal_a_forced_purge_is_asked_for(root: Path) -> None:
    """Where there is anything to destroy."""
    assert answered("", "purge", "--force", "--root", root)[:2] == (0, "")
    delete_long_ago(root)
    before = content(root)
    code, shown, printed = answered("n\n", "purge", "--force", "--root", root)
    assert (code, printed) == (1, "")
    assert "Destroy 1 decision, 1 session of new-1, old (DEC-001, old" in shown
    assert "Nothing was destroyed." in shown
    assert content(root) == before
    assert answered("y\n", "purge", "--force", "--root", root)[0] == 0
    assert "deleted/old/backup.tar.gz" not in content(root)


# Checking and repairing.


def test_repair_mends_what_can_be_mended_and_names_the_rest(root: Path) -> None:
    """Without --repair nothing is changed; afterwards what is left is what a person must see to."""
    with (root / "active/new-1/decisions.yaml").open("ab") as file:
        file.write(b"  - id: DEC-004 # smp\n    timestamp: \"2026")
    (root / "active/old/metadata.yaml").unlink()
    archive = root / "archived/packed-1/archive.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-20])
    before = content(root)
    complaints = run_json(root, "check", code=1)
    assert {"new-1", "archived/packed-1"} <= {one["scope"] for one in complaints}
    assert {one["scope"] for one in run_json(root, "check", "new", code=1)} == {"new-1"}
    assert {one["scope"] for one in run_json(root, "check", "packed-1", code=1)} == {"archived/packed-1"}
    assert run_json(root, "check", "old", "--repair", "--dry-run")["actions"][0]["type"] == "make_metadata"
    planned = run_json(root, "check", "--repair", "--dry-run", code=1)
    assert content(root) == before
    done = run_json(root, "check", "--repair", code=1)
    for found in (planned, done):
        assert {("new-1", "set_aside"), ("old", "make_metadata")} <= set(actions(found))
        assert [problem.partition(":")[0] for problem in found["problems"]] == ["archived/packed-1/archive.tar.gz"]
    run(root, "check", "new-1", "--repair")
    assert Memory(root).session("new-1").record_decision("One more", made_by="a").id


def test_one_session_that_fails_stops_no_other(root: Path) -> None:
    """Of many it is a problem beside the rest; asked for alone it is the error itself."""
    metadata = root / "active/new-1/metadata.yaml"
    metadata.write_bytes(b"version: 99\nsession: {}\n")
    found = run_json(root, "check", "--repair", code=1)
    assert any("new-1" in problem for problem in found["problems"])
    assert "version" in str(run(root, "deactivate", "new-1", code=1).exception)
    assert actions(run_json(root, "decay", "old")) == [("old", "refresh_priorities")]


# How far it is.




@pytest.mark.parametrize("fails", [False, True])
def test_progress_is_shown_and_gone_before_anything_else_is_said(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Also where an item fails; a label cannot drive the terminal, and the line is never wider than it."""
    monkeypatch.setattr("smp_daemon.cli.progress.HIDDEN_S", 0.001)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    monkeypatch.setattr("sys.stderr", os.fdopen(theirs, "w", encoding="utf-8"))
    said = b""
    with suppress(KeyError), progress("archiving \x1b[2J" + "s" * 90, 3) as advance:
        advance()
        while "…".encode() not in said:  # waits until it is drawn
            said += os.read(ours, 65536)
        if fails:
            raise KeyError
    os.write(theirs, b"\x1e")
    while not said.endswith(b"\x1e"):
        said += os.read(ours, 65536)
    sys.stderr.close()
    os.close(ours)
    shown = COLOUR.sub("", said.removesuffix(b"\x1e").decode())
    assert "archiving \\x1b[2J" in shown
    assert max(map(len, shown.split("\r"))) <= 29
    assert shown.split("\r")[-2].strip() == ""
    assert shown.endswith("\r")


def test_a_quick_command_shows_no_progress(root: Path) -> None:
    assert "decaying  " not in on_a_terminal("decay", "--root", root, columns=120)
