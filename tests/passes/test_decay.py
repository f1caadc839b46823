"""The decay pass: its decisions, and that it changes nothing but decay lines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from smp_client import Conflict, Memory, Session, TransactionPending
from smp_client.disk import access, journal
from smp_client.disk.access import Access
from smp_client.index.take_in import describe
from smp_client.model.priority import Policy
from smp_client.model.record import DECISION
from smp_client.passes import decay as decay_pass
from smp_client.passes.decay import DecayPlan, Known, Seen, decay, plan, session_priority
from smp_client.text.edits import spans
from smp_client.text.fingerprint import hash_of

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
DECAY = 'decay: {priority: %s, last_accessed: "%s", access_count: %d, base_priority: 0.95}'
HAND_WRITTEN = b"""\
  - id: DEC-hand
    decision: no decay at all
    made_by: me
  - id: DEC-block
    decision: a block of its own
    decay:
      priority: 0.95
      access_count: 0
  - id: DEC-comment # smp
    decision: a comment follows
    decay: {priority: 0.95, last_accessed: "2026-01-01T12:00:00Z", access_count: 0, base_priority: 0.95} # mine
"""


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def go(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def session(tmp_path: Path, clock: Clock) -> Session:
    made = Memory(tmp_path / "sessions", clock=clock).create_session(id="s1", user="user-1")
    made.add_turn("user", "Hello.")
    made.add_turn("agent", "**Not:** a field\n\n---\nand so on", tags=["greeting"])
    for number in range(4):
        made.record_decision(
            f"decision {number}\nin two lines: ä, 語", made_by="architect", tags=["a", "b"]
        )
    made.record_finding("finding", discovered_by="veritas", severity="critical")
    made.save_agent_state("veritas", {"mood": "calm"})
    made.save_artifact("report", "# Report\n")
    return made


def path(session: Session, file: str) -> Path:
    return Path(session.scope.tree.root, session.scope.path(file))


def contents(session: Session) -> dict[str, bytes]:
    top = path(session, "")
    return {
        str(file.relative_to(top)): file.read_bytes()
        for file in sorted(top.rglob("*"))
        if file.is_file()
    }


def shown(session: Session, memory_id: str) -> dict[str, Any]:
    if memory_id in session.agent_states():
        return dict(session.agent_state(memory_id)["decay"])  # type: ignore[arg-type]
    return dict(session._find(memory_id).data["decay"])


def read(session: Session, *ids: str) -> None:
    access.note(session.scope, ids, session._now())


def noted(session: Session) -> dict[str, int]:
    return {name: one.times for name, one in access.Readings().of(session.scope).items()}


def differing(before: bytes, after: bytes) -> list[tuple[str, str]]:
    old, new = before.decode().split("\n"), after.decode().split("\n")
    assert len(old) == len(new)
    return [(one, other) for one, other in zip(old, new, strict=True) if one != other]


# What is decided


def planned(lines: list[str], memories: list[Known], noted: dict[str, Access]) -> DecayPlan:
    """Return the plan for a file of decisions with these last lines, all of the same form."""
    listed = "".join(
        f"  - id: {one.id} # smp\n    decision: x\n    {line}\n"
        for one, line in zip(memories, lines, strict=True)
    )
    content = f"version: 1\ndecisions:\n{listed}".encode()
    found = spans(DECISION, content)
    file = DECISION.file
    known = [
        one._replace(hash=hash_of(span.value))
        for one, span in zip(memories, found.records, strict=True)
    ]
    records = {(file, span.id): span for span in found.records}
    ids = frozenset(one.id for one in memories)
    return plan(Seen("s1", START, Policy(), known, records, ids, log=access.render(noted)))


def known(priority: float, accesses: int = 0, memory_id: str = "DEC-001") -> Known:
    return Known(DECISION.file, memory_id, "", accesses, START, priority)


LATER, EARLIER = START + timedelta(hours=1), START - timedelta(hours=1)


def usual(priority: str, count: int = 0, at: str = "12:00") -> str:
    """Return the decay as the library writes it."""
    read = f'last_accessed: "2026-01-01T{at}:00Z", access_count: {count}'
    return f"{{priority: {priority}, {read}, base_priority: 0.95}}"


@pytest.mark.parametrize(
    ("line", "priority", "accesses", "noted", "expected"),
    [
        (usual("0.95"), 0.95, 0, None, None),
        (usual("0.95"), 0.9459, 0, None, None),
        (usual("0.95"), 0.944, 0, None, usual("0.94")),
        (usual("0.8761"), 0.8761, 0, None, usual("0.88")),
        # Read since: when and how often, also where the priority stays; never earlier than known.
        (usual("0.95", 2), 0.95, 2, Access(3, LATER), usual("0.95", 5, "13:00")),
        (usual("0.95", 2), 0.96, 2, Access(1, EARLIER), usual("0.96", 3)),
        (usual("0.95", 9), 1.0, 2**31 - 2, Access(999, START), usual("1.0", 2**31 - 1)),
        # Further keys stay, and so does their order.
        ('{why: {a: [1, "}"]}, priority: 0.95, base_priority: 0.5}', 0.5, 0, None,
         '{why: {a: [1, "}"]}, priority: 0.5, base_priority: 0.5}'),
        ("{base_priority: 0.5, note: mine}", 0.5, 0, Access(1, START),
         '{base_priority: 0.5, note: mine, priority: 0.5, last_accessed: "2026-01-01T12:00:00Z",'
         " access_count: 1}"),
        ("{priority: high}", 0.5, 0, None, "{priority: 0.5}"),
    ],
)  # fmt: skip
def test_which_lines_are_replaced_and_by_what(
    line: str, priority: float, accesses: int, noted: Access | None, expected: str | None
) -> None:
    """A line changes where its priority differs in two digits, or where the memory was read."""
    known_reading = {"DEC-001": noted} if noted else {}
    made = planned([f"decay: {line}"], [known(priority, accesses)], known_reading)
    record = "  - id: DEC-001 # smp\n    decision: x\n    decay: %s\n"
    assert [change.new for change in made.changes] == (
        [(record % expected).encode()] if expected else []
    )
    assert (made.kept is not None) is (noted is not None)


@pytest.mark.parametrize(
    ("metadata", "days", "expected"),
    [
        ({}, 0, 1.0),
        ({}, 10, 0.55),  # e^-(0.05·10 + 0.01·10)
        ({"last_accessed": "2026-01-06T12:00:00Z"}, 10, 0.7),  # e^-(0.05·5 + 0.1)
        ({"decay": {"base_priority": 0.8, "decay_rate": 0.1}}, 10, 0.27),  # 0.8·e^-1.1
        ({"decay": {"base_priority": "much", "decay_rate": -1}}, 10, 0.55),
        ({}, -10, 1.0),
        ({"decay_config": {"enabled": False}}, 100, 1.0),
        ({"decay_config": {"half_life_hours": 240}}, 10, 0.45),  # 0.5·e^-0.1
        ({"decay_config": {"min_decay_factor": 0.25}}, 1000, 0.25),
        ({"decay": None}, 10, None),
        ({"last_accessed": "yesterday", "created_at": None}, 10, None),
    ],
)  # fmt: skip
def test_the_priority_of_a_session(
    metadata: dict[str, Any], days: float, expected: float | None
) -> None:
    stamp = "2026-01-01T12:00:00Z"
    known = {
        "created_at": stamp,
        "last_accessed": stamp,
        "decay": {"base_priority": 1.0, "decay_rate": 0.05},
    } | metadata
    assert session_priority(known, Policy(), START + timedelta(days=days)) == expected


# What is written


def test_only_decay_lines_change(session: Session, clock: Clock) -> None:
    """Every other byte of every file stays, comments and odd styles included."""
    decisions = path(session, "decisions.yaml")
    decisions.write_bytes(
        b"# mine\n"
        + decisions.read_bytes().replace(b"tags: [a, b]", b"tags: [  a,b ] # so", 1)
        + b"# the end\n"
    )
    before = contents(session)
    clock.go(days=10)
    outcome = decay(session)
    after = contents(session)
    old, new = (
        f"    {DECAY % (priority, '2026-01-01T12:00:00Z', 0)}" for priority in ("0.95", "0.64")
    )
    assert differing(before["decisions.yaml"], after["decisions.yaml"]) == [(old, new)] * 4
    assert [(one.strip(), other.strip()) for one, other in differing(before["findings.yaml"], after["findings.yaml"])] == [
        ('decay: {priority: 0.9, last_accessed: "2026-01-01T12:00:00Z", access_count: 0, base_priority: 0.9}',
         'decay: {priority: 0.8, last_accessed: "2026-01-01T12:00:00Z", access_count: 0, base_priority: 0.9}')
    ]  # fmt: skip
    state = "agent-states/veritas.yaml"
    assert differing(before[state], after[state]) == [("    priority: 0.8", "    priority: 0.4")]
    assert differing(before["metadata.yaml"], after["metadata.yaml"]) == [
        ("    current_priority: 1.0", "    current_priority: 0.55"),
        (
            '    last_decay_update: "2026-01-01T12:00:00Z"',
            '    last_decay_update: "2026-01-11T12:00:00Z"',
        ),
    ]
    changed = {"decisions.yaml", "findings.yaml", state, "metadata.yaml"}
    assert {file for file in before if before[file] != after.get(file)} == changed
    assert {action.about[0]: action.reason for action in outcome.actions} == {
        "decisions.yaml": "4 priorities differ from what the file shows",
        "findings.yaml": "1 priority differs from what the file shows",
        state: "1 priority differs from what the file shows",
        "metadata.yaml": "the session's priority is 0.55, not 1.0",
    }
    assert outcome.success


def test_reading_is_taken_in(session: Session, clock: Clock) -> None:
    """How often and when last; what was read is then in the records and no longer in the log,
    except for an artifact.
    """
    read(session, "DEC-001", "DEC-002", "veritas", "report")
    clock.go(days=1)
    read(session, "DEC-002", "turn-1")
    clock.go(days=1)
    outcome = decay(session)
    assert {action.about[0]: action.reason for action in outcome.actions}["decisions.yaml"] == (
        "4 priorities differ from what the file shows, 2 were read since the last pass"
    )
    stamps = ("2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z")
    assert shown(session, "DEC-001") == {
        "priority": 0.9, "last_accessed": stamps[0], "access_count": 1, "base_priority": 0.95
    }  # fmt: skip  # 0.95·e^-(0.03·2 + 0.01·2) + 0.02
    assert (
        shown(session, "DEC-002")["last_accessed"],
        shown(session, "DEC-002")["access_count"],
    ) == (stamps[1], 2)
    assert shown(session, "DEC-003")["access_count"] == 0
    assert (
        shown(session, "veritas")["last_accessed"],
        shown(session, "veritas")["access_count"],
    ) == (stamps[0], 1)
    assert (
        b"**Decay:** {priority: 0.94" in path(session, "conversation.md").read_bytes()
    )  # e^-(0.05 + 0.02) + 0.01
    assert shown(session, "turn-1")["access_count"] == 1
    assert noted(session) == {"report": 1}
    assert session.metadata()["decay"]["last_decay_update"] == "2026-01-03T12:00:00Z"  # type: ignore[index,call-overload]
    assert session.problems() == []


def test_a_pass_that_finds_nothing_to_change_writes_no_file(session: Session, clock: Clock) -> None:
    """Not even one with the same bytes: every file keeps its inode and its time."""
    read(session, "DEC-001", "report")
    clock.go(days=5)
    decay(session)
    clock.go(minutes=1)
    decay(session, dry_run=True)
    root = session.scope.tree.root

    def states() -> dict[str, tuple[int, int]]:
        files = (
            file
            for file in Path(root).rglob("*")
            if file.is_file() and not file.name.startswith("index.db")
        )
        return {str(file): (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}

    before = states()
    assert decay(session).actions == []
    assert states() == before


def test_a_dry_run_says_the_same_and_does_nothing(session: Session, clock: Clock) -> None:
    read(session, "DEC-001")
    clock.go(days=5)
    before = contents(session)
    tried = decay(session, dry_run=True)
    assert contents(session) == before
    assert tried.dry_run
    assert tried.actions == decay(session).actions


def test_turns_that_nobody_has_read_show_nothing(session: Session, clock: Clock) -> None:
    """A turn gets its decay line when it is read, behind its other fields, and keeps it up to date
    from then on.
    """
    clock.go(days=1)
    decay(session)
    before = path(session, "conversation.md").read_bytes()
    assert b"**Decay:**" not in before
    read(session, "turn-2")
    decay(session)
    after = path(session, "conversation.md").read_bytes()
    line = b'**Decay:** {priority: 1.0, last_accessed: "2026-01-02T12:00:00Z", access_count: 1, base_priority: 1.0}\n'
    assert after == before.replace(b"**Tags:** [greeting]\n", b"**Tags:** [greeting]\n" + line)
    assert [turn.text for turn in session.turns()] == [
        "Hello.",
        "**Not:** a field\n\n---\nand so on",
    ]
    clock.go(days=10)
    decay(session)
    assert path(session, "conversation.md").read_bytes() == after.replace(
        b"priority: 1.0, last", b"priority: 0.55, last"
    )


def test_what_was_written_by_hand_is_left_alone(session: Session, clock: Clock) -> None:
    """Records without a decay, or with one in another style, keep every byte; what they were read
    stays noted.
    """
    decisions, turns = path(session, "decisions.yaml"), path(session, "conversation.md")
    decisions.write_bytes(decisions.read_bytes() + HAND_WRITTEN)
    turns.write_bytes(
        turns.read_bytes() + b"## Turn 3 - 2026-01-01 12:00:00\n**Speaker:** me\n\nby hand\n"
    )
    ids = ["DEC-hand", "DEC-block", "DEC-comment", "turn-3"]
    assert {record.id for record in session.search(limit=100, count_access=False)} >= {*ids}
    read(session, "DEC-001", *ids)
    clock.go(days=10)
    decay(session)
    assert decisions.read_bytes().endswith(HAND_WRITTEN)
    assert b"**Decay:**" not in turns.read_bytes()
    assert shown(session, "DEC-001")["priority"] == 0.66
    assert noted(session).keys() >= {*ids}
    assert decay(session).actions == []


def test_what_was_read_and_is_gone_is_forgotten(session: Session, clock: Clock) -> None:
    read(session, "DEC-404", "DEC-405", "report")
    outcome = decay(session)
    assert [(action.about, action.reason) for action in outcome.actions] == [
        (("access.log",), "2 memories that were read are gone")
    ]
    assert noted(session) == {"report": 1}
    assert decay(session).actions == []


def test_nothing_is_forgotten_while_a_file_cannot_be_read(session: Session) -> None:
    """A file of a newer format may hold what was read; it is named and left as it is."""
    decisions = path(session, "decisions.yaml")
    read(session, "DEC-001", "FIND-001")
    whole = decisions.read_bytes()
    decisions.write_bytes(whole.replace(b"version: 1", b"version: 9"))
    outcome = decay(session)
    assert len(outcome.problems) == 1
    assert outcome.problems[0].startswith("decisions.yaml was left as it is: ")
    assert noted(session) == {"DEC-001": 1}
    decisions.write_bytes(whole)
    assert decay(session).success
    assert shown(session, "DEC-001")["access_count"] == 1
    assert noted(session) == {}


# Odd files


def crlf(content: bytes) -> bytes:
    return content.replace(b"\n", b"\r\n")


def with_mark(content: bytes) -> bytes:
    return b"\xef\xbb\xbf" + content


def with_bad_record(content: bytes) -> bytes:
    first = content.index(b"  - id: DEC-002")
    return content[:first] + b"  - id: [\n    bad: *record\n" + content[first:]


def doubled(content: bytes) -> bytes:
    return content + content[content.index(b"  - id: DEC-004") :]


def indented(content: bytes) -> bytes:
    head, listed, records = content.partition(b"decisions:\n")
    return head + listed + b"".join(b"   " + line for line in records.splitlines(keepends=True))


def in_flow_style(content: bytes) -> bytes:
    return b"version: 1\ndecisions: [{id: DEC-001, decision: x, made_by: y, decay: {priority: 0.95, base_priority: 0.95}}]\n"


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (crlf, 4),
        (with_mark, 4),
        (with_bad_record, 4),
        (doubled, 4),
        (indented, 4),
        (in_flow_style, 0),
    ],
)
def test_files_in_another_style(
    session: Session, clock: Clock, change: Callable[[bytes], bytes], lines: int
) -> None:
    """Line ends, a byte order mark, bad neighbours, doubled ids (of which the last counts), another
    indentation: only the decay lines of what can be read change. A list in flow style is left
    alone. The file says the same of everything else as before.
    """
    decisions = path(session, "decisions.yaml")
    decisions.write_bytes(change(decisions.read_bytes()))
    before = decisions.read_bytes()
    read(session, "DEC-004")
    clock.go(days=10)
    decay(session)
    after = decisions.read_bytes()
    changed = differing(before, after)
    assert len(changed) == lines
    assert all(one.strip().startswith("decay: {priority: 0.95") for one, _ in changed)
    assert all(
        other.strip().startswith(("decay: {priority: 0.64", "decay: {priority: 0.66"))
        for _, other in changed
    )
    assert after.count(b"\r\n") == before.count(b"\r\n")
    assert sum("access_count: 1" in other for _, other in changed) == (lines > 0)
    assert decay(session).actions == []
    assert len(describe("s1", "decisions.yaml", after)) == len(
        describe("s1", "decisions.yaml", before)
    )
    if lines:
        assert shown(session, "DEC-004")["access_count"] == 1


def test_a_conversation_with_other_line_ends(session: Session, clock: Clock) -> None:
    turns = path(session, "conversation.md")
    turns.write_bytes(crlf(turns.read_bytes()))
    before = turns.read_bytes()
    read(session, "turn-1")
    decay(session)
    after = turns.read_bytes()
    line = b'**Decay:** {priority: 1.0, last_accessed: "2026-01-01T12:00:00Z", access_count: 1, base_priority: 1.0}\r\n'
    assert after == before.replace(b"**Type:** message\r\n", b"**Type:** message\r\n" + line, 1)
    assert shown(session, "turn-1")["access_count"] == 1


# Between the plan and its apply


def before_applying(
    monkeypatch: pytest.MonkeyPatch, *meanwhile: Callable[[], object]
) -> list[Callable[[], object]]:
    """Have each of these done between one plan and its apply; return those that are left."""
    left = list(meanwhile)

    def planned(seen: Seen) -> DecayPlan:
        made = plan(seen)
        if left:
            left.pop(0)()
        return made

    monkeypatch.setattr(decay_pass, "plan", planned)
    return left


def test_what_was_changed_since_the_plan_is_planned_again(
    session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever somebody appends, edits or deletes meanwhile stays, and every reading is counted
    once.
    """
    read(session, "DEC-001", "DEC-002", "DEC-003")
    clock.go(days=10)
    left = before_applying(
        monkeypatch,
        lambda: session.update("DEC-003", tags=["mine"]),
        lambda: session.delete("DEC-002", reason="test"),
    )
    assert decay(session).success
    assert left == []
    assert [shown(session, name)["access_count"] for name in ("DEC-001", "DEC-003", "DEC-004")] == [
        1,
        1,
        0,
    ]
    assert session.get("DEC-003", count_access=False).data["tags"] == ["mine"]
    assert noted(session) == {}


def test_a_reading_between_the_plan_and_its_apply_is_not_lost(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(session, "DEC-001")
    before_applying(monkeypatch, lambda: read(session, "DEC-001", "DEC-002"))
    decay(session)
    assert noted(session) == {"DEC-001": 1, "DEC-002": 1}
    decay(session)
    assert (
        shown(session, "DEC-001")["access_count"],
        shown(session, "DEC-002")["access_count"],
    ) == (2, 1)


# After a crash, see also tests/faults/test_kill_upkeep.py


def cut_off(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a pass that ends behind its intent, as one that is killed does."""

    def killed(*arguments: Any) -> bytes | None:
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "carry_out", killed)
        with pytest.raises(TransactionPending):
            decay(session)


def test_an_edit_before_a_recorded_pass_is_finished_is_kept(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever edits the file between a crash and whoever finishes the pass keeps the edit."""
    read(session, "DEC-001", "DEC-002", "veritas")
    cut_off(session, monkeypatch)
    decisions = path(session, "decisions.yaml")
    decisions.write_bytes(
        decisions.read_bytes().replace(b"made_by: architect", b"made_by: me # really", 1)
    )
    session.scope.recover()
    assert b"made_by: me # really\n" in decisions.read_bytes()
    assert [
        shown(session, name)["access_count"]
        for name in ("DEC-001", "DEC-002", "DEC-003", "veritas")
    ] == [0, 1, 0, 1]


WRITER = """
import sys
from smp_client import Memory
session = Memory(sys.argv[1]).session("s1")
for number in range(60):
    session.record_decision(f"locked {number}", made_by="writer")
    session.add_turn("writer", f"locked {number}")
    session.update("DEC-001", counted=number)
"""
UNLOCKED = """
import os, sys
for number in range(300):
    with open(sys.argv[1] + "/active/s1/decisions.yaml", "ab", buffering=0) as file:
        file.write(b"  - id: OPEN-%d\\n    decision: unlocked %d\\n    made_by: nobody\\n" % (number, number))
        os.fsync(file.fileno())
"""


def test_beside_writers_with_and_without_locks(session: Session, clock: Clock) -> None:
    """While one process appends and updates, and another appends without a lock, passes at ever
    later times lose no record and no reading. With the new file just renamed over the old one,
    records of the other were missing.
    """
    readings = 0
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(session.scope.tree.root)])
        for program in (WRITER, UNLOCKED)
    ]
    while any(writer.poll() is None for writer in writers):
        read(session, "DEC-002", "turn-1", "DEC-001")
        readings += 1
        clock.go(days=1)
        with suppress(
            Conflict
        ):  # the writer was faster three times: the readings wait for the next pass
            decay(session)
    assert [writer.wait() for writer in writers] == [0, 0]
    decay(session)
    texts = [record.text for record in session.records("decision")]
    assert sorted(text for text in texts if "locked" in text) == sorted(
        [f"locked {number}" for number in range(60)]
        + [f"unlocked {number}" for number in range(300)]
    )
    assert [turn.text for turn in session.turns()][2:] == [
        f"locked {number}" for number in range(60)
    ]
    assert [shown(session, name)["access_count"] for name in ("DEC-001", "DEC-002", "turn-1")] == [
        readings
    ] * 3
    assert session.get("DEC-001", count_access=False).data["counted"] == 59
    assert session.problems() == []
