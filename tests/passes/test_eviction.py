"""Making sessions smaller, so that what was taken out can come back: with real files, commands and
other writers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from crossing import at_the_exchange
from daemons import wait_until

from smp_client import Invalid, Memory, Session
from smp_client.change.restore import bring_back
from smp_client.disk.tarball import read_members
from smp_client.model.policies import CompactionPolicy
from smp_client.passes import compaction
from smp_client.passes.compaction import compact, estimate
from smp_client.passes.tidy import tidy

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HEADS = re.compile(rb"^(?:last_id: \d+|\*\*Last-Turn:\*\* \d+)\n", re.MULTILINE)
RECORD_FILES = (
    "conversation.md",
    "decisions.yaml",
    "findings.yaml",
    "preferences.yaml",
    "learnings.yaml",
    "relationships.yaml",
)


def opened(root: Path, **options: Any) -> Session:
    return Memory(root, **{"clock": lambda: NOW, "count_access": False, **options}).session("s1")


@pytest.fixture
def full(tmp_path: Path) -> Session:
    """Forty old turns with one pinned among them, one of today, resolved and open findings, a
    decision, a decayed preference.
    """
    root = tmp_path / "sessions"
    memory = Memory(root, clock=lambda: NOW)
    session = memory.create_session(id="s1", user="user-123", topic="authentication")
    long_ago = NOW - timedelta(days=20)
    for number in range(1, 41):
        said = (
            f"This is what was said as number {number}. We decided to do {number}. "
            + "And so on. " * 60
        )
        session.add_turn("user", said, timestamp=long_ago + timedelta(hours=number))
    session.pin("turn-20")
    session.add_turn("user", "And this is from today. " * 10, timestamp=NOW - timedelta(hours=1))
    for number in range(1, 9):
        session.record_finding(f"finding {number} " * 20, discovered_by="veritas", severity="low", timestamp=long_ago,
                               resolution={"status": "resolved" if number % 2 else "open"})  # fmt: skip
    session.record_decision("Use OAuth", made_by="architect", timestamp=long_ago)
    session.record_preference(
        "dark colours", confidence="uncertain", timestamp=NOW - timedelta(days=90)
    )
    session.relate("DEC-001", "FIND-001", "resolves", timestamp=long_ago)
    return opened(root)


def folder(session: Session) -> Path:
    return session.scope.tree.root / session.scope.directory


def contents(session: Session) -> dict[str, bytes]:
    return {
        name: (folder(session) / name).read_bytes()
        for name in RECORD_FILES
        if (folder(session) / name).exists()
    }


def without_heads(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: HEADS.sub(b"", content) for name, content in found.items()}


def everything(session: Session) -> dict[str, bytes]:
    """Every file of the tree that says something."""
    root = session.scope.tree.root
    found = (
        path for path in sorted(root.rglob("*")) if path.is_file() and ".smp" not in path.parts
    )
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def ids(session: Session) -> set[str]:
    return {record.id for kind in session.kinds for record in session.records(kind.name)}


def eviction_files(session: Session) -> list[Path]:
    return sorted((session.scope.tree.root / "archived/s1").glob("evicted-*.tar.gz"))


def test_what_is_freed_is_what_the_files_became_smaller(full: Session) -> None:
    """Before and after are the sizes on disk, and the actions account for every byte but the heads
    that note the last numbers.
    """
    before, size = contents(full), full.size().total_bytes
    most = estimate(full)
    result = compact(full, reduction_pct=90)
    assert sum(action.bytes_freed for action in result.actions) == most
    assert (result.counts["before_bytes"], result.counts["after_bytes"]) == (
        size,
        full.size().total_bytes,
    )
    assert result.counts["bytes_freed"] == size - full.size().total_bytes > 20_000
    shrunk = sum(map(len, before.values())) - sum(map(len, without_heads(contents(full)).values()))
    assert sum(action.bytes_freed for action in result.actions) == shrunk
    assert [action.type for action in result.actions] == [
        "remove_decayed", "summarize_conversation", "summarize_conversation", "archive_findings"
    ]  # fmt: skip
    assert full.problems() == []


def test_what_was_taken_out_comes_back_byte_for_byte(full: Session) -> None:
    """After compaction and back, every record file is as it was, but for the line that notes the
    last number.
    """
    before = contents(full)
    compact(full, reduction_pct=90)
    assert contents(full) != before
    outcome = bring_back(full)
    assert outcome.success
    assert without_heads(contents(full)) == before
    assert full.evicted() == []
    assert eviction_files(full) == []
    assert full.problems() == []


def test_what_is_taken_out_is_listed_with_its_reason(full: Session) -> None:
    compact(full, reduction_pct=90)
    listed = {one.id: one for one in full.evicted()}
    assert listed.keys() == {*(f"turn-{number}" for number in range(1, 41) if number != 20), "PREF-001",
                             "FIND-001", "FIND-003", "FIND-005", "FIND-007"}  # fmt: skip
    finding, said = listed["FIND-003"].facts, listed["turn-5"].facts
    assert (finding["operation"], finding["reason"]) == ("archive_findings", "it is resolved")
    assert (said["operation"], said["at"]) == ("summarize_conversation", "2026-03-01T12:00:00Z")
    (name,) = (f"archived/s1/{path.name}" for path in eviction_files(full))
    members = dict(read_members(full.scope.tree, name))
    assert next(iter(members)) == "manifest.json"
    items = json.loads(members["manifest.json"])["items"]
    assert sum(item["length"] for item in items if item["file"] == "findings.yaml") == len(
        members["records/findings.yaml"]
    )


def test_a_summary_stands_in_the_place_of_the_turns(full: Session) -> None:
    """Two runs, before and behind the pinned turn: each is one turn that is found by its text."""
    compact(full, reduction_pct=90)
    compact(opened(full.scope.tree.root, clock=lambda: NOW + timedelta(days=300)), reduction_pct=90)
    turns = full.turns()
    assert [turn.id for turn in turns] == ["turn-1", "turn-20", "turn-21", "turn-41"]
    assert turns[0].data["summarizes"] == {"first": "turn-1", "last": "turn-19", "turns": 19}
    assert (turns[0].data["type"], turns[0].data["speaker"]) == ("summary", "smp")
    assert "- turn-7 (user): We decided to do 7." in turns[0].text
    assert {record.id for record in full.search("decided")} >= {"turn-1", "turn-21"}


def test_numbers_are_never_given_again(full: Session) -> None:
    """Also where the last records of a file were taken out, and the notes in the lock files are
    lost.
    """
    late = opened(full.scope.tree.root, clock=lambda: NOW + timedelta(days=100))
    late.unpin("turn-20")
    for number in (2, 4, 6, 8):
        late.resolve_finding(f"FIND-{number:03d}", resolved_by="user", action_taken="done")
    later = opened(full.scope.tree.root, clock=lambda: NOW + timedelta(days=200))
    compact(later, reduction_pct=100)
    assert later.records("finding") == []
    shutil.rmtree(full.scope.tree.root / ".smp/locks")
    assert full.add_turn("user", "next").id == "turn-42"
    assert full.record_finding("next", discovered_by="a").id == "FIND-009"
    assert full.record_preference("next").id == "PREF-002"


def test_a_dry_run_changes_nothing_and_says_the_same(full: Session) -> None:
    before = everything(full)
    planned = compact(full, reduction_pct=90, dry_run=True)
    assert everything(full) == before
    done = compact(full, reduction_pct=90)
    assert planned.actions == done.actions
    assert planned.dry_run
    assert (
        abs(planned.counts["after_bytes"] - done.counts["after_bytes"]) < 200
    )  # the heads, and what the metadata say


def test_earlier_states_go_and_the_current_one_stays(full: Session) -> None:
    for mood in ("calm", "busy", "tired", "awake"):
        full.save_agent_state("veritas", {"mood": mood, "notes": "x" * 500})
    history = folder(full) / "agent-states/history/veritas.yaml"
    before = history.read_bytes()
    result = compact(full, reduction_pct=100)
    (action,) = (action for action in result.actions if action.type == "compress_agent_state")
    assert action.about == ("STATE-001", "STATE-002", "STATE-003")
    assert full.agent_state("veritas")["mood"] == "awake"
    assert full.agent_state_history("veritas") == []
    full.save_agent_state("veritas", {"mood": "alert"})
    bring_back(full)
    assert [state["mood"] for state in full.agent_state_history("veritas")] == [
        "calm",
        "busy",
        "tired",
        "awake",
    ]
    assert HEADS.sub(b"", history.read_bytes()).startswith(before)


@pytest.mark.parametrize("share", [0, -5, 101, True, "many"])
def test_a_share_that_makes_no_sense_is_refused(full: Session, share: Any) -> None:
    with pytest.raises(Invalid):
        compact(full, reduction_pct=share)


# A command that summarises.


def with_command(session: Session, code: str, timeout_s: float = 30.0) -> Session:
    policy = CompactionPolicy(
        summarizer=(sys.executable, "-c", code), summarizer_timeout_s=timeout_s
    )
    return opened(session.scope.tree.root, compaction=policy)


def test_a_command_may_write_the_summaries(full: Session) -> None:
    """It gets the turns as plain text, once for each run, and what it prints is what stands there."""
    code = "import sys; said = sys.stdin.read(); print(said.split(',')[0], said.count('This is what was said'), 'é', 'x' * 50)"
    result = compact(with_command(full, code), reduction_pct=90)
    assert result.notes == []
    summaries = [turn.text for turn in full.turns() if turn.data["type"] == "summary"]
    assert summaries == [f"turn-1 19 é {'x' * 50}", f"turn-21 20 é {'x' * 50}"]
    bring_back(full)
    assert len(full.turns()) == 41


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; print('half'); sys.exit(3)", "it ended with status 3"),
        ("", "it printed nothing"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')", "what it printed is not UTF-8"),
        ("print('on and on' * 10_000)", "what it printed is longer than half of what was said"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with status -9"),
    ],
)  # fmt: skip
def test_a_command_that_fails_is_not_used(full: Session, code: str, why: str) -> None:
    """Our own summary stands in, the target is reached all the same, and the result says why."""
    result = compact(with_command(full, code), reduction_pct=40)
    assert result.success
    assert any(why in note for note in result.notes), result.notes
    assert full.turns()[0].text.startswith("Summary of ")


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(
    full: Session, tmp_path: Path
) -> None:
    """Its children too, which would keep our end of the pipe open."""
    pids = tmp_path / "pids"
    code = f"""
import os, subprocess
child = subprocess.Popen(["sleep", "600"])
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
child.wait()
"""
    result = compact(with_command(full, code, timeout_s=2.0), reduction_pct=40)
    assert result.success
    assert "it took too long" in result.notes[0]
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: not _runs(int(pid)), f"{pid} is ended")  # type: ignore[misc]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_no_lock_is_held_while_a_command_runs(full: Session, tmp_path: Path) -> None:
    """The command itself adds a turn and a finding, and takes the lock of the passes, with no
    patience at all.
    """
    code = f"""
from smp_client import Memory
from smp_client.disk.locks import NO_PATIENCE
session = Memory({str(full.scope.tree.root)!r}, patience=NO_PATIENCE).session("s1")
with session.scope.undisturbed("trying"):
    session.record_finding("found meanwhile", discovered_by="command")
print("said by the command")
"""
    compact(with_command(full, code), reduction_pct=90)
    assert full.turns()[0].text == "said by the command"
    assert full.records("finding")[-1].text == "found meanwhile"


# Others who write meanwhile.


def test_a_record_that_is_changed_after_the_plan_stays(
    full: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed between the plan and the removal, a turn is not evicted, nor is its new text lost: it
    is planned again.
    """
    edits: list[Callable[[], object]] = [
        lambda: full.pin("turn-5"),
        lambda: full.update("FIND-003", severity="high"),
    ]
    planned = compaction.plan

    def meanwhile(*arguments: Any) -> Any:
        made = planned(*arguments)
        if edits:
            edits.pop()()
        return made

    monkeypatch.setattr(compaction, "plan", meanwhile)
    result = compact(full, reduction_pct=90)
    assert edits == []
    assert result.notes == []
    assert full.get("turn-5").pinned
    assert full.get("FIND-003").data["severity"] == "high"
    assert {"turn-5", "FIND-003"}.isdisjoint(one.id for one in full.evicted())


def test_an_edit_at_the_very_moment_of_the_exchange_stays(
    full: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person saves the conversation just before it is exchanged: what they changed stays, and is
    not evicted; the rest goes.
    """
    path = folder(full) / "conversation.md"

    def edit() -> None:
        path.write_bytes(path.read_bytes().replace(b"said as number 7.", b"said as number seven."))

    with at_the_exchange(monkeypatch, before=edit):
        result = compact(full, reduction_pct=60)
    assert result.notes == ["turn-7 was changed meanwhile, and stays"]
    assert "said as number seven." in full.get("turn-7").text
    assert "turn-7" not in {one.id for one in full.evicted()}
    assert "turn-8" in {one.id for one in full.evicted()}
    assert bring_back(full).success
    assert len(full.turns()) == 41


def test_of_two_with_one_id_neither_goes(full: Session) -> None:
    """Without the last the first would answer again: both stay, in the conversation and in a list."""
    for name, double in (
        (
            "conversation.md",
            b"## Turn 5 - 2026-01-01 00:00:00\n**Speaker:** a\n\nagain\n\n---\n\n## Turn 99\n\nx\n",
        ),
        ("findings.yaml", b"  - id: FIND-003\n    finding: again\n  - id: X-1\n    finding: x\n"),
    ):
        path = folder(full) / name
        path.write_bytes(path.read_bytes() + double)
    compact(full, reduction_pct=90)
    assert [turn.id for turn in full.turns()].count("turn-5") == 2
    assert [record.id for record in full.records("finding")].count("FIND-003") == 2
    assert {"turn-5", "FIND-003"}.isdisjoint(one.id for one in full.evicted())


def test_a_turn_that_is_only_written_in_part_stays(full: Session) -> None:
    """A shell's long write may be seen before all of it is there: the last turn of a file that is
    not ours is left alone.
    """
    path = folder(full) / "conversation.md"
    path.write_bytes(
        path.read_bytes()
        + b"## Turn 99 - 2026-01-01 00:00:00\n**Speaker:** shell\n\nthe first half"
    )
    compact(full, reduction_pct=90)
    path.write_bytes(path.read_bytes() + b" and the second\n\n---\n\n")
    assert full.turns()[-1].text == "the first half and the second"


WRITER = """
import sys
from datetime import UTC, datetime
from smp_client import Memory
session = Memory(sys.argv[1], count_access=False).session("s1")
for number in range(int(sys.argv[2])):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    session.record_finding(f"locked {number} " + "x" * 100, discovered_by="a", timestamp=at, resolution={"status": "resolved"})
    session.add_turn("a", f"locked {number} " + "word " * 100, timestamp=at)
"""
SHELL = r"""
i=0
while [ ! -e "$2" ]; do
    i=$((i+1))
    printf '## Turn %s - 2026-01-01 00:00:00\n**Speaker:** shell\n\nshell %s\n\n---\n\n' $((1000000+1000*i)) $i >> "$1"
    /bin/true
done
echo $i
"""


@pytest.mark.parametrize("each", [30, pytest.param(80, marks=pytest.mark.slow)])
def test_other_writers_lose_nothing_to_repeated_compaction(
    full: Session, tmp_path: Path, each: int
) -> None:
    """A program that writes under the locks and a shell that appends without: whatever is compacted
    and brought back meanwhile, in the end every record of both is there exactly once.
    """
    stop = tmp_path / "stop"
    known = {kind: len(full.records(kind)) for kind in ("turn", "finding")}
    said = folder(full) / "conversation.md"
    shell = subprocess.Popen(
        ["/bin/sh", "-c", SHELL, "sh", str(said), str(stop)], stdout=subprocess.PIPE, text=True
    )
    other = subprocess.Popen([sys.executable, "-c", WRITER, str(full.scope.tree.root), str(each)])
    rounds, problems = 0, []
    try:
        while other.poll() is None or rounds < 6:
            compact(full, reduction_pct=90)
            rounds += 1
            problems += bring_back(full).problems if rounds % 2 else []
    finally:
        stop.touch()
        count = int(shell.communicate(timeout=60)[0])
    assert (other.wait(timeout=60), problems) == (0, [])
    memory, retired = Memory(full.scope.tree.root), full.scope.tree.root / ".smp/retired"
    # What was appended to an old version comes over when the kernel says that nobody has it open.
    wait_until(
        lambda: tidy(memory) is not None and not list(retired.iterdir()), "all is brought over"
    )
    assert bring_back(full).problems == []
    texts = [" ".join(turn.text.split()[:2]) for turn in full.turns()]
    assert sorted(text for text in texts if text.startswith("shell")) == sorted(
        f"shell {number + 1}" for number in range(count)
    )
    assert sorted(text for text in texts if text.startswith("locked")) == sorted(
        f"locked {number}" for number in range(each)
    )
    assert len(texts) == known["turn"] + each + count
    assert len(full.records("finding")) == known["finding"] + each
    assert full.problems() == []
