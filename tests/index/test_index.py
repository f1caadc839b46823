"""The index: taking in what changed gives what a rebuild from nothing gives."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from derived_rows import contents

from smp_client import Memory, Session
from smp_client.index.database import Index, outdated
from smp_client.index.schema import UnusableIndex
from smp_client.index.take_in import rebuild, refresh

RECORD = (
    b'  - id: HAND-%d\n    timestamp: "2026-01-11T16:30:00+02:00"\n'
    b"    finding: typed\n    tags: [x, y.z]\n"
)
Contents = dict[str, list[tuple[Any, ...]]]


def refresh_all(memory: Memory, index: Index) -> int:
    """Take in what changed, and return how many bytes were parsed for it."""
    with index.batch():
        return sum(refresh(memory, index, *file) for file in outdated(memory, index))


def rebuilt(memory: Memory) -> Contents:
    index = Index.in_memory()
    with closing(index):
        rebuild(memory, index)
        return contents(index)


@pytest.fixture
def index() -> Iterator[Index]:
    found = Index.in_memory()
    yield found
    found.close()


def write_some(session: Session) -> None:
    session.record_decision("Use OAuth", made_by="architect", tags=["security"], turn_ref=1)
    session.record_finding("No MFA", discovered_by="veritas", severity="critical", tags=["mfa"])
    session.record_preference("MFA for admins", topic="mfa")
    session.record_learning("Users like it explicit", learned_by="veritas")
    session.relate("DEC-001", "FIND-001", "resolves")
    session.add_turn("user", "Let's go.", memory_refs=["DEC-001"])
    session.save_agent_state("veritas", {"focus": "authentication"})
    session.save_artifact("report-1", "# Report")


@pytest.mark.parametrize("file", ["findings.yaml", "conversation.md"])
def test_an_append_parses_only_what_was_appended(
    memory: Memory, session: Session, index: Index, file: str
) -> None:
    """However large the file: the bytes parsed are the bytes added."""

    def add(text: str) -> None:
        if file == "findings.yaml":
            session.record_finding(text, discovered_by="a")
        else:
            session.add_turn("a", text)

    path = memory.root / "active/s1" / file
    for number in range(20):
        add(f"number {number}")
    refresh_all(memory, index)
    size = path.stat().st_size
    add("one more")
    add("and another")
    assert refresh_all(memory, index) == path.stat().st_size - size > 0
    assert refresh_all(memory, index) == 0
    assert contents(index) == rebuilt(memory)


def test_an_edit_of_the_same_size_is_seen(memory: Memory, session: Session, index: Index) -> None:
    """However soon it follows the one before."""
    path = memory.root / "active/s1/findings.yaml"
    path.write_bytes(b"version: 1\nfindings:\n  - id: A\n    finding: x00\n")
    with path.open("r+b", buffering=0) as file:
        for number in range(50):
            os.pwrite(file.fileno(), b"%02d" % number, path.stat().st_size - 3)
            refresh(memory, index, "s1", "findings.yaml")
            found = index.execute("SELECT text FROM memories").fetchall()
            assert found == [(f"x{number:02d}",)]


HEAD = b"version: 1\nfindings:\n"


@pytest.mark.parametrize(
    ("before", "added"),
    [
        (HEAD + b"  - id: A\n    finding: |\n      text\n", b"      # still the text\n"),
        (HEAD + b"  - id: A\n", b"    finding: late\n"),
        (HEAD + b"  - id: A\n", b"other: key\n"),
        (HEAD, b"    - id: A\n"),
        (b"findings: []\n", b"version: 1\n"),
        (HEAD + b"  - id: A\n", b"  - id: B # smp\n    finding: torn\n"),
        (HEAD + b"  - id: A", b"BC\n  - id: D\n"),
        (HEAD + b"  - id: A\n", b"  - id: 'B\n  - id: C' # smp\n"),
    ],
)
def test_not_all_growth_is_by_records(
    memory: Memory, session: Session, index: Index, before: bytes, added: bytes
) -> None:
    """Bytes behind a list can belong to its last record, or end it."""
    path = memory.root / "active/s1/findings.yaml"
    for content in (before, before + added):
        path.write_bytes(content)
        refresh_all(memory, index)
    assert contents(index) == rebuilt(memory)


def test_times_are_compared_as_times(memory: Memory, session: Session, index: Index) -> None:
    """Zones and fractions of a second sort right by `at`; as texts they do not."""
    stamps = ["2026-01-11T14:30:05Z", "2026-01-11T16:30:05.250+02:00", "2026-01-11T14:30:05.500Z",
              "2026-01-11T14:30:06Z", "soon"]  # fmt: skip
    records = "".join(f"  - id: '{stamp}'\n    timestamp: '{stamp}'\n" for stamp in stamps[::-1])
    (memory.root / "active/s1/findings.yaml").write_text(HEAD.decode() + records)
    refresh_all(memory, index)
    sorted_rows = "SELECT id, timestamp FROM memories ORDER BY at IS NULL, at"
    rows = index.execute(sorted_rows).fetchall()
    assert [row[0] for row in rows] == stamps
    assert [rows[1][1], rows[4][1]] == ["2026-01-11T14:30:05.250Z", None]


# Unreadable is not gone.


def break_file(path: Path, how: str) -> None:
    """Make a file unreadable even for root, in one of the ways that are not its deletion."""
    path.rename(path.with_name("aside"))
    if how == "directory":
        path.mkdir()
    elif how == "link":
        path.symlink_to("aside")
    else:
        path.write_bytes(b"version: 99\nfindings: []\n")


def mend_file(path: Path, how: str) -> None:
    path.rmdir() if how == "directory" else path.unlink()
    path.with_name("aside").rename(path)


@pytest.mark.parametrize("how", ["directory", "link", "newer version"])
def test_an_unreadable_file_is_not_a_deleted_file(
    memory: Memory, session: Session, index: Index, how: str
) -> None:
    """Its memories stay, with the problem noted; mended, it is as before; deleted, they go."""
    session.record_finding("No MFA", discovered_by="veritas")
    refresh_all(memory, index)
    before = contents(index)
    path = memory.root / "active/s1/findings.yaml"
    break_file(path, how)
    refresh_all(memory, index)
    assert contents(index)["memories"] == before["memories"]
    assert index.files()["s1", "findings.yaml"].problem
    generation = index.generation
    refresh_all(memory, index)
    assert index.generation == generation, "a problem that stays is noted once"
    mend_file(path, how)
    refresh_all(memory, index)
    assert contents(index) == before == rebuilt(memory)
    path.unlink()
    refresh_all(memory, index)
    assert contents(index)["memories"] == []


def test_a_read_that_failed_is_tried_again(
    memory: Memory, session: Session, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an I/O error nothing about the file changes, and still it is looked at again."""
    session.record_finding("No MFA", discovered_by="veritas")
    with monkeypatch.context() as patch:

        def fail(*_: object) -> bytes:
            raise OSError(5, "Input/output error")

        patch.setattr("smp_client.index.take_in.read_from", fail)
        refresh_all(memory, index)
    assert contents(index)["memories"] == []
    refresh_all(memory, index)
    assert contents(index) == rebuilt(memory)
    assert outdated(memory, index) == []


# The file of the index.


def test_an_index_in_use_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that somebody holds is no damage: a good index must not be thrown away for it."""
    path = tmp_path / "index.db"
    with pytest.raises(UnusableIndex):
        Index.open_to_read(path)
    assert not path.exists(), "reading makes nothing"
    Index.open(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    honest = sqlite3.connect
    with closing(honest(path, isolation_level=None)) as other:
        locked = "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE meta SET value = 5;"
        other.executescript(locked)

        def hastily(*given: Any, **more: Any) -> sqlite3.Connection:
            return honest(*given, **{**more, "timeout": 0.01})

        monkeypatch.setattr(sqlite3, "connect", hastily)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            Index.open_or_replace(path)
        other.execute("COMMIT")
    with closing(Index.open(path)) as index:
        assert index.generation == 5


def test_a_batch_that_fails_leaves_nothing(memory: Memory, session: Session, index: Index) -> None:
    """The generation stays too; and a batch that changes nothing is none."""
    refresh_all(memory, index)
    before, generation = contents(index), index.generation
    session.record_decision("D", made_by="a")
    with pytest.raises(ZeroDivisionError), index.batch():
        refresh(memory, index, "s1", "decisions.yaml")
        raise ZeroDivisionError
    assert (contents(index), index.generation) == (before, generation)
    refresh_all(memory, index)
    assert index.generation == generation + 1
    refresh_all(memory, index)
    assert index.generation == generation + 1
