"""An import of what is wrong: told with its file, its line and a reason, and everything else is taken in."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_exchange import FORMATS, contents, exported, full, imported
from test_values import TRICKY

from smp_client import Invalid, Memory, NewerFormat, Session
from smp_client.exchange import formats
from smp_client.exchange.entries import made, problem_of
from smp_client.exchange.importing import import_entries
from smp_client.records import DECISION, TURN

__all__ = ["full"]  # the fixture

LINE = json.dumps({"entry": "profile", "profile": {"version": 1, "user_profile": {"a": 1}}})


def memory_line(file: str, record: dict[str, object]) -> str:
    return json.dumps({"entry": "memory", "session": "s", "place": "active", "file": file, "type": "t", "record": record})


BAD = {
    "no JSON": "{nonsense", "no mapping": "[1, 2]", "a word": "NaN", "of no kind": '{"entry": "spell"}',
    "without its kind": '{"session": "s"}',
    "lacking a part": '{"entry": "state", "session": "s", "place": "active", "agent": "a"}',
    "of a wrong type": '{"entry": "profile", "profile": [1]}',
    "with a bad session": '{"entry": "session", "session": "../x", "place": "active", "metadata": null}',
    "for global": '{"entry": "session", "session": "global", "place": "active", "metadata": null}',
    "with a bad place": '{"entry": "session", "session": "s", "place": "moon", "metadata": null}',
    "with a bad file": memory_line("../decisions.yaml", {}),
    "with a bad agent": '{"entry": "state", "session": "s", "place": "active", "agent": "../a", "state": {"a": 1}}',
    "with a path that leads out": '{"entry": "bytes", "session": "s", "place": "active", "path": "../../x", "text": "x"}',
    "with an absolute path": '{"entry": "bytes", "session": "s", "place": "active", "path": "/etc/x", "text": "x"}',
    "with bad base64": '{"entry": "bytes", "session": "s", "place": "active", "path": "x", "base64": "!"}',
    "with no bytes": '{"entry": "bytes", "session": "s", "place": "active", "path": "x"}',
    "without an id": memory_line("decisions.yaml", {"a": 1}),
    "a turn without a number": memory_line("conversation.md", {"id": "turn-1", "content": ""}),
    "a turn of another number": memory_line("conversation.md", {"id": "turn-1", "turn": 2, "content": ""}),
    "a turn without a time": memory_line("conversation.md", {"id": "turn-1", "turn": 1, "content": "", "timestamp": "noon"}),
    "with a surrogate": '{"entry": "profile", "profile": {"a": "\\ud800"}}',
    "too deep": '{"entry": "profile", "profile": ' + '{"a": ' * 100 + "1" + "}" * 101,
    "far too deep": '{"entry": "profile", "profile": ' + "[" * 100_000,
    "with a huge number": '{"entry": "profile", "profile": {"a": 1' + "0" * 400 + "}}",
    "an eviction of no name": '{"entry": "evicted", "session": "s", "eviction": "x", "manifest": {}, "item": {}, "record": {}}',
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_bad_line_is_told_and_the_rest_is_taken_in(what: str, memory: Memory) -> None:
    """With its file, its line and a reason, and nothing of it anywhere."""
    content = f'{{"smp_export": 1}}\n{BAD[what]}\n\n{LINE}\n{{"entry": "end", "entries": 2}}\n'
    done = memory.import_(io.BytesIO(content.encode()))
    assert memory.everywhere.profile() == {"a": 1}
    assert any(re.fullmatch(r"the export, line 2: .{5,}", problem) for problem in done.problems), done.problems
    assert not list(memory.root.parent.glob("x"))
    assert list((memory.root / ".smp/tmp").iterdir()) == []


@FORMATS
@pytest.mark.parametrize("share", [0.5, 0.999, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.2, 0.9))])
def test_an_export_that_is_cut_off_is_told_and_what_is_there_is_taken_in(
    full: Memory, tmp_path: Path, form: str, share: float
) -> None:
    """And the whole one, imported afterwards, adds the rest."""
    content = exported(full, form)
    done = imported(tmp_path / "copy", content[: int(len(content) * share)])
    assert any("cut off" in problem for problem in done.problems)
    assert imported(tmp_path / "copy", content).sessions.keys() == {"global", "empty", "old", "packed", "s1"}
    for name in ("s1", "empty"):
        mine, theirs = (Memory(root).session(name) for root in (full.root, tmp_path / "copy"))
        for kind in mine.kinds:
            assert {one.text for one in theirs.records(kind.name)} == {one.text for one in mine.records(kind.name)}


@pytest.mark.parametrize("form", ["json", "yaml", "markdown"])
def test_a_broken_entry_in_the_middle_costs_only_itself(full: Memory, tmp_path: Path, form: str) -> None:
    content = exported(full, form)
    text = b'"Ask first"' if form == "json" else b"learning: Ask first"
    broken = content.replace(text, text.replace(b"Ask", b'Ask" : [ {'), 1)
    done = imported(tmp_path / "copy", broken)
    assert any(re.search(r"line \d+: ", problem) for problem in done.problems)
    assert set(done.sessions) == {"global", "empty", "old", "packed", "s1"}
    assert done.added >= imported(tmp_path / "whole", content).added - 1


@given(content=st.binary(max_size=200) | st.sampled_from(TRICKY).map(str.encode), form=st.sampled_from(formats.FORMATS))
@settings(max_examples=80, deadline=None)
def test_no_bytes_upset_a_reader(content: bytes, form: str) -> None:
    for one in formats.read(io.BytesIO(b'{"smp_export": 1, "entries": [' + content if form == "json" else content), form):
        assert one.entry is not None or one.problem
        if one.entry is not None:
            problem_of(one.entry)


def test_what_is_no_export_is_refused(memory: Memory, tmp_path: Path) -> None:
    for content in (b"", b"hello", b"{}", b"# A text\n", b'{"type": "memory"}\n'):
        with pytest.raises(Invalid, match="no export"):
            memory.import_(io.BytesIO(content))
    with pytest.raises(NewerFormat):
        memory.import_(io.BytesIO(b'{"smp_export": 2}\n'))


def test_what_was_edited_in_an_export_counts(session: Session, memory: Memory, tmp_path: Path) -> None:
    """The bytes beside a record that say something else than the record are not believed, wherever they are."""
    session.record_decision("Use tabs", made_by="me")
    path = memory.root / "active/s1/decisions.yaml"
    path.write_bytes(path.read_bytes().replace(b"    decision: Use tabs", b"    # really\n    decision:   Use tabs"))
    content = exported(memory)
    assert b"really" in content
    edited = content.replace(b'"decision": "Use tabs"', b'"decision": "Use blanks"')
    imported(tmp_path / "copy", edited)
    assert Memory(tmp_path / "copy").session("s1").records("decision")[0].text == "Use blanks"
    planted = b'"head": {"version": 1}, "behind": "  - id: DEC-666\\n    decision: planted\\n"}'
    hidden = content.replace(b'"head": {"version": 1}}', planted)
    assert hidden != content
    done = imported(tmp_path / "second", hidden)
    assert any("do not fit" in problem for problem in done.problems)
    assert b"planted" not in b"".join(contents(tmp_path / "second").values())


def test_entries_of_another_layout_may_come_in_any_order(memory: Memory) -> None:
    """Without heads, mixed, with nothing but the records: as an import of another layout makes them."""
    where = {"session": "s9", "place": "active"}
    given = [
        made("memory", **where, file=DECISION.file, type="decision", record={"id": "DEC-007", "decision": "x"}),
        made("memory", **where, file=TURN.file, type="conversation_turn",
             record={"id": "turn-3", "turn": 3, "timestamp": "2026-01-11T12:00:00Z", "speaker": "a", "content": "hello"}),
        made("memory", **where, file=DECISION.file, type="decision", record={"id": "foreign.id", "decision": "y"}),
        made("session", **where, metadata={"version": 1, "session": {"id": "s9"}}),
    ]  # fmt: skip
    done = import_entries(memory, given, "elsewhere")
    assert (done.problems, done.added) == ([], 3)
    session = memory.session("s9")
    assert [record.id for record in session.records("decision")] == ["DEC-007", "foreign.id"]
    assert session.add_turn("a", "next").id == "turn-4"
    assert import_entries(memory, given, "elsewhere").added == 0


NEWER = {
    "its metadata": r'("metadata": \{"version": )1(, "session": \{"id": "two")',
    "a file of it": r'("session": "two", "place": "active", "file": "decisions.yaml", "head": \{"version": )1()',
    "its conversation": r'(\{"Session": "two", [^}]*"Format-Version": ")1(")',
    "the state of an agent": r'("agent": "vera", "state": \{"version": )1()',
}


@pytest.mark.parametrize("what", NEWER)
def test_a_session_that_a_later_smp_has_written_is_refused_whole(what: str, tmp_path: Path) -> None:
    """Whatever of it says so; the sessions before and behind it are taken in, also by a dry run and the second time."""
    memory = Memory(tmp_path / "from")
    for name in ("one", "two", "zero"):
        session = memory.create_session(id=name)
        session.record_decision(f"Of {name}", made_by="vera")
        session.add_turn("user", f"In {name}")
        if name == "two":
            session.save_agent_state("vera", {"focus": name})
    content = io.BytesIO()
    memory.export(content, format="jsonl")
    newer, count = re.subn(NEWER[what], r"\g<1>2\2", content.getvalue().decode())
    assert count == 1
    other = Memory(tmp_path / "to")
    for dry_run in (True, False, False):
        done = other.import_(io.BytesIO(newer.encode()), dry_run=dry_run)
        assert done.sessions["two"] == "refused"
        assert len(done.problems) == 1
        assert done.problems[0].startswith("two: nothing of it is taken in: ")
        assert "has format version 2; this SMP knows versions up to 1" in done.problems[0]
        assert done.added + done.skipped == 4
    assert {session.id for session in other.sessions()} == {"one", "zero"}
    assert not list(other.root.glob("*/two"))


def test_a_newer_file_that_travels_as_its_bytes_is_kept_and_told(memory: Memory, session: Session, tmp_path: Path) -> None:
    """By an SMP that could not read it: nobody reads it here either, and it may be all that there is."""
    session.record_decision("Of the future", made_by="vera")
    path = memory.root / "active/s1/decisions.yaml"
    path.write_text(path.read_text().replace("version: 1", "version: 7", 1))
    memory.export(tmp_path / "x.yaml")
    other = Memory(tmp_path / "to")
    for dry_run in (True, False, False):
        told = other.import_(tmp_path / "x.yaml", dry_run=dry_run).problems
        assert told
        assert all("decisions.yaml has format version 7" in problem for problem in told)
    assert (other.root / "active/s1/decisions.yaml").read_bytes() == path.read_bytes()
