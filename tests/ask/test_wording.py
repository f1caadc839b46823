"""A search finds what is meant, however people write it, and says how well each memory fits."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import questions
from benchmarks.projects import projects
from smp_client import Memory, Session
from smp_daemon.cli import smp

NOW = datetime(2026, 1, 20, 12, tzinfo=UTC)
SAID = {
    "postgres": "PostgreSQL 16 holds all data",
    "e-mail": "Tickets are sent by e-mail",
    "newsletter": "The newsletter is an email of its own",
    "backup": "A nightly backup goes to another country",
    "back up": "Whoever has to back up a laptop asks Tom",
    "frontend": "The frontend is written in Svelte",
    "back": "The fare goes back to the card",
    "part": "One part of the code is old",
    "new": "A new colour for the buttons",
    "scanner": "The scanners at the gate fail in bright sun",
}


@pytest.fixture
def session(tmp_path: Path) -> Session:
    memory = Memory(tmp_path / "sessions", clock=lambda: NOW, count_access=False)
    made = memory.create_session(id="s1")
    for said in SAID.values():
        made.record_learning(said, learned_by="ann", timestamp=NOW)
    return made


def found(session: Session, text: str) -> list[str]:
    names = {said: name for name, said in SAID.items()}
    return [names[record.text] for record in session.search(text)]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("postgres", {"postgres"}),
        ("email", {"e-mail", "newsletter"}),
        ("e mail", {"e-mail", "newsletter"}),
        ("backup", {"backup", "back up"}),
        ("how do we back up?", {"backup", "back up"}),
    ],
)
def test_a_compound_is_found_however_it_is_written(
    session: Session, text: str, first: set[str]
) -> None:
    assert set(found(session, text)[: len(first)]) == first


def test_half_of_a_compound_counts_less(session: Session) -> None:
    assert found(session, "back up")[2:] == ["back"]
    # No word of the index is one with its neighbour here.
    assert found(session, "a part") == ["part"]
    # Each beginning of it says nothing: "t ools", "to ols", "too ls".
    assert found(session, "tools") == []


def test_two_halves_that_are_rarer_than_the_word_do_not_count(session: Session) -> None:
    session.record_learning("Classes of tickets", learned_by="ann", timestamp=NOW)
    for number in range(5):
        session.record_learning(f"Class {number}", learned_by="ann", timestamp=NOW)
    session.record_learning("The class es is odd", learned_by="ann", timestamp=NOW)
    assert session.search("classes")[0].text != "The class es is odd"


@pytest.mark.parametrize("length", [1, 100])
def test_only_a_short_turn_profits_from_the_turns_beside_it(session: Session, length: int) -> None:
    session.add_turn("ann", "What did the harbour office say about moorings?")
    session.add_turn("bob", "Tuesday, as always. " * length)
    texts = [record.text for record in session.search("harbour office moorings")]
    assert len(texts) == (2 if length == 1 else 1)


@pytest.mark.parametrize(
    ("text", "word", "first"),
    [
        ("scaner", "scaner", "scanner"),
        ("postgres", "postgres", "postgres"),
        ("sveltekit", "sveltekit", "frontend"),
    ],
)
def test_a_word_that_no_memory_has_is_looked_for_otherwise_and_it_says_so(
    session: Session, text: str, word: str, first: str
) -> None:
    assert found(session, text)[0] == first
    assert session.search(text).note == f'No memory has "{word}"; looked for words that are close.'
    assert session.search("newsletter").note is None
    other = Memory(session.memory.root).create_session(id="s2")
    assert other.search(text).note is None  # words of other sessions are not named


@pytest.mark.parametrize("text", ["zebra", "sun zebra", "fate"])
def test_other_words_are_not_taken_for_it(session: Session, text: str) -> None:
    """A short word is one letter away from too many, and a long one must be nearly right."""
    answer = session.search(text)
    assert not answer.note
    assert found(session, text) == (["scanner"] if "sun" in text else [])


def test_a_score_is_the_share_of_the_question_that_is_found(session: Session) -> None:
    def match(text: str) -> float:
        (best, *_) = session.search(text, explain=True)
        assert best.explanation is not None
        assert best.score == pytest.approx(best.explanation["score"], abs=1e-4)
        return best.explanation["match"]

    assert match("nightly") == match("nightly country") == 1.0
    assert 0.4 < match("nightly zebra") < 0.8
    assert match("nightly zebra giraffe") < match("nightly zebra")


@pytest.mark.parametrize("text", ["()", "?!", '""', "-"])
def test_a_text_without_a_word_matches_nothing_and_says_so(session: Session, text: str) -> None:
    answer = session.search(text)
    assert not answer
    assert answer.note == f"There is no word to look for in {text!r}."


def test_the_command_says_it_on_stderr(session: Session) -> None:
    root = str(session.memory.root)
    done = CliRunner().invoke(smp, ["search", "scaner", "--json", "--root", root])
    assert (done.exit_code, done.stdout[0]) == (0, "[")
    assert done.stderr == 'No memory has "scaner"; looked for words that are close.\n'


def test_thirty_everyday_questions(tmp_path: Path) -> None:
    """A change of the ranking may not lose what was won."""
    project = next(project for project in projects() if project.name == "ferry")
    search = questions.by_library(project.build(tmp_path / "sessions"))
    places = [questions.place(project, one, search) for one in questions.ungrouped(project)]
    assert len(places) == 30
    assert sum(place == 1 for place in places) >= 15
    assert sum(0 < place <= 3 for place in places) >= 18


def test_an_id_in_a_question_finds_its_memory_first(session: Session) -> None:
    for name in ("LEARN-004", "learn-004"):
        assert session.search(f"what does {name} say of the newsletter?")[0].id == "LEARN-004"


def test_of_turns_beside_each_other_the_better_leads(tmp_path: Path) -> None:
    """A turn profits from the turn beside it, and stands before one that only shares its words."""
    made = Memory(tmp_path / "talk", clock=lambda: NOW).create_session(id="s1")
    for text in ("Where is the ferry kept?", "In the harbour of Skerry.", "Fine.", "Right."):
        made.add_turn("ann", text, timestamp=NOW)
    for text in ("A harbour is a fine place.", "Lunch?", "Yes."):
        made.add_turn("bob", text, timestamp=NOW)
    found = [record.id for record in made.search("in which harbour is the ferry kept?")]
    assert set(found[:2]) == {"turn-1", "turn-2"}
    assert "turn-5" in found[2:]
