"""Search by meaning: the extra `semantic`, whose vectors a daemon makes."""

from __future__ import annotations

import sqlite3
from importlib.util import find_spec
from pathlib import Path

import pytest
from daemons import running, wait_until

from smp_client import Memory
from smp_client.model.layout import INDEX_FILE

needs_vectors = pytest.mark.skipif(find_spec("wordllama") is None, reason="needs the extra semantic")


def vectors(root: Path) -> dict[str, bytes]:
    with sqlite3.connect(root / INDEX_FILE) as index:
        rows = index.execute("SELECT m.id, v.vector FROM vectors v LEFT JOIN memories m ON m.key = v.memory")
        return dict(rows.fetchall())


def test_without_vectors_a_search_goes_by_words(tmp_path: Path) -> None:
    session = Memory(tmp_path).create_session(id="s")
    session.record_decision("Log people in through their company account", made_by="a")
    assert session.search("log people in").by == "words"
    assert not session.search("authentication for staff")


@pytest.mark.slow
@needs_vectors
def test_a_question_in_other_words_finds_its_memory(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    session = Memory(root).create_session(id="s", project="office")
    right = session.record_decision("Employees sign in with their corporate password", made_by="a")
    for text in ("Invoices leave on the first of the month", "Pictures shrink to 200 pixels"):
        session.record_decision(text, made_by="a")
    with running(root, log=tmp_path / "log"):
        wait_until(lambda: len(vectors(root)) == 3, "every memory has a vector")
        found = session.search("authentication for staff")
        assert found[0].id == right.id
        assert found.by == "words and meaning"

        # A vector follows its memory: changed, deleted, and in a session that is not asked.
        before = vectors(root)
        session.update(right.id, decision="The office cat is called Minka")
        wait_until(lambda: len({*before.items()} & {*vectors(root).items()}) == 2, "one is new")
        wait_until(lambda: len(vectors(root)) == 3, "every memory has a vector again")
        assert session.search("name of our pet")[0].id == right.id
        session.delete([right.id], reason="no longer true")
        wait_until(lambda: set(vectors(root)) == {"DEC-002", "DEC-003"}, "its vector is gone")
        other = Memory(root).create_session(id="other")
        assert not other.search("resize the photos")
        assert not session.search("resize the photos", project="another")
        assert Memory(root).search("resize the photos")[0].id == "DEC-003"
