"""Files that are one mapping: each change keeps every value, and comments go to quarantine."""

from __future__ import annotations

import pytest
from bytes_left import files_with
from hypothesis import given, settings
from hypothesis import strategies as st
from test_values import canonical, keys, nested

from smp_client import CorruptionDetected, Session
from smp_client.text.mapping import is_plain, load_mapping, render_mapping, replace_parts
from smp_client.text.values import Value, load

parts = st.dictionaries(keys, nested, max_size=4)


def after_changes(old: dict[str, Value], changes: dict[str, Value]) -> dict[str, Value]:
    new = {**old, **changes}
    return {name: new[name] for name in new if new[name] is not None or name not in changes}


COMMENTED = b"""\
\xef\xbb\xbf# why: \xc3\xbcber
version: 1
agent_state: # of today
      agent_id: ada
      note: "# no comment"
      password:
        # from the vault
        hunter2xyzabc
other: [1]
"""


def pieces(session: Session) -> list[bytes]:
    home = session.memory.root / "quarantine"
    return [path.read_bytes() for path in home.rglob("*.bytes")]


def test_a_file_with_comments_is_quarantined_without_secrets_before_it_is_rendered(
    session: Session,
) -> None:
    """A person's comment must not vanish, and a copy must not keep a secret from the redaction."""
    file = session.memory.root / "active/s1/agent-states/ada.yaml"
    file.write_bytes(COMMENTED)
    session.save_agent_state("ada", {"password": None, "next": "#1"})
    [piece] = pieces(session)
    assert piece == COMMENTED.replace(b"hunter2xyzabc", b"redacted")
    session.save_agent_state("ada", {"next": "#2"})  # it is plain by now
    assert len(pieces(session)) == 1
    whole = load(file.read_text())
    assert isinstance(whole, dict)
    assert whole["other"] == [1]
    state = session.agent_state("ada")
    assert {"note": "# no comment", "next": "#2"}.items() <= state.items()


@pytest.mark.parametrize("spelled", [b"'zq''Xk99plmQ7vv'", b'"zq\\u0058k99plmQ7vv"', b'"zqXk99\\\n    plmQ7vv"'])
def test_a_secret_that_is_spelled_with_escapes_does_not_get_into_quarantine(
    session: Session, spelled: bytes
) -> None:
    file = session.memory.root / "active/s1/agent-states/ada.yaml"
    head = b"version: 1\nagent_state: # mine\n  agent_id: ada\n  password:\n    "
    file.write_bytes(head + spelled + b"\n")
    session.save_agent_state("ada", {"password": None})
    [piece] = pieces(session)
    assert b"plmQ7vv" not in piece


@pytest.mark.parametrize("memory_id", ["ada", "STATE-001"])
def test_the_purge_of_a_state_takes_the_quarantined_copies_along(
    session: Session, memory_id: str
) -> None:
    file = session.memory.root / "active/s1/agent-states/ada.yaml"
    file.write_bytes(COMMENTED)
    session.save_agent_state("ada", {"note": None})
    session.memory.privacy.purge_now("s1", memory_id)
    assert pieces(session) == []
    assert files_with(session.memory.root, b"no comment") == []


def test_a_comment_in_the_metadata_survives_the_way_through_the_archive(session: Session) -> None:
    file = session.memory.root / "active/s1/metadata.yaml"
    file.write_text(f"# mine\n{file.read_text()}")
    before = file.read_bytes()
    session.memory.archive_session("s1")
    session.memory.restore_session("s1")
    assert pieces(session) == [before]
    assert session.state == "active"


@pytest.mark.parametrize("value", ["3.10", "+1e3", "1234567890.12345678901234"])
def test_a_number_that_would_be_written_otherwise_is_kept(session: Session, value: str) -> None:
    file = session.memory.root / "active/s1/metadata.yaml"
    file.write_text(f"{file.read_text()}python: {value}\n")
    before = file.read_bytes()
    for topic in ("auth", "billing"):
        session.update_metadata(context={"primary_topic": topic})
    assert pieces(session) == [before]


@pytest.mark.parametrize(
    "content",
    [b'{"version": 1, "other": [1], "session": {"id": "s1", "x": 1}}',
     b"session: {id: s1, x: 1}\nother: [1]\n",
     b"? session\n: id: s1\n  x: 1\n? other\n: - 1\n"],
)  # fmt: skip
def test_any_style_is_rendered_with_all_it_holds(content: bytes) -> None:
    """Flow style and JSON lose their style, and nothing else."""
    assert is_plain(content, "session", "f")
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
