"""A question sees every write that finished before it was asked, whoever made it and whatever has
become of the index."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, elsewhere, smp, wait_until
from once import copied

from smp_client import Memory, Session, TransactionPending
from smp_client.disk import journal
from smp_client.disk.locks import NO_PATIENCE, lock
from smp_client.model.layout import INDEX_FILE, LEAD, LEAD_SCOPE


def ids(found: Any) -> set[str]:
    names = {(record.session, record.id) for record in found}
    assert len(found) == len(names), "nothing is there twice"
    return {name for _, name in names}


def quiet(root: Path) -> Memory:
    return Memory(root, count_access=False)


def folder_of(memory: Memory, session: str = "s1") -> Path:
    return memory.root / "active" / session


@contextmanager
def led(memory: Memory) -> Iterator[None]:
    """Somebody leads this root, and does nothing."""
    with lock(memory.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, "leading a test"):
        yield


def stocked(root: Path) -> None:
    session = quiet(root).create_session(id="s1", topic="authentication")
    for number in range(3):
        session.record_decision(f"first {number}", made_by="a", tags=["x"])
    session.add_turn("user", "Hello.")
    session.save_artifact("report", "before\n")
    session.save_agent_state("veritas", {"focus": "tokens"})


@pytest.fixture(params=["alone", "daemon", "stopped daemon"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    """A memory with an index that was true a moment ago, and who keeps it."""
    memory = quiet(copied(stocked, tmp_path / "sessions"))
    memory.search()
    if request.param == "alone":
        yield memory
        return
    daemon = Daemon([memory.root], tmp_path / "log")
    try:
        daemon.wait_ready()
        assert smp("sync", "--root", memory.root).returncode == 0
        if request.param == "stopped daemon":
            daemon.pause()
        yield memory
    finally:
        daemon.kill()


# Right after a write.

WRITES = """
import sys
from smp_client import Memory
session = Memory(sys.argv[1]).session("s1")
print("ready", flush=True)
for line in sys.stdin:
    print(session.record_finding(line.strip(), discovered_by="b").id, flush=True)
"""


def test_a_question_sees_what_was_just_written(kept: Memory) -> None:
    """By this process, by another, and by a shell."""
    session, file = kept.session("s1"), folder_of(kept) / "decisions.yaml"
    with elsewhere(WRITES, kept.root) as record:
        for number in range(10):
            written = session.record_decision(f"written {number}", made_by="a")
            assert ids(session.search(f'"written {number}"')) == {written.id}
            session.update(written.id, decision=f"changed {number}")
            assert session.search(f'"written {number}"') == []
            assert ids(kept.search(f'"changed {number}"')) == {written.id}
            assert session.get(record(f"theirs {number}")).text == f"theirs {number}"
            line = f"  - {{id: HAND-{number}, decision: by hand, made_by: me}}"
            subprocess.run(["sh", "-c", 'echo "$1" >> "$2"', "sh", line, file], check=True)
            assert f"HAND-{number}" in ids(session.search('"by hand"'))


def test_a_question_sees_what_an_editor_just_saved(kept: Memory) -> None:
    """Also where neither the size nor the time of the file has changed."""
    file, session = folder_of(kept) / "decisions.yaml", kept.session("s1")
    texts = ["first 1", "other 1", "third 1", "new 1-"]
    for old, new, by_renaming in zip(texts, texts[1:], (True, True, False), strict=False):
        before, target = file.stat(), file.with_name(".new") if by_renaming else file
        text = file.read_text().replace(old, new)
        with target.open("w" if by_renaming else "r+") as saved:
            saved.write(text)
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
        target.rename(file)
        assert (session.search(f'"{old}"'), ids(session.search(f'"{new}"'))) == ([], {"DEC-002"})


def test_a_question_does_not_see_what_was_just_removed(kept: Memory) -> None:
    session, folder = kept.session("s1"), folder_of(kept)
    file = folder / "decisions.yaml"
    file.write_text(re.sub(r"  - id: DEC-002.*?(?=  - )", "", file.read_text(), flags=re.DOTALL))
    assert ids(session.by_type("decision")) == {"DEC-001", "DEC-003"}
    (folder / "artifacts/report.md").unlink()
    assert session.by_type("artifact") == session.search("before") == []
    file.unlink()
    assert session.by_type("decision") == kept.by_type("decision") == []
    folder.rename(kept.root / "gone")
    assert kept.search(limit=None) == kept.topics() == kept.timeline() == []
    for number in range(3):
        kept.create_session(id="guest").record_finding(f"guest {number}", discovered_by="a")
        found = kept.search("guest", types=["finding"])
        assert [record.text for record in found] == [f"guest {number}"]
        # In one step: the daemon may write indexes into it meanwhile.
        folder_of(kept, "guest").rename(kept.root.parent / f"guest-{number}")
        assert kept.search("guest") == []


def test_a_directory_that_was_looked_into_is_looked_into_again_when_it_changes(
    memory: Memory, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listings are kept between questions, of directories that nobody has changed just now."""
    in_an_hour = time.time() + 3600
    monkeypatch.setattr("smp_client.disk.tree.time.time", lambda: in_an_hour)
    folder = folder_of(memory)
    for number in range(5):
        assert len(memory.search("dropped")) == number
        assert "active/s1/artifacts" in memory.tree.listed
        before = (folder / "artifacts").stat().st_ctime_ns
        while (folder / "artifacts").stat().st_ctime_ns == before:
            (folder / f"artifacts/{number}.md").unlink(missing_ok=True)
            (folder / f"artifacts/{number}.md").write_text("dropped")
    (folder / "artifacts").rename(folder / "away")
    assert memory.search("dropped") == []


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_transaction_on_a_full_disk_is_seen_whole(
    kept: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is safe in the journal, so it has happened, and nothing of before is shown."""
    session, expected = kept.session("s1"), {"FIND-001", "DEC-001", "DEC-004", "turn-2", "report"}
    with monkeypatch.context() as patch:
        patch.setattr(journal, "carry_out", _full)
        with pytest.raises(TransactionPending), session.transaction() as tx:
            tx.record_finding("recorded in the transaction", discovered_by="a", tags=["y"])
            tx.record_decision("recorded in the transaction", made_by="a")
            tx.update("DEC-001", decision="changed in the transaction")
            tx.add_turn("user", "said in the transaction")
            tx.save_artifact("report", "kept in the transaction\n")
        for _ in range(2):
            assert ids(session.search("+transaction")) == expected
            assert ids(kept.search("+transaction")) == expected
            assert ids(session.by_topic("y")) == {"FIND-001"}
            assert session.search('"first 0"') == session.search("before") == []
            assert session.get("DEC-001").text == "changed in the transaction"
    assert ids(session.search("+transaction")) == expected
    assert list((kept.root / ".smp/journal").iterdir()) == []


# What has become of the index.


def test_a_root_that_begins_with_two_slashes_has_an_index(tmp_path: Path) -> None:
    """As `$HOME/project` does where the home is `/`."""
    session = Memory(f"/{tmp_path}/sessions").create_session(id="s1")
    assert session.search().source != "files"


def spoil_the_middle(index: Path) -> None:
    with index.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(index.stat().st_size - 4096))


def say(index: Path, statement: str) -> None:
    with closing(sqlite3.connect(index)) as connection, connection:
        connection.execute(statement)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "rubbish": lambda index: index.write_bytes(b"rubbish" * 1000),
    "cut off": lambda index: os.truncate(index, index.stat().st_size // 2),
    "in the middle": spoil_the_middle,
    "another program": lambda index: (index.unlink(), say(index, "CREATE TABLE theirs (x)")),
    "another version": lambda index: say(index, "PRAGMA user_version = 2"),
    "removed": lambda index: index.unlink(),
    "a directory": lambda index: (index.unlink(), index.mkdir()),
    "a link": lambda index: index.rename(index.with_name("away")) and index.symlink_to("away"),
}


def remove_side_files(index: Path) -> None:
    for suffix in ("-wal", "-shm"):
        index.with_name(index.name + suffix).unlink(missing_ok=True)


def with_thirty(root: Path) -> None:
    session = Memory(root).create_session(id="s1")
    for number in range(30):
        session.record_decision(f"number {number} " + "words " * 50, made_by="a")


@pytest.mark.parametrize(
    ("is_open", "is_led"),
    [
        pytest.param(False, False, id="opened anew-nobody leads"),
        pytest.param(True, True, id="while it is open-somebody leads"),
    ],
)
@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_becomes_of_the_index_the_answer_is_right(
    tmp_path: Path, damage: str, *, is_open: bool, is_led: bool
) -> None:
    """Nothing is lost with it; and where nobody leads, it is made again."""
    memory = Memory(copied(with_thirty, tmp_path / "sessions"))
    session = memory.session("s1")
    session.search("words")
    asked = memory.session("s1") if is_open else Memory(memory.root).session("s1")
    if not is_open:
        memory._fresh.close()
        remove_side_files(memory.root / INDEX_FILE)
    DAMAGES[damage](memory.root / INDEX_FILE)
    session.record_decision("after", made_by="a")
    with led(memory) if is_led else nullcontext():
        for _ in range(2):
            assert len(ids(asked.search("words", limit=None))) == 30
            assert ids(asked.search("after")) == {"DEC-031"}
        session.record_decision("and after", made_by="a")
        assert ids(asked.search("+after")) == {"DEC-031", "DEC-032"}
    memory._fresh.close()
    assert ids(Memory(memory.root).search("+after")) == {"DEC-031", "DEC-032"}


@pytest.mark.parametrize("extra", [False, True], ids=["true", "behind"])
def test_while_somebody_rebuilds_the_index_it_is_asked_as_it_was(
    memory: Memory, session: Session, *, extra: bool
) -> None:
    """A rebuild shows nothing before its end: an index in memory takes in the rest."""
    session.record_decision("before", made_by="a")
    session.search("before")
    rebuilding = sqlite3.connect(memory.root / INDEX_FILE, isolation_level=None)
    with led(memory):
        rebuilding.execute("BEGIN IMMEDIATE")
        for table in ("memories", "files"):
            rebuilding.execute(f"DELETE FROM {table}")
        for number in range(3):
            if extra:
                session.record_finding(f"during {number}", discovered_by="a")
            answer = session.search("before during")
            assert len(ids(answer)) == 1 + (number + 1) * extra
            assert answer.source == ("files" if extra else "index")
        rebuilding.execute("ROLLBACK")
    rebuilding.close()
    assert len(ids(session.search("before during"))) == 1 + 3 * extra


# Many at once.


def _in_child(question: Callable[[], Any]) -> str:
    """Return the answer of a forked child."""
    read, write = os.pipe()
    if not (pid := os.fork()):
        said = "failed"
        try:
            said = repr(question())
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(pid, 0)
    return said


@pytest.mark.parametrize("is_led", [False, True], ids=["nobody leads", "somebody leads"])
def test_a_child_may_ask_after_its_parent_did(
    memory: Memory, session: Session, *, is_led: bool
) -> None:
    """With connections of its own; and the parent goes on with its."""

    def asked_with_own() -> bool:
        fresh = memory._fresh
        inherited = {fresh._index, fresh._in_memory}
        session.search("number")
        return inherited & {fresh._index, fresh._in_memory} <= {None}

    with led(memory) if is_led else nullcontext():
        for number in range(3):
            session.record_decision(f"number {number}", made_by="a")
            expected = {f"DEC-{n:03d}" for n in range(1, number + 2)}
            assert ids(session.search("number")) == expected
            asked = _in_child(lambda: sorted(ids(session.search("number"))))
            assert asked == repr(sorted(expected))
            assert _in_child(asked_with_own) == "True"
            assert ids(session.search("number")) == expected


# Any history.


class Crowd:
    """Threads that write and threads that ask. Each write has a word of its own, which comes once
    and goes at most once."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.steps = memory, 0
        self.done = threading.Event()
        self.there: set[str] = set()  # acknowledged, and nobody has begun to remove it
        self.gone: set[str] = set()  # its removal is acknowledged
        self._lock = threading.Lock()

    def write(self, number: int) -> None:
        """Record, update, append, edit and remove, in a session of its own and in a shared one."""
        choose, memory = random.Random(number), quiet(self.memory.root)
        own, shared = memory.create_session(id=f"writer{number}"), memory.session("shared")
        findings = folder_of(memory, own.id) / "findings.yaml"
        learnings = folder_of(memory, "shared") / "learnings.yaml"
        ids: dict[str, str] = {}  # of own findings, by their words
        for step in range(50):
            word, old = f"w{number}n{step}", choose.choice([*ids]) if ids else ""
            taking = ["update", "edit", "cut"] if ids else []
            what = choose.choice(["record", "append", "find", *taking])
            taken = old if what in taking else ""
            with self._lock:
                self.there.discard(taken)
            if what == "record":
                shared.record_decision(word, made_by="a")
            elif what == "append":
                with learnings.open("a") as file:
                    file.write(f"  - {{id: {word}, learning: {word}, learned_by: a}}\n")
            elif what == "find":
                ids[word] = own.record_finding(word, discovered_by="a").id
            elif what == "update":
                ids[word] = own.update(ids.pop(old), finding=word).id
            else:
                record = rf"  - id: {ids[old]} .*?(?=  - |\Z)" if what == "cut" else rf"\b{old}\b"
                new = "" if what == "cut" else word
                text = re.sub(record, new, findings.read_text(), flags=re.DOTALL)
                findings.with_name(".new").write_text(text)
                findings.with_name(".new").rename(findings)
                ids |= {new: ids[old]} if new else {}
                del ids[old]
            with self._lock:
                self.there |= {word} if what != "cut" else set()
                self.gone |= {taken} if taken else set()
            self.steps += 1

    def known(self) -> tuple[set[str], set[str]]:
        with self._lock:
            return set(self.there), set(self.gone)

    def check(self, question: Callable[[], Any], word: str | None = None) -> None:
        """Ask, and compare with what was known before and still is after."""
        before, gone = self.known()
        found = [record.text.strip() for record in question() if record.text.startswith("w")]
        lasting = {one for one in before & self.known()[0] if word in (None, one)}
        assert len(found) == len(set(found)), f"twice: {sorted(found)}"
        assert not lasting - set(found), f"acknowledged and missed: {lasting - set(found)}"
        assert not gone & set(found), f"removed and shown: {gone & set(found)}"

    def ask(self, number: int) -> None:
        memory = self.memory if number % 2 else quiet(self.memory.root)
        while not self.done.is_set():
            self.check(lambda: memory.search(limit=None))
            self.check(lambda: memory.by_time(types=["decision", "finding", "learning"]))
            if words := sorted(self.known()[0]):
                word = random.Random(number).choice(words)
                self.check(lambda word=word: memory.search(word), word)


def test_no_history_hides_an_acknowledged_write_or_shows_a_removed_one(tmp_path: Path) -> None:
    """Three threads write, change, append, edit and remove, four ask, and the daemon is killed and
    started again. With a question that trusts the index it failed at once."""
    memory = quiet(tmp_path / "sessions")
    memory.create_session(id="shared").record_learning("first", learned_by="a")
    crowd = Crowd(memory)
    daemons = [Daemon([memory.root], tmp_path / "log")]
    daemons[0].wait_ready()
    with ThreadPoolExecutor(7) as pool:
        writers = [pool.submit(crowd.write, number) for number in range(3)]
        readers = [pool.submit(crowd.ask, number) for number in range(4)]

        def have_written(steps: int) -> bool:
            return crowd.steps >= steps or all(writer.done() for writer in writers)

        try:
            wait_until(lambda: have_written(50), "50 steps")
            daemons[0].kill()
            wait_until(lambda: have_written(80), "80 steps")
            daemons.append(Daemon([memory.root], tmp_path / "log2"))
            daemons[1].wait_ready()  # although those that ask may not let it lead at once
            for writer in writers:
                writer.result()
        finally:
            crowd.done.set()
            for daemon in daemons:
                daemon.kill()
        for reader in readers:
            reader.result()
    found = {record.text.strip() for record in memory.search(limit=None)}
    assert {text for text in found if text.startswith("w")} == crowd.there
