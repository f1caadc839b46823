"""Malformed input of every kind is told with file, line and reason and set aside; the rest is imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts_data import (
    CHECKED_EXAMPLE,
    MANIFEST_EXAMPLE,
    METADATA_EXAMPLE,
    PER_KIND_EXAMPLE,
    SINGLE_EXAMPLE,
    Entry,
    write_checked,
    write_lines,
    write_per_kind,
)
from layouts_reading import by_id, folder, multiset, on_disk, records, stream, take_in, written_single

from smp_client import Memory
from smp_client.errors import Invalid
from smp_client.exchange import layouts
from smp_client.exchange.layouts import LAYOUTS, recognise, shared
from smp_client.exchange.layouts.lines import LINE_CAP_BYTES, read_lines
from smp_client.exchange.layouts.shaping import Ids

GOOD = json.dumps(SINGLE_EXAMPLE[1]).encode()
BAD_LINES: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{oops}", "not JSON"),
    "cut off in the middle": (b'{"id": "m9", "type": "decision", "ts', "not JSON: Unterminated string starting at character 34"),
    "not UTF-8": (b'{"id": "m9", "data": {"decision": "\xff\xfe"}, "type": "decision"}', "not UTF-8 at byte"),
    "a key twice": (b'{"id": "m9", "id": "m8", "type": "decision", "data": {}}', "the key 'id' stands twice"),
    "a key twice inside": (b'{"id": "m9", "type": "decision", "data": {"a": 1, "a": 2}}', "the key 'a' stands twice"),
    "no number": (b'{"id": "m9", "type": "decision", "data": {"x": NaN}}', "NaN is no number"),
    "infinite": (b'{"id": "m9", "type": "decision", "data": {"x": -Infinity}}', "-Infinity is no number"),
    "too large a number": (b'{"id": "m9", "type": "decision", "data": {"x": 1e999}}', "too large a number"),
    "a number without end": (b'{"id": "m9", "type": "decision", "data": {"x": ' + b"9" * 400 + b"}}", "too large a number"),
    "thousands of digits": (b'{"id": "m9", "type": "decision", "data": {"x": ' + b"9" * 5000 + b"}}", "limit"),
    "half a character": (b'{"id": "m9", "type": "decision", "data": {"decision": "\\ud800"}}', "half of a character"),
    "too deep": (b'{"id": "m9", "type": "decision", "data": ' + b"[" * 100 + b"]" * 100 + b"}", "nested deeper"),
    "bottomless": (b"[" * 100_000, "nested deeper"),
    "an empty key": (b'{"id": "m9", "type": "decision", "data": {"": 1}}', "a key must have"),
    "a huge key": (b'{"id": "m9", "type": "decision", "data": {"' + b"k" * 200 + b'": 1}}', "a key must have"),
    "too much text": (b'{"id": "m9", "type": "decision", "data": {"decision": "' + b"x" * (1 << 20) + b'"}}', "a memory may hold"),
    "no object": (b'["m9"]', "must be an object"),
    "a bare text": (b'"m9"', "must be an object"),
    "nothing in it": (b'{"id": "m9"}', "neither a type nor data"),
    "zeros of a crash": (b"\0" * 64, "not JSON"),
}  # fmt: skip

SHORT_BAD = [line for line, _ in BAD_LINES.values() if len(line) < 100]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_told_and_set_aside(tmp_path: Path, line: bytes, reason: str) -> None:
    """With its file and its number; the lines before and behind it arrive."""
    path = tmp_path / "s1.jsonl"
    other = json.dumps(SINGLE_EXAMPLE[2]).encode()
    path.write_bytes(GOOD + b"\n\n" + line + b"\n" + other + b"\n")
    entries, problems = stream(path)
    assert len(problems) == 1
    assert problems[0].startswith("s1.jsonl, line 3: ")
    assert reason in problems[0]
    assert by_id(entries).keys() == {"m002", "m003"}
    aside = next(entry for entry in entries if entry["entry"] == "bytes")
    held = aside["text"].encode() if "text" in aside else None
    assert held in (None, line)
    note = next(entry["text"] for entry in entries if str(entry.get("path", "")).endswith(".note.yaml"))
    assert f"offset: {len(GOOD) + 2}\n" in note
    assert f"bytes: {len(line)}\n" in note


def test_lines_that_stand_together_are_set_aside_together(tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(GOOD + b"\nbad\nworse\n" + GOOD + b"\nworst\n")
    entries, problems = stream(path)
    assert [problem.partition(":")[0] for problem in problems] == ["s1.jsonl, line 2", "s1.jsonl, line 3", "s1.jsonl, line 5"]
    aside = [entry["text"] for entry in entries if str(entry.get("path", "")).endswith(".bytes")]
    assert aside == ["bad\nworse", "worst"]


def test_a_line_is_set_aside_once_wherever_it_stands(tmp_path: Path) -> None:
    """Also when what is above it becomes longer; two that are the same are two."""
    path, memory = tmp_path / "s1.jsonl", Memory(tmp_path / "root")
    for first in (b"", b"\n\n", GOOD + b"\n"):
        path.write_bytes(first + GOOD + b"\n{oops}\n" + GOOD + b"\n{oops}\n")
        memory.import_(path)
        assert len(list((memory.root / "quarantine/s1").glob("*.bytes"))) == 2


def test_a_torn_last_line(tmp_path: Path) -> None:
    """One that is cut off is told as that; one that is whole and only lacks its end is taken."""
    path = tmp_path / "s1.jsonl"
    path.write_bytes(GOOD + b"\n" + GOOD[:40])
    _, (problem,) = stream(path)
    assert "line 2: the last line is cut off" in problem
    path.write_bytes(b"\xef\xbb\xbf" + GOOD + b"\r\n" + json.dumps(SINGLE_EXAMPLE[2]).encode())
    entries, problems = stream(path)
    assert (problems, len(records(entries))) == ([], 2)


def test_a_line_without_end(tmp_path: Path) -> None:
    lines = list(read_lines(GOOD + b"\n" + b"x" * (LINE_CAP_BYTES + 1) + b"\n" + GOOD))
    assert [line.problem for line in lines] == ["", f"the line has more than {LINE_CAP_BYTES:,} bytes", ""]
    assert lines[2].offset == len(GOOD) + 1 + LINE_CAP_BYTES + 2


@given(st.binary(max_size=200))
def test_no_bytes_make_reading_fail(content: bytes) -> None:
    """Every line that is not blank comes once, in order, at its place."""
    lines = list(read_lines(content))
    assert all(content[line.offset :].startswith(line.raw) for line in lines)
    assert all((line.value is None) == bool(line.problem) for line in lines)
    assert [line.number for line in lines] == sorted({line.number for line in lines})


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.just(GOOD) | st.sampled_from(SHORT_BAD), max_size=8), st.sampled_from(LAYOUTS[1:]))
def test_no_file_makes_an_import_fail(lines: list[bytes], layout: str) -> None:
    """Of any mixture of lines, in any layout, the sound ones arrive in a real tree."""
    with folder() as place:
        content = b"\n".join(lines)
        for name in ("memory.jsonl", "tombstones.jsonl", "conversation.jsonl", "decisions.jsonl", "index.json", "manifest.json",
                     "metadata.json", "s.jsonl", "chat.md"):  # fmt: skip
            (place / "from/s1" / name).parent.mkdir(parents=True, exist_ok=True)
            (place / "from/s1" / name).write_bytes(content)
        memory = Memory(place / "root")
        path = place / "from/s1" if layout in ("jsonl-per-kind", "jsonl-checked") else place / "from/s1" / (
            "s.jsonl" if layout == "jsonl" else "chat.md")  # fmt: skip
        _, _, problems = take_in(memory, path, layout)
        assert problems == []
        if layout == "jsonl" and (count := sum(line == GOOD for line in content.split(b"\n"))):
            assert len(on_disk(memory, "s")) == count


# What is wrong beside the lines.


def test_a_bad_manifest_loses_no_memory(tmp_path: Path) -> None:
    place = write_per_kind(tmp_path / "s1", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    (place / "manifest.json").write_text('{"session_id": "s1",')
    entries, problems = stream(place)
    assert len(problems) == 1
    assert problems[0].startswith("manifest.json: not JSON")
    assert len(records(entries)) == sum(map(len, PER_KIND_EXAMPLE.values()))


def test_a_bad_index_or_metadata_loses_no_memory(tmp_path: Path) -> None:
    place = write_checked(tmp_path / "s1", METADATA_EXAMPLE, CHECKED_EXAMPLE, [])
    (place / "metadata.json").write_text("[]")
    (place / "index.json").write_text("{")
    entries, problems = stream(place)
    assert sorted(problem.partition(":")[0] for problem in problems) == ["index.json", "metadata.json"]
    assert len(records(entries)) == len(CHECKED_EXAMPLE)


def test_what_only_the_index_knows_is_deleted(tmp_path: Path) -> None:
    """The layout marks an entry as deleted in its index until it is compacted."""
    place = write_checked(tmp_path / "s1", METADATA_EXAMPLE, CHECKED_EXAMPLE, [])
    (place / "index.json").write_text(json.dumps({"entries": {"mem_abc123xyz": {"deleted": True, "reason": "topic"}}}))
    entries, problems = stream(place)
    assert problems == []
    (gone,) = (entry for entry in entries if entry["entry"] == "deleted")
    assert (gone["record"]["id"], gone["deletion"]["reason"]) == ("mem_abc123xyz", "topic")


@pytest.mark.parametrize("bad", [{"ts": "soon"}, {"ts": 99}, {"ts": None}, {"priority": "high"}, {"access": -1}, {"access": True},
                                 {"data": None}, {"data": 7}, {"type": None}, {"id": None}, {"id": 17}, {"id": "a b/../c"},
                                 {"id": "turn-1"}, {"type": "turn"},
                                 {"data": {"tags": ["a b"], "by": 3, "decision": ""}}])  # fmt: skip
def test_a_field_of_another_form_is_kept(tmp_path: Path, bad: Entry) -> None:
    """The entry arrives all the same, and can be written again as it was."""
    lines = [SINGLE_EXAMPLE[0], {**SINGLE_EXAMPLE[1], **bad}]
    memory = Memory(tmp_path / "root")
    result, _, problems = take_in(memory, write_lines(tmp_path / "s1.jsonl", lines))
    assert problems == []
    assert result.added == 2
    assert [problem for problem in result.problems if "'ts' is no time" not in problem] == []
    assert written_single(on_disk(memory, "s1")) == multiset(lines)


def test_a_bad_pack_loses_no_other_session(tmp_path: Path) -> None:
    write_per_kind(tmp_path / "sessions/s1", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive/old.tar.gz").write_bytes(b"not packed at all")
    entries, problems = stream(tmp_path)
    assert len(problems) == 1
    assert problems[0].startswith("archive/old.tar.gz: It cannot be unpacked")
    assert len(records(entries)) == sum(map(len, PER_KIND_EXAMPLE.values()))


@pytest.mark.parametrize("document", ["{", "3", '"x"', "[]", "{}", '{"a": {"b": {"c": {"d": {"e": 1}}}}}', '[1, null, {"id": 7}]',
                                      '{"preferences": {"style": {"value": "short", "confidence": 0.4}}}'])  # fmt: skip
def test_shared_files_of_any_form(tmp_path: Path, document: str) -> None:
    """The layout does not say what is in them: whatever it is, it arrives, and can be put to its place again."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/user-preferences.json").write_text(document)
    entries, problems = stream(tmp_path)
    if document == "{":
        assert len(problems) == 1
        assert problems[0].startswith("shared/user-preferences.json: not JSON: ")
        assert problems[0].endswith(" at character 2")
        return
    memory = Memory(tmp_path / "root")
    assert take_in(memory, tmp_path)[0].problems == problems == []
    for entry in entries:
        place: Any = json.loads(document)
        for step in entry["record"]["imported"]["at"]:
            place = place[step]
        kind = shared.FILES["user-preferences.json"]
        assert shared.theirs(kind, entry["record"], Ids()) == place


@pytest.mark.parametrize(("document", "agents"), [
    ({"architect": {"learned": ["Prefers REST"], "style": {"text": "short"}}}, {"architect"}),
    ({"agents": {"architect": [{"pattern": "REST"}]}, "patterns": [{"pattern": "tests", "learned_by": "veritas"}]},
     {"architect", "veritas"}),
    ({"patterns": [{"pattern": "Prefers REST"}]}, {None}), (["Prefers REST"], {None}),
])  # fmt: skip
def test_knowledge_is_of_the_agent_who_has_it(tmp_path: Path, document: Any, agents: set[str | None]) -> None:
    """Who stands around it, and not what the list of it is called."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/agent-knowledge.json").write_text(json.dumps(document))
    entries, problems = stream(tmp_path)
    assert problems == []
    assert {entry["record"].get("learned_by") for entry in entries} == agents


@pytest.mark.parametrize(("said", "text"), [(["a", "b"], "a; b"), ({"a": 1}, '{"a": 1}'), (7, "7")])
def test_what_is_no_text_is_told_in_words(tmp_path: Path, said: Any, text: str) -> None:
    """And not as "unknown"; the entry can be written again as it was."""
    lines = [{**SINGLE_EXAMPLE[1], "data": {"decision": said, "by": "vera"}}]
    memory = Memory(tmp_path / "root")
    assert take_in(memory, write_lines(tmp_path / "s1.jsonl", lines))[0].problems == []
    assert [record.text for record in memory.session("s1").records("decision")] == [text]
    assert written_single(on_disk(memory, "s1")) == multiset(lines)


@pytest.mark.parametrize(("version", "is_told"), [("2.0", True), (3, True), ("1.9", False), (1, False), ("new", False)])
def test_a_later_version_of_a_layout_is_told(tmp_path: Path, version: object, is_told: bool) -> None:
    """What it holds is read as far as it is known."""
    write_per_kind(tmp_path / "sessions/s1", {**MANIFEST_EXAMPLE, "version": version}, PER_KIND_EXAMPLE)
    write_checked(tmp_path / "memory/sessions/s2", {**METADATA_EXAMPLE, "version": version}, CHECKED_EXAMPLE, [])
    entries, problems = stream(tmp_path)
    told = f"it says version {version}, and SMP knows version 1 of this layout; all of it was read as that"
    files = ("sessions/s1/manifest.json", "memory/sessions/s2/metadata.json")
    assert problems == ([f"{file}: {told}" for file in files] if is_told else [])
    assert len(records(entries)) == sum(map(len, PER_KIND_EXAMPLE.values())) + len(CHECKED_EXAMPLE)


def test_ids_that_cannot_stay_are_told_once(tmp_path: Path) -> None:
    """Two entries of one id, and one that is no id of ours: not messages, which all become turns; and not again the second time."""
    decision = SINGLE_EXAMPLE[1]
    lines = [SINGLE_EXAMPLE[0], decision, *({**decision, "data": {"decision": text}} for text in "ab"), {**decision, "id": "a b/c"}]
    memory = Memory(tmp_path / "root")
    path = write_lines(tmp_path / "s1.jsonl", lines)
    expected = {"s1": {"m002-2": "m002", "m002-3": "m002", "a-b-c-2": "a b/c"}}
    assert memory.import_(path, dry_run=True).mapped == expected
    assert memory.import_(path).mapped == expected
    assert memory.import_(path).mapped == {}
    write_lines(path, [*lines, {**decision, "data": {"decision": "c"}}])
    assert memory.import_(path).mapped == {"s1": {"m002-4": "m002"}}
    memory.export(tmp_path / "ours.jsonl")
    assert Memory(tmp_path / "other").import_(tmp_path / "ours.jsonl").mapped == {}


def test_where_each_session_was_is_known_when_it_is_read(tmp_path: Path) -> None:
    write_lines(tmp_path / "memory/two.jsonl", SINGLE_EXAMPLE)
    write_per_kind(tmp_path / "sessions/a b", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    found = recognise(tmp_path)
    assert [one.came_from for one in found] == [{}, {}]
    assert all(list(layouts.read(one)) for one in [*found, *found])
    (session, places), *others = found[0].came_from.items()
    assert (session.partition("-"), places, others) == (("a", "-", session[2:]), ["sessions/a b"], [])
    assert found[1].came_from == {"two": ["memory/two.jsonl"]}


def test_no_secret_is_in_a_head_and_names_that_look_like_one_are_told(tmp_path: Path) -> None:
    """Who took part stands in the head of the conversation. An id stays, since memories are known by it."""
    token = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    lines = {**PER_KIND_EXAMPLE, "decisions.jsonl": [{**PER_KIND_EXAMPLE["decisions.jsonl"][0], "id": token}]}
    write_per_kind(tmp_path / "sessions/s1", {**MANIFEST_EXAMPLE, "user_id": token}, lines)
    memory = Memory(tmp_path / "root")
    done = memory.import_(tmp_path / "sessions")
    head = (memory.root / f"active/{next(iter(done.sessions))}/conversation.md").read_text().partition("## Turn")[0]
    assert "[redacted: github token]" in head
    assert token not in head
    assert "**redacted" not in head
    assert [note for note in done.notes if note.startswith("1 id or name of a session looks like a secret and stays")]


# Which layout it is.


def test_nothing_says_what_was_looked_for_and_where(tmp_path: Path) -> None:
    """Each form by the name that --as has for it, and each place; of a tree of ours, how it can be taken in."""
    write_lines(tmp_path / "a/b/c/s1.jsonl", SINGLE_EXAMPLE)
    (tmp_path / "x.bin").write_bytes(b"")
    said = str(layouts.nothing_at(tmp_path, None))
    assert all(f"{layout}: " in said for layout in LAYOUTS if layout != "smp")
    assert all(place in said for place in ("the folder itself", ".bmad/memory", "sessions of each", "--as"))
    assert all(f"{layout}: " in str(layouts.nothing_at(tmp_path / "x.bin", None)) for layout in LAYOUTS)
    assert "the folder itself" not in str(layouts.nothing_at(tmp_path / "x.bin", None))
    assert "markdown-log" not in str(layouts.nothing_at(tmp_path, "jsonl"))
    assert "one file" in str(layouts.nothing_at(tmp_path, "smp"))
    Memory(tmp_path / "ours").create()
    assert f"smp export --all --root {tmp_path / 'ours'} | smp import -" in str(layouts.nothing_at(tmp_path / "ours", None))


def test_every_layout_is_recognised_with_its_reasons(tmp_path: Path) -> None:
    """All that a project holds is found from its top, each with why; `--as` leaves the others out."""
    write_lines(tmp_path / ".bmad/sessions/a.jsonl", SINGLE_EXAMPLE)
    write_per_kind(tmp_path / ".bmad/memory/sessions/b", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    write_checked(tmp_path / "memory/sessions/c", METADATA_EXAMPLE, CHECKED_EXAMPLE, [])
    (tmp_path / "run-2026-06-07").mkdir()
    (tmp_path / "run-2026-06-07/.memlog.md").write_text("---\nupdated: 2026-06-07T10:00\n---\n\n- (decision) go\n")
    (tmp_path / "README.md").write_text("# A project\n\nNote: nobody speaks here.\n")
    found = {one.layout: one for one in recognise(tmp_path)}
    assert {layout: one.sessions for layout, one in found.items()} == {
        "jsonl": ["a"], "jsonl-per-kind": ["b"], "jsonl-checked": ["c"], "markdown-log": ["run-2026-06-07/.memlog.md"],
    }  # fmt: skip
    assert found["jsonl-checked"].reasons == ["memory/sessions/c has memory.jsonl"]
    assert found["jsonl"].reasons == [".bmad/sessions/a.jsonl: its lines have 'type', 'ts' and 'data'"]
    assert [one.layout for one in recognise(tmp_path, "jsonl")] == ["jsonl"]


def test_a_session_or_a_file_of_it_is_recognised_alone(tmp_path: Path) -> None:
    place = write_checked(tmp_path / "c", METADATA_EXAMPLE, CHECKED_EXAMPLE, [])
    for path in (place, place / "memory.jsonl", tmp_path):
        assert [(one.layout, one.sessions) for one in recognise(path)] == [("jsonl-checked", ["c"])]
    other = write_per_kind(tmp_path / "x/b", MANIFEST_EXAMPLE, PER_KIND_EXAMPLE)
    for path in (other, other / "decisions.jsonl", tmp_path / "x"):
        assert [(one.layout, one.sessions) for one in recognise(path)] == [("jsonl-per-kind", ["b"])]


def test_an_export_of_ours_and_nothing(tmp_path: Path) -> None:
    export = tmp_path / "export.jsonl"
    export.write_text('{"smp_export": 1}\n{"entry": "end", "entries": 0}\n')
    assert [one.layout for one in recognise(export)] == ["smp"]
    (tmp_path / "nothing.txt").write_text("Nothing here: really.\n")
    assert recognise(tmp_path / "nothing.txt") == []
    with pytest.raises(Invalid, match="nothing at"):
        recognise(tmp_path / "missing")
    with pytest.raises(Invalid, match="must be one of"):
        recognise(export, "sqlite")


def test_files_of_others_with_such_names_are_none(tmp_path: Path) -> None:
    """A manifest of a web page, the memory of another program: neither is a session, unless somebody says so."""
    (tmp_path / "manifest.json").write_text('{"name": "A page", "icons": []}')
    (tmp_path / "memory.jsonl").write_text('{"type": "entity", "name": "Ann", "observations": []}\n')
    assert recognise(tmp_path) == []
    assert [one.layout for one in recognise(tmp_path, "jsonl-checked")] == ["jsonl-checked"]
    write_lines(tmp_path / "sessions/a.jsonl", SINGLE_EXAMPLE)
    assert [one.sessions for one in recognise(tmp_path)] == [["a"]]


def test_no_link_is_followed(tmp_path: Path) -> None:
    """A link in what is imported may lead anywhere: it is told, and not read."""
    write_lines(tmp_path / "secret.jsonl", [{"id": "x", "timestamp": "2026-01-11T10:00:00Z", "content": "secret"}])
    place = write_per_kind(tmp_path / "from/s1", MANIFEST_EXAMPLE, {"decisions.jsonl": PER_KIND_EXAMPLE["decisions.jsonl"]})
    (place / "conversation.jsonl").symlink_to(tmp_path / "secret.jsonl")
    entries, problems = stream(tmp_path / "from")
    assert "secret" not in json.dumps(entries)
    assert any("conversation.jsonl: it cannot be read" in problem for problem in problems)
    assert len(records(entries)) == 1

