"""Everything in the tree is data, `.smp/` too: it can come with a cloned repository."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from daemons import running, smp, status, wait_until, wait_until_true

from smp_client import Memory, Redaction, Session
from smp_client.index.database import Index
from smp_client.index.schema import UnusableIndex
from smp_client.index.status import read_status

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
DEEP = b"[" * 60_000
LOCK, INTENT = ".smp/locks/s1/decisions.yaml.lock", ".smp/journal/s1+1.json"


def intent(*steps: Any) -> tuple[str, bytes]:
    return INTENT, json.dumps({"version": 1, "steps": list(steps)}).encode()


STATES: dict[str, tuple[str, bytes]] = {
    "deep note": (LOCK, DEEP),
    "high note": (LOCK, json.dumps({"last": 10**70}).encode()),
    "float note": (LOCK, b'{"last": 1e70, "indent": 1e70}'),
    **{f"deep {name}": (f".smp/{name}.json", DEEP)
       for name in ("root", "status", "deadlines", "jobs", "policy")},
    "intent of another form": (INTENT, b'["steps"]'),
    "intent without a file": intent({"append": "x", "at": 0}),
    "intent outside": intent({"file": "../../x", "content": "x"}),
    "intent of an odd file": intent({"file": "odd", "append": "x", "at": 0}),
    "intent of wrong types": intent({"file": "decisions.yaml", "splice": 3}),
    "deep intent": (INTENT, DEEP),
    "no index": (".smp/index.db", b"this is no database"),
}  # fmt: skip


def put(memory: Memory, state: str) -> None:
    name, content = STATES[state]
    (memory.root / name).parent.mkdir(parents=True, exist_ok=True)
    (memory.root / name).write_bytes(content)


@pytest.mark.parametrize("state", STATES)
def test_a_file_of_somebody_else_costs_only_itself(memory: Memory, state: str) -> None:
    """Writing, reading, asking and status go on."""
    memory.create_session(id="s1").record_decision("First", made_by="a")
    memory.search("first")
    memory.close()
    put(memory, state)
    again = Memory(memory.root)
    assert again.session("s1").record_decision("Second", made_by="a").id == "DEC-002"
    texts = [record.text for record in again.session("s1").records("decision")]
    assert texts == ["First", "Second"]
    assert {record.id for record in again.search("first second")} == {"DEC-001", "DEC-002"}
    assert not (memory.root.parent / "x").exists()
    assert not (memory.root / INTENT).exists()
    if "intent" in state:
        assert [*(memory.root / "quarantine/s1").glob("*.bytes")]
    # There is no daemon, and status can say so.
    assert smp("status", "--root", memory.root).returncode == 2


def test_a_daemon_starts_on_all_of_them(memory: Memory, tmp_path: Path) -> None:
    """And indexes what is written meanwhile."""
    memory.create_session(id="s1").record_decision("First", made_by="a")
    memory.close()
    for state in STATES:
        put(memory, state)
    with running(memory.root, log=tmp_path / "log"):
        memory.session("s1").record_decision("Second", made_by="a")
        wait_until(lambda: status(memory.root)["roots"][0]["memories"] == 2, "both are indexed")


def test_a_file_in_the_tree_cannot_turn_redaction_off(memory: Memory) -> None:
    """The program itself can."""
    session = memory.create_session(id="s1")
    assert not any(".smp/" in problem for problem in read_status(memory).problems)
    own = {"enabled": False, "personal": [], "patterns": {}, "unlocked_edits": "off"}
    (memory.root / ".smp/policy.json").write_text(json.dumps({"redaction": own}))
    assert "policy.json was not written by SMP" in " ".join(read_status(memory).problems)
    text, redacted = f"The token is {SECRET}.", "The token is [redacted: github token]."
    assert session.record_decision(text, made_by="a").text == redacted
    off = Memory(memory.root, redaction=Redaction(enabled=False)).session("s1")
    assert off.record_decision(text, made_by="a").text == text


@pytest.mark.parametrize("statement", [
    "CREATE TRIGGER t AFTER INSERT ON memories BEGIN DELETE FROM memories; END",
    "DROP TABLE files; CREATE VIEW files AS SELECT 1 AS scope, 2 AS file",
])  # fmt: skip
def test_an_index_with_another_schema_is_replaced(memory: Memory, statement: str) -> None:
    """A trigger would run inside our own statements."""
    session = memory.create_session(id="s1")
    session.record_decision("First", made_by="a")
    assert len(memory.search("first")) == 1
    memory.close()
    path = memory.root / ".smp/index.db"
    connection = sqlite3.connect(path)
    connection.executescript(statement)
    connection.close()
    with pytest.raises(UnusableIndex, match="another schema"):
        Index.open(path)
    again = Memory(memory.root)
    again.session("s1").record_decision("Second first", made_by="a")
    assert {record.id for record in again.search("first")} == {"DEC-001", "DEC-002"}
    Index.open(path).close()


# Links, which are replaced and never followed.


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory that holds a file, and nobody may touch either."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "file").write_bytes(b"precious")
    yield directory
    assert [path.name for path in directory.iterdir()] == ["file"]
    assert (directory / "file").read_bytes() == b"precious"


def put_link(root: Path, name: str, outside: Path) -> None:
    target = root / ".smp" / name
    if target.is_dir() and not target.is_symlink():
        target.rename(Path(mkdtemp(dir=outside.parent)) / name)
    target.unlink(missing_ok=True)
    target.symlink_to(outside if name == "cookies" else outside / "file")


@pytest.mark.parametrize("name", ["cookies", "index.db", "index.db-wal"])
def test_a_link_is_replaced_at_the_start_and_while_a_daemon_runs(
    memory: Memory, session: Session, tmp_path: Path, outside: Path, name: str
) -> None:
    session.record_decision("One", made_by="a")
    assert smp("sync", "--root", memory.root).returncode == 0
    for command in (["search", "One"], ["status"], ["sync"], ["reindex"]):
        put_link(memory.root, name, outside)
        done = smp(*command, "--root", memory.root)
        assert "Traceback" not in done.stderr
        assert done.returncode == (2 if command == ["status"] else 0), (command, done)
    put_link(memory.root, name, outside)
    with running(memory.root, log=tmp_path / "log") as daemon:
        for text in ("Two", "Three"):
            wait_until(lambda: not (memory.root / ".smp" / name).is_symlink(), "the link is gone")
            session.record_decision(text, made_by="a")
            assert smp("sync", "--root", memory.root).stdout == "sync done, by the daemon\n"
            wait_until(lambda: status(memory.root)["health"] == "ok", "all is well")
            wait_until_true(memory.root)
            assert [record.text for record in session.search(text)] == [text]
            if text == "Two":
                put_link(memory.root, name, outside)
        assert not any("exception" in line for line in daemon.lines())
        assert "Traceback" not in daemon.log.read_text()
