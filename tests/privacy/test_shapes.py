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

from smp_client import Redaction
from smp_client.redaction.personal import PERSONAL_KINDS, personal
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


def test_the_second_half_of_a_key_of_aws_is_found_beside_the_first() -> None:
    """Whatever is called between them; and the hash of a commit in that place is none."""
    key, secret = "AKIA" + "Q4RTX7ZN2KLMPW5V", "B52KOYb3Yg6APZg225uX3NUF" + "0RSrWh2brn9ZzO1q"
    for between in (" secret ", "\n", ", and then: ", " / "):
        found = secrets(f"{key}{between}{secret}.")
        assert [one.kind for one in found] == ["aws_access_key", "aws_secret_key"]
        assert found[1].start == len(key + between)
    assert [one.kind for one in secrets(f"{key} since {'9f86d081' * 5}")] == ["aws_access_key"]


def test_the_corpora_hold_every_kind() -> None:
    """Each kind that can be found has a shape in the corpus, and the corpus has no other."""
    assert {kind for kind, _ in entries("secrets.yaml")} == set(SECRET_KINDS)
    assert {kind for kind, _ in entries("personal.yaml")} == set(PERSONAL_KINDS)


SHAPES = [marked(text)[0] for _, text in entries("secrets.yaml")]
WHITE = st.text(" \t\n", min_size=1, max_size=8)


@UNTIMED
@given(st.sampled_from(entries("secrets.yaml")), WHITE, WHITE)
def test_a_secret_is_found_whatever_white_space_is_around_it(
    entry: tuple[str, str], before: str, after: str
) -> None:
    plain, spans = marked(entry[1])
    found = secrets(before + plain + after)
    assert [(one.start - len(before), one.end - len(before)) for one in found] == spans


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
    once, _ = Redaction().redacted_text(text)
    assert Redaction().redacted_text(once) == (once, {})


@UNTIMED
@given(st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ \n", max_size=400))
@example("the password is secret and the token is bearer basic key")
def test_words_are_never_touched(text: str) -> None:
    assert secrets(text) == personal(text) == []


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
        assert secret[-40:] not in Redaction().redacted_text(text)[0]
