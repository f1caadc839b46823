"""The promise as a whole: what came in through any door is in no answer when it is deleted, and no
byte of it is left when it is purged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bundles import evict
from bytes_left import files_with
from daemons import Daemon, smp, wait_until

from smp_client import Memory
from smp_client.index.sync import bring_up_to_date

pytestmark = pytest.mark.usefixtures("short_grace")
NEEDLE = "okapi-numbat-2718"
FIELDS = {
    "turn": ("content", "speaker", {}), "decision": ("decision", "made_by", {}),
    "finding": ("finding", "discovered_by", {"severity": "low"}),
    "preference": ("preference", "created_by", {"confidence": "explicit"}), "learning": ("learning", "learned_by", {}),
}  # fmt: skip


def through_library(memory: Memory) -> None:
    session = memory.session("s1")
    for kind, (text, actor, further) in FIELDS.items():
        known = next(one for one in session.kinds if kind in (one.name, one.prefix))
        session.record(known, {text: f"{NEEDLE} by the library, {kind}", actor: "vera", **further})
    session.relate("DEC-001", "FIND-001", f"{NEEDLE} relates")
    session.save_agent_state("vera", {"working_memory": [f"{NEEDLE} first"]})
    session.save_agent_state("vera", {"working_memory": [f"{NEEDLE} then"]})
    session.save_artifact("report", f"# {NEEDLE}\n", title=NEEDLE)
    memory.everywhere.record_preference(f"{NEEDLE} everywhere")
    memory.everywhere.record_pattern(f"{NEEDLE} as a pattern")
    memory.everywhere.save_profile(notes=f"{NEEDLE} of the user")


def through_command(memory: Memory) -> None:
    for kind in FIELDS:
        done = smp(
            "add",
            "s1",
            kind,
            f"{NEEDLE} by the command, {kind}",
            "--by",
            "vera",
            "--root",
            memory.root,
        )
        assert done.returncode == 0, done.stderr


def through_inbox(memory: Memory) -> None:
    for kind, (text, actor, further) in FIELDS.items():
        drop = {"type": kind, text: f"{NEEDLE} dropped, {kind}", actor: "vera", **further}
        (memory.root / f"active/s1/inbox/{kind}.yaml").write_text(json.dumps(drop))


def through_an_edit(memory: Memory) -> None:
    for kind in ("decision", "finding", "preference", "learning"):
        with (memory.root / f"active/s1/{kind}s.yaml").open("a") as file:
            file.write(f"  - id: by-hand-{kind}\n    {kind}: {NEEDLE} by hand\n")
    with (memory.root / "active/s1/conversation.md").open("a") as file:
        file.write(
            f"## Turn 90 - 2026-01-01 10:00:00\n**Speaker:** vera\n\n{NEEDLE} by hand\n\n---\n\n"
        )


@pytest.fixture(params=[True, False], ids=["daemon", "no daemon"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    """With what came in through every door, of every kind, indexed, with YAML indexes, and partly
    compacted.
    """
    memory = Memory(tmp_path / "sessions")
    memory.create_session(id="s1", user="user-123")
    daemon = Daemon([memory.root], tmp_path / "log")
    try:
        daemon.wait_ready()
        through_library(memory)
        through_command(memory)
        through_inbox(memory)
        through_an_edit(memory)
        inbox = memory.root / "active/s1/inbox"
        wait_until(
            lambda: not [path for path in inbox.iterdir() if path.is_file()],
            "the drops are taken in",
        )
        evict(memory, "s1", "turn-1", "FIND-001", "LEARN-001")
        bring_up_to_date(memory)
        wait_until(
            lambda: (memory.root / "active/s1/indexes/timeline.yaml").exists(),
            "the YAML indexes are there",
        )
        if not request.param:
            assert daemon.stop() == 0
        yield memory
    finally:
        daemon.kill()
        memory.close()


def delete_everything(memory: Memory) -> None:
    done = smp(
        "delete", "--all", "--root", memory.root, "--text", NEEDLE, "--reason", "privacy", "--json"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["problems"] == []


@pytest.mark.parametrize("is_archived", [False, True])
def test_every_byte_goes_when_it_is_deleted_and_then_erased(
    memory: Memory, is_archived: bool
) -> None:
    """Whatever door it came through, in its place, compacted or archived, with a daemon and
    without; nothing else is touched.
    """
    memory.session("s1").record_decision("something else entirely", made_by="vera")
    found = {place.partition("/")[0] for place in files_with(memory.root, NEEDLE.encode())}
    assert found >= {"active", "archived", "global", ".smp"}
    if is_archived:
        memory.archive_session("s1")
    delete_everything(memory)
    assert memory.search(NEEDLE) == []
    batches = {one.batch for name in ("s1", "global") for one in memory.privacy.deleted(name)}
    assert len(batches) == 1
    done = smp("purge", "--batch", batches.pop(), "--now", "--root", memory.root, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert files_with(memory.root, NEEDLE.encode()) == []
    if is_archived:
        memory.restore_session("s1")
    assert [one.text for one in memory.session("s1").search("entirely")] == [
        "something else entirely"
    ]


def test_a_whole_session_goes_and_comes_back_and_goes_for_good(memory: Memory) -> None:
    through = {one.id for one in memory.session("s1").search(NEEDLE, limit=100)}
    assert smp("delete", "s1", "--root", memory.root, "--reason", "privacy").returncode == 0
    assert not [one for one in memory.search(NEEDLE, limit=None) if one.session != "global"]
    assert smp("restore", "s1", "--root", memory.root).returncode == 0
    assert {one.id for one in memory.session("s1").search(NEEDLE, limit=100)} == through
    assert smp("delete", "s1", "--root", memory.root, "--reason", "privacy").returncode == 0
    delete_everything(memory)
    done = smp("purge", "s1", "--now", "--root", memory.root, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    of_global = ("deleted/global/", ".smp/retired/global+")  # which is deleted, and not purged
    assert [
        place
        for place in files_with(memory.root, NEEDLE.encode())
        if not place.startswith(of_global)
    ] == []


@pytest.mark.parametrize(
    "command",
    ["reindex", *(pytest.param(one, marks=pytest.mark.slow) for one in ("check", "sync"))],
)
def test_nothing_brings_it_back_but_a_restore(memory: Memory, command: str) -> None:
    """Neither a scan, a new index, a check nor the restoring of another memory."""
    memory.session("s1").record_decision("something else entirely", made_by="vera")
    other = memory.session("s1").search("entirely")[0].id
    memory.session("s1").delete(other, reason="r")
    delete_everything(memory)
    smp(command, "--root", memory.root)
    memory.session("s1").restore(other)
    assert [one.text for one in memory.session("s1").search("entirely")] == [
        "something else entirely"
    ]
    assert memory.search(NEEDLE) == []
