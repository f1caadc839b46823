"""AND, OR, NOT, parentheses and patterns in a search, and a note on whatever has no effect."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from smp_client import Memory, Session

NOW = datetime(2026, 1, 20, 12, tzinfo=UTC)
SAID = {
    "old": "Security headers of the deprecated portal",
    "new": "Security headers of the login page",
    "jwt": "JWT tokens for the login",
    "oauth": "OAuth authorization of partners",
    "color": "Tokenization of card numbers",
    "french": "Die Überweisung läuft über ein Café",
}


@pytest.fixture
def session(tmp_path: Path) -> Session:
    memory = Memory(tmp_path / "sessions", clock=lambda: NOW, count_access=False)
    made = memory.create_session(id="s1")
    for said in SAID.values():
        made.record_learning(said, learned_by="ann", timestamp=NOW)
    return made


def found(session: Session, text: str) -> set[str]:
    names = {said: name for name, said in SAID.items()}
    return {names[record.text] for record in session.search(text)}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("security NOT deprecated", {"new"}),
        ("security AND zebra", set()),
        ("(jwt OR oauth) AND login", {"jwt"}),
        ("jwt OR oauth", {"jwt", "oauth"}),
        ("login AND NOT (jwt OR headers)", set()),
        ("NOT security", {"jwt", "oauth", "color", "french"}),
        ("partners OR NOT login", {"old", "oauth", "color", "french"}),
        ('"login page" OR partners', {"new", "oauth"}),
        ("LEARN-001 NOT LEARN-001", set()),
        # of plain words any may match, and operators in lower case are plain words
        ("partners and card", {"oauth", "color"}),
        # patterns
        ("*ization", {"oauth", "color"}),
        ("tok*ation", {"color"}),
        ("depr?cated", {"old"}),
        ("authori*", {"oauth"}),
        ("authorizati*", {"oauth"}),
        ("läu*", {"french"}),
        ("security NOT depr?cated", {"new"}),
        ("login -*ecated", {"new", "jwt"}),
        ("partners *ization", {"oauth", "color"}),
        ("page *ization", {"new", "oauth", "color"}),
        ("login?", {"new", "jwt"}),
    ],
)
def test_operators_and_patterns_find_what_they_say(
    session: Session, text: str, names: set[str]
) -> None:
    assert found(session, text) == names
    assert {one.text for one in session.memory.search(text)} == {SAID[name] for name in names}


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("security AND zebra", 'No memory has "zebra".'),
        ("*zation AND *zebra", 'No memory has "*zebra".'),
        ("(jwt OR oauth AND login", "The parentheses do not match, so they were ignored."),
        ("login AND", "AND has no words beside it, so it was ignored."),
        ("security NOT deprecated", None),
        ("security and login", None),
    ],
)
def test_a_note_says_what_had_no_effect(session: Session, text: str, note: str | None) -> None:
    assert session.search(text).note == note


def test_a_pattern_for_too_many_words_says_so(session: Session) -> None:
    text = " ".join(f"zz{number}zz" for number in range(300))
    session.record_learning(text, learned_by="ann")
    note = session.search("zz*zz").note
    assert note == "zz*zz stands for 300 words; the 200 most frequent were looked for."


def test_every_page_of_an_answer_with_operators_is_part_of_one_whole(session: Session) -> None:
    whole = [one.id for one in session.search("security OR login OR oauth")]
    pages = [
        one.id
        for offset in range(len(whole))
        for one in session.search("security OR login OR oauth", limit=1, offset=offset)
    ]
    assert len(whole) == 4
    assert pages == whole


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("NOT " * 40 + "jwt", {"jwt"}),
        ("NOT " * 41 + "login", {"old", "oauth", "color", "french"}),
        ("jwt AND (login OR " * 6 + "zebra" + ")" * 6, {"jwt"}),
        ("NOT (zebra OR NOT (jwt OR b AND " * 3 + "login" + "))" * 3, {"jwt"}),
        ("jwt AND (login OR " * 14 + "zebra" + ")" * 14, {"jwt"}),
    ],
)
def test_no_depth_of_operators_fails(session: Session, text: str, names: set[str]) -> None:
    assert found(session, text) == names


def test_parentheses_that_are_too_deep_are_named(session: Session) -> None:
    note = session.search("(" * 20 + "jwt" + ")" * 20 + " AND login").note
    assert note
    assert "deep" in note


def test_a_pattern_with_many_stars_is_done_with_a_long_word_at_once(session: Session) -> None:
    # a pattern that tries every place of every part would go on for years
    said = "a" * 5_000 + "b"
    session.record_learning(said, learned_by="ann", timestamp=NOW)
    assert [one.text for one in session.search("*a*a*a*a*a*a*a*a*b")] == [said]
    assert not session.search("*a*a*a*a*a*a*a*a*c*a*")
    assert not session.search("*a?a*a?a*a?a*a?a*c")


@pytest.mark.parametrize("long", ["j" * 60_000 + "*", "j*" * 30_000])
def test_a_very_long_pattern_is_a_word(session: Session, long: str) -> None:
    assert found(session, f"{long} partners") == {"oauth"}


@pytest.mark.parametrize("joint", [" ", " OR ", " AND -", " +"])
def test_a_question_has_so_many_patterns_and_no_more(session: Session, joint: str) -> None:
    some = [f"*{letter}zat*" for letter in "abcdefgh"]
    assert "patterns" not in (session.search(joint.join([*some, *some])).note or "")
    note = session.search(joint.join([*some, "*jzat*"])).note
    assert note
    assert "patterns" in note
