"""Drops and bytes that come while a session leaves: they come back with it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bytes_left import files_with
from daemons import running, smp, status, wait_until

from smp_client import Memory, Session
from smp_client.change.latecomers import sweep
from smp_client.disk import journal
from smp_client.disk.tree import Tree, Walked
from smp_client.model.layout import LEAVING

pytestmark = pytest.mark.usefixtures("short_grace")
WORDS = "arrived in time"
DROP = f"type: decision\ntext: {WORDS}\nby: ada\n"
RECORD = f"  - id: HAND-1\n    decision: {WORDS}\n    made_by: hand\n"


def archive(memory: Memory) -> None:
    memory.archive_session("s1")


def delete(memory: Memory) -> None:
    memory.delete_session("s1", reason="a test")


def bring_back(memory: Memory) -> Session:
    if memory.archived_sessions():
        return memory.restore_session("s1")
    memory.undelete_session("s1")
    return memory.session("s1")


def drop(directory: Path) -> None:
    (directory / "inbox/.d").write_text(DROP)
    (directory / "inbox/.d").rename(directory / "inbox/d.yaml")


def append(directory: Path) -> None:
    with (directory / "decisions.yaml").open("a") as opened:
        opened.write(RECORD)


def append_new(directory: Path) -> None:
    """Write a file that the session does not have."""
    (directory / "artifacts").mkdir(exist_ok=True)
    (directory / "artifacts/note.md").write_text(f"{WORDS}\n")


Move = Callable[[Memory], None]
Write = Callable[[Path], None]
MOVES: dict[str, Move] = {"archive": archive, "delete": delete}
WRITES: dict[str, Write] = {"drop": drop, "append": append, "new file": append_new}


def moved_while(root: Path, move: Move, write: Write) -> None:
    """Move the session in another process, and write just before its directory is renamed."""
    pid = os.fork()
    if pid == 0:
        _stop_before_the_rename()
        try:
            move(Memory(root))
        finally:
            os._exit(0)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]), "it has packed, and stands still"
    write(root / "active/s1")
    os.kill(pid, signal.SIGCONT)
    os.waitpid(pid, 0)
    assert not (root / "active/s1").exists()


def _stop_before_the_rename() -> None:
    rename = Tree.rename_new

    def stopping(tree: Tree, source: str, target: str) -> None:
        if target.startswith(f"{LEAVING}/"):
            os.kill(os.getpid(), signal.SIGSTOP)
        rename(tree, source, target)

    Tree.rename_new = stopping  # type: ignore[method-assign]


def wait_until_swept(memory: Memory) -> None:
    def is_swept() -> bool:
        problems = sweep(memory)
        assert problems == []
        return not memory.tree.list(LEAVING)

    wait_until(is_swept, "nothing waits in .smp/leaving/")


def times_there(memory: Memory) -> int:
    """Return how often the words stand in the session."""
    files = [path for path in (memory.root / "active/s1").rglob("*") if path.is_file()]
    return sum(path.read_text().count(WORDS) for path in files)


def quarantined(memory: Memory) -> list[bytes]:
    return [path.read_bytes() for path in (memory.root / "quarantine").rglob("*.bytes")]


@pytest.fixture
def filled(session: Session) -> Session:
    session.record_decision("Use OAuth", made_by="ada")
    return session


@pytest.mark.parametrize("is_swept", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("move", MOVES)
def test_what_came_while_a_session_moved_comes_back_with_it(
    memory: Memory, filled: Session, move: str, write: str, is_swept: bool
) -> None:
    moved_while(memory.root, MOVES[move], WRITES[write])
    if is_swept:
        wait_until_swept(memory)
    back = bring_back(memory)
    assert (times_there(memory), quarantined(memory)) == (1, [])
    wait_until_swept(memory)
    assert (times_there(memory), quarantined(memory)) == (1, [])
    back.record_decision("Goes on", made_by="ada")
    assert {"DEC-001", "DEC-002"} <= {one.id for one in back.records("decision")}
    if write == "drop":
        assert (memory.root / "active/s1/inbox/d.yaml").read_text() == DROP


@pytest.mark.parametrize("move", MOVES)
def test_what_comes_after_the_session_is_back_goes_into_it(
    memory: Memory, filled: Session, move: str
) -> None:
    """Through files that were open all the time."""
    home = memory.root / "active/s1"
    with (home / "decisions.yaml").open("a") as file, (home / "inbox/d.yaml").open("w") as drop:
        drop.write(DROP[:9])
        drop.flush()
        MOVES[move](memory)
        back = bring_back(memory)
        assert not (home / "inbox/d.yaml").exists(), "it is not whole yet"
        back.record_decision("Written meanwhile", made_by="ada")
        file.write(RECORD)
        drop.write(DROP[9:])
    wait_until_swept(memory)
    assert (home / "inbox/d.yaml").read_text() == DROP
    assert back.get("HAND-1").text == WORDS
    assert back.get("DEC-002").text == "Written meanwhile"
    assert quarantined(memory) == []


def test_a_drop_that_gets_its_name_while_it_is_packed_comes_back(
    memory: Memory, filled: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = memory.root / "active/s1/inbox"
    (inbox / ".d").write_text(DROP)
    walk = Tree.walk

    def renaming(tree: Tree, name: str) -> Iterator[Walked]:
        found = [*walk(tree, name)]
        if (inbox / ".d").exists():
            (inbox / ".d").rename(inbox / "d.yaml")
        return iter(found)

    # The names below the session are listed for its locks first.
    monkeypatch.setattr(Tree, "files_below", lambda *_: iter(()))
    monkeypatch.setattr(Tree, "walk", renaming)
    archive(memory)
    monkeypatch.undo()
    bring_back(memory)
    assert (inbox / "d.yaml").read_text() == DROP


def test_a_drop_takes_the_place_of_no_other(memory: Memory, filled: Session) -> None:
    home = memory.root / "active/s1"
    with (home / "inbox/d.yaml").open("w") as opened:
        archive(memory)
        bring_back(memory)
        (home / "inbox/d.yaml").write_text("another")
        opened.write(DROP)
    wait_until_swept(memory)
    found = sorted(path.read_text() for path in (home / "inbox").glob("d*.yaml"))
    assert found == ["another", DROP]


def test_an_archive_that_changed_since_gets_only_the_late_bytes(
    memory: Memory, filled: Session
) -> None:
    moved_while(memory.root, archive, append)
    memory.privacy.delete("s1", ["DEC-001"], reason="a test")
    wait_until_swept(memory)
    standing = [one.id for one in bring_back(memory).records("decision")]
    assert standing == ["HAND-1"]


def test_late_bytes_move_with_an_archived_session_that_is_deleted(
    memory: Memory, filled: Session
) -> None:
    moved_while(memory.root, archive, append)
    delete(memory)
    assert bring_back(memory).get("HAND-1").text == WORDS


@pytest.mark.parametrize("is_swept", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("move", MOVES)
def test_a_purge_leaves_no_late_byte(
    memory: Memory, filled: Session, move: str, write: str, is_swept: bool
) -> None:
    moved_while(memory.root, MOVES[move], WRITES[write])
    if is_swept:
        wait_until_swept(memory)
    memory.privacy.purge_now("s1")
    assert files_with(memory.root, WORDS.encode()) == []
    assert memory.tree.list(LEAVING) == []


def test_a_file_that_no_bundle_can_hold_keeps_nothing_else_away(
    memory: Memory, filled: Session, tmp_path: Path
) -> None:
    def write(directory: Path) -> None:
        (directory / "link").symlink_to(tmp_path)
        drop(directory)

    moved_while(memory.root, archive, write)
    (problem,) = sweep(memory)
    assert "link" in problem
    bring_back(memory)
    assert (memory.root / "active/s1/inbox/d.yaml").read_text() == DROP


def test_an_edit_goes_to_quarantine_and_status_names_it(memory: Memory, filled: Session) -> None:
    def edit(directory: Path) -> None:
        path = directory / "decisions.yaml"
        path.write_text(path.read_text().replace("Use OAuth", WORDS))

    moved_while(memory.root, archive, edit)
    wait_until_swept(memory)
    assert bring_back(memory).get("DEC-001").text == "Use OAuth"
    (piece,) = quarantined(memory)
    assert WORDS.encode() in piece
    found = status(memory.root)["problems"]
    (said,) = [one for one in found if "quarantine" in one]
    assert "1 of s1, an edit that came while the session was packed" in said
    checked = smp("check", "--root", memory.root)
    assert (checked.returncode, "an edit that came while" in checked.stdout) == (1, True)


@pytest.mark.parametrize("packed", ["[]", "{", '{"decisions.yaml": [1]}'])
def test_a_note_that_makes_no_sense_loses_nothing(
    memory: Memory, filled: Session, packed: str
) -> None:
    moved_while(memory.root, archive, append)
    (note,) = (memory.root / LEAVING).glob("*.json")
    note.write_text(packed)
    wait_until_swept(memory)
    assert bring_back(memory).get("HAND-1").text == WORDS


@pytest.mark.parametrize("step", [
    {"left": ".smp/leaving/other+1", "packed": {}}, {"left": "active/s1", "packed": {}},
    {"left": ".smp/leaving/s1+1", "packed": []}, {"left": ".smp/leaving/s1+1"},
])  # fmt: skip
def test_a_step_that_is_none_of_ours_is_refused(
    memory: Memory, filled: Session, step: dict[str, Any]
) -> None:
    name = journal.record(filled.scope, [step])
    filled.record_decision("Goes on", made_by="ada")
    journal.recover(filled.scope, wait=True)
    assert not memory.tree.exists(name)
    assert [json.loads(piece)["steps"] for piece in quarantined(memory)] == [[step]]


def test_a_daemon_and_sync_take_late_drops_in(
    memory: Memory, filled: Session, tmp_path: Path
) -> None:
    home = memory.root / "active/s1"
    with (home / "inbox/d.yaml").open("w") as opened:
        archive(memory)
        bring_back(memory)
        opened.write(DROP)
    with running(memory.root, log=tmp_path / "log"):
        done = smp("sync", "--root", memory.root)
        assert (done.returncode, done.stderr) == (0, "")
        assert WORDS in smp("search", "arrived", "--root", memory.root).stdout
        assert status(memory.root)["health"] == "ok"


def test_sync_without_a_daemon_names_late_drops(memory: Memory, filled: Session) -> None:
    with (memory.root / "active/s1/inbox/d.yaml").open("w") as opened:
        archive(memory)
        bring_back(memory)
        opened.write(DROP)
    done = smp("sync", "--root", memory.root)
    assert (done.returncode, "1 in the inbox of s1" in done.stderr) == (0, True)
    assert (memory.root / "active/s1/inbox/d.yaml").read_text() == DROP
