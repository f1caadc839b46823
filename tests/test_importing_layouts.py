"""`Memory.import_` of a path in any layout: all of it arrives, without secrets, and a second time adds nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from layouts_data import (
    CHECKED_EXAMPLE,
    CONVERSATION_EXAMPLE,
    KNOWLEDGE_EXAMPLE,
    MANIFEST_EXAMPLE,
    MEMLOG_EXAMPLE,
    METADATA_EXAMPLE,
    PER_KIND_EXAMPLE,
    SINGLE_EXAMPLE,
    Entry,
    with_checksum,
    write_checked,
    write_lines,
    write_per_kind,
)

from smp_client import Invalid, Memory, audit
from smp_client.privacy.redact import Redaction

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def write_single(path: Path) -> None:
    write_lines(path / "s1.jsonl", [*SINGLE_EXAMPLE, {"id": "m003", "deleted": True, "ts": "2026-01-12T00:00:00Z"}])


def write_kinds(path: Path) -> None:
    write_per_kind(path / "sessions/s1", {**MANIFEST_EXAMPLE, "session_id": "s1"}, PER_KIND_EXAMPLE)
    (path / "shared").mkdir()
    (path / "shared/agent-knowledge.json").write_text(json.dumps(KNOWLEDGE_EXAMPLE))


def write_log(path: Path) -> None:
    path.mkdir(exist_ok=True, parents=True)
    (path / "s1.md").write_text(CONVERSATION_EXAMPLE.replace("session-2026-01-11-abc123", "s1"))


def write_checks(path: Path) -> None:
    lines = [with_checksum({**line, "session_id": "s1"}) for line in CHECKED_EXAMPLE]
    gone = [{"id": "mem_002", "timestamp": "2026-01-12T00:00:00Z", "reason": "asked to"}]
    write_checked(path / "sessions/s1", {**METADATA_EXAMPLE, "session_id": "s1"}, lines, gone)


def write_export(path: Path) -> None:
    memory = Memory(path.parent / "exported")
    session = memory.create_session(id="s1")
    session.record_decision("Use OAuth", made_by="architect")
    session.add_turn("user", "Hello")
    path.mkdir(exist_ok=True, parents=True)
    memory.export(path / "export.jsonl")


WRITERS: dict[str, Callable[[Path], None]] = {"jsonl": write_single, "jsonl-per-kind": write_kinds, "jsonl-checked": write_checks,
                                              "markdown-log": write_log, "smp": write_export}  # fmt: skip


def source_of(layout: str, directory: Path) -> Path:
    WRITERS[layout](directory)
    return directory / "export.jsonl" if layout == "smp" else directory


def contents(root: Path) -> dict[str, bytes]:
    names = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(".smp/") and name != "audit.log"}


@pytest.fixture(params=WRITERS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Each layout.


def test_importing_twice_adds_nothing(layout: str, memory: Memory, tmp_path: Path) -> None:
    """Not a byte of the tree changes, and nothing is told but that all is there; also where every file was touched since."""
    source = source_of(layout, tmp_path / "from")
    done = memory.import_(source)
    assert (done.problems, done.sessions["s1"]) == ([], "new")
    assert done.added > 0
    before = contents(memory.root)
    for path in [path for path in (tmp_path / "from").rglob("*") if path.is_file()]:
        os.utime(path, (2_000_000_000, 2_000_000_000))
    again = memory.import_(source)
    assert (again.added, again.deleted, again.problems, again.renamed) == (0, 0, [], {})
    assert set(again.sessions.values()) == {"unchanged"}
    assert contents(memory.root) == before


def test_a_dry_run_says_the_same_and_changes_nothing(layout: str, memory: Memory, tmp_path: Path) -> None:
    source = source_of(layout, tmp_path / "from")
    said = memory.import_(source, dry_run=True)
    assert not memory.root.exists()
    done = memory.import_(source)
    assert (said.added, said.deleted, said.sessions) == (done.added, done.deleted, done.sessions)


def test_an_import_is_noted_in_the_audit_log(layout: str, memory: Memory, tmp_path: Path) -> None:
    """Before it begins, and with what it came to when it is done."""
    done = memory.import_(source_of(layout, tmp_path / "from"))
    lines = [(line["action"], line["format"], line["count"]) for line in audit.read(memory.tree)]
    assert lines == [("import", layout, None), ("import", layout, done.added)]


def test_what_was_found_can_be_forced(layout: str, memory: Memory, tmp_path: Path) -> None:
    source = source_of(layout, tmp_path / "from")
    for other in WRITERS:
        if other == layout:
            assert memory.import_(source, layout=other, dry_run=True).added > 0
        elif source.is_dir():
            with pytest.raises(Invalid, match=r"nothing in the layout|no export"):
                memory.import_(source, layout=other, dry_run=True)


def test_a_second_import_of_a_source_that_was_merged_adds_nothing(layout: str, memory: Memory, tmp_path: Path) -> None:
    """Into a session that has memories of its own under the same ids: new ids the first time, and the same ones from then on."""
    source = source_of(layout, tmp_path / "from")
    session = memory.create_session(id="s1")
    session.add_turn("user", "I was here before.")
    session.record_decision("Mine", made_by="me")
    done = memory.import_(source)
    # A log says nothing of which session it is: what does not overlap is another conversation.
    became = {"s1-2": "new"} if layout == "markdown-log" else {**done.sessions, "s1": "merged"}
    assert (done.problems, done.sessions) == ([], became)
    before = contents(memory.root)
    again = memory.import_(source)
    assert (again.added, again.deleted, again.problems) == (0, 0, [])
    assert contents(memory.root) == before
    assert memory.verify_import(source).is_whole


def test_how_far_it_is_counts_each_entry_once(layout: str, memory: Memory, tmp_path: Path) -> None:
    """Half when it was read, half when it is written: a large file is read whole before the first is written."""
    source = source_of(layout, tmp_path / "from")
    calls = 0

    def advance() -> None:
        nonlocal calls
        calls += 1

    done = memory.import_(source, advance=advance)
    assert done.added <= calls <= done.added + 12  # with heads and metadata


# A project.


def test_settings_of_another_program_are_kept_and_are_nothing_global(memory: Memory, tmp_path: Path) -> None:
    write_checks(tmp_path / "theirs")
    (tmp_path / "theirs/config.json").write_text('{"version": "1.0"}')
    for became in ("new", "unchanged"):
        assert memory.import_(tmp_path / "theirs").sessions == {"s1": became}
    assert [path.read_text() for path in (memory.root / "global/imported").iterdir()] == ['{"version": "1.0"}']


def test_everything_in_a_project_is_imported(memory: Memory, tmp_path: Path) -> None:
    """Several layouts in one folder, below `.bmad/memory`, beside memlogs: all in one go."""
    project = tmp_path / "shop"
    write_kinds(project / ".bmad/memory")
    write_lines(project / "memory/two.jsonl", SINGLE_EXAMPLE)
    (project / "docs/brainstorm-2026-06-07").mkdir(parents=True)
    (project / "docs/brainstorm-2026-06-07/.memlog.md").write_text(MEMLOG_EXAMPLE)
    (project / "README.md").write_text("# Shop\n\nNote: buy milk\n")
    done = memory.import_(project)
    assert done.problems == []
    assert done.sessions == {"global": "merged", "s1": "new", "two": "new", "brainstorm-2026-06-07": "new"}
    assert memory.session("brainstorm-2026-06-07").records("decision")[0].text == "lead with one account; defer the others"


def test_without_extraction_a_log_is_only_turns(memory: Memory, tmp_path: Path) -> None:
    """And with it later, what it marks is added, and no turn a second time."""
    write_log(tmp_path / "from")
    memory.import_(tmp_path / "from", extract=False)
    session = memory.session("s1")
    turns = [turn.text for turn in session.turns()]
    assert turns
    assert not session.records("finding")
    memory.import_(tmp_path / "from")
    assert session.records("finding")
    assert [turn.text for turn in session.turns()] == turns


def test_what_is_in_no_layout_is_refused(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from/picture.png").write_bytes(b"\x89PNG")
    for source in (tmp_path / "from", tmp_path / "from/picture.png"):
        with pytest.raises(Invalid, match="no export of SMP, and nothing in any layout"):
            memory.import_(source)
    assert not memory.root.exists()


# Types.


@pytest.mark.parametrize("layout", ["jsonl", "jsonl-checked"])
def test_messages_of_any_name_become_turns_and_unknown_types_are_told_once(memory: Memory, tmp_path: Path, layout: str) -> None:
    """A message is one by what it says: who, and what. What it was called comes back on the way out."""
    named = ["message", "Turn", "conversation_turn", "CHAT", "utterance"]
    entries = [(name, {"role": "user", "content": f"as {name}"}) for name in named]
    entries += [("chat", {"topic": "no message"}), ("x" * 99, {"text": "a"}), ("rumour", {"text": "b"})]
    entries.append(("Decision", {"text": "c"}))
    given = [{"id": f"m{number}", "type": name, "ts": "2026-01-11T14:30:00Z", "data": said, "priority": 1.0, "access": 0}
             for number, (name, said) in enumerate(entries)]  # fmt: skip
    for session in ("s1", "s2"):
        if layout == "jsonl":
            write_lines(tmp_path / f"from/{session}.jsonl", given)
        else:
            lines = [with_checksum({**CHECKED_EXAMPLE[0], "id": one["id"], "session_id": session, "type": one["type"],
                                    "content": one["data"]}) for one in given]  # fmt: skip
            write_checked(tmp_path / "from/sessions" / session, {**METADATA_EXAMPLE, "session_id": session}, lines, [])
    done = memory.import_(tmp_path / "from")
    assert done.problems == []
    told = f"6 entries of types that are not known here (chat, {'x' * 40}, rumour) became learnings"
    assert [note for note in done.notes if "learning" in note] == [told]
    session = memory.session("s1")
    assert [turn.text for turn in session.records("turn")] == [f"as {name}" for name in named]
    assert [decision.text for decision in session.records("decision")] == ["c"]
    memory.export_layout(tmp_path / "to", ["s1"], layout=layout)
    (file,) = [*(tmp_path / "to").rglob("s1.jsonl"), *(tmp_path / "to").rglob("memory.jsonl")]
    written = {one["id"]: one["type"] for one in map(json.loads, file.read_text().splitlines())}
    assert written == {one["id"]: one["type"] for one in given}
    assert memory.verify_import(tmp_path / "from").is_whole


BLOCKS: list[Any] = [{"type": "text", "text": "Look at this:"}, {"type": "image", "source": {"data": "…"}}, "and here",
                     {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": 1}}]  # fmt: skip
TOLD = "Look at this:\n\n[image]\n\nand here\n\n[tool_use: search]"


@pytest.mark.parametrize("layout", ["jsonl", "jsonl-per-kind", "jsonl-checked"])
def test_a_message_in_blocks_is_a_turn_and_goes_back_in_blocks(memory: Memory, tmp_path: Path, layout: str) -> None:
    said = {"role": "user", "content": BLOCKS}
    common = {"id": "m1", "type": "message"}
    if layout == "jsonl":
        given = {**common, "ts": "2026-01-11T14:30:00Z", "data": said, "priority": 1.0, "access": 0}
        write_lines(tmp_path / "from/s1.jsonl", [given])
    elif layout == "jsonl-per-kind":
        given = {**common, "timestamp": "2026-01-11T14:30:00Z", "decay_factor": 1.0, **said}
        write_lines(tmp_path / "from/sessions/s1/conversation.jsonl", [given])
    else:
        given = with_checksum({**CHECKED_EXAMPLE[0], **common, "session_id": "s1", "content": said})
        write_checked(tmp_path / "from/sessions/s1", {**METADATA_EXAMPLE, "session_id": "s1"}, [given], [])
    done = memory.import_(tmp_path / "from")
    assert not [note for note in done.notes if "learning" in note]
    assert [(turn.data["speaker"], turn.text) for turn in memory.session("s1").records("turn")] == [("user", TOLD)]
    assert memory.verify_import(tmp_path / "from").is_whole
    memory.export_layout(tmp_path / "to", ["s1"], layout=layout)
    (file,) = [one for one in (tmp_path / "to").rglob("*.jsonl") if one.stem in ("s1", "conversation", "memory")]
    assert list(map(json.loads, file.read_text().splitlines())) == [given]


@pytest.mark.parametrize("time", ["ts", "timestamp"])
def test_a_line_without_data_says_what_its_own_fields_say(memory: Memory, tmp_path: Path, time: str) -> None:
    at = "2026-01-11T14:30:00Z"
    given = [{"id": "m1", "type": "message", time: at, "role": "user", "content": "Hello", "mood": "good"},
             {"id": "m2", "type": "chat", time: at, "role": "assistant", "content": BLOCKS},
             {"id": "m3", "type": "decision", time: at, "decision": "Use OAuth", "priority": 0.5},
             {"id": "m4", "type": "message", "ts": at, "data": {"role": "user", "content": "Bye"}}]  # fmt: skip
    write_lines(tmp_path / "from/s1.jsonl", given)
    memory.import_(tmp_path / "from")
    session = memory.session("s1")
    assert [(turn.data["timestamp"], turn.text) for turn in session.records("turn")] == [(at, "Hello"), (at, TOLD), (at, "Bye")]
    assert [decision.text for decision in session.records("decision")] == ["Use OAuth"]
    assert memory.import_(tmp_path / "from").added == 0
    memory.export_layout(tmp_path / "to", ["s1"], layout="jsonl")
    written = map(json.loads, (tmp_path / "to/s1.jsonl").read_text().splitlines())
    assert sorted(written, key=lambda one: str(one["id"])) == given


# A source that goes on changing.


def test_a_source_that_dropped_its_oldest_messages_adds_nothing(memory: Memory, tmp_path: Path) -> None:
    """Its turns are numbered anew each time they are read; they are known by the ids that they have there."""
    said = [{"id": f"m{number}", "type": "conversation", "ts": "2026-01-11T14:30:00Z", "priority": 1.0, "access": 0,
             "data": {"role": "user", "content": f"message {number}"}} for number in range(6)]  # fmt: skip
    decided = {"id": "d1", "type": "decision", "ts": "2026-01-11T14:31:00Z", "priority": 1.0, "access": 0,
               "data": {"decision": "x", "by": "a", "references": ["m4"]}}  # fmt: skip
    write_lines(tmp_path / "s1.jsonl", [*said, decided])
    memory.import_(tmp_path / "s1.jsonl")
    before = contents(memory.root)
    write_lines(tmp_path / "s1.jsonl", [*said[3:], decided])
    again = memory.import_(tmp_path / "s1.jsonl")
    assert (again.added, again.problems) == (0, [])
    assert contents(memory.root) == before
    assert memory.verify_import(tmp_path / "s1.jsonl").is_whole


def test_replies_of_a_source_that_dropped_messages_are_known_too(memory: Memory, tmp_path: Path) -> None:
    """What they reply to is a turn with another number this time."""
    lines = [{**PER_KIND_EXAMPLE["conversation.jsonl"][1], "id": f"msg-{number}",
              "context": {"parent_message_id": f"msg-{number - 1}"}} for number in range(1, 6)]  # fmt: skip
    write_per_kind(tmp_path / "s1", {"session_id": "s1"}, {"conversation.jsonl": lines})
    memory.import_(tmp_path)
    shutil.rmtree(tmp_path / "s1")
    write_per_kind(tmp_path / "s1", {"session_id": "s1"}, {"conversation.jsonl": lines[2:]})
    assert memory.import_(tmp_path).added == 0


def test_what_was_deleted_here_is_not_brought_back_under_another_number(memory: Memory, tmp_path: Path) -> None:
    lines = [{**SINGLE_EXAMPLE[0], "id": f"m{number}", "ts": f"2026-01-11T14:3{number}:00Z"} for number in range(4)]
    write_lines(tmp_path / "s1.jsonl", lines)
    memory.import_(tmp_path / "s1.jsonl")
    memory.session("s1").delete("turn-3", reason="asked to")
    write_lines(tmp_path / "s1.jsonl", lines[1:])
    again = memory.import_(tmp_path / "s1.jsonl")
    assert again.added == 0
    assert "not brought back" in again.notes[0]


def test_a_grown_log_does_not_number_its_decisions_anew(memory: Memory, tmp_path: Path) -> None:
    """A decision with an id of its own, said later, moves the numbers of those without one; they are known by their words."""
    log = "User: Decision: use tabs\n\nAssistant: Fine.\n"
    (tmp_path / "s1.md").write_text(log)
    memory.import_(tmp_path / "s1.md")
    (tmp_path / "s1.md").write_text(f"{log}\nUser: DEC-007: use blanks\n")
    again = memory.import_(tmp_path / "s1.md")
    assert (again.added, again.problems) == (2, [])
    decided = {one.id: one.text for one in memory.session("s1").records("decision")}
    assert decided == {"DEC-001": "use tabs", "DEC-007": "use blanks"}


def test_an_odd_entry_that_has_only_decayed_since_is_the_same(memory: Memory, tmp_path: Path) -> None:
    """Also one that is kept as a whole because it says more than its layout foresees."""
    odd: Entry = {**SINGLE_EXAMPLE[1], "data": ["x", 1.0], "decay": 3}
    write_lines(tmp_path / "s1.jsonl", [odd])
    memory.import_(tmp_path / "s1.jsonl")
    write_lines(tmp_path / "s1.jsonl", [{**odd, "priority": 0.2, "access": 9}])
    assert memory.import_(tmp_path / "s1.jsonl").added == 0


def test_a_touched_source_sets_nothing_aside_twice(memory: Memory, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s1.jsonl", SINGLE_EXAMPLE)
    path.write_text(path.read_text() + "nonsense\n")
    for time in (1_800_000_000, 1_900_000_000):
        os.utime(path, (time, time))
        assert "line 5: not JSON" in memory.import_(path).problems[0]
        assert len(list((memory.root / "quarantine/s1").glob("*.bytes"))) == 1
        assert len(list((memory.root / "quarantine/s1").iterdir())) == 2


def test_what_another_layout_says_of_a_session_is_kept_in_one_that_is_there(memory: Memory, tmp_path: Path) -> None:
    memory.create_session(id="s1", topic="mine")
    write_kinds(tmp_path / "from")
    memory.import_(tmp_path / "from")
    told = memory.session("s1").metadata()
    assert told["imported"]["layout"] == "jsonl-per-kind"  # type: ignore[index,call-overload]
    assert told["context"]["primary_topic"] == "mine"  # type: ignore[index,call-overload]


# Secrets.


def secret_source(path: Path) -> Path:
    lines: list[Any] = [
        {**SINGLE_EXAMPLE[0], "data": {"role": "user", "content": f"My token is {TOKEN}."}},
        {**SINGLE_EXAMPLE[1], "data": {"decision": "x", "by": "a", "settings": {TOKEN: 1}}, "odd": {"decay": [TOKEN]}},
        {**SINGLE_EXAMPLE[2], "data": {"issue": f"{TOKEN} is in the log"}},
        {"id": "m003", "deleted": True},
    ]
    return write_lines(path / "s1.jsonl", lines)


def test_secrets_from_elsewhere_are_taken_out(memory: Memory, tmp_path: Path) -> None:
    """Of every field, of keys, of what comes as deleted; how many there were is told, and stands in the record."""
    source = secret_source(tmp_path / "from")
    done = memory.import_(source)
    assert done.problems == []
    assert done.redacted == {"github_token": 4}
    assert (done.added, done.deleted) == (2, 1)
    session = memory.session("s1")
    assert session.turns()[0].text == "My token is [redacted: github token]."
    assert session.turns()[0].data["redacted"] == {"github_token": 1}
    assert session.get("m002").data["settings"] == {"[redacted: github token]": 1}
    session.restore("m003")
    assert "[redacted: github token] is in the log" in session.get("m003").text
    assert not [path for path in memory.root.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert (memory.import_(source).added, memory.verify_import(source).is_whole) == (0, True)


def test_secrets_stay_where_redaction_is_off_or_an_export_is_moved(tmp_path: Path) -> None:
    open_memory = Memory(tmp_path / "open", redaction=Redaction(enabled=False))
    open_memory.import_(secret_source(tmp_path / "from"))
    assert open_memory.session("s1").turns()[0].text == f"My token is {TOKEN}."
    open_memory.export(tmp_path / "export.yaml")
    moved = Memory(tmp_path / "moved")
    assert moved.import_(tmp_path / "export.yaml").redacted == {}
    assert moved.session("s1").turns()[0].text == f"My token is {TOKEN}."


def test_the_reason_of_a_deletion_is_written_without_its_secret(tmp_path: Path) -> None:
    """It came with the mark of the deletion, and is kept beside the memory."""
    token = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    entry = {"id": "m1", "type": "decision", "ts": "2026-01-11T14:31:00Z", "data": {"decision": "x", "by": "a"}}
    mark = {"id": "m1", "deleted": True, "ts": "2026-01-12T00:00:00Z", "reason": f"leaked {token}"}
    (tmp_path / "s-3.jsonl").write_text(f"{json.dumps(entry)}\n{json.dumps(mark)}\n")
    memory = Memory(tmp_path / "root")
    memory.import_(tmp_path / "s-3.jsonl")
    assert [one.reason for one in memory.deleted("s-3")] == ["leaked [redacted: github token]"]
    assert [path for path in memory.root.rglob("*") if path.is_file() and token.encode() in path.read_bytes()] == []
