"""A question sees every write that finished before it was asked, whoever made it and whatever has
become of the index."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, smp, wait_until
from once import copied

from smp_client import Memory, MemoryNotFound, Session, TransactionPending
from smp_client.disk import journal
from smp_client.disk.locks import NO_PATIENCE, lock
from smp_client.model.layout import INDEX_FILE, LEAD, LEAD_SCOPE

needs_mounts = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0,
    reason="needs Linux and root, to mount a tree read-only: root may write whatever a mode says",
)


def ids(found: Any) -> set[str]:
    assert len(found) == len({(record.session, record.id) for record in found}), (
        "nothing is there twice"
    )
    return {record.id for record in found}


def quiet(root: Path) -> Memory:
    return Memory(root, count_access=False)


@contextmanager
def led(memory: Memory) -> Iterator[None]:
    """Somebody leads this root, and does nothing."""
    with lock(memory.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, "leading a test"):
        yield


@contextmanager
def read_only(root: Path, place: Path) -> Iterator[Path]:
    """Return the tree where nothing may be written."""
    place.mkdir()
    subprocess.run(["mount", "--bind", root, place], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # a Memory keeps its index open


def stocked(root: Path) -> None:
    memory = quiet(root)
    session = memory.create_session(id="s1", topic="authentication")
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


def folder_of(memory: Memory, session: str = "s1") -> Path:
    return memory.root / "active" / session


FIRST = {"DEC-001", "DEC-002", "DEC-003"}


# Right after a write.


def test_a_question_sees_what_this_process_just_wrote(kept: Memory) -> None:
    session = kept.session("s1")
    for number in range(20):
        written = session.record_decision(f"written {number}", made_by="a")
        assert session.get(written.id).text == f"written {number}"
        assert [record.text for record in session.search(f'"written {number}"')] == [
            f"written {number}"
        ]
        session.update(written.id, decision=f"changed {number}")
        assert session.get(written.id).text == f"changed {number}"
        assert session.search(f'"written {number}"') == []
        assert written.id in ids(kept.search(f'"changed {number}"'))


def test_a_question_sees_what_another_process_just_wrote(kept: Memory) -> None:
    script = """
import sys
from smp_client import Memory
session = Memory(sys.argv[1]).session("s1")
for line in sys.stdin:
    print(session.record_finding(line.strip(), discovered_by="b").id, flush=True)
"""
    command = [sys.executable, "-c", script, str(kept.root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin
        assert other.stdout
        for number in range(10):
            other.stdin.write(f"theirs {number}\n")
            other.stdin.flush()
            memory_id = other.stdout.readline().strip()
            assert kept.session("s1").get(memory_id).text == f"theirs {number}"
            assert len(kept.search("theirs", types=["finding"])) == number + 1
        other.stdin.close()


def test_a_question_sees_what_a_shell_just_appended(kept: Memory) -> None:
    for number in range(10):
        line = f"  - {{id: HAND-{number}, decision: by hand, made_by: me}}"
        subprocess.run(
            ["sh", "-c", 'echo "$1" >> "$2"', "sh", line, folder_of(kept) / "decisions.yaml"],
            check=True,
        )
        assert f"HAND-{number}" in ids(kept.session("s1").search('"by hand"'))
        assert len(kept.session("s1").by_type("decision")) == 4 + number


def test_a_question_sees_what_an_editor_just_saved(kept: Memory) -> None:
    """Also where neither the size nor the time of the file has changed."""
    file = folder_of(kept) / "decisions.yaml"
    session = kept.session("s1")
    for old, new in (("first 1", "other 1"), ("other 1", "third 1")):
        before = file.stat()
        (file.parent / ".new").write_text(file.read_text().replace(old, new))
        os.utime(file.parent / ".new", ns=(before.st_atime_ns, before.st_mtime_ns))
        (file.parent / ".new").rename(file)
        assert session.get("DEC-002").text == new
        assert (session.search(f'"{old}"'), ids(session.search(f'"{new}"'))) == ([], {"DEC-002"})
    before = file.stat()
    with file.open("r+") as same:  # in its place, as some editors do
        same.write(file.read_text().replace("third 1", "fresh 1"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ids(session.search('"fresh 1"')) == {"DEC-002"}


def test_a_question_does_not_see_what_was_just_removed(kept: Memory) -> None:
    session, folder = kept.session("s1"), folder_of(kept)
    file = folder / "decisions.yaml"
    file.write_text(re.sub(r"  - id: DEC-002.*?(?=  - )", "", file.read_text(), flags=re.DOTALL))
    assert ids(session.by_type("decision")) == {"DEC-001", "DEC-003"}
    with pytest.raises(MemoryNotFound):
        session.get("DEC-002")
    (folder / "artifacts/report.md").unlink()
    assert session.by_type("artifact") == session.search("before") == []
    file.unlink()
    assert session.by_type("decision") == kept.by_type("decision") == []
    assert ids(session.by_type("turn")) == {"turn-1"}
    folder.rename(kept.root / "gone")
    assert kept.search(limit=None) == kept.topics() == kept.timeline() == []


def test_a_session_that_comes_goes_and_comes_again(kept: Memory) -> None:
    for number in range(3):
        kept.create_session(id="guest").record_finding(f"guest {number}", discovered_by="a")
        assert [record.text for record in kept.search("guest", types=["finding"])] == [
            f"guest {number}"
        ]
        # In one step: what removes file by file can meet the daemon's own, which writes indexes
        # there.
        folder_of(kept, "guest").rename(kept.root.parent / f"guest-{number}")
        assert kept.search("guest") == []


def test_a_directory_that_was_looked_into_is_looked_into_again_when_it_changes(
    memory: Memory, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listings are kept between questions, of directories that nobody has changed just now."""
    in_an_hour = time.time_ns() + 3_600_000_000_000
    monkeypatch.setattr("smp_client.disk.scopes.time.time_ns", lambda: in_an_hour)
    folder = folder_of(memory)
    for number in range(5):
        assert len(memory.search("dropped")) == number
        assert {"s1", f"{folder.relative_to(memory.root)}/artifacts/"} <= memory.listings.keys()
        before = (folder / "artifacts").stat().st_ctime_ns
        while (folder / "artifacts").stat().st_ctime_ns == before:
            (folder / f"artifacts/{number}.md").unlink(missing_ok=True)
            (folder / f"artifacts/{number}.md").write_text("dropped")
    (folder / "artifacts").rename(folder / "away")
    assert memory.search("dropped") == []


# Transactions that are recorded and cannot be finished.


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_transaction_on_a_full_disk_is_seen_whole(
    kept: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is safe in the journal, so it has happened: new, changed and appended records are there,
    and nothing of before."""
    session = kept.session("s1")
    with monkeypatch.context() as patch:
        patch.setattr(journal, "carry_out", _full)
        with pytest.raises(TransactionPending), session.transaction() as tx:
            tx.record_finding("recorded in the transaction", discovered_by="a", tags=["y"])
            tx.record_decision("recorded in the transaction", made_by="a")
            tx.update("DEC-001", decision="changed in the transaction")
            tx.add_turn("user", "said in the transaction")
            tx.save_artifact("report", "kept in the transaction\n")
        for _ in range(2):
            expected = {"FIND-001", "DEC-001", "DEC-004", "turn-2", "report"}
            assert (
                ids(session.search("+transaction")) == ids(kept.search("+transaction")) == expected
            )
            assert ids(session.by_topic("y")) == {"FIND-001"}
            assert session.search('"first 0"') == session.search("before") == []
            assert session.get("DEC-001").text == "changed in the transaction"
            assert session.get("FIND-001").text == "recorded in the transaction"
            assert ids(session.by_type("decision")) == FIRST | {"DEC-004"}
    assert ids(session.search("+transaction")) == expected
    assert list((kept.root / ".smp/journal").iterdir()) == []
    assert ids(quiet(kept.root).search("+transaction")) == expected


# What has become of the index.


def spoil_the_middle(index: Path) -> None:
    with index.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(index.stat().st_size - 4096))


def say(index: Path, statement: str) -> None:
    with closing(sqlite3.connect(index)) as connection, connection:
        connection.execute(statement)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda index: None,
    "rubbish": lambda index: index.write_bytes(b"rubbish" * 1000),
    "emptied": lambda index: index.write_bytes(b""),
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
        pytest.param(False, True, id="opened anew-somebody leads", marks=pytest.mark.slow),
        pytest.param(True, False, id="while it is open-nobody leads", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_becomes_of_the_index_the_answer_is_right(
    tmp_path: Path, damage: str, *, is_open: bool, is_led: bool
) -> None:
    """Nothing is lost with it, since the files are the truth; and where nobody leads, it is made
    again."""
    memory = Memory(copied(with_thirty, tmp_path / "sessions"))
    session = memory.session("s1")
    session.search("words")
    asked = memory.session("s1") if is_open else Memory(memory.root).session("s1")
    if not is_open:
        memory._answering[0].close()
        remove_side_files(memory.root / INDEX_FILE)
    DAMAGES[damage](memory.root / INDEX_FILE)
    session.record_decision("after", made_by="a")
    with led(memory) if is_led else pytest.MonkeyPatch.context():
        for _ in range(3):
            assert len(ids(asked.search("words", limit=None))) == 30
            assert ids(asked.search("after")) == {"DEC-031"}
            assert asked.get("DEC-007").text.startswith("number 6 ")
        session.record_decision("and after", made_by="a")
        assert ids(asked.search("+after")) == {"DEC-031", "DEC-032"}
    memory._answering[0].close()
    assert ids(Memory(memory.root).search("+after")) == {"DEC-031", "DEC-032"}


def test_an_index_that_was_replaced_while_it_was_open_is_opened_again(
    memory: Memory, session: Session, tmp_path: Path
) -> None:
    """Another process threw it away and made a new one, as a daemon does with one that it cannot
    use."""
    session.record_decision("before", made_by="a")
    assert ids(session.search("before")) == {"DEC-001"}
    for number in range(3):
        remove_side_files(memory.root / INDEX_FILE)
        (memory.root / INDEX_FILE).unlink()
        assert smp("sync", "--root", memory.root).returncode == 0
        session.record_finding(f"then {number}", discovered_by="a")
        assert smp("sync", "--root", memory.root).returncode == 0
        answer = session.search("then")
        assert (len(ids(answer)), answer.source) == (number + 1, "index")
        assert ids(session.search("before")) == {"DEC-001"}


@pytest.mark.parametrize("extra", [False, True], ids=["true", "behind"])
def test_while_somebody_rebuilds_the_index_it_is_asked_as_it_was(
    memory: Memory, session: Session, *, extra: bool
) -> None:
    """A rebuild holds it for long and shows nothing before its end: an index in memory takes in the
    rest."""
    session.record_decision("before", made_by="a")
    session.search("before")
    rebuilding = sqlite3.connect(memory.root / INDEX_FILE, isolation_level=None)
    with led(memory):
        rebuilding.execute("BEGIN IMMEDIATE")
        rebuilding.execute("DELETE FROM memories")
        rebuilding.execute("DELETE FROM files")
        for number in range(3):
            if extra:
                session.record_finding(f"during {number}", discovered_by="a")
            answer = session.search("before during")
            assert len(ids(answer)) == 1 + (number + 1) * extra
            assert answer.source == ("files" if extra else "index")
        rebuilding.execute("ROLLBACK")
    rebuilding.close()
    assert len(ids(session.search("before during"))) == 1 + 3 * extra


@needs_mounts
@pytest.mark.parametrize("index", ["true", "behind", "missing"])
def test_a_tree_where_nothing_may_be_written_can_be_asked(
    memory: Memory, session: Session, tmp_path: Path, index: str
) -> None:
    """Also counting is then left out without a word."""
    session.record_decision("first", made_by="a")
    session.add_turn("user", "said first")
    if index != "missing":
        session.search("first")
    if index == "behind":
        session.record_decision("second first", made_by="a")
    expected = {"DEC-001", "DEC-002", "turn-1"} if index == "behind" else {"DEC-001", "turn-1"}
    log = folder_of(memory) / "access.log"
    before = log.read_bytes() if log.exists() else None
    with read_only(memory.root, tmp_path / "ro") as place:
        asked = Memory(place).session("s1")
        for _ in range(2):
            assert ids(asked.search("first")) == expected
            assert asked.get("DEC-001").text == "first"
            assert ids(Memory(place).search("first")) == expected
    assert (log.read_bytes() if log.exists() else None) == before


# Many at once.


def _in_child(question: Callable[[], Any]) -> Any:
    """The answer of a forked child."""
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

    def others() -> list[Any]:
        return [index for _, index in memory._answering[0]._idle]

    def asked_with_own() -> bool:
        inherited = others()
        session.search("number")
        return not set(inherited) & set(others())

    with led(memory) if is_led else pytest.MonkeyPatch.context():
        for number in range(3):
            session.record_decision(f"number {number}", made_by="a")
            expected = {f"DEC-{n:03d}" for n in range(1, number + 2)}
            assert ids(session.search("number")) == expected
            assert _in_child(lambda: sorted(ids(session.search("number")))) == repr(
                sorted(expected)
            )
            assert _in_child(asked_with_own) == "True"
            assert _in_child(
                lambda: session.record_finding("of the child", discovered_by="c").id
            ) == repr(f"FIND-{number + 1:03d}")
            assert len(ids(session.search("child"))) == number + 1
            assert ids(session.search("number")) == expected


# Any history.

WRITER = """
import os, re, sys
from smp_client import Memory

name, memory = sys.argv[2], Memory(sys.argv[1])
own, shared = memory.create_session(id=name), memory.session("shared")
folder = memory.root / "active" / name
found = {}

def edited(change):
    text = (folder / "findings.yaml").read_text()
    (folder / ".new").write_text(change(text))
    os.rename(folder / ".new", folder / "findings.yaml")

for line in sys.stdin:
    what, token, *old = line.split()
    if what == "decision":
        shared.record_decision(token, made_by=name)
    elif what == "turn":
        shared.add_turn(name, token)
    elif what == "shell":
        with open(memory.root / "active/shared/learnings.yaml", "a") as file:
            file.write(f"  - {{id: {token}, learning: {token}, learned_by: {name}}}\\n")
    elif what == "finding":
        found[token] = own.record_finding(token, discovered_by=name).id
    elif what == "update":
        found[token] = own.update(found.pop(old[0]), finding=token).id
    elif what == "edit":
        found[token] = found.pop(old[0])
        edited(lambda text: re.sub(rf"\\b{old[0]}\\b", token, text))
    elif what == "cut":
        record = rf"  - id: {found.pop(old[0])} .*?(?=  - |\\Z)"
        edited(lambda text: re.sub(record, "", text, flags=re.DOTALL))
    elif what == "artifact":
        own.save_artifact(token, token)
    elif what == "unlink":
        os.unlink(folder / f"artifacts/{old[0]}.md")
    print("done", flush=True)
"""
LASTING = ("decision", "turn", "shell")  # into the session that all share
TAKING = {
    "update": "finding",
    "edit": "finding",
    "cut": "finding",
    "unlink": "artifact",
}  # what each takes one of


class Model:
    """What there is: each write has a word of its own, which comes once and goes at most once."""

    def __init__(self) -> None:
        self.there: set[str] = set()  # acknowledged, and nobody has begun to remove it
        self.gone: set[str] = set()  # its removal is acknowledged
        self._lock = threading.Lock()

    @contextmanager
    def doing(self, new: set[str], old: set[str]) -> Iterator[None]:
        with self._lock:
            self.there -= old
        yield
        with self._lock:
            self.there |= new
            self.gone |= old

    def known(self) -> tuple[set[str], set[str]]:
        with self._lock:
            return set(self.there), set(self.gone)

    def check(
        self, question: Callable[[], Any], part: Callable[[str], bool] = lambda word: True
    ) -> None:
        """Asks, and compares with what was known before and still is after."""
        before, gone = self.known()
        found = [record.text.strip() for record in question() if record.text.startswith("w")]
        lasting = {word for word in before & self.known()[0] if part(word)}
        assert len(found) == len(set(found)), (
            f"twice: {sorted(word for word in set(found) if found.count(word) > 1)}"
        )
        assert not lasting - set(found), f"acknowledged and missed: {lasting - set(found)}"
        assert not gone & set(found), f"removed and shown: {gone & set(found)}"


class Crowd:
    """Threads that each drive a writing process, and threads that ask; what fails in one of them
    fails the test."""

    def __init__(self, memory: Memory, seed: int) -> None:
        self.memory, self.seed, self.model = memory, seed, Model()
        self.failures: list[BaseException] = []
        self.done = threading.Event()
        self.steps = 0

    def start(self, work: Callable[[int], None], number: int) -> threading.Thread:
        def run() -> None:
            try:
                work(number)
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def write(self, number: int) -> None:
        choose = random.Random(self.seed * 100 + number)
        own: dict[str, list[str]] = {"finding": [], "artifact": []}
        command = [sys.executable, "-c", WRITER, str(self.memory.root), f"writer{number}"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin
            assert process.stdout
            for step in range(50):
                what = choose.choice(
                    [*LASTING, *own, *(name for name, kind in TAKING.items() if own[kind])]
                )
                word = f"w{number}n{step}"
                old = {choose.choice(own[TAKING[what]])} if what in TAKING else set()
                new = set() if what in ("cut", "unlink") else {word}
                with self.model.doing(new, old):
                    process.stdin.write(" ".join([what, word, *old]) + "\n")
                    process.stdin.flush()
                    assert process.stdout.readline() == "done\n", f"{what} failed"
                self.steps += 1
                kind = TAKING.get(what, what)
                if kind in own:
                    own[kind] = [*(known for known in own[kind] if known not in old), *new]
            process.stdin.close()

    def ask(self, number: int) -> None:
        choose = random.Random(self.seed * 100 + 50 + number)
        memory = self.memory if number % 2 else quiet(self.memory.root)
        while not self.done.is_set():
            self.model.check(lambda: memory.search(limit=None))
            self.model.check(
                lambda: memory.by_time(
                    types=["decision", "turn", "artifact", "finding", "learning"]
                )
            )
            if words := sorted(self.model.known()[0]):
                word = choose.choice(words)
                self.model.check(
                    lambda word=word: memory.search(word), lambda other, word=word: other == word
                )


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_history_hides_an_acknowledged_write_or_shows_a_removed_one(
    tmp_path: Path, seed: int
) -> None:
    """Three processes write, change, append, edit and remove, four threads ask, and the daemon is
    killed and started again: no answer misses what was acknowledged before it was asked for, shows
    what was removed, or has anything twice. With a question that trusts the index (`_missing` of
    nothing) it failed at once."""
    memory = quiet(tmp_path / "sessions")
    memory.create_session(id="shared").record_learning("first", learned_by="a")
    crowd = Crowd(memory, seed)
    daemons = [Daemon([memory.root], tmp_path / "log")]
    daemons[0].wait_ready()
    writers = [crowd.start(crowd.write, number) for number in range(3)]
    readers = [crowd.start(crowd.ask, number) for number in range(4)]

    def have_written(steps: int) -> None:
        wait_until(
            lambda: crowd.steps >= steps or not any(writer.is_alive() for writer in writers),
            f"{steps} steps",
        )

    try:
        have_written(50)
        daemons[0].kill()
        have_written(80)
        daemons.append(Daemon([memory.root], tmp_path / "log2"))
        daemons[1].wait_ready()  # although those that ask may not let it lead at once
    finally:
        for writer in writers:
            writer.join()
        crowd.done.set()
        for reader in readers:
            reader.join()
        for daemon in daemons:
            daemon.kill()
    assert crowd.failures == []
    found = {
        record.text.strip() for record in memory.search(limit=None) if record.text.startswith("w")
    }
    assert found == crowd.model.there
