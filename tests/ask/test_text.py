"""A typed text becomes a question to FTS5: each rule on a real table, and no text that FTS5 refuses."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from daemons import no_hang

from smp_client.ask.text import MARK_CAP, WORD_CAP, question_of, words

RECORDS = {  # text, more, actor, tags
    "group": ("Caroline went to the LGBTQ support group on 7 May", "", "Caroline", "community"),
    "oauth": ("We chose OAuth2.0 for authentication", "DEC-001", "alice", "security auth"),
    "token": ("An authentic token, rotated hourly", "DEC-002", "bob", "security"),
    "store": ("Two databases, one keyboard; the tests are running", "", "bob", "storage"),
    "names": ("call foo_bar from user@host.example", "", "carol", "code"),
    "umlaut": ("Der Dienst läuft, the naïve café", "", "dora", ""),
    "cjk": ("日本語 テスト 🎉 party", "", "emi", ""),
    "music": ("O'Brien's band won't play; reauthorise the amplifier", "", "Fay", "music"),
}
EVERYTHING = set(RECORDS)


@pytest.fixture(scope="module")
def table() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    columns = "text, more, actor, tags"
    connection.execute(f"CREATE TABLE memories (key INTEGER PRIMARY KEY, {columns})")
    connection.execute(
        f"CREATE VIRTUAL TABLE words USING fts5 ({columns}, tokenize='porter unicode61')"
    )
    for target in (f"memories (key, {columns})", f"words (rowid, {columns})"):
        rows = ((key, *record) for key, record in enumerate(RECORDS.values()))
        connection.executemany(f"INSERT INTO {target} VALUES (?, ?, ?, ?, ?)", rows)
    yield connection
    connection.close()


def ask(table: sqlite3.Connection, text: str) -> set[str]:
    """Return the names of the records found: by the test, and by any term."""
    question = question_of(text)
    condition, given = "1", ()
    if question.test is not None:
        condition, given = question.test
    if question.terms:
        condition += " AND m.key IN (SELECT rowid FROM words WHERE words MATCH ?)"
        given = (*given, " OR ".join(term.match for term in question.terms))
    rows = table.execute(f"SELECT m.key FROM memories m WHERE {condition}", given)
    names = list(RECORDS)
    return {names[key] for (key,) in rows}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # questions
        ("When did Caroline go to the LGBTQ support group?", {"group"}),
        # nothing but stop words: all of them
        ("to the", {"group", "store", "umlaut", "music"}),
        # words that are several to FTS5
        ("OAuth2.0", {"oauth"}),
        ("DEC-001", {"oauth"}),
        ("la\u0308uft", {"umlaut"}),
        # required
        ('"support group"', {"group"}),
        ("+security databases", {"oauth", "token"}),
        ("“support group” databases", {"group"}),
        # excluded
        ("security -hourly", {"oauth"}),
        ("-security", EVERYTHING - {"oauth", "token"}),
        # operators are in capitals, and need words on both sides
        ("hourly and (band or foo)", {"token", "music", "names"}),
        ("hourly AND (band OR foo)", set()),
        ("authentic AND (hourly OR foo)", {"token"}),
        ("(authentic OR band) AND NOT hourly", {"oauth", "music"}),
        ("security NOT hourly", {"oauth"}),
        ("security NOT(hourly OR alice)", set()),
        ("hourly OR band AND play", {"token", "music"}),
        ('"support group" OR hourly', {"group", "token"}),
        ("token hourly AND security", {"token"}),
        ("NOT security", EVERYTHING - {"oauth", "token"}),
        ("AND hourly OR", {"token"}),
        ("(hourly AND rotated", {"token"}),
        ('"AND" hourly', set()),
        # stars
        ("auth*", {"oauth", "token"}),
        # nothing to look for
        ("", EVERYTHING),
        ('?! -- + - () "" \'', EVERYTHING),
        ('hourly "band', {"token", "music"}),
        # syntax of FTS5 is none here
        ("NEAR(hourly band, 2)", {"token", "music"}),
    ],
)
def test_each_rule_finds_what_it_says(
    table: sqlite3.Connection, text: str, found: set[str]
) -> None:
    assert ask(table, text) == found


def test_words_and_marks_are_capped() -> None:
    """Of many words the longest stay; with too many quotes none of them means anything."""
    many = question_of(" ".join(f"w{number}" for number in range(1000)) + " w99999").terms
    assert len(many) == WORD_CAP
    assert "w99999" in [term.word for term in many]
    pasted = question_of('"one two" ' * (MARK_CAP + 1))
    assert pasted.test is None
    assert [term.match for term in pasted.terms] == ['"one"', '"two"']


@pytest.mark.parametrize("part", ["x", "a b ", '"', "(", "a.", "'", "*", "-", "+a ", "NOT ", "n't"])
def test_a_long_text_of_anything_is_answered_soon(table: sqlite3.Connection, part: str) -> None:
    text = part * (200_000 // len(part))
    with no_hang():
        ask(table, text)
        words(text)
