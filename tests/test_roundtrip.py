"""Any sequence of writes, by the library and by hand, leaves what a plain model says; a torn tail costs nothing but itself."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from test_document import CONTENTS, expected
from test_values import keys, mappings, nested, texts, without_nan

from smp_client import Memory, Record, Session
from smp_client.records import DECISION
from smp_client.text import markdown, yaml_list
from smp_client.text.format import YamlList
from smp_client.text.values import Value, canonical
from smp_client.text.yaml_list import parse, parse_tail

FIELDS = st.dictionaries(keys.filter(lambda key: key not in ("id", "decay")), nested, max_size=4)
DECAY = st.fixed_dictionaries({"priority": st.floats(0, 1)}, optional={"note": nested})


def record(number: int, fields: dict[str, Value], decay: Value) -> dict[str, Value]:
    return {"id": f"DEC-{number:03d}", **fields, "decay": decay}


def shown(values: list[dict[str, Value]]) -> list[bytes]:
    return [canonical(value) for value in values]


@given(FIELDS, DECAY, st.sampled_from([0, 2, 4, 8]))
@settings(max_examples=100, deadline=None)
def test_any_record_comes_back_the_same(fields: dict[str, Value], decay: Value, indent: int) -> None:
    """parse(render_record) is the identity, at any indentation, with its span from the first byte to the last.

    Shown to fail: with INDENT in the place of `indent` before the dash, all but one indentation were bad.
    """
    value = record(1, fields, decay)
    head = yaml_list.render_head("decisions")
    content = head + yaml_list.render_record(value, indent)
    found = parse(content, "decisions")
    assert shown([item.value for item in found.records]) == shown([value])
    assert (found.records[0].start, found.records[0].end) == (len(head), len(content))
    assert shown([item.value for item in parse_tail(content, len(head), indent).records]) == shown([value])


@given(FIELDS.map(without_nan), DECAY.map(without_nan))
@settings(max_examples=80, deadline=None)
def test_pyyaml_reads_the_same_record(fields: Any, decay: Value) -> None:
    """yaml.safe_load gives the same texts, numbers and words."""
    value = record(1, fields, decay)
    content = yaml_list.render_head("decisions") + yaml_list.render_record(value)
    assert shown(yaml.safe_load(content)["decisions"]) == shown([value])


DECISIONS = YamlList(DECISION)


class Rewriting(RuleBasedStateMachine):
    """A record file under inserts, changes, removals and hand edits, against a dict.

    Shown to fail: with `rewrite` copying up to `record.end - 1`, the first change was noticed; without `last_id`, so was the first
    insert behind the removal of the last record.
    """

    @initialize(style=st.sampled_from(sorted(CONTENTS)))
    def begin(self, style: str) -> None:
        self.content = CONTENTS[style]
        self.model = {str(value["id"]): value for value in expected(style)}
        self.highest = 2

    @rule(fields=FIELDS, decay=DECAY)
    def insert(self, fields: dict[str, Value], decay: Value) -> None:
        found = parse(self.content, "decisions")
        number = DECISIONS.highest(found, self.content) + 1
        assert number == self.highest + 1
        self.highest = number
        value = record(number, fields, decay)
        before = self.content
        self.content = DECISIONS.insert(before, value)
        self.model[str(value["id"])] = value
        if found.plain:
            tail = parse_tail(self.content, len(before) + (not before.endswith(b"\n")), found.indent)
            assert shown([item.value for item in tail.records]) == shown([value])

    @rule(data=st.data(), fields=FIELDS, decay=DECAY, count=st.sampled_from([1, 2, 40]))
    def change(self, data: st.DataObject, fields: dict[str, Value], decay: Value, count: int) -> None:
        if self.model:
            chosen = data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=1, max_size=count, unique=True))
            changes = {memory_id: {"id": memory_id, **fields, "decay": decay} for memory_id in chosen}
            self.content = DECISIONS.rewrite(self.content, changes, 0)
            self.model.update(changes)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.model:
            chosen = data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=1, max_size=3, unique=True))
            self.content = DECISIONS.rewrite(self.content, dict.fromkeys(chosen), self.highest)
            for memory_id in chosen:
                del self.model[memory_id]

    @rule()
    def comment_by_hand(self) -> None:
        found = parse(self.content, "decisions")
        if found.plain and found.records:
            at = found.records[0].start
            self.content = self.content[:at] + b"# by hand\n" + self.content[at:]

    @invariant()
    def the_file_holds_the_model(self) -> None:
        found = parse(self.content, "decisions")
        assert found.bad == []
        assert shown([item.value for item in found.records]) == shown(list(self.model.values()))
        for memory_id, value in self.model.items():
            located = yaml_list.find_record(self.content, "decisions", memory_id)
            assert located is not None
            assert canonical(located.value) == canonical(value)


TestRewriting = Rewriting.TestCase
TestRewriting.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


class InASession(RuleBasedStateMachine):
    """A session on disk under the library's writes and a person's edits between them, against plain lists.

    Shown to fail: with ids counted from the file alone and not from the note, one was given twice behind the removal by hand of
    the last record.
    """

    given_ids = Bundle("given_ids")

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="smp-roundtrip-")
        self.session = Memory(Path(self.directory) / "sessions", fsync="batch").create_session(id="s")
        self.decisions: dict[str, dict[str, Any]] = {}
        self.turns: dict[str, dict[str, Any]] = {}
        self.used: set[str] = set()

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "directory", ""), ignore_errors=True)

    def path(self, file: str) -> Path:
        return self.session.scope.tree.root / self.session.scope.directory / file

    def new(self, added: Record) -> str:
        assert added.id not in self.used
        assert added.id not in self.decisions
        self.used.add(added.id)
        return added.id

    @rule(target=given_ids, text=texts.filter(str.strip), mood=nested.filter(lambda value: value is not None))
    def record(self, text: str, mood: Value) -> str:
        added = self.session.record_decision(text, made_by="ann", mood=mood)
        new = self.new(added)
        self.decisions[added.id] = added.data
        return new

    @rule(target=given_ids, text=texts)
    def say(self, text: str) -> str:
        added = self.session.add_turn("ann", text)
        new = self.new(added)
        self.turns[added.id] = added.data
        return new

    @rule(memory_id=given_ids, note=texts)
    def update(self, memory_id: str, note: str) -> None:
        model = self.turns if memory_id.startswith("turn") else self.decisions
        if memory_id in model:
            model[memory_id] = self.session.update(memory_id, note=note).data

    @rule(memory_id=given_ids)
    def pin(self, memory_id: str) -> None:
        model = self.turns if memory_id.startswith("turn") else self.decisions
        if memory_id in model:
            model[memory_id] = self.session.pin(memory_id).data

    @rule(target=given_ids, number=st.integers(1, 3), line_end=st.sampled_from([b"\n", b""]))
    def append_by_hand(self, number: int, line_end: bytes) -> str:
        content = self.path("decisions.yaml").read_bytes()
        highest = max([0, *(int(memory_id[4:]) for memory_id in self.used | self.decisions.keys() if memory_id.startswith("DEC"))])
        memory_id = f"DEC-{highest + number:03d}"
        fresh_line = b"" if content.endswith(b"\n") else b"\n"
        with self.path("decisions.yaml").open("ab") as file:
            file.write(fresh_line + f"  # mine\n  - id: {memory_id}\n    made_by: me\n    decision: by hand".encode() + line_end)
        self.decisions[memory_id] = {"id": memory_id, "made_by": "me", "decision": "by hand"}
        return memory_id

    @rule()
    def add_a_field_by_hand(self) -> None:
        content = self.path("decisions.yaml").read_bytes()
        if self.decisions and "mine" not in (last := list(self.decisions.values())[-1]):
            self.path("decisions.yaml").write_bytes(content.rstrip(b"\n") + b"\n    mine: true\n")
            last["mine"] = True

    @rule(memory_id=consumes(given_ids))
    def cut_out_by_hand(self, memory_id: str) -> None:
        if memory_id in self.decisions:
            content = self.path("decisions.yaml").read_bytes()
            located = yaml_list.find_record(content, "decisions", memory_id)
            assert located is not None
            self.path("decisions.yaml").write_bytes(content[: located.start] + content[located.end :])
            del self.decisions[memory_id]

    @rule(text=texts)
    def correct_by_hand(self, text: str) -> None:
        for memory_id, value in self.decisions.items():
            content = self.path("decisions.yaml").read_bytes()
            if content.count(b"made_by: ann") == 1 and value["made_by"] == "ann":
                self.path("decisions.yaml").write_bytes(content.replace(b"made_by: ann", b"made_by: anna # corrected"))
                self.decisions[memory_id] = {**value, "made_by": "anna"}
                return

    @invariant()
    def the_session_holds_the_model(self) -> None:
        if hasattr(self, "session"):
            assert shown([record.data for record in self.session.records("decision")]) == shown(list(self.decisions.values()))
            assert shown([record.data for record in self.session.turns()]) == shown(list(self.turns.values()))
            assert self.session.problems() == []
            assert not list((self.session.scope.tree.root / "quarantine").rglob("*.bytes"))


TestInASession = InASession.TestCase
TestInASession.settings = settings(max_examples=8, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
class TestLongInASession(InASession.TestCase):
    settings = settings(TestInASession.settings, max_examples=30)


def folder(session: Session) -> Path:
    return session.scope.tree.root / session.scope.directory


def quarantine(session: Session) -> list[tuple[bytes, dict[str, Any]]]:
    """What was set aside, each with its note, in the order of the file."""
    found = []
    for path in (session.scope.tree.root / "quarantine").rglob("*.bytes"):
        note = yaml.safe_load(Path(str(path).removesuffix(".bytes") + ".note.yaml").read_text())
        found.append((path.read_bytes(), note))
    return sorted(found, key=lambda pair: pair[1]["offset"])


TEXT = "---\n----\n## Turn 3\n<!-- smp -->\n\n  - id: DEC-009 # smp\n    decay: {}\n"
WRITERS: dict[str, tuple[str, Callable[..., Record]]] = {
    "decisions.yaml": ("decision", lambda session, text, **fields: session.record_decision(text, made_by="ann", **fields)),
    "conversation.md": ("turn", lambda session, text, **fields: session.add_turn("ann", text, **fields)),
}


def cut_everywhere(session: Session, file: str, foreign: bytes = b"", step: int = 1) -> int:
    """Cuts the last record behind each of its bytes, adds another, and checks all; gives back how often the cut one was whole."""
    kind, write = WRITERS[file]
    path = folder(session) / file
    path.write_bytes(path.read_bytes() + foreign)
    earlier = [record.data for record in session.records(kind)]
    earlier.append(write(session, "first: one").data)
    start = path.stat().st_size
    last = write(session, TEXT, deep={"a": [{"b": ["é🙂"]}]})
    content = path.read_bytes()
    whole = 0
    dashes = {at for found in re.finditer(rb"\A *-|-{3,}", content[start:]) for at in range(*found.span())}
    for cut in sorted({*range(start, len(content), step), *(start + at + 1 for at in dashes), len(content)}):
        shutil.rmtree(session.scope.tree.root / "quarantine" / session.id, ignore_errors=True)
        path.write_bytes(content[:cut])
        seen = [record.data for record in session.records(kind)]
        assert seen in (earlier, [*earlier, last.data]), f"half a record is shown when cut at {cut}"
        new = write(session, "next")
        after = [record.data for record in session.records(kind)]
        assert after == [*seen, new.data], f"cut at {cut}"
        assert session.problems() == []
        assert session.get(new.id).data == new.data
        aside = quarantine(session)
        whole += len(seen) > len(earlier)
        if len(seen) == len(earlier) and content[start:cut].strip():
            assert b"".join(bytes_ for bytes_, _ in aside) == content[start:cut]
            assert [note["file"] for _, note in aside] == [file] * len(aside)
            assert aside[0][1]["offset"] == start
            assert all(note["why"] and note["bytes"] == len(bytes_) for bytes_, note in aside)
        else:
            assert aside == []
            assert path.read_bytes().startswith(content[:cut])
    return whole


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("file", WRITERS)
def test_a_record_cut_anywhere_is_set_aside_and_costs_no_other(memory: Memory, file: str, step: int) -> None:
    """Behind every byte of the last record, or, where it has to be quick, each ninth one and in all rules of dashes: before the
    next append either the old state or the whole record is seen; after it the earlier records and the new one are right, and the
    cut bytes are in quarantine/.

    Shown to fail: with the old rule (a file must end with a line end), a cut behind the first blank of the dash line set aside the
    record before; with `_cut_off` always false, half a record was shown; with `---` escaped only when alone on its line,
    the cut behind three of four dashes was taken for a whole turn.
    """
    session = Memory(memory.root, fsync="batch").create_session(id="cut")
    assert cut_everywhere(session, file, step=step) >= 1


@pytest.mark.parametrize(
    ("file", "foreign"),
    [
        ("decisions.yaml", b"  - id: DEC-001\n    decision: by hand"),
        ("decisions.yaml", b"- {id: DEC-001, decision: by hand}\n# comment\n"),
        ("decisions.yaml", b"      -\n        id: DEC-001\n        decision: |+\n          x\n\n\n"),
        ("conversation.md", b"## Turn 1\n\nleft open by hand"),
        ("conversation.md", b"## Turn 1\n\nleft open\n\n---\n\nwith a rule\n"),
    ],
)
@pytest.mark.parametrize("step", [29, pytest.param(9, marks=pytest.mark.slow)])
def test_a_record_cut_behind_one_written_by_hand_leaves_that_alone(memory: Memory, file: str, foreign: bytes, step: int) -> None:
    """A record without the mark and without `decay`, or a turn left open, is never set aside with the torn one behind it.

    Every ninth cut will do here, or even fewer: what the bytes of the torn record do is seen above.
    """
    session = Memory(memory.root, fsync="batch").create_session(id="cut")
    assert cut_everywhere(session, file, foreign, step=step) >= 1


def test_a_cut_in_a_file_in_another_style_is_seen_as_well() -> None:
    """What counts is the mark, not how the file is written around it."""
    form = YamlList(DECISION)
    head = b"# mine\nversion: 1\n'decisions':\n- {id: DEC-001, decision: x}\n"
    new = yaml_list.render_record({"id": "DEC-002", "decision": "a\nb", "decay": {"n": 1}}, 0)
    for cut in range(1, len(new) - 1):
        content = head + new[:cut]
        found = form.parse(content)
        assert [item.value["id"] for item in found.records] == ["DEC-001"]
        assert form.torn(found, content) == len(head), cut


def test_the_mark_of_a_turn_and_of_a_record_are_what_the_format_says() -> None:
    """Other programs must know them."""
    assert (markdown.MARK, yaml_list.MARK) == (b"<!-- smp -->\n", "# smp")


@given(mappings)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_fields_survive_in_every_kind(session: Session, fields: dict[str, Value]) -> None:
    """What goes in through the front door comes out of a fresh reading of the files."""
    inner = {"mine": fields}
    added = [
        session.record_decision("d", made_by="a", **inner), session.record_finding("f", discovered_by="a", **inner),
        session.record_preference("p", **inner), session.record_learning("l", learned_by="a", **inner),
        session.add_turn("a", "t", **inner), session.relate("DEC-001", "FIND-001", "led_to", **inner),
    ]  # fmt: skip
    again = Memory(session.scope.tree.root).session(session.id)
    for one in added:
        # From the files themselves: to the index, as to JSON, what is no number is nothing.
        assert canonical(again._find(one.id).data) == canonical(one.data)
        assert canonical(one.data["mine"]) == canonical(fields)


def test_a_clock_with_any_precision_comes_back(memory: Memory) -> None:
    """Times keep as many decimals as they have."""
    session = memory.create_session(id="times")
    for microsecond in (0, 5000, 123456):
        at = datetime(2026, 1, 11, 14, 30, 5, microsecond, tzinfo=UTC)
        assert session.get(session.add_turn("a", "t", timestamp=at).id).timestamp == at
        assert session.get(session.record_decision("d", made_by="a", timestamp=at).id).timestamp == at
