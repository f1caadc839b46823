"""Words of removed memories go out of the index, by whoever leads, also while somebody reads it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from bytes_left import files_with
from daemons import elsewhere, running, wait_until

from smp_client import Memory, Session
from smp_client.disk.locks import lock
from smp_client.index.database import Entry, Index
from smp_client.index.sync import ask_for_scrub, asked_for, bring_up_to_date, scrub
from smp_client.model.layout import INDEX_FILE, LEAD, LEAD_SCOPE
from smp_client.passes.tidy import tidy

pytestmark = pytest.mark.usefixtures("short_grace")
SECRET = "zqsecretqz4711"
IMPATIENT_S = 0.2


@pytest.fixture(autouse=True)
def _closed(memory: Memory) -> Iterator[None]:
    yield
    memory.close()


def places(memory: Memory) -> list[str]:
    """Where it is found; its end as well, since FTS5 leaves out a beginning that words share."""
    return files_with(memory.root, SECRET.encode(), SECRET[4:].encode())


def entry(source: random.Random, number: int, words: list[str], secret: str) -> Entry:
    text = " ".join([*source.choices(words, k=source.randint(1, 60)), secret])
    digest, tag = f"{source.getrandbits(90):x}", source.choice(words) + secret
    data = json.dumps({"decision": text, "tags": [tag]})
    return Entry(f"DEC-{number}", "decision", digest, data, text=text, tags=(tag,))


def test_pages_keep_nothing_of_entries_that_have_moved(memory: Memory, session: Session) -> None:
    """An index that grew and shrank for long. Seen to fail without VACUUM: `secure_delete` does not
    overwrite the old place of an entry that moved to another page."""
    index = Index.open(memory.root / INDEX_FILE)
    source = random.Random(7)
    lengths = [source.randint(3, 10) for _ in range(2000)]
    words = ["".join(source.choices("abcdefghijklmnop", k=length)) for length in lengths]
    known: dict[int, list[tuple[bool, Entry]]] = {file: [] for file in range(6)}
    for number in range(2000):
        file, is_secret = source.randrange(6), source.random() < 0.1
        known[file] = [one for one in known[file] if source.random() > 0.01]
        known[file].append((is_secret, entry(source, number, words, SECRET if is_secret else "")))
        if number % 20 == 0:
            for each, entries in known.items():
                with index.batch():
                    left = [one for _, one in entries]
                    index.replace("s1", f"artifacts/{each}.md", left, has_moved=True)
    for file, entries in known.items():
        with index.batch():
            kept = [one for is_secret, one in entries if not is_secret]
            index.replace("s1", f"artifacts/{file}.md", kept, has_moved=True)
    ask_for_scrub(memory)
    scrub(memory, index, 1.0)
    assert asked_for(memory) == []
    assert places(memory) == []
    index.close()


def test_a_request_while_another_is_served_is_not_taken_for_done(
    memory: Memory, session: Session
) -> None:
    """Whoever asks when the files have been looked at already is served by the next one."""
    index = Index.open(memory.root / INDEX_FILE)
    ask_for_scrub(memory)

    def ask_late(statement: str) -> None:
        if statement == "VACUUM":
            ask_for_scrub(memory, "s1")

    index.connection.set_trace_callback(ask_late)
    scrub(memory, index, 1.0)
    assert [name.split("+")[1] for name in asked_for(memory)] == ["s1"]
    index.close()


READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT COUNT(*) FROM memories").fetchone()
print("reading", flush=True)
sys.stdin.read()
"""


def test_a_reader_holds_up_the_daemon_which_tries_again_by_itself(
    memory: Memory, session: Session, tmp_path: Path
) -> None:
    """The purge says so; when the reader is gone the words go too, without anybody asking."""
    session.record_finding(f"the {SECRET}", discovered_by="a")
    with running(memory.root, log=tmp_path / "log"):
        bring_up_to_date(memory)
        with elsewhere(READER, memory.root / INDEX_FILE):
            (problem,) = memory.privacy.purge_now("s1", ["FIND-001"]).problems
            assert "somebody is reading it" in problem
            assert places(memory)
        wait_until(lambda: not asked_for(memory), "the daemon has cleaned its index")
        assert places(memory) == []


def test_without_a_daemon_the_next_one_tries_again(memory: Memory, session: Session) -> None:
    session.record_finding(f"the {SECRET}", discovered_by="a")
    bring_up_to_date(memory)
    impatient = Memory(memory.root, lock_timeout_s=IMPATIENT_S)
    with elsewhere(READER, memory.root / INDEX_FILE):
        assert impatient.privacy.purge_now("s1", ["FIND-001"]).problems
        assert places(memory)
    assert tidy(memory).problems == []
    assert places(memory) == []
    assert asked_for(memory) == []
    impatient.close()


def test_whoever_leads_does_not_wait_for_itself(memory: Memory, session: Session) -> None:
    """The leader asks nobody; its own loop serves the request."""
    session.record_finding(f"the {SECRET}", discovered_by="a")
    bring_up_to_date(memory)
    leading = Memory(memory.root, is_leading=True)
    with lock(memory.tree, LEAD_SCOPE, LEAD, IMPATIENT_S, "leading"):
        assert leading.privacy.purge_now("s1", ["FIND-001"]).problems == []
        assert asked_for(memory)
    leading.close()
