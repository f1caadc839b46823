"""Files that are one mapping: parts are replaced one by one, and a person's comments elsewhere
stay."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_values import canonical, keys, nested

from smp_client import CorruptionDetected
from smp_client.text.mapping import load_mapping, render_mapping, replace_parts
from smp_client.text.values import Value, load

HAND_WRITTEN = """\
# keep 1
version: 1
before: {a: b} # keep 2
session: # keep 3
  # keep 4
  id: s1 # in id
  storage:
    # in storage
    quota_bytes: 5
  # keep 5

  note: |
    some text

    # not a comment
  empty:
  # keep 6
  tags: [a,
    b] # in tags
# keep 7
after:
  - x # keep 8
"""
PARTS: dict[str, Value] = {
    "id": "s1", "storage": {"quota_bytes": 5}, "note": "some text\n\n# not a comment\n",
    "empty": None, "tags": ["a", "b"],
}  # fmt: skip

parts = st.dictionaries(keys, nested, max_size=4)


def after_changes(old: dict[str, Value], changes: dict[str, Value]) -> dict[str, Value]:
    new = {**old, **changes}
    return {name: new[name] for name in new if new[name] is not None or name not in changes}


def kept(content: bytes) -> list[bytes]:
    return re.findall(rb"# keep \d", content)


def forms() -> dict[str, bytes]:
    content = HAND_WRITTEN.encode()
    return {
        "as it is": content, "CRLF": content.replace(b"\n", b"\r\n"),
        "byte order mark, beyond ASCII": b"\xef\xbb\xbf" + HAND_WRITTEN.replace("# keep",
        "# ünï 🙂 # keep").encode(),
        "no line end": content.rstrip(),
        "wide": HAND_WRITTEN.replace("\n  ", "\n      ").encode(),
    }  # fmt: skip


@pytest.mark.parametrize("form", forms())
@pytest.mark.parametrize(
    "changes",
    [{"id": "s2"}, {"note": "x\ny"}, {"note": None}, {"empty": 1}, {"new": {"a": [1, {"b": 2}]}},
     {"id": "x", "tags": ["c"], "new": 1, "storage": None}],
)  # fmt: skip
def test_a_changed_part_leaves_the_comments_of_the_others(
    form: str, changes: dict[str, Value]
) -> None:
    """Comments outside the changed parts, the parts themselves and whatever stands beside the top
    key are as before."""
    content = forms()[form]
    after = replace_parts(content, "session", changes, "metadata.yaml")
    wanted = after_changes(PARTS, changes)
    assert load_mapping(after, "session", "metadata.yaml") == wanted
    assert kept(after) == kept(content)
    whole, before = load(after.decode("utf-8-sig")), load(content.decode("utf-8-sig"))
    assert isinstance(whole, dict)
    assert isinstance(before, dict)
    assert {**whole, "session": None} == {**before, "session": None}
    assert (b"# in storage" in after) == ("storage" not in changes)
    assert (b"# in id" in after) == ("id" not in changes)


@pytest.mark.parametrize(
    "content",
    [b'{"version": 1, "other": [1], "session": {"id": "s1", "x": 1}}',
     b"session: {id: s1, x: 1}\nother: [1]\n",
     b"? session\n: id: s1\n  x: 1\n? other\n: - 1\n"],
)  # fmt: skip
def test_a_style_that_cannot_be_spliced_is_rendered_with_all_it_holds(content: bytes) -> None:
    """Flow style and JSON lose their style, and nothing else."""
    after = replace_parts(content, "session", {"x": 2, "y": 3}, "f")
    assert load_mapping(after, "session", "f") == {"id": "s1", "x": 2, "y": 3}
    whole = load(after.decode())
    assert isinstance(whole, dict)
    assert whole["other"] == [1]


@given(
    parts,
    st.dictionaries(keys, nested | st.none(), max_size=4),
    st.dictionaries(keys, nested, max_size=2),
)
@settings(max_examples=100, deadline=None)
def test_any_change_of_any_mapping_gives_the_expected_mapping(
    old: dict[str, Value], changes: dict[str, Value], beside: dict[str, Value]
) -> None:
    """The result loads to the old parts with the changes; None takes one out; the rest of the file
    is the same."""
    content = render_mapping("top", old)
    if beside:
        content += render_mapping("x", beside).replace(b"version: 1\nx:", b"beside:", 1)
    after = replace_parts(content, "top", changes, "f")
    wanted = after_changes(old, changes)
    assert canonical(load_mapping(after, "top", "f")) == canonical(wanted)
    if beside:
        whole = load(after.decode())
        assert isinstance(whole, dict)
        assert canonical(whole["beside"]) == canonical(beside)


@pytest.mark.parametrize("content", [b"", b"# only a comment\n", b"\xef\xbb\xbf", b"---\n"])
def test_an_empty_file_has_no_parts_and_takes_some(content: bytes) -> None:
    """As a file that was just touched."""
    assert load_mapping(content, "top", "f") == {}
    assert load_mapping(replace_parts(content, "top", {"a": 1}, "f"), "top", "f") == {"a": 1}


@pytest.mark.parametrize(
    "content",
    [b"[]", b"text", b"other: 1\n", b"top: 1\n", b"top: {a: 1, a: 2}\n", b"top: {a: \xff}\n"],
)
def test_a_file_that_is_no_such_mapping_is_refused_by_name(content: bytes) -> None:
    """Neither read as empty nor overwritten."""
    with pytest.raises(CorruptionDetected, match=r"state\.yaml"):
        load_mapping(content, "top", "state.yaml")
    with pytest.raises(CorruptionDetected, match=r"state\.yaml"):
        replace_parts(content, "top", {"a": 1}, "state.yaml")
