"""Which names an anonymisation knows and finds, what it says of those that it leaves, and what becomes of earlier originals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from daemons import smp
from smp_client.privacy.anonymity.names import Names
from smp_client.privacy.anonymity.placeholders import Placeholders
from test_cli_upkeep import answered

from smp_client import Memory, Session

SIGNED = ["Foo & Co", "AT&T", "Foo+Bar", "Foo: Bar", "Foo/Bar", "Foo (Bar)", "Project #7", "R&D Plan", "C++"]


@pytest.mark.parametrize("name", SIGNED)
def test_a_name_with_other_signs_is_found_whole(name: str) -> None:
    """From the metadata and from the list, in any case and with other blanks; not where only a part of it stands."""
    text = f"{name} ({name.upper()}), {name}'s; in C with a foo of 7 at R"
    wanted = "Project-A (Project-A), Project-A's; in C with a foo of 7 at R"
    assert Placeholders(Names([], [name])).text(text) == wanted


def test_blanks_around_a_sign_do_not_matter_and_other_signs_do() -> None:
    placeholders = Placeholders(Names([], ["Foo & Co", "Yahoo!"]))
    assert placeholders.text("Foo&Co, foo-co, Foo  &\nCo, Yahoo") == "Project-A, Project-A, Project-A, Project-B"
    assert placeholders.text("Foo / Co, Foo and Co, Foo Co") == "Foo / Co, Foo and Co, Foo Co"


def test_a_given_name_is_one_name() -> None:
    """Its parts mean the same, and a domain is no part of anybody."""
    placeholders = Placeholders(Names(["Anna & Bob", "jo.hale@acme.org"]))
    assert placeholders.text("Anna & Bob met; Anna left.") == "User-1 met; User-1 left."
    assert placeholders.text("Hale of some acme org") == "User-2 of some acme org"


@pytest.mark.parametrize("way", ["metadata", "option"])
def test_the_command_replaces_a_project_with_signs(memory: Memory, way: str) -> None:
    session = memory.create_session(id="s1", project="Foo & Co" if way == "metadata" else None)
    session.add_turn("user", "Foo & Co grows.")
    options = () if way == "metadata" else ("--project", "Foo & Co")
    assert smp("anonymize", "--root", memory.root, "s1", *options).returncode == 0
    assert session.turns()[0].text == "Project-A grows."


def test_a_project_of_one_letter_and_signs_can_be_given(memory: Memory) -> None:
    session = memory.create_session(id="s1")
    session.add_turn("user", "C++ is slow, and C is not.")
    session.anonymize(projects=["C++"])
    assert session.turns()[0].text == "Project-A is slow, and C is not."


def test_names_that_are_not_looked_for_are_told(memory: Memory, tmp_path: Path) -> None:
    """A project called by a word that is no name, a user called by a number; by the command and on the way out."""
    session = memory.create_session(id="s1", project="test", user="42")
    session.add_turn("Anna Berg", "Anna does the test with 42.")
    done = smp("anonymize", "--root", memory.root, "s1", "--dry-run")
    assert "'test' was not looked for" in done.stderr
    assert "'42' was not looked for" in done.stderr
    given = session.anonymize(names=["42"], projects=["test"], dry_run=True)
    assert given.notes == []
    changing = memory.anonymous_export(["s1"])
    assert any("'test' was not looked for" in sentence for sentence in changing.cannot_find)


def test_a_user_without_a_name_is_no_news(memory: Memory) -> None:
    assert memory.create_session(id="s1", user="user").anonymize().notes == []


def test_a_name_that_was_left_where_it_may_be_a_word_is_told(memory: Memory) -> None:
    session = memory.create_session(id="s1", user="Will")
    session.add_turn("user", "Will says that he will come.")
    done = session.anonymize()
    assert session.turns()[0].text == "User-1 says that he will come."
    (note,) = done.notes
    assert note.startswith("'Will' is short or also a word, so it was left where it is written small, in active/s1/conversation.md")
    assert done.problems == []


# What earlier ones have left.


@pytest.fixture
def twice(memory: Memory) -> Session:
    """A session that was anonymised before."""
    session = memory.create_session(id="s1", user="Anna Berg")
    session.add_turn("Anna", "Anna Berg was here.")
    session.record_decision("Ask Anna", made_by="vera")
    session.anonymize()
    assert memory.deleted("s1")
    return session


def originals(memory: Memory) -> set[str]:
    return {one.batch for one in memory.deleted("s1")}


def test_a_second_run_says_what_can_still_be_restored(twice: Session, memory: Memory) -> None:
    (batch,) = originals(memory)
    done = smp("anonymize", "--root", memory.root, "s1")
    assert done.returncode == 0
    assert "0 memories changed" in done.stdout
    assert f"smp purge --batch {batch} --now" in done.stdout
    assert done.stderr == ""
    assert originals(memory) == {batch}
    assert json.loads(smp("anonymize", "--root", memory.root, "s1", "--json").stdout)["earlier"] == [batch]


def test_now_also_erases_what_earlier_ones_have_left(twice: Session, memory: Memory) -> None:
    """And nothing that was deleted for another reason."""
    twice.delete(id="DEC-001", reason="wrong")
    (deleted,) = (one.batch for one in memory.deleted("s1") if one.id == "DEC-001" and one.action == "delete")
    done = smp("anonymize", "--root", memory.root, "s1", "--now", "--yes")
    assert done.returncode == 0, done.stderr
    assert "before earlier anonymisations is erased" in done.stdout
    assert originals(memory) == {deleted}


def test_on_a_terminal_erasing_earlier_ones_is_asked_for(twice: Session, memory: Memory) -> None:
    before = originals(memory)
    code, shown, _ = answered("n\n", "anonymize", "s1", "--now", "--root", memory.root)
    assert code == 1
    assert "before earlier anonymisations? What was there is erased" in " ".join(shown.split())
    assert originals(memory) == before
    assert answered("y\n", "anonymize", "s1", "--now", "--root", memory.root)[0] == 0
    assert originals(memory) == set()


def test_now_tells_where_else_the_names_stand(memory: Memory) -> None:
    """In whatever words around them: what `smp show --all-about` would find."""
    session = memory.create_session(id="s1", user="Anna Berg")
    session.add_turn("Anna", "Anna Berg was here.")
    memory.create_session(id="s2").add_turn("user", "Nobody but Anna Berg knows.")
    done = session.anonymize(now=True)
    assert any(note.startswith("'Anna Berg' still stands in active/s2/conversation.md:") for note in done.notes)
    memory.delete_session("s2", reason="r")
    memory.purge_now("s2")
    session.add_turn("user", "Anna Berg again.")
    assert session.anonymize(names=["Anna Berg"], now=True).notes == []


def test_what_it_cannot_find_is_said_only_where_something_was_replaced(memory: Memory) -> None:
    session: Any = memory.create_session(id="s1")
    session.add_turn("user", "Nobody is named.")
    assert smp("anonymize", "--root", memory.root, "s1").stderr == ""
    session.add_turn("user", "Write to anna@example.org.")
    said = smp("anonymize", "--root", memory.root, "s1").stderr
    assert "not looked for, or not found" in said
    assert len(said.splitlines()) <= 4
