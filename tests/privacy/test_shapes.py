"""What is taken for a secret or for something personal, and what is not: held against the corpora
in corpus/."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smp_client import Anonymization, Redaction
from smp_client.privacy.placeholder import Names, Placeholders, placeholders_in
from smp_client.redaction.personal import personal
from smp_client.redaction.redact import PERSONAL_KINDS
from smp_client.redaction.secrets import SECRET_KINDS, Found, secrets

CORPUS = Path(__file__).parent.parent / "corpus"
Find = Callable[[str], list[Found]]
UNTIMED = settings(deadline=None)


def entries(name: str) -> list[tuple[str, str]]:
    """Each text of a corpus with the kind or group it stands under."""
    groups = yaml.safe_load((CORPUS / name).read_text())
    return [(group, text) for group, texts in groups.items() for text in texts]


def marked(text: str) -> tuple[str, list[tuple[int, int]]]:
    """A text without its marks, and where they were."""
    plain, spans = "", []
    for part in re.split("([⟦⟧])", text.replace("·", "")):
        if part == "⟦":
            start = len(plain)
        elif part == "⟧":
            spans.append((start, len(plain)))
        else:
            plain += part
    return plain, spans


def missed(find: Find, name: str) -> Iterator[str]:
    for kind, text in entries(name):
        plain, spans = marked(text)
        found = find(plain)
        if found != [Found(*span, kind) for span in spans]:
            spotted = [(plain[one.start : one.end], one.kind) for one in found]
            yield f"{kind}: {plain!r}: found {spotted}"


def touched(find: Find, name: str) -> Iterator[str]:
    for group, text in entries(name):
        if found := find(text):
            taken = [(text[one.start : one.end], one.kind) for one in found]
            yield f"{group}: {text!r}: taken {taken}"


@pytest.mark.parametrize(("find", "shapes", "look_alikes"), [
    (secrets, "secrets.yaml", "look-alikes.yaml"), (personal, "personal.yaml", "impersonal.yaml"),
], ids=["secrets", "personal"])  # fmt: skip
def test_every_shape_is_found_and_every_look_alike_kept(
    find: Find, shapes: str, look_alikes: str
) -> None:
    """Each marked span is found, exactly and as what it is, and nothing else is."""
    assert list(missed(find, shapes)) == []
    assert list(touched(find, look_alikes)) == []
    assert len(entries(shapes)) >= 60
    assert len(entries(look_alikes)) >= 100


def test_the_corpora_hold_every_kind() -> None:
    """Each kind that can be found has a shape in the corpus, and the corpus has no other."""
    assert {kind for kind, _ in entries("secrets.yaml")} == set(SECRET_KINDS)
    assert {kind for kind, _ in entries("personal.yaml")} == set(PERSONAL_KINDS)


SHAPES = [marked(text)[0] for _, text in entries("secrets.yaml")]


KEPT = [text for _, text in entries("look-alikes.yaml")]
GLUE = [
    "password", "token: ", "=", ": ", '"', "'", "\\n", "://", "@", "Bearer ", "--",
    "[redacted: token]", "&", "İ",
]  # fmt: skip
PIECES = st.sampled_from([*SHAPES, *KEPT, *GLUE]) | st.text(max_size=20)
MIXTURES = st.lists(PIECES, max_size=6).map("".join)


@UNTIMED
@given(MIXTURES)
@example("password=İghp_" + "aB3" * 12)
def test_what_is_found_is_in_the_text_in_order_and_never_overlaps(text: str) -> None:
    for find, kinds in ((secrets, SECRET_KINDS), (personal, PERSONAL_KINDS)):
        at = 0
        for found in find(text):
            assert at <= found.start < found.end <= len(text)
            assert found.kind in kinds
            at = found.end


@UNTIMED
@given(MIXTURES)
def test_redacting_once_is_enough(text: str) -> None:
    """A placeholder is not taken for a secret, alone or with the text around it."""
    once, _ = Redaction().redacted_value(text)
    assert Redaction().redacted_value(once) == (once, {})


HOSTILE = [
    "password" * 9, "ghp_", "sk-", "asksk-", "-eyJ", "eyJ.", "://x:", "://x:@", "a://b:c@d",
    "-----BEGIN PRIVATE KEY-----", "'password':", "password: '", 'token="', "pass(", "token for ",
    "key: |\n", "bearer ", "basic A", "machine a login b ", "1.1.1.", "@a.", "a@", "0 1", "DE89 ",
    "4111 ", "/a", "C:\\a b", "\\\\a\\", "2001:", "+4 ", "--token ", "xoxb-", ".a.",
    "AAAA:APA91b", ":AA", "8Q~", "\\", "_", "sig=%2", "x" * 50, "password=hunter2xyz ",
    "cookie: ", "cookie: a=b; ", "cookie: sess", "pass=abcd efgh ", "(555) 123-", "555.123.",
    "de89 ", "4111.", "password: a|", "authorization: bearer ", "password=" + "a" * 200,
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_hostile_text_comes_to_an_end(piece: str) -> None:
    """No pattern tries one way after the other: with `(?:[a-z]+)+:` in place of a name, no test
    run would see the end of it."""
    text = (piece * (40_000 // len(piece) + 1))[:40_000]
    secrets(text)
    personal(text)


def test_a_long_secret_goes_as_a_whole() -> None:
    """It is judged by its beginning, and nothing of its end stays."""
    secret = "aB3" * 1000
    for text in (f"token={secret}", f"--token {secret}", f"password: {secret} and more"):
        assert secret[-40:] not in Redaction().redacted_value(text)[0]


# Names, and the placeholder that each gets.

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


PARTS = st.sampled_from([
    "Anna Berg", "anna", "Berg_", "Zoë", "Apollo", "Apollo-", "anna.berg@example.org",
    "+49 170 1234567", "10.11.12.13", "User-1", "Email-1", "/path/1", "/Users/anna/x.py",
    "~/apollo", "password: hunter2xyz9", "token=Secret-1", "AKIAIOSFODNN7ABCDEFG",
    "4111 1111 1111 1111", "DE89370400440532013000", "2026-01-11T14:30:00Z", "DEC-001",
    "annotation", "\n", "'s", "[removed]", "https://example.org/anna?x=1", "ß", "`",
])  # fmt: skip
BETWEEN = st.sampled_from([" ", "", ", ", "\n", "/", "."])


@given(st.lists(st.tuples(PARTS, BETWEEN), max_size=12), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_was_anonymised_is_not_anonymised_again(
    parts: list[tuple[str, str]], with_placeholders: bool
) -> None:
    """A second run over its own result changes nothing, and no known name is left."""
    text = "".join(part for pair in parts for part in pair)
    names = Names(["Anna Berg", "Zoë O'Neill"], ["Apollo"])
    config = Anonymization(replace_with_placeholders=with_placeholders)
    once = Placeholders(names, config, placeholders_in(text)).text(text)
    assert Placeholders(names, config, placeholders_in(once)).text(once) == once
    assert not names.find(once)
