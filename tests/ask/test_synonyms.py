"""Words of the trade that mean about the same, filler, and words that a question says twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from smp_client import Memory
from smp_client.ask.thesaurus import synonyms
from smp_client.disk.policy import Options, publish, published
from smp_client.model.ranking import Weights
from smp_client.session import Session


def session_with(root: Path, *texts: str, **options: Weights) -> Session:
    session = Memory(root, **options).create_session(id="s")
    for text in texts:
        session.record_decision(text, made_by="a")
    return session


def found(session: Session, question: str) -> list[str]:
    return [record.text for record in session.search(question)]


@pytest.mark.parametrize(
    ("question", "right"),
    [
        ("how do people sign in", "Login goes through the company"),
        ("erasing invoices", "Bills are deleted after ten years"),
        ("junk", "Hotmail takes it for spam"),
    ],
)
def test_a_question_finds_words_that_mean_the_same(
    tmp_path: Path, question: str, right: str
) -> None:
    session = session_with(
        tmp_path, "Login goes through the company", "Bills are deleted after ten years",
        "Hotmail takes it for spam", "The boat leaves at nine",
    )  # fmt: skip
    assert found(session, question) == [right]


def test_the_words_of_a_question_weigh_more(tmp_path: Path) -> None:
    session = session_with(
        tmp_path, "The bill is blue", "The invoice is blue", "Trees are green", "Ants"
    )
    assert found(session, "invoice colours")[0] == "The invoice is blue"


def test_a_person_adds_words(tmp_path: Path) -> None:
    texts = ("Every cabin has a stove", "The boat leaves at nine")
    assert not found(session_with(tmp_path / "a", *texts), "what do huts have")
    own = Weights(synonyms=(("hut", "cabin"),))
    assert found(session_with(tmp_path / "b", *texts, weights=own), "what do huts have") == [
        texts[0]
    ]


def test_the_words_of_a_person_are_published(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.create_session(id="s")
    own = Weights(synonyms=(("hut", "cabin"), ("warden", "keeper")))
    publish(memory.tree, Options(weights=own))
    assert published(memory.tree).weights == own


def test_forms_of_a_word_are_one_entry() -> None:
    assert synonyms(["invoices"]) == ["bill", "receipt"]
    assert "login" in synonyms(["signing", "in"])
    assert synonyms(["boat"]) == []


@pytest.mark.parametrize("filler", ["need", "going", "make", "about"])
def test_filler_is_no_hit_beside_other_words_and_never_all(tmp_path: Path, filler: str) -> None:
    session = session_with(
        tmp_path, "We need to make it going about now", "The boat", "Trees", "Ants"
    )
    assert not found(session, f"{filler} elephants")
    assert all(record.score < 0.9 for record in session.search(filler))


def test_a_word_said_twice_counts_twice(tmp_path: Path) -> None:
    session = session_with(
        tmp_path, "The harbour is deep", "The boat is small", "Trees", "Ants", "Bees", "Elks"
    )
    for twice, once in (("harbour", "boat"), ("boat", "harbour")):
        first = found(session, f"{twice} {once} {twice} jetty")[0]
        assert twice in first
