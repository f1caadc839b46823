"""Record files with something bad in them: the rest is read, every byte is kept, and no bytes at all stop the reader."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_document import CONTENTS, data, quarantined, write
from test_values import HOSTILE

from smp_client import NewerFormat, Session
from smp_client.model.record import DECISION
from smp_client.text import yaml_list
from smp_client.text.document import Located
from smp_client.text.edits import Edit, edited
from smp_client.text.fingerprint import hash_of
from smp_client.text.format import format_of, is_plain, plain
from smp_client.text.values import Value, canonical, load
from smp_client.text.yaml_list import parse

BAD = {
    "unclosed quote": b'  - id: DEC-002\n    decision: "never closed\n',
    "unclosed bracket": b"  - id: DEC-002\n    tags: [a, b\n",
    "duplicate key": b"  - id: DEC-002\n    decision: a\n    decision: b\n",
    "alias": b"  - id: DEC-002\n    decision: *other\n",
    "anchor": b"  - id: DEC-002\n    decision: &other a\n",
    "tag": b"  - id: DEC-002\n    decision: !!binary aGk=\n",
    "merge key": b"  - id: DEC-002\n    <<: {a: b}\n",
    "nested 100 deep": b"  - id: DEC-002\n    deep: " + b"[" * 100 + b"]" * 100 + b"\n",
    "nested 30,000 deep": b"  - id: DEC-002\n    deep: " + b"[" * 30_000 + b"\n",
    "not UTF-8": b"  - id: DEC-002\n    decision: caf\xe9\n",
    "tab indentation": b"  - id: DEC-002\n\tdecision: a\n",
    "control character": b"  - id: DEC-002\n    decision: a\x01b\n",
    "wrong indentation": b"  - id: DEC-002\n    decision: a\n   made_by: b\n",
    "two colons": b"  - id: DEC-002\n    decision: this: that\n",
    "conflict markers": b"<<<<<<< HEAD\n  - id: DEC-002\n=======\n    decision: a\n>>>>>>> other\n",
    "a NUL": b"  - id: DEC-002\n    decision: a\x00b\n",
}
bad_ones = pytest.mark.parametrize("name", BAD)


def with_neighbours(bad: bytes) -> bytes:
    first = b"  - id: DEC-001\n    made_by: ann\n    decision: first\n"
    last = b"  - id: DEC-003\n    made_by: ann\n    decision: last\n"
    return b"version: 1\ndecisions:\n" + first + bad + last


@bad_ones
def test_a_bad_record_does_not_hide_its_neighbours(name: str, session: Session) -> None:
    """Those before and behind are read; problems() names the file and a line of the bad one; its number is not given again.

    Shown to fail: with `parse` giving up where `_parse_whole` fails, no record was read.
    """
    write(session, with_neighbours(BAD[name]))
    ids = [record["id"] for record in data(session)]
    assert ids == ["DEC-001", "DEC-003"]
    lines = BAD[name].count(b"\n")
    (problem,) = session.problems()[:1]
    assert problem.file == "decisions.yaml"
    assert 6 <= problem.line <= 5 + lines  # and not one of the good one behind it
    assert problem.problem


def test_a_quote_that_is_not_closed_is_told_where_it_begins(session: Session) -> None:
    """libyaml notices it where the record ends, which is where the next one begins."""
    write(session, with_neighbours(BAD["unclosed quote"] + b"    made_by: hand\n"))
    assert [(problem.line, problem.problem) for problem in session.problems()] == [(7, "a quote is not closed")]


@bad_ones
def test_the_next_append_loses_nothing_of_a_bad_record(name: str, session: Session) -> None:
    """In the middle or at the end it stays where it is, byte for byte, and the new record is read behind it."""
    for content in (with_neighbours(BAD[name]), b"version: 1\ndecisions:\n" + BAD[name]):
        path = write(session, content)
        known = [record["id"] for record in data(session)]
        new = session.record_decision('he said: " # c', made_by="ann")
        assert path.read_bytes().startswith(content)
        assert [record["id"] for record in data(session)] == [*known, new.id]
        assert session.get(new.id).data == new.data
        assert session.problems()
        assert quarantined(session) == []


@bad_ones
def test_a_bad_record_without_a_line_end_is_in_the_file_or_set_aside(name: str, session: Session) -> None:
    """What may be half of a line is not guessed at: it goes to the quarantine with a note, byte for byte."""
    content = with_neighbours(b"") + BAD[name].rstrip(b"\n").replace(b"DEC-002", b"DEC-009")
    path = write(session, content)
    new = session.record_decision("next", made_by="ann")
    assert "DEC-001" in [record["id"] for record in data(session)]
    assert data(session)[-1] == new.data
    assert new.id in ("DEC-010", "DEC-009")
    after = path.read_bytes()
    aside = b"".join(quarantined(session))
    assert content.endswith(aside)
    assert after.startswith(content.removesuffix(aside))


def test_an_unclosed_quote_cannot_swallow_a_record_of_ours(session: Session) -> None:
    """Up to the next quote the file may still be YAML, with the record in between as a part of a text: it is shown all the same.

    Shown to fail: without `_refuse_hidden`, DEC-003 was not among the records.
    """
    write(session, b"version: 1\ndecisions:\n  - id: DEC-002\n    decision: 'never closed\n")
    new = session.record_decision("x' # c", made_by="ann")
    assert [record["id"] for record in data(session)] == [new.id]


def test_what_an_agent_appends_in_another_indentation_does_not_hide_the_record_before(session: Session) -> None:
    """The record of ours is read up to its last line; what stands behind is a problem, and stays.

    Shown to fail: both were one bad record before.
    """
    first = session.record_decision("ours", made_by="ann")
    path = session.scope.tree.root / session.scope.directory / "decisions.yaml"
    with path.open("ab") as file:
        file.write(b"- id: X\n  decision: foreign\n")
    assert data(session) == [first.data]
    assert session.get(first.id).data == first.data
    assert [problem.line for problem in session.problems()] == [path.read_bytes().count(b"\n") - 1]
    second = session.record_decision("next", made_by="ann")
    assert data(session) == [first.data, second.data]
    assert b"- id: X\n  decision: foreign\n" in path.read_bytes()


def test_a_field_added_by_hand_to_the_last_record_belongs_to_it(session: Session) -> None:
    """Also without a line end, and although the next writer reads only what was added.

    Shown to fail: the added line was once set aside as a torn record.
    """
    first = session.record_decision("ours", made_by="ann")
    path = session.scope.tree.root / session.scope.directory / "decisions.yaml"
    with path.open("ab") as file:
        file.write(b"    mood: happy")
    second = session.record_decision("next", made_by="ann")
    assert data(session) == [{**first.data, "mood": "happy"}, second.data]
    assert quarantined(session) == []


def test_a_record_of_a_person_without_mark_or_decay_is_never_set_aside(session: Session) -> None:
    """With and without a line end; as the only record and behind others.

    Shown to fail: asking every last record for its `decay` set this one aside.
    """
    for content in (
        b"  - id: DEC-001\n    decision: mine\n    made_by: me\n", b"  - id: DEC-001\n    decision: mine\n    made_by: me",
        b"  - decision: mine\n    id: DEC-001\n    made_by: me",
        b"  - id: DEC-001 # by hand\n    decision: mine\n    made_by: me\n\n\n",
    ):  # fmt: skip
        write(session, b"decisions:\n" + content)
        new = session.record_decision("next", made_by="ann")
        assert data(session)[0] == {"id": "DEC-001", "decision": "mine", "made_by": "me"}
        assert data(session)[1:] == [new.data]
        assert quarantined(session) == []


def test_an_editor_that_drops_the_last_line_end_costs_nothing(session: Session) -> None:
    """A record of ours is whole with its `decay`; the line end behind is not needed.

    Shown to fail: such a record was once set aside.
    """
    first = session.record_decision("ours", made_by="ann")
    path = session.scope.tree.root / session.scope.directory / "decisions.yaml"
    path.write_bytes(path.read_bytes().rstrip())
    second = session.record_decision("next", made_by="ann")
    assert data(session) == [first.data, second.data]
    assert quarantined(session) == []


@pytest.mark.parametrize("memory_id", ["DEC-" + "9" * 5000, "DEC-" + "9" * 16, "DEC-²", "DEC-x", "other"])
def test_an_odd_id_does_not_stop_the_numbering(memory_id: str, session: Session) -> None:
    """Shown to fail: 5,000 digits once raised ValueError in the next append."""
    write(session, f"decisions:\n  - id: {memory_id}\n    decision: x\n  - id: DEC-004\n".encode())
    assert session.record_decision("next", made_by="ann").id == "DEC-005"


@pytest.mark.parametrize("last_id", ["9" * 250, "-5", "true", "[]", "x", "1.5"])
def test_an_odd_last_id_does_not_stop_the_numbering(last_id: str, session: Session) -> None:
    """It counts only where it can be a number that was given."""
    write(session, f"last_id: {last_id}\ndecisions:\n  - id: DEC-004\n    decision: x\n".encode())
    assert session.record_decision("next", made_by="ann").id == "DEC-005"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_bad_and_nothing_more(name: str, session: Session) -> None:
    """As the whole file, as the head and as a record: reading gives problems, adding adds, and what stood there stays."""
    hostile = HOSTILE[name].encode("utf-8", "replace")
    first = b"decisions:\n  - id: DEC-001\n"
    for content in (hostile, hostile + b"\n" + first, first + b"    x: " + hostile + b"\n"):
        path = write(session, content)
        session.records("decision")
        assert session.problems()
        if len(content) < 5_000_000:
            new = session.record_decision("next", made_by="ann")
            assert data(session)[-1] == new.data
            assert b"".join([path.read_bytes(), *quarantined(session)]).count(hostile) >= 1


def test_many_bad_lines_are_each_named_by_their_line() -> None:
    """The line of each is counted on from the one before, not from the top of the file."""
    content = b"decisions:\n" + b"  - x\n" * 20_000 + b'  - "\n'
    found = parse(content, "decisions")
    assert [bad.line for bad in found.bad[:20_000]] == list(range(2, 20_002))
    assert len(found.bad) == 20_001


PIECES = (
    b"decisions:", b"\n", b"\r\n", b"\r", b"  ", b"- ", b"-", b"id: DEC-001", b"id: DEC-002 # smp", b"    ", b"a: b", b"decay: {}",
    b"'", b'"', b"[", b"]", b"{", b"}", b",", b"#", b" # c", b"|", b">", b"|+", b"---", b"...", b"? ", b": ", b"\xef\xbb\xbf",
    "é🙂\x85\u2028".encode(), b"\xff", b"\t", b"version: 1", b"\n  - id: DEC-003\n    a: b\n", b"\ndecisions:\n", b"\n    x: y\n",
    b"last_id: 3", b"&a", b"*a", b"!t", b"<<: ",
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A file in one of the styles with something put in, taken out or both."""
    content = draw(st.sampled_from(list(CONTENTS.values())))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.sampled_from((b"", *PIECES))) + content[at + draw(st.sampled_from((0, 0, 1, 2, 30))) :]
    return content


@given(damaged() | st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join) | st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_parsed_without_an_error_into_spans_that_are_true(content: bytes) -> None:
    """Never raises; each span loads to its record alone, no two overlap, and `find_record` agrees where nothing is bad. Behind the
    head of a plain file every byte is in a span."""
    found = parse(content, "decisions")
    items = sorted(found.items(), key=lambda item: item.start)
    position = 0
    for item in items:
        assert position <= item.start <= item.end <= len(content)
        assert position in (0, item.start) or not found.plain or item is items[1]
        position = item.end
        if isinstance(item, Located):
            text = content[item.start : item.end].decode()
            value = load(text)
            assert canonical(value if isinstance(value, list) else [value]) == canonical([item.value])
    assert position == len(content) or not found.plain or not found.records
    if not found.bad:
        for memory_id in ("DEC-001", "DEC-002", "DEC-003"):
            assert yaml_list.find_record(content, "decisions", memory_id) == found.find(memory_id)


@given(damaged())
@settings(max_examples=200, deadline=None)
def test_whatever_is_rendered_plain_is_plain_and_says_the_same(content: bytes) -> None:
    """Rendering it again changes nothing, and no number that an id has had is given again."""
    form = format_of(DECISION)
    try:
        after = plain(DECISION.file, content)
        found, now = form.parse(content), form.parse(after)
    except NewerFormat:
        return
    assert is_plain(DECISION.file, after)
    assert now.plain
    assert plain(DECISION.file, after) == after
    assert [canonical(record.value) for record in now.records] == [canonical(record.value) for record in found.records]
    assert now.head.keys() | {"version", "last_id"} == found.head.keys() | {"version", "last_id"}
    assert form.highest(now, after) == form.highest(found, content)


@given(damaged().map(lambda content: content + b"\n"))
@settings(max_examples=200, deadline=None)
def test_an_insert_into_any_file_adds_one_record_and_hides_none(content: bytes) -> None:
    """All that was read before is read after, the new record is there, and a plain file has all of its bytes."""
    form = format_of(DECISION)
    new: dict[str, Value] = {"id": "NEW-1", "text": "it's: 1", "decay": {"n": 1}}
    try:
        found = form.parse(content)
        after = edited(DECISION, content, [Edit("NEW-1", None, form.render(new, 2).decode(), "")], 1).content
    except NewerFormat:
        return
    values = [canonical(record.value) for record in parse(after, "decisions").records]
    assert values == [*(canonical(record.value) for record in found.records), canonical(new)]
    assert after.startswith(content) or not found.plain


@given(damaged(), st.sampled_from(["DEC-001", "DEC-002"]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_rewrite_of_any_file_changes_one_record_and_no_other(content: bytes, memory_id: str, remove: bool) -> None:
    """The others load to what they were; what was bad in a plain file stays, byte for byte."""
    form = format_of(DECISION)
    try:
        found = form.parse(content)
    except NewerFormat:
        return
    meant = found.find(memory_id)
    if meant is None:
        return
    new: dict[str, Value] = {"id": memory_id, "text": "new\ntext", "decay": {"n": 1}}
    rendered = None if remove else form.render(new, found.indent).decode()
    after = edited(DECISION, content, [Edit(memory_id, hash_of(meant.value), rendered)], 7).content
    again = [canonical(record.value) for record in parse(after, "decisions").records]
    others = [record for record in found.records if record is not meant]
    first = min(record.start for record in found.records)
    if found.bad and found.plain:
        # Its lines may be read in another way by then: as records of another indentation, or of another list.
        assert all(content[item.start : item.end] in after for item in (*others, *found.bad) if item.start >= first)
        return
    assert [value for value in again if value != canonical(new)] == [canonical(record.value) for record in others]
    assert again.count(canonical(new)) == (0 if remove else 1)
