"""`smp sessions`, `decay`, `compact`, `archive`, `purge`, `check`, and their plans."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from commands import actions, answered, content, days_ago, run, run_json
from daemons import smp
from once import copied

from smp_client import Memory
from smp_client.model.layout import INDEX_FILE
from smp_daemon.cli.output import progress

pytestmark = pytest.mark.usefixtures("short_grace")


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
    """An old session that has decayed, a new one, one in the archive and one deleted."""
    return copied(stocked, tmp_path / "sessions")


# A command, and the session and type of its action.
PLANS = """
decay                                 | old      refresh_priorities
compact old --reduce 10               | old      remove_decayed
compact --all                         |
archive new --reason done             | new-1    archive
unarchive packed                      | packed-1 unarchive
archive --due                         | old      archive
delete old --whole --reason r         | old      delete_session
delete new-1/DEC-001 DEC-002 --reason r | new-1  delete_memories
restore gone                          | gone-1   undelete_session
restore new-1 DEC-003                 | new-1    restore_memories
purge new-1 DEC-001 DEC-003 --now     | new-1    purge_memories
purge                                 |
"""


@pytest.mark.parametrize("line", PLANS.strip().splitlines())
def test_a_plan_changes_nothing_and_is_what_is_done(root: Path, line: str) -> None:
    """Every action has its reason; only the run changes a byte."""
    command, _, expected = line.partition("|")
    wanted = [tuple(expected.split())] if expected.strip() else []
    before = content(root)
    planned = run_json(root, f"{command} --dry-run")
    assert set(planned) >= {"dry_run", "actions", "problems", "bytes_freed"}
    assert (planned["dry_run"], actions(planned)) == (True, wanted)
    assert all(action["reason"] and action["about"] for action in planned["actions"])
    assert "nothing was changed" in run(root, f"{command} --dry-run") or not wanted
    assert content(root) == before
    done = run_json(root, command)
    assert (done["dry_run"], actions(done)) == (False, wanted)
    assert (content(root) != before) == bool(wanted)


def test_a_session_is_marked_as_in_use_or_not(root: Path) -> None:
    for command, state in (("deactivate", "idle"), ("activate", "active")):
        assert run_json(root, f"{command} old") == {"session": "old", "state": state}
        assert Memory(root).session("old").state == state


def test_compacted_memories_are_listed_and_brought_back(root: Path) -> None:
    before = [one.data for one in Memory(root).session("old").records("learning")]
    found = run_json(root, "compact old --reduce 30")
    assert found["bytes_freed"] > 0
    evicted = [one["id"] for one in run_json(root, "compact old --list")]
    assert {*evicted} == {one for action in found["actions"] for one in action["about"]}
    done = run_json(root, f"compact old {evicted[0]} --bring-back")
    assert done["actions"][0]["about"] == evicted[:1]
    run(root, "compact old --bring-back")
    assert [one.data for one in Memory(root).session("old").records("learning")] == before
    done = smp("compact", "old", "--list", "--root", root)
    assert done.stderr == "There are no evicted memories.\n"


def test_all_compacts_only_sessions_that_are_nearly_full(root: Path) -> None:
    """Unless a share is given."""
    old = Memory(root).session("old")
    old.update_metadata(storage={"quota_bytes": round(old.size().total_bytes / 0.9)})
    assert actions(run_json(root, "compact --all --dry-run")) == [("old", "remove_decayed")]
    everything = run_json(root, "compact --all --reduce 5 --dry-run", code=1)
    assert actions(everything) == [("old", "remove_decayed")]
    assert [problem[:7] for problem in everything["problems"]] == ["new-1: "]  # nothing may go


def test_sessions_are_listed_wherever_they_are(root: Path) -> None:
    """The last one first, also where the metadata cannot be read; in a pipe nothing is cut."""
    topic = "a topic that is much too long for a line " * 5
    memory = Memory(root)
    memory.create_session(id="broken")
    (root / "active/broken/metadata.yaml").write_text("session: [")
    memory.create_session(id="long", project="P", topic=topic).add_turn("user", "hello")
    found = run_json(root, "sessions --all")
    states = {one["id"]: one["state"] for one in found}
    assert states == {"long": "active", "broken": "unreadable", "new-1": "active", "old": "active",
                      "packed-1": "archived", "gone-1": "deleted"}  # fmt: skip
    assert (found[0]["id"], found[0]["topic"], found[0]["memories"]) == ("long", topic, 1)
    lines = run(root, "sessions").splitlines()
    assert [line.split()[0] for line in lines][:2] == ["ID", "long"]
    assert topic.strip() in lines[1]
    assert re.search(r"^gone-1 +deleted +20", run(root, "sessions --all"), re.MULTILINE)


# Purging, checking and repairing.


def delete_long_ago(root: Path) -> None:
    memory = Memory(root, clock=days_ago(60))
    memory.session("new-1").delete("DEC-001", reason="r")
    memory.delete_session("old", reason="r")


def test_a_purge_says_why_overdue_memories_stay(root: Path) -> None:
    """They go only with --force; memories that can still be restored stay even then."""
    delete_long_ago(root)
    before = content(root)
    done = smp("purge", "--root", root)
    assert done.stdout == "Nothing is due; smp restore --list shows what waits.\n"
    notes = done.stderr.splitlines()
    assert ["it is overdue" in note for note in notes] == [True, True]
    assert content(root) == before
    code, shown, printed = answered("n\n", root, "purge --force")
    assert (code, printed, content(root)) == (1, "", before)
    assert "Destroy DEC-001, old of new-1, old for good?" in shown
    found = run_json(root, "purge --force")
    assert sorted(actions(found)) == [("new-1", "purge_memories"), ("old", "purge_session")]
    left = {one["session"] for one in run_json(root, "restore --list")}
    assert left == {"gone-1", "new-1"}


def test_repair_mends_files_and_names_the_rest(root: Path) -> None:
    with (root / "active/new-1/decisions.yaml").open("ab") as file:
        file.write(b'  - id: DEC-004 # smp\n    timestamp: "2026')
    archive = root / "archived/packed-1/archive.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-20])
    run(root, "reindex")
    (root / "active/old/metadata.yaml").unlink()
    (root / INDEX_FILE).write_bytes(b"no index at all" * 1000)
    found = {one["scope"] for one in run_json(root, "check", code=1)}
    assert {"new-1", "archived/packed-1"} <= found
    assert {one["scope"] for one in run_json(root, "check new", code=1)} == {"new-1"}
    assert "run smp doctor --fix" in smp("check", "--repair", "--root", root).stderr
    done = run_json(root, "doctor --fix", code=1)
    for step in ("reindex: ", "new-1 set aside: ", "old make metadata: "):
        assert any(one.startswith(step) for one in done["done"])
    files = [one["problem"].partition(":")[0] for one in done["found"] if one["area"] == "files"]
    assert "archived/packed-1/archive.tar.gz" in files
    assert Memory(root).session("new-1").record_decision("One more", made_by="a").id


def test_progress_counts_on_a_terminal_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    with progress("entries read:", hidden_s=0.0) as advance:
        advance()
    assert [part.strip() for part in terminal.getvalue().split("\r")] == ["", "entries read: 1", "", ""]
