"""Taking every trace of what was removed out of the index, by whoever leads, also when somebody
reads it meanwhile."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bytes_left import files_with
from daemons import running, wait_until

from smp_client import Memory, Session
from smp_client.disk.locks import lock
from smp_client.index import vacuum
from smp_client.index.database import Entry, Index
from smp_client.index.sync import bring_up_to_date, scrub_index
from smp_client.model.layout import INDEX_FILE, LEAD, LEAD_SCOPE
from smp_client.passes.tidy import tidy

pytestmark = pytest.mark.usefixtures("short_grace")
SECRET = "zqsecretqz4711"
IMPATIENT = 0.2


@pytest.fixture(autouse=True)
def _closed(memory: Memory) -> Iterator[None]:
    yield
    memory.close()


def elsewhere(memory: Memory) -> list[str]:
    """Where it is found; its end as well, since the index leaves out the beginning of a word that
    it shares with the one before."""
    return files_with(memory.root, SECRET.encode(), SECRET[4:].encode())


def entry(random_source: random.Random, number: int, words: list[str], secret: str) -> Entry:
    said = [random_source.choice(words) for _ in range(random_source.randint(1, 60))] + (
        [secret] if secret else []
    )
    text, tag = " ".join(said), random_source.choice(words) + secret
    data = json.dumps({"id": f"DEC-{number}", "decision": text, "tags": [tag]})
    return Entry(
        f"DEC-{number}",
        "decision",
        number,
        number,
        f"{random_source.getrandbits(90):x}",
        None,
        number,
        f"a{secret}",
        text,
        text,
        data,
        "",
        0.5,
        None,
        0,
        0.5,
        tags=(tag,),
        topics=(tag,),
        refs=((secret or "x", "source"),),
    )


def test_pages_keep_nothing_of_entries_that_have_moved(memory: Memory, session: Session) -> None:
    """An index that grew and shrank for long. (Seen to fail without VACUUM for 13 of 25 such
    histories: SQLite's `secure_delete` overwrites what is deleted, and not the place of what moved
    to another page before it was.)"""
    index = Index.open(memory.root / INDEX_FILE)
    source = random.Random(7)
    words = [
        "".join(source.choice("abcdefghijklmnop") for _ in range(source.randint(3, 10)))
        for _ in range(2000)
    ]
    known: dict[int, list[tuple[bool, Entry]]] = {file: [] for file in range(6)}
    for number in range(2000):
        file = source.randrange(6)
        is_secret = source.random() < 0.1
        known[file] = [one for one in known[file] if source.random() > 0.01]
        known[file].append((is_secret, entry(source, number, words, SECRET if is_secret else "")))
        if number % 20 == 0:
            for each, entries in known.items():
                with index.batch():
                    index.replace("s1", f"artifacts/{each}.md", [one for _, one in entries])
    for file, entries in known.items():
        with index.batch():
            index.replace(
                "s1", f"artifacts/{file}.md", [one for is_secret, one in entries if not is_secret]
            )
    vacuum.ask_for_scrub(memory)
    assert scrub_index(memory, index) == []
    assert elsewhere(memory) == []
    index.close()


def test_what_is_asked_for_while_another_is_served_is_not_taken_for_done(
    memory: Memory, session: Session
) -> None:
    """Whoever asks when the files have been looked at already is served by the next one. (With one
    flag for all, words stayed.)"""
    index = Index.open(memory.root / INDEX_FILE)
    vacuum.ask_for_scrub(memory)
    steps = vacuum.scrubbing(memory, index, 1.0)
    next(steps)
    vacuum.ask_for_scrub(memory, "s1")
    assert list(steps)
    assert [name.split("+")[1] for name in vacuum.asked_for(memory)] == ["s1"]
    index.close()


@contextmanager
def reading(memory: Memory) -> Iterator[None]:
    """Another process that reads the index as it is now, for as long as the block lasts."""
    program = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT COUNT(*) FROM memories").fetchone()
print("reading", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", program, str(memory.root / INDEX_FILE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reading\n"
        yield
        reader.stdin.close()
        reader.wait(60)


def test_a_reader_holds_up_the_daemon_which_tries_again_by_itself(
    memory: Memory, session: Session, tmp_path: Path
) -> None:
    """The purge says so; when the reader is gone the words go too, without anybody asking."""
    session.record_finding(f"the {SECRET}", discovered_by="a")
    with running(memory.root, log=tmp_path / "log"):
        bring_up_to_date(memory)
        with reading(memory):
            (problem,) = memory.privacy.purge_now("s1", ["FIND-001"]).problems
            assert "somebody is reading it" in problem
            assert elsewhere(memory)
        wait_until(lambda: not vacuum.asked_for(memory), "the daemon has cleaned its index")
        assert elsewhere(memory) == []


@pytest.mark.parametrize("next_one", ["purge", "tidying"])
def test_without_a_daemon_the_next_one_tries_again(
    memory: Memory, session: Session, next_one: str
) -> None:
    for text in (f"the {SECRET}", "another"):
        session.record_finding(text, discovered_by="a")
    bring_up_to_date(memory)
    impatient = Memory(memory.root, lock_timeout_s=IMPATIENT)
    with reading(memory):
        assert impatient.privacy.purge_now("s1", ["FIND-001"]).problems
        assert elsewhere(memory)
    if next_one == "purge":
        memory.privacy.purge_now("s1", ["FIND-002"])
    else:
        assert "cleaned the index" in [action.reason for action in tidy(memory).actions]
    assert elsewhere(memory) == []
    assert vacuum.asked_for(memory) == []
    impatient.close()


def test_whoever_leads_does_not_wait_for_itself(memory: Memory, session: Session) -> None:
    """The leader asks nobody; its own loop serves the request. (Seen to fail: it asked itself, and
    gave up after 30 seconds.)"""
    session.record_finding(f"the {SECRET}", discovered_by="a")
    bring_up_to_date(memory)
    leading = Memory(memory.root, is_leading=True)
    with lock(memory.tree, LEAD_SCOPE, LEAD, IMPATIENT, "leading"):
        assert leading.privacy.purge_now("s1", ["FIND-001"]).problems == []
        assert vacuum.asked_for(memory)
    leading.close()
