"""Memories are checked as a whole before anything is written, and every problem is named."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from smp_client import Invalid, Memory, Session

Files = dict[str, bytes]
HUGE = 10**5000  # Python refuses to write this number out


def snapshot(memory: Memory) -> Files:
    """Every byte of the tree that is not SMP's own."""
    own = memory.root / ".smp"
    paths = (path for path in memory.root.rglob("*") if path.is_file() and own not in path.parents)
    return {str(path.relative_to(memory.root)): path.read_bytes() for path in paths}


@pytest.fixture
def untouched(session: Session, memory: Memory) -> Iterator[None]:
    """Checks that the test has written nothing."""
    before = snapshot(memory)
    yield
    assert snapshot(memory) == before
    assert list((memory.root / ".smp/tmp").iterdir()) == []


def refused(call: Callable[[], object]) -> tuple[str, ...]:
    with pytest.raises(Invalid) as caught:
        call()
    assert caught.value.code == "MEM_E008"
    assert str(caught.value).endswith("Nothing was written; correct the values and try again.")
    return caught.value.problems


def finding(session: Session, **fields: Any) -> object:
    return session.record_finding(**{"finding": "x", "discovered_by": "a", **fields})


def nested(depth: int) -> Any:
    value: Any = "inside"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.usefixtures("untouched")
def test_every_problem_is_reported_at_once(session: Session) -> None:
    """One refusal names all that is wrong with a record, so that it takes one round to mend it."""
    fields = {"finding": " ", "discovered_by": None, "severity": "terrible", "timestamp": "yesterday",
              "tags": ["fine", "not fine", "-"], "thing": object(), "deep": nested(40),
              "number": HUGE, "text": "\ud800", "": 1}  # fmt: skip
    problems = refused(lambda: finding(session, **fields))
    wanted = ["'finding' of a finding", "'discovered_by' of a finding", "'severity' must be one of",
              "'not fine'", "tag '-'", "'timestamp' is not", "'thing' is a object", "deeper than 32",
              "a number that is none", "lone surrogate", "a key of"]  # fmt: skip
    for part in wanted:
        assert any(part in problem for problem in problems), part
    assert len(problems) == len(wanted)


REFUSED: dict[str, Callable[[Session], object]] = {
    "a preference without confidence": lambda s: s.record_preference("x", confidence=None),
    "a speaker of two lines": lambda s: s.add_turn("a\n## Turn 7", "x"),
    "a time without a zone": lambda s: finding(s, timestamp=datetime(2026, 1, 1)),
    "a time before all times": lambda s: finding(s, timestamp="0001-01-01T00:00:00+01:00"),
    "tags that are one text": lambda s: finding(s, tags="oauth"),
    "references that are one text": lambda s: s.add_turn("user", "x", memory_refs="DEC-001"),
    "a tag of 33 letters": lambda s: finding(s, tags=["a" * 33]),
    "a key without end": lambda s: finding(s, thing={"k" * 129: 2}),
    "an id of one's own": lambda s: finding(s, id="FIND-900"),
    "a turn number of one's own": lambda s: s.add_turn("user", "x", turn=900),
    "a finding above 1 MB": lambda s: finding(s, finding="x" * (1024 * 1024 + 1)),
    "an artifact above 1 MB": lambda s: s.save_artifact("a", "x" * (1024 * 1024 + 1)),
    "an artifact with a bad tag": lambda s: s.save_artifact("a", "x", tags=["a b"]),
    "an artifact whose id leads away": lambda s: s.save_artifact("../a", "x"),
    "a state of an agent that leads away": lambda s: s.save_agent_state("a/b", {}),
    "metadata with a thing": lambda s: s.update_metadata(context=object()),
    "a type that does not exist": lambda s: s.records("thought"),
    "a memory id that leads away": lambda s: s.get("../../etc/passwd"),
}


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_stored_is_refused(session: Session, case: str) -> None:
    """Each of these raises Invalid, and not one byte is written."""
    problems = refused(lambda: REFUSED[case](session))
    assert all(len(problem) < 400 for problem in problems)


def test_changes_are_checked_like_new_records(session: Session, memory: Memory) -> None:
    """An update that would leave a record that could not be written is refused, with all its
    problems, and changes nothing."""
    session.record_finding("x", discovered_by="a")
    before = snapshot(memory)
    problems = refused(
        lambda: session.update(
            "FIND-001", id="FIND-002", timestamp="x", finding=None, severity="bad", tags=["a b"]
        )
    )
    assert len(problems) == 5
    assert refused(lambda: session.update("FIND-001", finding="x" * (1024 * 1024 + 1)))
    assert snapshot(memory) == before


def test_a_value_that_contains_itself_is_refused(session: Session) -> None:
    """A circle ends at the depth that is allowed, however often it branches."""
    circle: list[Any] = []
    circle += [circle, circle, circle]
    assert all(
        "deeper than" in problem for problem in refused(lambda: finding(session, thing=circle))
    )


@pytest.mark.parametrize(
    ("arguments", "count"),
    [({"id": "../x"}, 1), ({"agents": ["a/b", "fine"]}, 1), ({"id": "global"}, 1),
     ({"user": "x\n\n## Turn 9 - 2026-01-01 00:00:00\n"}, 1), ({"tags": ["a b", "c d"]}, 2),
     ({"quota_bytes": "much"}, 1)],
)
def test_a_session_that_cannot_be_described_is_not_made(
    tmp_path: Path, arguments: dict[str, Any], count: int
) -> None:
    """`create_session` names the problems and makes nothing, not even the root."""
    memory = Memory(tmp_path / "sessions")
    assert len(refused(lambda: memory.create_session(**arguments))) == count
    assert not memory.root.exists()


def test_the_largest_that_is_allowed_is_stored(session: Session) -> None:
    """At the limits of size, depth, tags and ids nothing is refused, and all of it comes back."""
    fields = {"deep": nested(32), "number": 10**298, "k" * 128: 1, "tags": ["a" * 32, "über-1.2_3"]}
    size = 1024 * 1024 - 3000
    record = session.get(session.record_finding("x" * size, discovered_by="a", **fields).id)
    assert {name: record.data[name] for name in fields} == fields
    assert len(record.text) == size
    session.save_artifact("a" * 64, "x" * (1024 * 1024))
    assert len(session.artifact("a" * 64).text) == 1024 * 1024


class Number(enum.IntEnum):
    ONE = 1


class Word(str, enum.Enum):  # noqa: UP042 - the older kind, which shows its own name
    LOW = "low"


def test_numbers_and_texts_that_show_themselves_otherwise_are_stored_bare(session: Session) -> None:
    """Rendered as it shows itself, a file would get `<Number.ONE: 1>`, which is another value."""
    finding(session, severity=Word.LOW, number=Number.ONE, more=[Word.LOW])
    data = session.get("FIND-001").data
    assert [data[name] for name in ("severity", "number", "more")] == ["low", 1, ["low"]]
