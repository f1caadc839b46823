"""The conversation: every text comes back the same, and what people write into it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_values import TRICKY, canonical, keys, nested, texts

from smp_client import MemoryNotFound, Session
from smp_client.model.record import TURN
from smp_client.text.edits import Edit, edited
from smp_client.text.markdown import Conversation
from smp_client.text.values import Value

FORM = Conversation()
HEADER = b"# Conversation History\n**Session:** s1\n**Format-Version:** 1\n\n---\n\n"
AT = "2026-01-11T14:30:00Z"
UNREAD: dict[str, Value] = {"priority": 1.0, "last_accessed": AT, "access_count": 0, "base_priority": 1.0}  # fmt: skip
DECAYS = st.just(UNREAD) | st.dictionaries(keys, nested, max_size=2)
NAMES = ("type", "tags", "memory_refs", "pinned", "Type")
turns_of_ours = st.fixed_dictionaries(
    {"speaker": texts, "content": texts, "decay": DECAYS},
    optional={**dict.fromkeys(NAMES, nested), "fields": texts},
)


def turn(number: int, **fields: Any) -> dict[str, Value]:
    head = {"id": f"turn-{number}", "turn": number, "timestamp": AT, "speaker": "ann"}
    return {**head, "type": "message", "content": "hello", "decay": UNREAD, **fields}


def values(content: bytes) -> list[str]:
    return [canonical(located.value) for located in FORM.parse(content).records]


def changed(content: bytes, new: dict[str, Value]) -> bytes:
    """The conversation with one more turn."""
    edit = Edit(str(new["id"]), None, FORM.render(new).decode())
    return edited(TURN, content, [edit], 77).content


def conversation(session: Session) -> Path:
    return session.memory.root / session.scope.directory / "conversation.md"


@given(st.lists(turns_of_ours, max_size=3))
@example(
    [{"speaker": "a", "content": "\\## Turn 1\n\\\\---\n---\n\\<!-- smp -->", "decay": UNREAD}]
)
@example([{"speaker": "", "content": "\ufeff## Turn 0", "decay": UNREAD}])
@settings(max_examples=100, deadline=None)
def test_any_turn_comes_back_the_same(bodies: list[dict[str, Value]]) -> None:
    """parse(render_turn) is the identity, for any text, any field and several turns behind each
    other."""
    turns = [turn(number, **body) for number, body in enumerate(bodies, 1)]
    content = HEADER + b"".join(map(FORM.render, turns))
    assert values(content) == [canonical(value) for value in turns]


@given(st.lists(st.sampled_from(TRICKY), max_size=6).map("\n".join))
@settings(max_examples=30, deadline=None)
def test_a_text_that_is_cut_anywhere_never_looks_closed(text: str) -> None:
    """Of a turn of ours no proper beginning is read as a turn: half of what was said is nobody's
    turn."""
    whole = HEADER + FORM.render(turn(1)) + FORM.render(turn(2, content=text))
    start = len(HEADER + FORM.render(turn(1)))
    for cut in range(start, len(whole.rstrip())):
        found = FORM.parse(whole[:cut])
        assert [located.value["id"] for located in found.records] == ["turn-1"]
        torn = FORM.torn(found, whole[:cut])
        assert torn == (None if cut == start else start)


HAND_WRITTEN = b"""\
# Our talk

## Turn 1 - 2026-01-11 14:30:00
**Speaker:** ann
**Mood:** quite happy
**Tags:** [oauth, mfa]

First of all:

---

a rule is not the end.

---

## Turn 2
**Speaker:** bob

No time, no closing line, and a rule

---
in the middle

## Turn 3 - 2026-01-11T15:00:00+01:00
**Speaker:** "carl"
No blank line.
---
"""


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_turns_written_by_hand_are_read(line_end: bytes) -> None:
    """With rules inside, with no closing line, with no time, with unknown fields, with either line
    end."""
    found = FORM.parse(HAND_WRITTEN.replace(b"\n", line_end))
    assert found.bad == []
    one, two, three = [located.value for located in found.records]
    assert one == {
        "id": "turn-1", "turn": 1, "timestamp": "2026-01-11T14:30:00Z", "speaker": "ann",
        "mood": "quite happy",
        "tags": ["oauth", "mfa"], "content": "First of all:\n\n---\n\na rule is not the end.",
        "decay": UNREAD,
    }  # fmt: skip
    text = "No time, no closing line, and a rule\n\n---\nin the middle"
    assert two == {"id": "turn-2", "turn": 2, "speaker": "bob", "content": text}
    assert (three["timestamp"], three["content"]) == ("2026-01-11T14:00:00Z", "No blank line.")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_change_of_one_turn_leaves_the_bytes_of_the_others(number: int, session: Session) -> None:
    """Also of a turn without a time; its unknown fields are kept."""
    conversation(session).write_bytes(HAND_WRITTEN)
    span = FORM.find(HAND_WRITTEN, f"turn-{number}")
    assert span is not None
    before = {record.id: record.data for record in session.turns()}
    session.pin(f"turn-{number}")
    after = conversation(session).read_bytes()
    assert after.startswith(HAND_WRITTEN[: span.start])
    assert after.endswith(HAND_WRITTEN[span.end :])
    now = {record.id: record.data for record in session.turns()}
    stamp = now[f"turn-{number}"].pop("updated_at")
    assert now.pop(f"turn-{number}") == {**before.pop(f"turn-{number}"), "pinned": True}
    assert now == before
    assert stamp
    assert session.problems() == []


@pytest.mark.parametrize(
    "content",
    [b"", b"just notes, no head", b"\xef\xbb\xbf## Turn 1\n\nbehind a byte order mark\n", b"## Turn 1",
     b"## Turn x\n\nno number\n", b"## Turn 1\n\nopen, and a rule\n\n---\n\nin it\n",
     b"## Turn 12345678901234567890\n\ntoo many digits\n"],
)  # fmt: skip
def test_a_conversation_with_little_in_it_takes_a_turn(content: bytes, session: Session) -> None:
    """Whatever stands there stays, and what is a turn counts as one."""
    conversation(session).write_bytes(content)
    known = [record.data for record in session.turns()]
    assert len(known) == (1 if b"## Turn 1\n" in content or content == b"## Turn 1" else 0)
    new = session.add_turn("ann", "next")
    assert conversation(session).read_bytes().startswith(content)
    assert [record.data for record in session.turns()] == [*known, new.data]


@pytest.mark.parametrize(
    "bad",
    [b"## Turn 2 - yesterday\n\nhi\n\n---\n", b"## Turn 2\n**Fields:** {oops\n\nhi\n\n---\n",
     b"## Turn 2\n\ncaf\xe9\n\n---\n",
     b"## Turn 2\n**Fields:** " + b"[" * 100_000 + b"\n\nhi\n\n---\n",
     b"## Turn 2\n**Decay:** *a\n\nhi\n"],
)  # fmt: skip
def test_a_bad_turn_does_not_hide_its_neighbours(bad: bytes, session: Session) -> None:
    """The others are read, problems() names file and line, its number is not given again, and
    nothing is lost."""
    content = HEADER + FORM.render(turn(1)) + bad + b"\n" + FORM.render(turn(3))
    conversation(session).write_bytes(content)
    assert [record.id for record in session.turns()] == ["turn-1", "turn-3"]
    (problem,) = session.problems()
    line = (HEADER + FORM.render(turn(1))).count(b"\n") + 1
    assert (problem.file, problem.line) == ("conversation.md", line)
    assert session.add_turn("ann", "next").id == "turn-4"
    assert conversation(session).read_bytes().startswith(content)


def test_of_a_double_the_last_is_meant(session: Session) -> None:
    """As in the record files; the other stays as it is.

    A number in another spelling is another id.
    """
    conversation(session).write_bytes(
        b"## Turn 1\n**Speaker:** a\n\nold\n\n---\n\n## Turn 1\n**Speaker:** a\n\nnew\n\n---\n"
    )
    assert session.get("turn-1").text == "new"
    session.pin("turn-1")
    pinned = [(record.text, record.pinned) for record in session.turns()]
    assert pinned == [("old", False), ("new", True)]
    with pytest.raises(MemoryNotFound, match="turn-01"):
        session.get("turn-01")


PIECES = (b"## Turn 1", b"\n", b"---", b"<!-- smp -->", b"**A:** b", b"\r", b"x", b" - ", b"\\",
          b"## Turn ", b"<!-- ",)  # fmt: skip


@given(st.binary(max_size=60) | st.lists(st.sampled_from(PIECES)).map(b"".join))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_parsed_without_an_error(content: bytes) -> None:
    """Nothing is ever raised, spans do not overlap, and a turn that is added is the last and hides
    none."""
    found = FORM.parse(content)
    position = 0
    for item in sorted(found.items(), key=lambda item: item.start):
        assert position <= item.start < item.end <= len(content)
        position = item.end
    torn = FORM.torn(found, content)
    kept = (content if torn is None else content[:torn]).rstrip(b"\r") + b"\n"
    before = values(kept)
    new = turn(77)
    assert values(changed(kept, new)) == [*before, canonical(new)]
