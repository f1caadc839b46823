"""Record files as people write them: every style is read, nothing of it is lost, and no bytes at
all stop the reader."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_values import canonical

from smp_client import Memory, NewerFormat, Session
from smp_client.model.record import DECISION
from smp_client.text.document import Located, RecordList
from smp_client.text.edits import Edit, edited
from smp_client.text.format import format_of, is_plain, plain
from smp_client.text.values import Value, hash_of, load
from smp_client.text.yaml_list import parse

FORM = format_of(DECISION)
ONE: dict[str, Value] = {
    "id": "DEC-001", "made_by": "ann", "decision": "Use OAuth", "tags": ["a", "b"],
}  # fmt: skip
TWO: dict[str, Value] = {
    "id": "DEC-002", "made_by": "bob", "decision": "Line one\nline two\n", "n": 3,
}  # fmt: skip

# Each holds the records ONE and TWO, comments that begin with `# keep`, and no other record.
STYLES = {
    "ours": """\
version: 1
# keep 1
decisions:
  - id: DEC-001
    made_by: ann # keep 2
    decision: Use OAuth
    tags: [a, b]
  # keep 3

  - id: DEC-002
    made_by: bob
    decision: |
      Line one
      line two
    n: 3
# keep 4
""",
    "no indentation": """\
decisions: # keep 1
- id: DEC-001
  made_by: ann
  decision: Use OAuth
  tags:
  - a
  - b
# keep 2
- id: DEC-002
  made_by: bob
  decision: "Line one\\nline two\\n"
  n: 3
# keep 3
""",
    "flow list": """\
version: 1 # keep 1
decisions: [
  {id: DEC-001, made_by: ann, decision: Use OAuth, tags: [a, b]}, # keep 2
  {id: DEC-002, made_by: bob, decision: "Line one\\nline two\\n", n: 3} # keep 3
]
# keep 4
""",
    "list in the middle": """\
version: 1
decisions:
  - id: DEC-001
    made_by: ann
    decision: Use OAuth
    tags: [a, b]
  - id: DEC-002
    made_by: bob
    n: 3
    decision: |
      Line one
      line two
# keep 1
notes:
  # keep 2
  - id: DEC-999
    made_by: nobody
  - a, ] b
last: "x" # keep 3
""",
    "bare list": """\
# keep 1
- id: DEC-001
  made_by: ann
  decision: Use OAuth
  tags: [a, b]
# keep 2
- id: DEC-002
  made_by: bob
  decision: "Line one\\nline two\\n"
  n: 3
""",
}  # fmt: skip


# Not plain: the list is in flow style, bare, or not the last key.
ODD = ("flow list", "bare", "list in the middle")


def variants() -> dict[str, bytes]:
    """Each style as it is, with CRLF, behind a mark, beyond ASCII, without its last line end."""
    contents: dict[str, bytes] = {}
    for name, text in STYLES.items():
        contents[name] = text.encode()
        contents[f"{name}, CRLF"] = text.replace("\n", "\r\n").encode()
        if text.startswith("version"):
            contents[f"{name}, byte order mark"] = b"\xef\xbb\xbf" + text.encode()
        contents[f"{name}, beyond ASCII"] = text.replace("# keep", "# ünï 🙂 # keep").encode()
        contents[f"{name}, no line end"] = text.rstrip("\n").encode()
    return contents


CONTENTS = variants()
styles = pytest.mark.parametrize("style", CONTENTS)


def write(session: Session, content: bytes) -> Path:
    path = session.memory.root / session.scope.directory / "decisions.yaml"
    path.write_bytes(content)
    return path


def quarantined(session: Session) -> list[bytes]:
    kept = sorted((session.memory.root / "quarantine").rglob("*.bytes"))
    return [path.read_bytes() for path in kept]


def data(session: Session) -> list[dict[str, Any]]:
    return [record.data for record in session.records("decision")]


def values(found: RecordList) -> list[str]:
    return [canonical(record.value) for record in found.records]


@styles
def test_every_style_is_read_and_a_plain_one_has_spans(style: str) -> None:
    """The records are found in the order of the file, nothing is bad, and a short cut agrees.

    In a plain file every byte behind the head is one record's.
    """
    content = CONTENTS[style]
    found = parse(content, "decisions")
    assert [record.value for record in found.records] == [ONE, TWO]
    assert found.bad == []
    assert found.plain == is_plain(DECISION.file, content) == (not style.startswith(ODD))
    for memory_id in ("DEC-001", "DEC-002", "DEC-999"):
        assert FORM.find(content, memory_id) == found.find(memory_id)
    if found.plain:
        for record in found.records:
            assert load(content[record.start : record.end].decode()) == [record.value]
        assert [record.end for record in found.records] == [found.records[1].start, len(content)]


@styles
def test_an_append_keeps_every_byte_or_renders_the_file_plain(style: str, session: Session) -> None:
    """The bytes of a file that is not plain are in quarantine, whole."""
    path, is_odd = write(session, before := CONTENTS[style]), style.startswith(ODD)
    new = session.record_decision("New: one", made_by="carl")
    assert new.id == "DEC-003"
    assert data(session) == [ONE, TWO, new.data]
    after = path.read_bytes()
    assert after.startswith(before) != is_odd
    assert quarantined(session) == ([before] if is_odd else [])
    again = session.record_decision("And another", made_by="carl")
    assert data(session) == [ONE, TWO, new.data, again.data]
    assert path.read_bytes().startswith(after)
    assert session.problems() == []


@pytest.mark.parametrize(
    "content",
    [b"", b"# only\n# comments\n", b"# no line end", b"version: 1\n", b"version: 1\ndecisions:",
     b"version: 1\ndecisions:   # empty\n# so far\n", b"decisions: []\n", b"decisions: null\n",
     b"decisions: ~ # none\nversion: 1\n", b'{"version": 1, "decisions": []}', b"[]", b"---\n",
     b"\xef\xbb\xbfversion: 1\r\ndecisions:\r\n"],
)  # fmt: skip
def test_a_file_without_records_takes_its_first(content: bytes, session: Session) -> None:
    """The first record goes in, and no comment is lost."""
    path = write(session, content)
    assert (data(session), session.problems()) == ([], [])
    new = session.record_decision("first", made_by="ann")
    second = session.record_decision("second", made_by="ann")
    assert data(session) == [new.data, second.data]
    assert session.problems() == []
    there = b"".join([path.read_bytes(), *quarantined(session)])
    assert all(line in there for line in re.findall(rb"#[^\r\n]*", content))


@pytest.mark.parametrize(
    "content",
    [b"decisions:\n  - {id: DEC-001, decision: old}\n  - {id: DEC-001, decision: new}\n",
     b"decisions: [{id: DEC-001, decision: old}, {id: DEC-001, decision: new}]\n"],
)  # fmt: skip
def test_of_a_double_the_last_is_meant(session: Session, content: bytes) -> None:
    write(session, content.replace(b"DEC-001", b"DEC-001, made_by: a"))
    assert session.get("DEC-001").data["decision"] == "new"
    session.update("DEC-001", decision="newest")
    assert [record["decision"] for record in data(session)] == ["old", "newest"]


def test_a_copy_of_another_style_holds_no_secret_and_goes_with_a_purge(session: Session) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    said = "qqvelvet qqlantern qqmeadow qqharbour"
    record = f"{{id: DEC-001, made_by: a, decision: {said}}}"
    write(session, f"decisions: [{record}] # {token}\n".encode())
    session.update("DEC-001", rationale="because")
    (kept,) = quarantined(session)
    assert (said.encode() in kept, token.encode() in kept) == (True, False)
    assert Memory(session.memory.root).privacy.purge_now(session.id, ["DEC-001"]).problems == []
    assert quarantined(session) == []


# Damage.

BAD = {
    "unclosed quote": b'  - id: DEC-002\n    decision: "never closed\n',
    "duplicate key": b"  - id: DEC-002\n    decision: a\n    decision: b\n",
    "alias": b"  - id: DEC-002\n    decision: *other\n",
    "nested 30,000 deep": b"  - id: DEC-002\n    deep: " + b"[" * 30_000 + b"\n",
    "not UTF-8": b"  - id: DEC-002\n    decision: caf\xe9\n",
    "tab indentation": b"  - id: DEC-002\n\tdecision: a\n",
    "wrong indentation": b"  - id: DEC-002\n    decision: a\n   made_by: b\n",
    "conflict markers": b"<<<<<<< HEAD\n  - id: DEC-002\n=======\n    decision: a\n>>>>>>> other\n",
}
FIRST = b"  - id: DEC-001\n    made_by: ann\n    decision: first\n"
LAST = b"  - id: DEC-003\n    made_by: ann\n    decision: last\n"


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_hides_no_neighbour_and_stays(name: str, session: Session) -> None:
    """problems() names the file and a line of it; the next append keeps every byte."""
    content = b"version: 1\ndecisions:\n" + FIRST + BAD[name] + LAST
    path = write(session, content)
    assert [record["id"] for record in data(session)] == ["DEC-001", "DEC-003"]
    problem = session.problems()[0]
    assert problem.file == "decisions.yaml"
    assert 6 <= problem.line <= 5 + BAD[name].count(b"\n")
    new = session.record_decision('he said: " # c', made_by="ann")
    assert path.read_bytes().startswith(content)
    assert [record["id"] for record in data(session)] == ["DEC-001", "DEC-003", new.id]
    assert session.get(new.id).data == new.data
    assert quarantined(session) == []


def test_a_record_in_another_indentation_does_not_hide_the_one_before(session: Session) -> None:
    """A record of ours is read up to its last line; the lines behind are a problem, and stay."""
    first = session.record_decision("ours", made_by="ann")
    path = session.memory.root / session.scope.directory / "decisions.yaml"
    with path.open("ab") as file:
        file.write(foreign := b"- id: X\n  decision: foreign\n")
    assert data(session) == [first.data]
    assert [one.line for one in session.problems()] == [path.read_bytes().count(b"\n") - 1]
    second = session.record_decision("next", made_by="ann")
    assert data(session) == [first.data, second.data]
    assert foreign in path.read_bytes()


@pytest.mark.parametrize("memory_id", ["DEC-" + "9" * 5000, "DEC-²", "DEC-x", "other"])
@pytest.mark.parametrize("last_id", ["9" * 250, "-5", "true", "[]", "1.5"])
def test_odd_ids_do_not_stop_the_numbering(memory_id: str, last_id: str, session: Session) -> None:
    record = f"  - id: {memory_id}\n    decision: x\n  - id: DEC-004\n"
    write(session, f"last_id: {last_id}\ndecisions:\n{record}".encode())
    assert session.record_decision("next", made_by="ann").id == "DEC-005"


PIECES = (
    b"decisions:", b"\n", b"\r\n", b"\r", b"  ", b"- ", b"-", b"id: DEC-001", b"id: DEC-002 # smp",
    b"    ", b"a: b", b"decay: {}", b"'", b'"', b"[", b"]", b"{", b"}", b",", b"#", b" # c", b"|",
    b">", b"|+", b"---", b"...", b"? ", b": ", b"\xef\xbb\xbf", "é🙂\x85\u2028".encode(), b"\xff",
    b"\t", b"version: 1", b"\n  - id: DEC-003\n    a: b\n", b"\ndecisions:\n", b"\n    x: y\n",
    b"last_id: 3", b"&a", b"*a", b"!t", b"<<: ",
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A file in one of the styles with something put in, taken out or both."""
    content = draw(st.sampled_from(list(CONTENTS.values())))
    for _ in range(draw(st.integers(1, 3))):
        at, size = draw(st.integers(0, len(content))), draw(st.sampled_from((0, 0, 1, 2, 30)))
        content = content[:at] + draw(st.sampled_from((b"", *PIECES))) + content[at + size :]
    return content


@given(damaged() | st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join) | st.binary())
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_parsed_into_spans_that_are_true(content: bytes) -> None:
    """Never raises. No two spans overlap, and in a plain file each loads to its record alone."""
    found = parse(content, "decisions")
    position = 0
    for item in found.items():
        assert position <= item.start <= item.end <= len(content)
        position = item.end
        if isinstance(item, Located) and found.plain:
            value = load(content[item.start : item.end].decode())
            assert canonical(value) == canonical([item.value])
    assert position == len(content) or not found.plain or not found.records
    if not found.bad:
        for memory_id in ("DEC-001", "DEC-002", "DEC-003"):
            try:
                assert FORM.find(content, memory_id) == found.find(memory_id)
            except NewerFormat:
                return


@given(damaged())
@example(b"vlast_id: 31\ndecisions:\n  - id: DEC-001\n")
@settings(max_examples=200, deadline=None)
def test_a_file_rendered_plain_is_plain_and_says_the_same(content: bytes) -> None:
    """Rendering it again changes nothing, and no number that an id has had is given again."""
    try:
        after = plain(DECISION.file, content)
        found, now = FORM.parse(content), FORM.parse(after)
    except NewerFormat:
        return
    assert is_plain(DECISION.file, after)
    assert now.plain
    assert plain(DECISION.file, after) == after
    assert values(now) == values(found)
    assert now.head.keys() | {"version", "last_id"} == found.head.keys() | {"version", "last_id"}
    assert FORM.highest(now, after) == FORM.highest(found, content)


@example(
    b'decisions:\n  - decision: "\nLine one\n "\n    id: DEC-002\n'
    b"  - decay: {n: 1}\n    id: DEC-001\n",
    "DEC-001",
    False,
)
@given(damaged(), st.sampled_from(["DEC-001", "DEC-002", ""]), st.booleans())
@settings(max_examples=300, deadline=None)
def test_an_edit_of_any_file_touches_one_record_and_no_other(
    content: bytes, memory_id: str, is_removal: bool
) -> None:
    """A new record hides none; a changed or removed one leaves the others and the bad bytes."""
    content += b"" if memory_id else b"\n"
    try:
        found = FORM.parse(content)
    except NewerFormat:
        return
    meant = found.find(memory_id)
    new: dict[str, Value] = {"id": memory_id or "NEW-1", "text": "it's\n1", "decay": {"n": 1}}
    rendered = FORM.render(new, found.indent).decode()
    wanted = values(found)
    if not memory_id:
        edit = Edit("NEW-1", None, rendered, "")
        wanted.append(canonical(new))
    elif meant is None:
        return
    else:
        edit = Edit(memory_id, hash_of(meant.value), None if is_removal else rendered)
        at = found.records.index(meant)
        wanted[at : at + 1] = [] if is_removal else [canonical(new)]
    after = edited(DECISION, content, [edit], 7).content
    assert values(parse(after, "decisions")) == wanted
    if found.plain:
        assert all(content[bad.start : bad.end].strip() in after for bad in found.bad)
    if meant is not None and not is_removal and is_plain(DECISION.file, content):
        assert after.startswith(content[: meant.start].rstrip(b"\r\n"))
        assert after.endswith(content[meant.end :])
