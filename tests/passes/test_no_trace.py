"""Deleted memories are in no answer, and no byte of them is left when they are purged, whatever door
they came through."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundles import evict
from bytes_left import files_with
from daemons import Daemon, smp, wait_until

from smp_client import Memory, Session
from smp_client.index.sync import bring_up_to_date

pytestmark = pytest.mark.usefixtures("short_grace")
NEEDLE = "okapi-numbat-2718"
FIELDS: dict[str, tuple[str, str, dict[str, str]]] = {
    "turn": ("content", "speaker", {}), "decision": ("decision", "made_by", {}),
    "finding": ("finding", "discovered_by", {"severity": "low"}),
    "preference": ("preference", "created_by", {"confidence": "explicit"}),
    "learning": ("learning", "learned_by", {}),
}  # fmt: skip
# Everything that a client can be asked, in a process of its own.
ASKING = """
import json, sys
from smp_client import Memory, SMPError
memory = Memory(sys.argv[1])
session = memory.session("s1")
def ids(records): return [record.id for record in records]
kinds = ("turn", "decision", "finding", "preference", "learning", "artifact", "agent_state")
contains = {"filters": [{"field": "text", "operator": "contains", "value": "umbat"}]}
found = {
    "search": ids(session.search("okapi numbat", limit=None)),
    "everywhere": ids(memory.search("numbat", limit=None)),
    "by_topic": ids(session.by_topic("zoo")), "by_agent": ids(session.by_agent("vera")),
    "by_time": ids(session.by_time("2000-01-01")),
    "by_type": [one for kind in kinds for one in ids(session.by_type(kind))],
    "similar": ids(session.similar("okapi numbat")), "query": ids(session.query(contains)),
    "turns": ids(session.turns()), "records": ids(session.records("decision")),
    "timeline": [one.ref for one in session.timeline()],
    "topics": [one.name for one in session.topics()], "summary": repr(session.summary()),
    "context": session.agent("vera").context(),
}
for memory_id in json.loads(sys.argv[2]):
    try:
        found["got " + memory_id] = [session.get(memory_id).text]
        found["related to " + memory_id] = [one.text for one in session.related(memory_id)]
    except SMPError:
        pass
print(json.dumps(found))
"""


def through_library(memory: Memory) -> None:
    session = memory.session("s1")
    for kind, (text, actor, further) in FIELDS.items():
        known = next(one for one in session.kinds if kind in (one.name, one.prefix))
        fields = {text: f"{NEEDLE} by the library, {kind}", actor: "vera", **further}
        session.record(known, fields | ({} if kind == "turn" else {"tags": ["zoo"]}))
    session.relate("DEC-001", "FIND-001", f"{NEEDLE} relates")
    session.save_agent_state("vera", {"working_memory": [f"{NEEDLE} first"]})
    session.save_agent_state("vera", {"working_memory": [f"{NEEDLE} then"]})
    session.save_artifact("report", f"# {NEEDLE}\n", title=NEEDLE)
    memory.everywhere.record_preference(f"{NEEDLE} everywhere")
    memory.everywhere.record_pattern(f"{NEEDLE} as a pattern")
    memory.everywhere.save_profile(notes=f"{NEEDLE} of the user")


def through_inbox(memory: Memory) -> None:
    for kind, (text, actor, further) in FIELDS.items():
        drop = {"type": kind, text: f"{NEEDLE} dropped, {kind}", actor: "vera", **further}
        (memory.root / f"active/s1/inbox/{kind}.yaml").write_text(json.dumps(drop))


def through_an_edit(memory: Memory) -> None:
    for kind in ("decision", "finding", "preference", "learning"):
        with (memory.root / f"active/s1/{kind}s.yaml").open("a") as file:
            file.write(f"  - id: by-hand-{kind}\n    {kind}: {NEEDLE} by hand\n")
    with (memory.root / "active/s1/conversation.md").open("a") as file:
        head = "## Turn 90 - 2026-01-01 10:00:00\n**Speaker:** vera\n\n"
        file.write(f"{head}{NEEDLE} by hand\n\n---\n\n")


@pytest.fixture(params=[True, False], ids=["daemon", "no daemon"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    """Memories that came through every door, of every kind, indexed, and partly compacted."""
    memory = Memory(tmp_path / "sessions")
    memory.create_session(id="s1", user="user-123")
    daemon = Daemon([memory.root], tmp_path / "log")
    place = memory.root / "active/s1"
    try:
        daemon.wait_ready()
        for through in (through_library, through_inbox, through_an_edit):
            through(memory)
        wait_until(lambda: not [path for path in (place / "inbox").iterdir() if path.is_file()],
                   "the drops are taken in")  # fmt: skip
        evict(memory, "s1", "turn-1", "FIND-001", "LEARN-001")
        bring_up_to_date(memory)
        wait_until((place / "indexes/timeline.yaml").exists, "the YAML indexes are there")
        if not request.param:
            assert daemon.stop() == 0
        yield memory
    finally:
        daemon.kill()
        memory.close()


def run(*command: Any) -> Any:
    done = smp(*command, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def delete_everything(memory: Memory) -> list[str]:
    said = ["--text", NEEDLE, "--reason", "privacy"]
    outcome = run("delete", "--all", "--root", memory.root, *said)
    assert outcome["problems"] == []
    return [one for action in outcome["actions"] for one in action["about"]]


def ask(memory: Memory, ids: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-c", ASKING, str(memory.root), json.dumps(ids)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_deleted_memories_are_gone_from_every_answer_the_moment_the_command_returns(
    memory: Memory,
) -> None:
    """For another process, whatever it asks, with a daemon and without."""
    before = ask(memory, [])
    silent = {name for name, found in before.items() if "DEC-001" not in found}
    assert silent <= {"turns", "topics"}
    going = delete_everything(memory)
    assert {"turn-1", "DEC-001", "FIND-001", "PREF-001", "report", "vera"} <= {*going}
    assert NEEDLE not in json.dumps(ask(memory, going))
    assert memory.session("s1").add_turn("user", "Goes on").id == "turn-92"


@pytest.mark.parametrize("is_archived", [False, True])
def test_every_byte_goes_when_it_is_deleted_and_then_purged(
    memory: Memory, is_archived: bool
) -> None:
    """In its place, compacted or archived; nothing else is touched."""
    memory.session("s1").record_decision("something else entirely", made_by="vera")
    found = {place.partition("/")[0] for place in files_with(memory.root, NEEDLE.encode())}
    assert found >= {"active", "archived", "global", ".smp"}
    if is_archived:
        memory.archive_session("s1")
    delete_everything(memory)
    assert memory.search(NEEDLE) == []
    batches = {one.batch for name in ("s1", "global") for one in memory.privacy.deleted(name)}
    assert len(batches) == 1
    run("purge", "--batch", batches.pop(), "--now", "--root", memory.root)
    assert files_with(memory.root, NEEDLE.encode()) == []
    if is_archived:
        memory.restore_session("s1")
    found_texts = [one.text for one in memory.session("s1").search("entirely")]
    assert found_texts == ["something else entirely"]


def test_a_reference_to_a_deleted_memory_stays_and_is_no_complaint(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "sessions")
    session: Session = memory.create_session(id="s1")
    session.record_decision("Use OAuth", made_by="a")
    session.record_finding("Plain", discovered_by="a", references=["DEC-001"])
    memory.privacy.purge_now("s1", ["DEC-001"])
    assert session.get("FIND-001").data["references"] == ["DEC-001"]
    assert "DEC-001" not in {one.id for one in session.related("FIND-001", depth=3)}
    assert session.validate() == []
