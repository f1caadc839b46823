"""Everything in the tree is data, `.smp/` too: it can come with a cloned repository."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from daemons import running, smp, status, wait_until, wait_until_true

from smp_client import Memory, NewerFormat, Redaction, Session, SMPError, UnsafePath
from smp_client.disk.foreign import clear, odd_locks
from smp_client.disk.locks import lock
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
    "intent with NUL in a name": intent({"file": "artifacts/a\0b.md", "content": "y"}),
    "intent with a long name": intent({"file": f"artifacts/{'a' * 300}.md", "content": "y"}),
    "intent of an odd old version": intent(
        {"file": "decisions.yaml", "retired": ".smp/retired/s1+x", "to": None}
    ),
    "intent of version 0": (INTENT, b'{"version": 0, "steps": []}'),
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


# Changes that are recorded and cannot be read: they cost their own session, and nobody else.

LATER = b'{"version": 99, "scope": "bad", "steps": []}'
FINE = b'{"version": 1, "scope": "bad", "steps": []}'


def put_later(path: Path, _: Path) -> None:
    path.write_bytes(LATER)


def put_twice(path: Path, outside: Path) -> None:
    path.write_bytes(FINE)
    os.link(path, outside.parent / "backup")


UNREADABLE: dict[str, tuple[Callable[[Path, Path], None], type[SMPError]]] = {
    "a later version": (put_later, NewerFormat),
    "a file with two names": (put_twice, UnsafePath),
}
QUESTIONS: dict[str, Callable[[Memory], object]] = {
    "search": lambda memory: memory.search("findable"),
    "by_topic": lambda memory: memory.by_topic("words"),
    "by_type": lambda memory: memory.by_type("decision"),
    "query": lambda memory: memory.query({"limit": 5}),
    "similar": lambda memory: memory.similar("findable words"),
    "get": lambda memory: [memory.get("good/DEC-001")],
    "context": lambda memory: memory.context(),
    "summary": lambda memory: memory.summary().decisions,
    "timeline": lambda memory: memory.timeline(),
    "topics": lambda memory: memory.topics(),
    "sessions": lambda memory: memory.sessions("active"),
}


@pytest.fixture
def two(memory: Memory, request: pytest.FixtureRequest, outside: Path) -> Memory:
    """A memory with a good session, and one with a recorded change that nobody can read."""
    memory.create_session(id="bad").record_decision("findable in the bad one", made_by="a")
    good = memory.create_session(id="good")
    good.record_decision("findable words", made_by="a", tags=["words"])
    memory.close()
    UNREADABLE[request.param][0](memory.root / ".smp/journal/bad+a.json", outside)
    return Memory(memory.root)


@pytest.mark.parametrize("two", UNREADABLE, indirect=True)
def test_an_intent_that_nobody_can_read_costs_only_its_session(
    two: Memory, request: pytest.FixtureRequest
) -> None:
    refusal = UNREADABLE[request.node.callspec.params["two"]][1]
    intent_file = two.root / ".smp/journal/bad+a.json"
    before = intent_file.read_bytes()
    for name, ask in QUESTIONS.items():
        assert ask(two), name
        if name not in ("get", "sessions"):
            assert list(two.unread) == ["bad"], name
    assert "bad+a.json" in two.search("findable").unread["bad"]
    assert two.session("good").search("findable").unread.keys() == {"bad"}
    assert two.session("good").record_decision("more", made_by="a").id == "DEC-002"
    bad = two.session("bad")
    for use in (
        lambda: bad.record_decision("no", made_by="a"),
        lambda: bad.records("decision"),
        lambda: bad.search("findable"),
    ):
        with pytest.raises(refusal, match=r"bad\+a\.json"):
            use()
    for command in (["search", "findable"], ["context"], ["sessions"], ["topics"]):
        done = smp(*command, "--root", two.root)
        assert done.returncode == 0, done
        assert "note: bad is not read as a whole" in done.stderr
    said = " ".join(read_status(two).problems)
    assert "Session bad has a recorded change that cannot be read" in said
    smp("doctor", "--fix", "--root", two.root)
    checked = smp("check", "--root", two.root)
    assert "bad/.smp/journal/bad+a.json: " in checked.stdout
    assert intent_file.read_bytes() == before, "it was left alone"


@pytest.mark.parametrize("two", ["a later version"], indirect=True)
def test_a_daemon_looks_after_the_others(two: Memory, tmp_path: Path) -> None:
    with running(two.root, log=tmp_path / "log"):
        two.session("good").record_decision("written meanwhile", made_by="a")
        drop = two.root / "active/good/inbox/a.yaml"
        drop.write_text("type: decision\ntext: dropped meanwhile\nby: x\n")
        assert smp("sync", "--root", two.root).returncode == 0
        assert len(two.search("meanwhile")) == 2
        wait_until((two.root / "active/good/indexes/topics.yaml").exists, "indexes of the other")
        assert "Session bad has a recorded change" in " ".join(status(two.root)["problems"])


def test_an_intent_that_may_not_be_read_costs_only_its_session(memory: Memory) -> None:
    memory.create_session(id="bad")
    memory.create_session(id="good").record_decision("findable words", made_by="a")
    path = memory.root / ".smp/journal/bad+a.json"
    path.write_bytes(FINE)
    path.chmod(0)
    program = """
import sys
from smp_client import Memory, StorageFailed
memory = Memory(sys.argv[1])
assert len(memory.search("findable")) == 1
assert list(memory.unread) == ["bad"]
assert "findable" in memory.context()
try:
    memory.session("bad").record_decision("no", made_by="a")
except StorageFailed as error:
    assert "Permission denied" in str(error)
else:
    raise AssertionError("it was written")
"""
    done = without_privileges(program, memory.root)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def without_privileges(program: str, *given: object) -> subprocess.CompletedProcess[str]:
    """Run a program for which permissions count, also where root runs the tests."""
    limits = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    command = [*(limits if os.geteuid() == 0 else []), sys.executable, "-c", program]
    command += map(str, given)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


SHAPES: dict[str, Callable[[Path, Path], object]] = {
    "a link": lambda path, outside: path.symlink_to(outside / "file"),
    "a FIFO": lambda path, _: os.mkfifo(path),
    "a directory": lambda path, _: (path / "inner").mkdir(parents=True),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_intent_that_is_not_a_file_goes_to_quarantine(
    memory: Memory, session: Session, outside: Path, shape: str
) -> None:
    session.record_decision("findable", made_by="a")
    SHAPES[shape](memory.root / INTENT, outside)
    assert len(memory.search("findable")) == 1
    assert session.record_decision("more", made_by="a").id == "DEC-002"
    assert not os.path.lexists(memory.root / INTENT)
    assert [*(memory.root / "quarantine/s1").glob("*.odd")]


# Names that SMP does not give.

ODD_NAMES = {
    ".smp/retired/s1+decisions.yaml+a+b+c+d": "s1",
    ".smp/retired/s1+decisions.yaml": "s1",
    ".smp/retired/s1+..+decisions.yaml+1+2+3+a": "s1",
    ".smp/retired/s1+odd.txt+1+2+3+a": "s1",
    ".smp/retired/+": "global",
    ".smp/journal/s1+junk": "s1",
    ".smp/journal/.hidden": "global",
    ".smp/leaving/s1": "s1",
    ".smp/locks/s1/notes.txt": "s1",
    ".smp/locks/a b": "global",
}


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_odd_name_costs_only_itself_and_goes_to_quarantine(memory: Memory, name: str) -> None:
    session = memory.create_session(id="s1")
    session.record_decision("findable", made_by="a")
    path = memory.root / name
    path.write_bytes(b"precious")
    session.update("DEC-001", decision="findable and changed")
    assert session.record_decision("more", made_by="a").id == "DEC-002"
    assert len(memory.search("findable")) == 1
    done = smp("check", "--root", memory.root)
    assert done.returncode == 1
    assert f"{name}: not a piece of SMP" in done.stdout
    if "locks" not in name:
        assert name in " ".join(read_status(memory).problems)
    assert name in smp("doctor", "--fix", "--root", memory.root).stdout
    assert not path.exists()
    (piece,) = (memory.root / "quarantine" / ODD_NAMES[name]).glob("*.bytes")
    assert piece.read_bytes() == b"precious"
    assert "not a piece of SMP" not in smp("check", "--root", memory.root).stdout


# Lock files that protect nobody.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("place", [LOCK, ".smp/locks/s1/upkeep.lock", ".smp/locks/s1"])
def test_a_lock_file_of_another_shape_is_named_and_mended(
    memory: Memory, session: Session, outside: Path, place: str, shape: str
) -> None:
    if place == ".smp/locks/s1" and shape == "a directory":
        return  # as it should be
    session.record_decision("First", made_by="a")
    other = memory.root / ".smp/locks/s1/metadata.yaml.lock"
    path = memory.root / place
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    SHAPES[shape](path, outside)
    kept = other.stat().st_ino if other.exists() else None
    with pytest.raises(UnsafePath, match=rf"The lock file .*{place}.*doctor --fix"):
        if "upkeep" in place:
            memory.archive_session("s1")
        else:
            session.record_decision("no", made_by="a")
    assert f"{place}: not a piece of SMP" in smp("check", "--root", memory.root).stdout
    assert f"{place}: it is not a plain file" in smp("doctor", "--fix", "--root", memory.root).stdout
    assert session.record_decision("Second", made_by="a").id == "DEC-002"
    assert kept is None or other.stat().st_ino == kept, "a plain lock file stays"
    assert memory.archive_session("s1").success


def test_a_lock_file_that_is_made_again_meanwhile_stays(memory: Memory, session: Session) -> None:
    """Two processes find the same link: the second comes when somebody holds the new lock."""
    (memory.root / LOCK).unlink(missing_ok=True)
    (memory.root / LOCK).parent.mkdir(exist_ok=True)
    (memory.root / LOCK).symlink_to("nowhere")
    (found,) = odd_locks(memory.tree)
    assert clear(session.scope, found)
    with lock(memory.tree, "s1", "decisions.yaml", 1.0, "testing") as held:
        assert not clear(session.scope, found)
        assert os.fstat(held.descriptor).st_ino == (memory.root / LOCK).stat().st_ino


def test_a_lock_file_that_may_not_be_opened_is_named_and_mended(
    memory: Memory, session: Session
) -> None:
    session.record_decision("First", made_by="a")
    inode = (memory.root / LOCK).stat().st_ino
    (memory.root / LOCK).chmod(0)
    program = """
import sys
from smp_client import Memory, StorageFailed
from smp_client.disk.foreign import odd_locks
from smp_client.passes.check import check, sentence
from smp_client.passes.tidy import clear_foreign
memory = Memory(sys.argv[1])
session = memory.session("s1")
try:
    session.record_decision("no", made_by="a")
    print("it was written")
except StorageFailed as error:
    assert "the lock file may not be opened" in str(error), error
    assert "decisions.yaml.lock" in str(error) and "smp doctor --fix" in str(error), error
assert any("decisions.yaml.lock" in sentence(one) for one in check(memory))
assert clear_foreign(memory, odd_locks(memory.tree)).success
session.record_decision("Second", made_by="a")
assert not check(memory)
"""
    done = without_privileges(program, memory.root)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (memory.root / LOCK).stat().st_ino == inode, "a plain lock file stays"
