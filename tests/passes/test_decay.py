"""The decay pass: its decisions, and that it changes nothing but decay lines."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from clocks import Clock

from smp_client import Memory, Session
from smp_client.disk import access
from smp_client.disk.access import Access
from smp_client.model.deadline import interruptible
from smp_client.model.priority import Policy
from smp_client.model.record import DECISION
from smp_client.passes import decay as pass_
from smp_client.passes.decay import Known, Seen, plan, session_priority
from smp_client.text.edits import spans

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER, EARLIER = START + timedelta(hours=1), START - timedelta(hours=1)
HAND_WRITTEN = b"""\
  - id: DEC-hand
    decision: no decay at all
    made_by: me
  - id: DEC-block
    timestamp: "2026-01-01T12:00:00Z"
    decision: a block of its own
    decay:
      priority: 0.95
      access_count: 0
  - id: DEC-comment # smp
    timestamp: "2026-01-01T12:00:00Z"
    decision: a comment follows
    decay: {priority: 0.95, base_priority: 0.95} # mine
  - id: DEC-quoted
    timestamp: "2026-01-01T12:00:00Z"
    decision: "a text that says
    decay: {priority: 0.95, fast: 1}
    and goes on"
    decay: {priority: 0.95, base_priority: 0.95}
"""


@pytest.fixture
def clock() -> Clock:
    return Clock(START)


@pytest.fixture
def session(tmp_path: Path, clock: Clock) -> Session:
    made = Memory(tmp_path / "sessions", clock=clock).create_session(id="s1", user="user-1")
    made.add_turn("user", "Hello.")
    made.add_turn("agent", "**Not:** a field\n\n---\nand so on", tags=["greeting"])
    for number in range(4):
        said = f"decision {number}\nin two lines: ä, 語"
        made.record_decision(said, made_by="architect", tags=["a", "b"])
    made.record_finding("finding", discovered_by="veritas", severity="critical")
    made.save_agent_state("veritas", {"mood": "calm"})
    made.save_artifact("report", "# Report\n")
    return made


def path(session: Session, file: str) -> Path:
    return Path(session.memory.root, session.scope.path(file))


def contents(session: Session) -> dict[str, bytes]:
    top = path(session, "")
    files = (file for file in sorted(top.rglob("*")) if file.is_file())
    return {str(file.relative_to(top)): file.read_bytes() for file in files}


def shown(session: Session, memory_id: str) -> dict[str, Any]:
    if memory_id in session.agent_states():
        return dict(session.agent_state(memory_id)["decay"])  # type: ignore[arg-type]
    return dict(session._find(memory_id).data["decay"])


def counts(session: Session, *ids: str) -> list[int]:
    return [shown(session, memory_id)["access_count"] for memory_id in ids]


def read(session: Session, *ids: str) -> None:
    for memory_id in ids:
        access.note(session.scope, [memory_id], session._now())


def noted(session: Session) -> dict[str, int]:
    return {name: one.times for name, one in access.parse(access.load(session.scope)).items()}


def differing(before: bytes, after: bytes) -> list[tuple[str, str]]:
    old, new = before.decode().split("\n"), after.decode().split("\n")
    return [(one, other) for one, other in zip(old, new, strict=True) if one != other]


def usual(priority: str, count: int = 0, at: str = "12:00") -> str:
    """Return the decay as the library writes it."""
    read = f'last_accessed: "2026-01-01T{at}:00Z", access_count: {count}'
    return f"{{priority: {priority}, {read}, base_priority: 0.95}}"


@pytest.mark.parametrize(("line", "priority", "accesses", "noted", "expected"), [
    (usual("0.95"), 0.95, 0, None, None),
    (usual("0.8761"), 0.8761, 0, None, usual("0.88")),
    # Read since: when and how often, also where the priority stays; never earlier than known.
    (usual("0.95", 2), 0.95, 2, Access(3, LATER), usual("0.95", 5, "13:00")),
    (usual("0.95", 2), 0.96, 2, Access(1, EARLIER), usual("0.96", 3)),
    (usual("0.95", 9), 1.0, 2**31 - 2, Access(999, START), usual("1.0", 2**31 - 1)),
    # Further keys stay, and so does their order.
    ('{why: {a: [1, "}"]}, priority: 0.95, base_priority: 0.5}', 0.5, 0, None,
     '{why: {a: [1, "}"]}, priority: 0.5, base_priority: 0.5}'),
])  # fmt: skip
def test_which_lines_are_replaced_and_by_what(
    line: str, priority: float, accesses: int, noted: Access | None, expected: str | None
) -> None:
    """A line changes where its priority differs in two digits, or where the memory was read."""
    record = "  - id: DEC-001 # smp\n    decision: x\n    decay: %s\n"
    (span,) = spans(DECISION, f"version: 1\ndecisions:\n{record % line}".encode()).records
    known = Known(DECISION.file, "DEC-001", "", accesses, START, priority)
    readings = {"DEC-001": noted} if noted else {}
    seen = Seen(START, Policy(), [known], readings, {(DECISION.file, "DEC-001"): span})
    wanted = [(record % expected).encode()] if expected else []
    assert [change.new for change in plan(seen)] == wanted


@pytest.mark.parametrize(("metadata", "days", "expected"), [
    ({}, 10, 0.55),  # e^-(0.05·10 + 0.01·10)
    ({"last_accessed": "2026-01-06T12:00:00Z"}, 10, 0.7),  # e^-(0.05·5 + 0.1)
    ({"decay": {"base_priority": "much", "decay_rate": -1}}, 10, 0.55),
    ({}, -10, 1.0),
    ({"decay_config": {"enabled": False}}, 100, 1.0),
    ({"decay_config": {"half_life_hours": 240}}, 10, 0.45),  # 0.5·e^-0.1
    ({"decay_config": {"min_decay_factor": 0.25}}, 1000, 0.25),
    ({"decay": None}, 10, None),
])  # fmt: skip
def test_the_priority_of_a_session(
    metadata: dict[str, Any], days: float, expected: float | None
) -> None:
    stamp = "2026-01-01T12:00:00Z"
    block = {"base_priority": 1.0, "decay_rate": 0.05}
    known = {"created_at": stamp, "last_accessed": stamp, "decay": block} | metadata
    assert session_priority(known, Policy(), START + timedelta(days=days)) == expected


def test_only_decay_lines_change(session: Session, clock: Clock) -> None:
    """Every other byte of every file stays, comments and odd styles included. A dry run says the
    same and does nothing; a second pass finds nothing to do."""
    decisions = path(session, "decisions.yaml")
    odd = decisions.read_bytes().replace(b"tags: [a, b]", b"tags: [  a,b ] # so", 1)
    decisions.write_bytes(b"# mine\n" + odd + b"# the end\n")
    before = contents(session)
    clock.forward(days=10)
    tried = session.decay(dry_run=True)
    assert contents(session) == before
    outcome = session.decay()
    after = contents(session)
    lines = [f"    decay: {usual(priority)}" for priority in ("0.95", "0.64")]
    assert differing(before["decisions.yaml"], after["decisions.yaml"]) == [tuple(lines)] * 4
    state = "agent-states/veritas.yaml"
    assert differing(before[state], after[state]) == [("    priority: 0.8", "    priority: 0.4")]
    assert differing(before["metadata.yaml"], after["metadata.yaml"]) == [
        ("    current_priority: 1.0", "    current_priority: 0.55"),
        ('    last_decay_update: "2026-01-01T12:00:00Z"',
         '    last_decay_update: "2026-01-11T12:00:00Z"'),
    ]  # fmt: skip
    changed = {file for file in before if before[file] != after.get(file)}
    assert changed == {"decisions.yaml", "findings.yaml", state, "metadata.yaml"}
    reasons = {action.about[0]: action.reason for action in outcome.actions}
    assert reasons.keys() == changed
    assert reasons["decisions.yaml"] == "4 priorities or readings differ"
    assert tried.actions == outcome.actions
    assert session.decay().actions == []


def test_readings_are_counted(session: Session, clock: Clock) -> None:
    """They are then no longer in the log, nor are those of an artifact, which shows none."""
    read(session, "DEC-001", "DEC-002", "veritas", "report", "DEC-404")
    clock.forward(days=1)
    read(session, "DEC-002", "turn-1")
    clock.forward(days=1)
    session.decay()
    assert shown(session, "DEC-001") == {
        "priority": 0.9, "last_accessed": "2026-01-01T12:00:00Z", "access_count": 1,
        "base_priority": 0.95,
    }  # fmt: skip  # 0.95·e^-(0.03·2 + 0.01·2) + 0.02
    assert shown(session, "DEC-002")["last_accessed"] == "2026-01-02T12:00:00Z"
    assert counts(session, "DEC-002", "DEC-003", "veritas", "turn-1") == [2, 0, 1, 1]
    assert noted(session) == {}
    assert session.problems() == []
    assert session.decay().actions == []


def test_a_line_of_a_text_that_looks_like_decay_stays(session: Session, clock: Clock) -> None:
    turns = path(session, "conversation.md")
    text = b"## Turn 9 - 2026-01-01 12:00:00 UTC\n**Speaker:** a\nIt says\n**Decay:** {priority: 0.5}\n\n---\n"
    turns.write_bytes(turns.read_bytes() + text)
    read(session, "turn-9")
    clock.forward(days=10)
    session.decay()
    assert turns.read_bytes().endswith(text)


def test_a_change_of_the_metadata_meanwhile_is_kept(
    session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = pass_._question

    def crossed(*given: Any) -> Any:
        seen = asked(*given)
        session.update_metadata(decay={"keep": 7})
        return seen

    monkeypatch.setattr(pass_, "_question", crossed)
    clock.forward(days=10)
    session.decay()
    assert session.metadata()["decay"]["keep"] == 7


def test_a_turn_shows_its_decay_when_it_is_read(session: Session, clock: Clock) -> None:
    """A turn gets its decay line when it is read, behind its other fields, and keeps it true."""
    clock.forward(days=1)
    session.decay()
    turns = path(session, "conversation.md")
    before = turns.read_bytes()
    assert b"**Decay:**" not in before
    read(session, "turn-2")
    session.decay()
    tags, line = b"**Tags:** [greeting]\n", (
        b'**Decay:** {priority: 1.0, last_accessed: "2026-01-02T12:00:00Z", access_count: 1,'
        b" base_priority: 1.0}\n"
    )  # fmt: skip
    after = before.replace(tags, tags + line)
    assert turns.read_bytes() == after
    clock.forward(days=10)
    session.decay()
    assert turns.read_bytes() == after.replace(b"priority: 1.0, last", b"priority: 0.55, last")


def test_a_file_that_cannot_be_read_is_named_and_left(session: Session, clock: Clock) -> None:
    decisions = path(session, "decisions.yaml")
    newer = decisions.read_bytes().replace(b"version: 1", b"version: 9")
    decisions.write_bytes(newer)
    clock.forward(days=10)
    (problem,) = session.decay().problems
    assert problem.startswith("decisions.yaml was left as it is: ")
    assert (decisions.read_bytes(), shown(session, "FIND-001")["priority"]) == (newer, 0.8)


FLOW = b"decisions: [{id: DEC-004, decision: x, made_by: y, decay: {priority: 0.95}}]"


@pytest.mark.parametrize(("change", "lines"), [
    (lambda content: content.replace(b"\n", b"\r\n"), 4),
    (lambda content: content.replace(b"  - id: DEC-002", b"  - id: [\n    bad: *r\n  - id: DEC-002"),
     4),
    (lambda content: content + HAND_WRITTEN, 5),
    (lambda _: b"version: 1\n%b\n" % FLOW, 0),
    (lambda content: content.replace(b"\n  ", b"\n") + b"owner: me\n", 0),
])  # fmt: skip
def test_files_in_another_style(
    session: Session, clock: Clock, change: Callable[[bytes], bytes], lines: int
) -> None:
    """Only the decay lines of records that can be read change, and only those in our own style."""
    decisions = path(session, "decisions.yaml")
    before = change(decisions.read_bytes())
    decisions.write_bytes(before)
    read(session, "DEC-004")
    clock.forward(days=10)
    session.decay()
    changed = differing(before, decisions.read_bytes())
    assert len(changed) == lines
    assert all(one.strip().startswith("decay: {priority: 0.95") for one, _ in changed)
    assert all("priority: 0.6" in other for _, other in changed)
    assert sum("access_count: 1" in other for _, other in changed) == (lines > 0)
    assert session.decay().actions == []


def test_a_change_since_the_plan_is_planned_again(
    session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edits and deletions stay, and so does a reading that came meanwhile."""
    read(session, "DEC-001", "DEC-002", "DEC-003")
    clock.forward(days=10)
    meanwhile: list[Callable[[], object]] = [
        lambda: session.update("DEC-003", tags=["mine"]),
        lambda: session.delete("DEC-002", reason="test"),
        lambda: read(session, "DEC-001"),
    ]  # fmt: skip

    def planned(seen: Seen) -> Any:
        made = plan(seen)
        if meanwhile:
            meanwhile.pop(0)()
        return made

    monkeypatch.setattr(pass_, "plan", planned)
    assert session.decay().success
    assert counts(session, "DEC-001", "DEC-003", "DEC-004") == [1, 1, 0]
    assert session.get("DEC-003", count_access=False).data["tags"] == ["mine"]
    assert noted(session) == {"DEC-001": 1}


def test_an_edit_before_the_file_is_read_is_planned_again(
    session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(session, "DEC-001")
    clock.forward(days=10)
    edits, content_of = ["DEC-003"], session.scope.read

    def reading(file: str) -> bytes:
        if edits:
            session.update(edits.pop(), tags=["mine"])
        return content_of(file)

    monkeypatch.setattr(session.scope, "read", reading)
    assert session.decay().problems == []
    assert counts(session, "DEC-001", "DEC-003") == [1, 0]


def test_records_that_share_one_id_are_looked_at_once_each(memory: Memory) -> None:
    """The work of SQLite grows with their number, not with its square."""
    session = memory.create_session(id="s1")
    path = memory.root / "active/s1/decisions.yaml"

    def work_for(count: int) -> int:
        records = [f"  - id: D\n    decision: same id {number}\n" for number in range(count)]
        path.write_text("version: 1\ndecisions:\n" + "".join(records))
        memory.search("same")  # so that they are in the index
        beats: list[bool] = []
        with interruptible(lambda: None, lambda: beats.append(True)):
            session.decay()
        return len(beats)

    assert work_for(4_000) < 8 * work_for(1_000)
