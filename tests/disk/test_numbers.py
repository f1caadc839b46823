"""Numbers of ids: whatever stands in a file by hand, no id is given twice."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smp_client import Conflict, Invalid, Memory, Session
from smp_client.change.ids import give_ids
from smp_client.model.record import DECISION, NUMBER_DIGITS, TURN
from smp_client.text.format import format_of

MILLISECONDS = 1763442000000  # a time, as a number of 13 digits
LOCK = ".smp/locks/s1/decisions.yaml.lock"


def by_hand(session: Session, memory_id: str, more: str = "") -> None:
    record = f"  - id: {memory_id}\n    decision: by hand\n    made_by: x\n{more}"
    path = session.memory.root / "active/s1/decisions.yaml"
    with path.open("a") as stream:
        stream.write(record)


def turn_by_hand(session: Session, number: object) -> None:
    path = session.memory.root / "active/s1/conversation.md"
    with path.open("a") as stream:
        stream.write(f"## Turn {number}\n**Speaker:** x\n\nby hand\n\n---\n\n")


def standing(session: Session) -> list[str]:
    """Return every id of a decision, as often as it stands in the file."""
    content = (session.memory.root / "active/s1/decisions.yaml").read_bytes()
    return [str(one.value.get("id")) for one in format_of(DECISION).parse(content).records]


def test_an_id_with_a_longer_number_is_of_another_form(session: Session) -> None:
    """It is kept, and the count goes on as if it were not there."""
    assert session.record_decision("First", made_by="a").id == "DEC-001"
    by_hand(session, f"DEC-{MILLISECONDS}")
    given = [session.record_decision(f"Text {number}", made_by="a").id for number in range(4)]
    assert given == ["DEC-002", "DEC-003", "DEC-004", "DEC-005"]
    assert session.get(f"DEC-{MILLISECONDS}").text == "by hand"
    with session.transaction() as transaction:
        assert transaction.record_decision("Another", made_by="a").id == "DEC-006"


def test_a_turn_with_a_longer_number_is_of_another_form(session: Session) -> None:
    """It keeps its place, and comes back at the end of the conversation."""
    assert session.add_turn("a", "first").id == "turn-1"
    turn_by_hand(session, MILLISECONDS)
    assert [session.add_turn("a", "x").id for _ in range(3)] == ["turn-2", "turn-3", "turn-4"]
    for name in (f"turn-{MILLISECONDS}", "turn-3"):
        session.delete(name, reason="test")
        session.restore(name)
    ids = [turn.id for turn in session.turns()]
    assert ids == ["turn-1", "turn-2", "turn-3", "turn-4", f"turn-{MILLISECONDS}"]
    assert session.add_turn("a", "last").id == "turn-5"


def test_the_highest_number_is_the_last(session: Session) -> None:
    """A number behind it would not be counted: it is refused, with the way out."""
    highest = "9" * NUMBER_DIGITS
    by_hand(session, f"DEC-{highest}")
    turn_by_hand(session, highest)
    by_hand(session, "x", "  - decision: without an id\n    by: ada\n")
    for write in (
        lambda: session.record_decision("Next", made_by="a"),
        lambda: session.add_turn("a", "next"),
        lambda: session.transaction().record_decision("Next", made_by="a"),
        lambda: give_ids(session, DECISION),
    ):
        with pytest.raises(Invalid, match=r"has no number left below .* another form"):
            write()
    assert standing(session)[:2] == [f"DEC-{highest}", "x"]
    path = session.memory.root / "active/s1/decisions.yaml"
    path.write_text(path.read_text().replace(f"DEC-{highest}", "DEC-highest"))
    (session.memory.root / LOCK).unlink()
    assert session.record_decision("Next", made_by="a").id == "DEC-001"


def other_series(note: dict[str, object]) -> None:
    note.update(last=0, file=None)
    note["series"] = "of another writer"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda note: note.update(last=10**13),
        lambda note: note.update(last=-1),
        lambda note: note.update(last=True),
        lambda note: note.update(indent=-2),
        lambda note: note.update(indent=10**9),
        lambda note: note.update(series=5),
        lambda note: note.update(file={"a": 1}),
        lambda note: note.pop("last"),
        dict.clear,
        other_series,
    ],
)
def test_a_note_with_one_part_out_of_range_is_not_a_note(
    session: Session, spoil: Callable[[dict[str, object]], object]
) -> None:
    """The next writer reads the file. A transaction that lost its numbers gives none twice."""
    for _ in range(2):
        session.record_decision("Text", made_by="a")
    transaction = session.transaction()
    assert transaction.record_decision("Reserved", made_by="a").id == "DEC-003"
    lock = session.memory.root / LOCK
    note = json.loads(lock.read_text())
    spoil(note)
    lock.write_text(json.dumps(note))
    given = [session.record_decision("Text", made_by="a").id for _ in range(2)]
    with pytest.raises(Conflict) if "DEC-003" in given else tempfile.TemporaryDirectory():
        transaction.commit()
    assert len(standing(session)) == len({*standing(session)})


def test_an_id_that_came_by_hand_during_a_transaction_stands_once(session: Session) -> None:
    """The transaction has given it away already, so it fails; its numbers are given no more."""
    session.record_decision("First", made_by="a")
    transaction = session.transaction(numbers=4)
    assert transaction.record_decision("Reserved", made_by="a").id == "DEC-002"
    by_hand(session, "DEC-002")
    with pytest.raises(Conflict):
        transaction.commit()
    assert standing(session) == ["DEC-001", "DEC-002"]
    # Numbers that a transaction did not use are given again, but not one that came by hand.
    transaction = session.transaction(numbers=4)
    ours = transaction.record_decision("Reserved", made_by="a").id
    highest = f"DEC-{DECISION.number_of(ours) + 3:03d}"  # type: ignore[operator]
    by_hand(session, highest)
    transaction.commit()
    for _ in range(6):
        session.record_decision("Text", made_by="a")
    assert len(standing(session)) == len({*standing(session)})


def entries(*ids: str) -> io.BytesIO:
    head: list[dict[str, object]] = [{"entry": "session", "session": "s1", "metadata": {}}]
    about = {"entry": "memory", "session": "s1", "file": "decisions.yaml", "type": "decision"}
    records = [{**about, "record": {"id": one, "decision": one, "made_by": "a"}} for one in ids]
    lines = [{"smp_export": 1}, *head, *records, {"entry": "end", "entries": 1 + len(records)}]
    return io.BytesIO("".join(json.dumps(line) + "\n" for line in lines).encode())


def test_an_import_gives_no_number_that_one_of_its_own_entries_has(session: Session) -> None:
    """An entry whose id cannot be kept gets a number behind all of them."""
    outcome = session.memory.exchange.import_(entries("not an id", "DEC-001", "DEC-005", "no id"))
    assert not outcome.problems
    assert sorted(standing(session)) == ["DEC-001", "DEC-005", "DEC-006", "DEC-007"]


# Everything at once.

_digits = st.one_of(
    st.integers(0, 12).map(lambda number: f"{number:03d}"),
    st.integers(0, 12).map(str),
    st.sampled_from(["9" * 11, "9" * 13, "1" * 16, "0" * 12 + "7", "٣", "1_0", "+5", ""]),
)
_ids = st.one_of(
    _digits.map(lambda digits: f"DEC-{digits}"),
    st.sampled_from(["FIND-002", "dec-002", "DEC--003", "X-DEC-004", "'DEC-006'", "DEC", "7"]),
)
_parts = st.one_of(
    st.integers(-1, 20), st.sampled_from([10**12, 10**13, 10**70, 1e70, None, "1", [], True])
)
_notes = st.dictionaries(st.sampled_from(["last", "series", "indent", "file", "version"]), _parts)
_steps = st.one_of(
    st.tuples(st.just("by hand"), _ids),
    st.tuples(st.just("torn by hand"), _ids),
    st.tuples(st.just("without an id"), st.just("")),
    st.tuples(st.just("add"), st.just("")),
    st.tuples(st.just("transaction"), st.integers(1, 3)),
    st.tuples(st.just("crossed transaction"), _ids),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("restore"), st.just("")),
    st.tuples(st.just("import"), st.lists(_ids, max_size=3)),
    st.tuples(st.just("note"), _notes),
    st.tuples(st.just("no lock file"), st.just("")),
)


class History:
    """A session whose decisions are written by everybody, and the ids that SMP gave in it."""

    def __init__(self, root: Path) -> None:
        self.session = Memory(root).create_session(id="s1")
        self.given: set[str] = set()
        self.deleted: list[str] = []

    def note(self, memory_id: str, before: set[str]) -> None:
        assert memory_id not in before, f"{memory_id} stands there already"
        assert memory_id not in self.given, f"{memory_id} was given before"
        self.given.add(memory_id)

    def add(self) -> None:
        before = {*standing(self.session)}
        self.note(self.session.record_decision("Text", made_by="a").id, before)

    def transaction(self, count: int, meanwhile: str | None = None) -> None:
        before = {*standing(self.session)}
        transaction = self.session.transaction()
        ours = [transaction.record_decision("Text", made_by="a").id for _ in range(count)]
        if meanwhile is not None:
            by_hand(self.session, meanwhile)
        try:
            transaction.commit()
        except Conflict:
            assert str(meanwhile).strip("'") in ours
        else:
            for one in ours:
                self.note(one, before)

    def step(self, name: str, value: object) -> None:
        session = self.session
        lock = session.memory.root / LOCK
        if name == "by hand":
            by_hand(session, str(value))
        elif name == "torn by hand":
            by_hand(session, str(value), "    made_by: twice\n")
        elif name == "without an id":
            before = {*standing(session)}
            by_hand(session, "other", "  - decision: without an id\n    by: ada\n")
            for one in give_ids(session, DECISION):
                self.note(one, before)
        elif name == "add":
            self.add()
        elif name == "transaction":
            assert isinstance(value, int)
            self.transaction(value)
        elif name == "crossed transaction":
            self.transaction(2, str(value))
        elif name == "delete":
            assert isinstance(value, int)
            ours = sorted(self.given & {*standing(session)})
            if ours:
                self.deleted.append(ours[value % len(ours)])
                session.delete(self.deleted[-1], reason="test")
        elif name == "restore":
            if self.deleted:
                session.restore(self.deleted.pop())
        elif name == "import":
            assert isinstance(value, list)
            before = {*standing(session)}
            session.memory.exchange.import_(entries(*value, "no id"))
            for one in {*standing(session)} - before - {*value}:
                self.note(one, before)
        elif name == "note":
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.write_text(json.dumps(value))
        else:
            lock.unlink(missing_ok=True)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(_steps, min_size=1, max_size=8))
def test_no_id_is_given_that_stands_in_the_file_or_was_given(
    steps: list[tuple[str, object]],
) -> None:
    """Whoever else writes there, by whatever way, and whatever becomes of the notes."""
    with tempfile.TemporaryDirectory() as directory:
        history = History(Path(directory) / "sessions")
        for name, value in steps:
            history.step(name, value)
        for _ in range(3):
            history.add()


@settings(max_examples=20, deadline=None)
@given(digits=st.lists(_digits, min_size=1, max_size=4), count=st.integers(1, 3))
def test_no_number_of_a_turn_is_given_that_a_heading_has(digits: list[str], count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        session = Memory(Path(directory) / "sessions").create_session(id="s1")
        given: set[str] = set()
        for one in digits:
            turn_by_hand(session, one)
            path = session.memory.root / "active/s1/conversation.md"
            turns = format_of(TURN).parse(path.read_bytes()).records
            before = {str(turn.value["id"]) for turn in turns}
            for _ in range(count):
                memory_id = session.add_turn("a", "text").id
                assert memory_id not in before | given
                given.add(memory_id)
