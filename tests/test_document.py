"""Record files as people write them: every style is read, its spans are right, and nothing of it is lost."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from smp_client import Memory, Session
from smp_client.model.record import DECISION
from smp_client.text import yaml_list
from smp_client.text.edits import Edit, edited, spans
from smp_client.text.fingerprint import hash_of
from smp_client.text.format import format_of, is_plain
from smp_client.text.values import Value, load
from smp_client.text.yaml_list import parse

ONE: dict[str, Value] = {"id": "DEC-001", "made_by": "ann", "decision": "Use OAuth", "tags": ["a", "b"]}
TWO: dict[str, Value] = {"id": "DEC-002", "made_by": "bob", "decision": "Line one\nline two\n", "n": 3}

# Each holds the records ONE and TWO, comments that begin with `# keep`, and nothing else in the list.
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
    "no indentation and a key behind": """\
decisions: # keep 1
- id: DEC-001
  made_by: ann
  decision: Use OAuth
  tags: [a, b]
# keep 2
- id: DEC-002
  made_by: bob
  decision: "Line one\\nline two\\n"
  n: 3
# keep 3
version: 1
# keep 4
""",
    "wide indentation": """\
version: 1
decisions:
        -   id:       DEC-001   # keep 1
            made_by:  ann
            decision: "Use OAuth"
            tags:
                - a
                # keep 2
                - b
        # keep 3
        -   id:       DEC-002
            made_by:  bob
            decision: >
                Line one

                line two
            n:        3
""",
    "dash on its own line": """\
version: 1
decisions:
    -
        # keep 1
        id: DEC-001
        made_by: ann
        decision: Use OAuth
        tags: ["a", 'b']
    # keep 2
    -

        id: DEC-002
        decision: |2+
          Line one
          line two
        made_by: bob
        n: 3
""",
    "flow records": """\
version: 1
decisions:
  # keep 1
  - {id: DEC-001, made_by: ann, decision: Use OAuth, tags: [a, b]} # keep 2
  - {id: DEC-002, made_by: bob,
     decision: "Line one\\nline two\\n", n: 3}
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
    "flow list with a comma at the end": """\
decisions: [
  # keep 1
  {id: DEC-001, made_by: ann, decision: Use OAuth, tags: [a, b]},
  # keep 2
  {id: DEC-002, made_by: bob, decision: "Line one\\nline two\\n", n: 3},
  # keep 3
]
version: 1
""",
    "json": """\
{
  "version": 1,
  "decisions": [
    {"id": "DEC-001", "made_by": "ann", "decision": "Use OAuth", "tags": ["a", "b"]},
    {"id": "DEC-002", "made_by": "bob", "decision": "Line one\\nline two\\n", "n": 3}
  ]
}
""",
    "json on one line": (
        '{"decisions":[{"id":"DEC-001","made_by":"ann","decision":"Use OAuth","tags":["a","b"]},'
        '{"id":"DEC-002","made_by":"bob","decision":"Line one\\nline two\\n","n":3}],"version":1}'
    ),
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
    "out of order": """\
version: 1
decisions:
  - n: 3
    decision: "Line one

      line two

      "
    made_by: bob
    id: DEC-002
  # keep 1
  - tags: [a,
      b]
    decision: Use
      OAuth
    made_by: 'ann'
    id: DEC-001
""",
    "quoted keys": """\
'version': 1
"decisions":
  - "id": "DEC-001"
    'made_by': ann
    "decision": Use OAuth
    "tags" : [a, b]
  - 'id': 'DEC-002' # keep 1
    made_by: bob
    ? decision
    : |
      Line one
      line two
    n: 3
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
    "bare flow list": (
        "[{id: DEC-001, made_by: ann, decision: Use OAuth, tags: [a, b]}, # keep 1\n"
        '{id: DEC-002, made_by: bob, decision: "Line one\\nline two\\n", n: 3}]\n'
    ),
    "a document with its signs": """\
%YAML 1.1
# keep 1
---
version: 1
decisions:
  - id: DEC-001
    made_by: ann
    decision: Use OAuth
    tags: [a, b]
  - id: DEC-002
    made_by: bob
    decision: |
      Line one
      line two
    n: 3
...
# keep 2
""",
    "an indented head": """\
  version: 1
  decisions:
    - id: DEC-001
      made_by: ann
      decision: Use OAuth
      tags: [a, b]
    # keep 1
    - id: DEC-002
      made_by: bob
      decision: "Line one\\nline two\\n"
      n: 3
""",
    "brackets on their own lines": """\
version: 1
decisions:
  - id: DEC-001
    made_by: ann
    decision: Use OAuth
    tags: [
      a,
      b, # keep 1
    ]
  # keep 2
  - {
      id: DEC-002, made_by: bob, decision: "Line one\\nline two\\n",
      n: 3
    }
""",
    "empty values at the end": """\
version: 1
decisions:
  - id: DEC-001
    made_by: ann
    decision: Use OAuth
    tags: [a, b]
  - id: DEC-002
    made_by: bob
    decision: "Line one\\nline two\\n"
    n:
      3
  # keep 1
""",
}  # fmt: skip


def variants() -> dict[str, bytes]:
    """Each style as it is, with the line ends of Windows, behind a byte order mark, beyond ASCII, and without its last line end."""
    contents: dict[str, bytes] = {}
    for name, text in STYLES.items():
        contents[name] = text.encode()
        contents[f"{name}, CRLF"] = text.replace("\n", "\r\n").encode()
        if not text.startswith("%"):
            contents[f"{name}, byte order mark"] = b"\xef\xbb\xbf" + text.encode()
        titled = re.sub(r"(?m)^version: 1", "title: ä→🙂\nversion: 1", text, count=1)
        titled = re.sub(r'("version"|"decisions")', r'"title": "ä→🙂", \1', titled, count=1) if name.startswith("json") else titled
        contents[f"{name}, beyond ASCII"] = titled.replace("# keep", "# ünï 🙂 # keep").encode()
        contents[f"{name}, no line end"] = text.rstrip("\n").encode()
    return contents


CONTENTS = variants()
styles = pytest.mark.parametrize("style", CONTENTS)


def test_a_bare_list_may_stand_right_behind_a_byte_order_mark() -> None:
    content = b"\xef\xbb\xbf- id: L1\n  learning: one\n- id: L2\n  learning: two\n"
    found = parse(content, "learnings")
    assert ([record.value["id"] for record in found.records], found.bad) == (["L1", "L2"], [])
    assert content[found.records[0].start :].startswith(b"- id: L1")


def expected(style: str) -> list[dict[str, Value]]:
    two = dict(TWO)
    records = [ONE, two]
    return records[::-1] if style.startswith("out of order") else records


def write(session: Session, content: bytes) -> Path:
    path = session.scope.tree.root / session.scope.directory / "decisions.yaml"
    path.write_bytes(content)
    return path


def quarantined(session: Session) -> list[bytes]:
    return [path.read_bytes() for path in sorted((session.scope.tree.root / "quarantine").rglob("*.bytes"))]


def data(session: Session) -> list[dict[str, Any]]:
    return [record.data for record in session.records("decision")]


@styles
def test_every_style_is_read(style: str) -> None:
    """The two records are found, in the order of the file, and nothing is taken for bad.

    Shown to fail: with the first dash looked for one byte too late, a list in an indented head was bad.
    """
    found = parse(CONTENTS[style], "decisions")
    assert [record.value for record in found.records] == expected(style)
    assert found.bad == []


# What is not plain: the list is in flow style, bare, not the last key, or its head is indented.
ODD = ("flow list", "json", "bare", "list in the middle", "no indentation and a key behind", "a document with", "an indented")


def is_odd(style: str) -> bool:
    return style.startswith(ODD)


@styles
def test_only_a_block_list_at_the_end_of_its_file_is_plain(style: str) -> None:
    """Whatever a person has written between and in the records."""
    content = CONTENTS[style]
    assert parse(content, "decisions").plain == is_plain(DECISION.file, content) == (not is_odd(style))


@styles
def test_the_span_of_a_record_holds_the_record_and_no_other(style: str) -> None:
    """The bytes from start to end load to the same value. In a plain file every byte behind the head is one record's.

    Shown to fail: with `Events` taking the end of the record for its last closing bracket, a span ended before the bracket.
    """
    content = CONTENTS[style]
    found = parse(content, "decisions")
    for record in found.records:
        value = load(content[record.start : record.end].decode())
        assert (value if isinstance(value, dict) else value[0]) == record.value  # type: ignore[index]
    assert all(one.end <= two.start for one, two in pairwise(found.records))
    if found.plain:
        assert [record.end for record in found.records] == [found.records[1].start, len(content)]


@styles
def test_one_record_is_found_as_in_the_whole(style: str) -> None:
    """`find_record` takes a short cut and must give what `parse` gives; an id in another list is not one of ours."""
    content = CONTENTS[style]
    found = parse(content, "decisions")
    for memory_id in ("DEC-001", "DEC-002", "DEC-999"):
        assert yaml_list.find_record(content, "decisions", memory_id) == found.find(memory_id)


@styles
def test_an_append_keeps_every_byte_or_renders_the_file_plain(style: str, session: Session) -> None:
    """The new record is the last and its id the next. The bytes of a file that is not plain are in quarantine, whole."""
    path = write(session, before := CONTENTS[style])
    new = session.record_decision("New: one", made_by="carl")
    assert new.id == "DEC-003"
    assert data(session) == [*expected(style), new.data]
    after = path.read_bytes()
    assert after.startswith(before) != is_odd(style)
    assert quarantined(session) == ([before] if is_odd(style) else [])
    again = session.record_decision("And another", made_by="carl")
    assert data(session) == [*expected(style), new.data, again.data]
    assert path.read_bytes().startswith(after)
    assert parse(after, "decisions").head == {"version": 1, **parse(before, "decisions").head} or not is_odd(style)
    assert session.problems() == []


@styles
@pytest.mark.parametrize("memory_id", ["DEC-001", "DEC-002"])
def test_an_update_leaves_all_other_bytes_alone(style: str, memory_id: str, session: Session) -> None:
    """Outside the lines of the changed record every byte of a plain file is as it was; so are the comments below it.

    Shown to fail: a record without `decay` could not be rendered at all before.
    """
    before = CONTENTS[style]
    path = write(session, before)
    found = parse(before, "decisions")
    span = found.find(memory_id)
    assert span is not None
    session.update(memory_id, rationale="because: of it")
    after = path.read_bytes()
    if found.plain:
        assert after.startswith(before[: span.start])
        assert after.endswith(before[span.end :])
        below = before[yaml_list.own_end(before, span) : span.end]
        now = parse(after, "decisions").find(memory_id)
        assert now is not None
        assert after[: now.end].endswith(below if below.endswith(b"\n") or not below else below + b"\n")
    assert session.get(memory_id).data["rationale"] == "because: of it"
    old = [record for record in expected(style) if record["id"] != memory_id]
    assert [record for record in data(session) if record["id"] != memory_id] == old
    assert session.problems() == []
    assert quarantined(session) == ([before] if is_odd(style) else [])


@styles
@pytest.mark.parametrize("removed", [["DEC-001"], ["DEC-002"], ["DEC-001", "DEC-002"]])
def test_a_removal_takes_out_the_lines_of_the_record_and_notes_the_number(style: str, removed: list[str]) -> None:
    """The others, the comments outside and the rest of the head stay; the number is never given again."""
    before, form = CONTENTS[style], format_of(DECISION)
    edits = [Edit(span.id, hash_of(span.value), None) for span in spans(DECISION, before).records if span.id in removed]
    after = edited(DECISION, before, edits, 2).content
    found, was = parse(after, "decisions"), parse(before, "decisions")
    assert [record.value for record in found.records] == [record for record in expected(style) if record["id"] not in removed]
    assert found.bad == []
    assert form.highest(found, after) == 2
    assert found.head == {**({"version": 1} if is_odd(style) else {}), **was.head, "last_id": 2}
    if was.plain:
        kept = [before[record.start : record.end] for record in was.records if record.value["id"] not in removed]
        start = min(record.start for record in was.records)
        assert re.sub(rb"last_id: 2\n", b"", after) == before[:start] + b"".join(kept)
    assert edited(DECISION, after, edits, 2) == (after, [])
    new = form.render({"id": "DEC-003", "decay": {}}, 2).decode()
    once_more = edited(DECISION, after, [Edit("DEC-003", None, new, "")], 3).content
    assert [record.value["id"] for record in parse(once_more, "decisions").records][-1] == "DEC-003"


def test_a_removal_writes_the_number_over_the_old_one() -> None:
    """`last_id` stands once, whatever its style and place."""
    for content in (
        b"version: 1\nlast_id: 7\ndecisions:\n  - id: DEC-001\n", b"decisions:\n  - id: DEC-001\nlast_id: 7\n",
        b'{"last_id": 7, "decisions": [{"id": "DEC-001"}]}', b"{decisions: [{id: DEC-001}], last_id: 7}",
        b"'last_id': seven # x\ndecisions:\n- id: DEC-001\n",
    ):  # fmt: skip
        (span,) = spans(DECISION, content).records
        after = edited(DECISION, content, [Edit("DEC-001", hash_of(span.value), None)], 9).content
        assert parse(after, "decisions").head["last_id"] == 9, after
        assert after.count(b"last_id") == 1
        assert parse(after, "decisions").bad == []


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"# only\n# comments\n", b"# no line end", b"version: 1\n", b"version: 1\ndecisions:\n",
     b"version: 1\ndecisions:",
     b"version: 1\ndecisions:   # empty\n# so far\n", b"decisions: []\n", b"decisions: [ ] # c\nversion: 1\n", b"decisions: null\n",
     b"decisions: ~ # none\nversion: 1\n", b'{"decisions": null}', b'{"version": 1, "decisions": []}', b"[]", b"---\n",
     b"\xef\xbb\xbfversion: 1\r\ndecisions:\r\n"],
)  # fmt: skip
def test_a_file_without_records_takes_its_first(content: bytes, session: Session) -> None:
    """Nothing, only comments, an empty list, no list, `null`: the first record goes in, and no comment is lost.

    Shown to fail: behind `decisions: null` the first record made the whole file unreadable.
    """
    path = write(session, content)
    assert data(session) == []
    assert session.problems() == []
    new = session.record_decision("first", made_by="ann")
    second = session.record_decision("second", made_by="ann")
    assert data(session) == [new.data, second.data]
    assert session.problems() == []
    after = path.read_bytes()
    there = b"".join([after, *quarantined(session)])
    assert all(line in there for line in re.findall(rb"#[^\r\n]*", content))
    loaded = yaml.safe_load(after)
    assert len(loaded["decisions"] if isinstance(loaded, dict) else loaded) == 2


def test_a_double_is_changed_and_removed_as_it_is_found(session: Session) -> None:
    """Of two records with one id the last is meant, in every style; the other is never overwritten.

    Shown to fail: in a flow list an update once replaced both with the new text.
    """
    for content in (
        b"decisions:\n  - {id: DEC-001, made_by: a, decision: old}\n  - {id: DEC-001, made_by: a, decision: new}\n",
        b"decisions: [{id: DEC-001, made_by: a, decision: old}, {id: DEC-001, made_by: a, decision: new}]\n",
    ):
        write(session, content)
        assert session.get("DEC-001").data["decision"] == "new"
        session.update("DEC-001", decision="newest")
        assert [record["decision"] for record in data(session)] == ["old", "newest"]


def test_what_is_kept_of_another_style_holds_no_secret_and_goes_with_a_purge(session: Session) -> None:
    """A write must not leave what it takes out of a file in a copy that nobody looks at."""
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    said = "qqvelvet qqlantern qqmeadow qqharbour"
    write(session, f"decisions: [{{id: DEC-001, made_by: a, decision: {said}}}] # {token}\n".encode())
    session.update("DEC-001", rationale="because")
    assert [(said.encode() in kept, token.encode() in kept) for kept in quarantined(session)] == [(True, False)]
    assert Memory(session.scope.tree.root).purge_now(session.id, ["DEC-001"]).problems == []
    assert quarantined(session) == []


def test_metadata_in_another_style_are_kept_too(session: Session) -> None:
    path = session.scope.tree.root / session.scope.directory / "metadata.yaml"
    path.write_bytes(before := b"{version: 1, session: {id: s1, status: active}} # mine\n")
    session.update_metadata(context={"project_phase": "design"})
    assert session.metadata()["context"] == {"project_phase": "design"}
    assert quarantined(session) == [before]
    session.update_metadata(context={"project_phase": "build"})
    assert len(quarantined(session)) == 1
