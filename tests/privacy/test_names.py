"""Which names are found in a text, and which placeholder each gets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smp_client import Anonymization
from smp_client.privacy.placeholder import Names, Placeholders, placeholders_in

KNOWN = Names(["Anna Berg", "Zoë O'Neill", "王伟", "Will Ray", "user-123"], ["Red Fox", "C++"])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Anna Berg, anna berg and ANNA BERG", "User-1, User-1 and User-1"),
        ("Anna's and Berg's, Anna’s", "User-1's and User-1's, User-1’s"),
        ("anna_berg anna-berg anna.berg annaBerg AnnaBerg", "User-1 User-1 User-1 User-1 User-1"),
        ("Berg, Anna", "User-1"),
        ("test_Anna_login for /Anna/", "test_User-1_login for /User-1/"),
        ("Annabel, Annotation, Bergen, Susanna, Anna1",
         "Annabel, Annotation, Bergen, Susanna, Anna1"),
        ("Zoë, ZOË, Zoe\u0308 but not Zoe or Zoe\u0301",
         "User-1, User-1, User-1 but not Zoe or Zoe\u0301"),
        ("O’Neill and zoë o'neill", "User-1 and User-1"),
        ("王伟说你好", "User-1说你好"),
        ("Will asks: will you? WILL.", "User-1 asks: will you? User-1."),
        ("the Red Fox project, red-fox, red_fox; a red hen",
         "the Project-A project, Project-A, Project-A; a red hen"),
        ("user-123, USER_123, not user-1234", "User-1, User-1, not user-1234"),
        ("anna.berg@example.org and Anna.Berg@Example.org", "Email-1 and Email-1"),
        ("a@b.org, then c@d.org, then a@b.org", "Email-1, then Email-2, then Email-1"),
        ("Mr C++, not C", "Mr Project-A, not C"),
    ],
)  # fmt: skip
def test_names_are_found_as_words_in_any_spelling(text: str, wanted: str) -> None:
    """And never in the middle of another word."""
    assert Placeholders(KNOWN).text(text) == wanted


def test_one_name_is_one_placeholder_in_the_order_in_which_they_occur() -> None:
    projects = [f"Prj{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(30)]
    placeholders = Placeholders(Names(["Ada Lov", "Bob Dal"], projects))
    assert placeholders.text("Dal, Lov, Bob, Ada") == "User-1, User-2, User-1, User-2"
    said = placeholders.text(" ".join(projects[:28])).split()
    assert said[:2] + said[-2:] == ["Project-A", "Project-B", "Project-AA", "Project-AB"]


@pytest.mark.parametrize("called", ["Anna", "anna"])
def test_who_is_called_by_a_first_name_is_the_one_who_has_it(called: str) -> None:
    """The `anna` who spoke is the `Anna Berg` of the metadata."""
    placeholders = Placeholders(Names([called, "Anna Berg"]))
    assert placeholders.text(f"Anna Berg is {called}") == "User-1 is User-1"


def test_a_placeholder_that_stands_there_is_given_to_nobody_else() -> None:
    taken = placeholders_in("User-1 met User-2说 at /path/1")
    placeholders = Placeholders(Names(["Bob Dal"]), taken=taken)
    assert placeholders.text("Bob met User-1 at /path/1") == "User-3 met User-1 at /path/1"


PIECES = st.sampled_from([
    "Anna Berg", "anna", "Berg_", "Zoë", "Apollo", "Apollo-", "anna.berg@example.org",
    "+49 170 1234567", "10.11.12.13", "User-1", "Email-1", "/path/1", "/Users/anna/x.py",
    "~/apollo", "password: hunter2xyz9", "token=Secret-1", "AKIAIOSFODNN7ABCDEFG",
    "4111 1111 1111 1111", "DE89370400440532013000", "2026-01-11T14:30:00Z", "DEC-001",
    "annotation", "\n", "'s", "[removed]", "https://example.org/anna?x=1", "ß", "`",
])  # fmt: skip
BETWEEN = st.sampled_from([" ", "", ", ", "\n", "/", "."])


@given(st.lists(st.tuples(PIECES, BETWEEN), max_size=12), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_was_anonymised_is_not_anonymised_again(
    pieces: list[tuple[str, str]], with_placeholders: bool
) -> None:
    """A second run over its own result changes nothing, and no known name is left."""
    text = "".join(part for piece in pieces for part in piece)
    names = Names(["Anna Berg", "Zoë O'Neill"], ["Apollo"])
    config = Anonymization(replace_with_placeholders=with_placeholders)
    once = Placeholders(names, config, placeholders_in(text)).text(text)
    assert Placeholders(names, config, placeholders_in(once)).text(once) == once
    assert not names.find(once)
