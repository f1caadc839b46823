"""Death before every change of the disk, for every verb: the old state or the new, never between."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from daemons import smp, wait_until
from death import die_before

from smp_client import Memory, SMPError
from smp_client.change.holdings import EVERY, holdings
from smp_client.disk.quarantine import waiting
from smp_client.disk.tree import Tree
from smp_client.passes.tidy import tidy
from smp_daemon.ingest.inbox import take_in

pytestmark = pytest.mark.usefixtures("short_grace")
SESSION = "s1"
GRACE_S = 0.05  # see `short_grace`
TOKEN = "memory number"
LONG_AGO = "2026-01-01T00:00:00Z"  # so that compaction may take it
_DONE, _FAILED = 0, 2


def crash_after(steps: int, act: Callable[[Memory], Any], root: Path) -> bool:
    """Do something in a process that dies before its n-th change. Return whether it survived."""
    pid = os.fork()
    if pid == 0:
        _die_after(steps, act, root)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (_DONE, -signal.SIGKILL), "it failed instead of dying"
    return status == _DONE


def _die_after(steps: int, act: Callable[[Memory], Any], root: Path) -> None:
    status = _FAILED
    try:
        memory = Memory(root)
        die_before(steps)
        with suppress(SMPError):
            act(memory)
        status = _DONE
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def every_crash(
    base: Path, act: Callable[[Memory], Any], stride: int = 1, first: int = 0
) -> Iterator[tuple[int, Path]]:
    """Yield a copy of a tree for every so many steps at which the act dies; in the last, it is done."""
    for steps in range(first, 2000, stride):
        root = base.with_name(f"{base.name}-{steps}")
        shutil.copytree(base, root)
        is_done = crash_after(steps, act, root)
        yield steps, root
        shutil.rmtree(root)
        if is_done:
            return
    raise AssertionError("it never ends")


def places(root: Path) -> dict[str, list[str]]:
    """Return where each memory is, by its text, as whoever comes next finds it after tidying."""
    memory = Memory(root)
    tidied = tidy(memory).problems
    assert tidied == []
    found: dict[str, list[str]] = {}
    problems: list[str] = []
    for one in holdings(memory, SESSION, EVERY, problems):
        text = str(one.value.get("decision") or one.value.get("content") or "")
        if text.startswith(TOKEN) and one.place != "undo":
            found.setdefault(text, []).append(one.place)
    assert problems == []
    assert not memory.tree.list(".smp/journal")
    memory.close()
    return found


def doubled_or_lost(found: dict[str, list[str]], wanted: set[str]) -> list[str]:
    counts = Counter({text: len(where) for text, where in found.items()})
    return sorted(text for text in wanted | counts.keys() if counts[text] != 1)


def fill(memory: Memory) -> None:
    session = memory.create_session(id=SESSION, user="Anna Berg")
    for number in range(6):
        said, tags = f"{TOKEN} {number} a decision", ["odd" if number % 2 else "even"]
        session.record_decision(said, made_by="Anna Berg", tags=tags)
        session.add_turn("user", f"{TOKEN} {number} a turn", timestamp=LONG_AGO)
    session.save_artifact("plan", f"{TOKEN} an artifact")


KINDS = ("decision", "turn")
WANTED = {f"{TOKEN} {number} a {kind}" for number in range(6) for kind in KINDS}
WANTED.add(f"{TOKEN} an artifact")


def delete(memory: Memory) -> None:
    memory.privacy.delete(SESSION, ["DEC-002", "DEC-003", "turn-2", "plan"], reason="test")


def restore(memory: Memory) -> None:
    memory.privacy.restore(SESSION, batch=memory.privacy.deleted(SESSION)[0].batch)


def archive(memory: Memory) -> None:
    memory.archive_session(SESSION)


def delete_session(memory: Memory) -> None:
    memory.delete_session(SESSION, reason="test")


def anonymise(memory: Memory) -> None:
    memory.privacy.anonymize(SESSION)


def unarchive(memory: Memory) -> None:
    memory.restore_session(SESSION)


def undelete(memory: Memory) -> None:
    memory.undelete_session(SESSION)


def compact(memory: Memory) -> None:
    memory.session(SESSION).compact(reduction_pct=100)


def bring_back(memory: Memory) -> None:
    memory.session(SESSION).bring_back()


def other_memories(memory: Memory) -> None:
    """Write down an import of two memories that the session does not have."""
    head: dict[str, Any] = {"entry": "session", "session": SESSION, "metadata": {}}
    entries: list[dict[str, Any]] = [{"smp_export": 1}, head]
    for number in (1, 2):
        record = {"id": f"IMP-{number}", "learned_by": "ada", "learning": f"imported {number}"}
        entry = {"entry": "memory", "session": SESSION, "file": "learnings.yaml"}
        entries.append({**entry, "type": "learning", "record": record})
    entries.append({"entry": "end", "entries": len(entries) - 1})
    lines = "".join(f"{json.dumps(entry)}\n" for entry in entries)
    (memory.root / "incoming.jsonl").write_text(lines)


def take_over(memory: Memory) -> None:
    memory.exchange.import_(memory.root / "incoming.jsonl")


def purge(memory: Memory) -> None:
    memory.privacy.purge_now(SESSION, ["DEC-002", "turn-2"])


def purge_session(memory: Memory) -> None:
    memory.privacy.purge_now(SESSION)


Act = Callable[[Memory], Any]
VERBS: dict[str, tuple[list[Act], Act]] = {
    "delete": ([], delete),
    "delete by topic": ([], lambda memory: memory.privacy.delete(SESSION, topic="odd", reason="test")),
    "restore": ([delete], restore),
    "archive": ([], archive),
    "unarchive": ([archive], unarchive),
    "delete in the archive": ([archive], delete),
    "restore in the archive": ([archive, delete], restore),
    "restore after unarchiving": ([archive, delete, unarchive], restore),
    "delete a session": ([], delete_session),
    "undelete a session": ([delete_session], undelete),
    "delete an archived session": ([archive], delete_session),
    "undelete an archived session": ([archive, delete_session], undelete),
    "anonymise": ([], anonymise),
    "undo an anonymisation": ([anonymise], restore),
    "anonymise in the archive": ([archive], anonymise),
    "update": ([], lambda memory: memory.session(SESSION).update("DEC-004", rationale="again")),
}
# Verbs that leave more than two states, or memories that are not there before.
FURTHER: dict[str, tuple[list[Act], Act]] = {
    "compact": ([], compact),
    "bring back": ([compact], bring_back),
    "decay": ([], lambda memory: memory.session(SESSION).decay()),
    "import": ([other_memories], take_over),
    "purge": ([delete], purge),
    "purge a session": ([], purge_session),
}
QUICK = ("delete", "restore", "archive", "unarchive", "delete in the archive", "undelete a session",
         "update")  # fmt: skip


def prepared(tmp_path: Path, before: list[Act]) -> Path:
    root = tmp_path / "base"
    memory = Memory(root)
    fill(memory)
    for act in before:
        act(memory)
    memory.close()
    return root


@pytest.mark.parametrize(("verb", "stride"), [
    *(pytest.param(verb, 5) for verb in QUICK),
    *(pytest.param(verb, 1, marks=pytest.mark.slow) for verb in VERBS),
])  # fmt: skip
def test_a_crash_at_any_step_leaves_each_memory_in_one_place(
    tmp_path: Path, verb: str, stride: int
) -> None:
    before, act = VERBS[verb]
    base = prepared(tmp_path, before)
    seen = set()
    for steps, root in every_crash(base, act, stride):
        found = places(root)
        assert doubled_or_lost(found, WANTED) == [], f"{verb} died before step {steps}"
        seen.add(tuple(sorted((text, *where) for text, where in found.items())))
    stays = verb == "update" or "anonymis" in verb
    assert len(seen) == (1 if stays else 2), "all of it happens, or nothing"


@pytest.mark.parametrize(("verb", "stride"), [
    pytest.param("anonymise", 5),
    *(pytest.param(verb, 1, marks=pytest.mark.slow) for verb in VERBS if "anonymis" in verb),
])  # fmt: skip
def test_a_crash_leaves_every_name_or_none(tmp_path: Path, verb: str, stride: int) -> None:
    """In the metadata, in all memories and in the head of the conversation."""
    before, act = VERBS[verb]
    base = prepared(tmp_path, before)
    seen = set()
    for _, root in every_crash(base, act, stride):
        places(root)  # which tidies up
        memory = Memory(root)
        found = memory.privacy.find("Anna Berg")
        seen.add(sum(one.place in ("active", "archived") for one in found))
        memory.close()
    assert (min(seen), len(seen)) == (0, 2)


# Whoever is the first to come after the death: a writer. A listing would finish the change before.

WRITTEN = "the first to come"


def by_library(root: Path) -> bool:
    try:
        Memory(root).session(SESSION).record_decision(WRITTEN, made_by="ada")
    except SMPError:
        return False
    return True


def by_command(root: Path) -> bool:
    done = smp("add", SESSION, "decision", WRITTEN, "--by", "ada", "--root", root)
    return done.returncode == 0


def by_artifact(root: Path) -> bool:
    """Into a file that no session has yet."""
    try:
        Memory(root).session(SESSION).save_artifact("first", WRITTEN)
    except SMPError:
        return False
    return True


def by_transaction(root: Path) -> bool:
    try:
        with Memory(root).session(SESSION).transaction() as changes:
            changes.record_decision(WRITTEN, made_by="ada")
            changes.add_turn("user", "with the first to arrive")
    except SMPError:
        return False
    return True


def by_inbox(root: Path) -> bool:
    inbox = root / "active" / SESSION / "inbox"
    try:
        (inbox / ".first").write_text(f"type: decision\ndecision: {WRITTEN}\nmade_by: ada\n")
        (inbox / ".first").rename(inbox / "first.yaml")
    except OSError:
        return False
    return True


def by_shell(root: Path) -> bool:
    """`>>`, with no lock."""
    record = f"  - id: HAND-9\n    made_by: ada\n    decision: {WRITTEN}\n"
    try:
        with (root / "active" / SESSION / "decisions.yaml").open("a") as opened:
            opened.write(record)
    except OSError:
        return False
    return True


Writer = Callable[[Path], bool]
WRITERS: dict[str, Writer] = {
    "library": by_library,
    "command": by_command,
    "artifact": by_artifact,
    "transaction": by_transaction,
    "inbox": by_inbox,
    ">>": by_shell,
}


def settled(root: Path) -> Memory:
    """Return the memory when nothing is under way, with the session in use again."""
    memory = Memory(root)

    def is_settled() -> bool:
        problems = tidy(memory).problems
        assert problems == []
        places = (".smp/journal", ".smp/retired", ".smp/leaving")
        return not any(memory.tree.list(place) for place in places)

    wait_until(is_settled, "nothing is under way")
    if memory.archived_sessions():
        memory.restore_session(SESSION)
    elif memory.deleted_sessions():
        memory.undelete_session(SESSION)
    if memory.sessions():
        drops = waiting(memory.tree, f"active/{SESSION}")
        outcomes = [drop.outcome for drop in take_in(memory.session(SESSION), drops)]
        assert outcomes in ([], ["taken"])
    return memory


def count_in_use(root: Path) -> int:
    files = [path for path in (root / "active" / SESSION).rglob("*") if path.is_file()]
    return sum(path.read_text(errors="replace").count(WRITTEN) for path in files)


PURGED = {f"{TOKEN} 1 a decision", f"{TOKEN} 1 a turn"}
SLOW_STRIDE = 3


@pytest.mark.parametrize(("verb", "writer", "stride"), [
    *(pytest.param("archive", writer, 9) for writer in WRITERS),
    pytest.param("delete a session", "library", 9),
    pytest.param("delete a session", ">>", 9),
    pytest.param("unarchive", "inbox", 9),
    pytest.param("compact", ">>", 9),
    *(
        pytest.param(verb, writer, SLOW_STRIDE, marks=pytest.mark.slow)
        for verb in (*VERBS, *FURTHER)
        for writer in WRITERS
    ),
])  # fmt: skip
def test_a_writer_that_comes_first_after_a_crash_loses_nothing(
    tmp_path: Path, verb: str, writer: str, stride: int
) -> None:
    """What was acknowledged is in the session, once, when the session is back; all else is too.

    Each writer has kill points of its own, so that together they have all.
    """
    before, act = (VERBS | FURTHER)[verb]
    base = prepared(tmp_path, before)
    first = [*WRITERS].index(writer) % stride
    acknowledged = []
    for steps, root in every_crash(base, act, stride, first):
        is_acknowledged = WRITERS[writer](root)
        memory = settled(root)
        where = f"{verb} died before step {steps}, then came: {writer}"
        acknowledged.append(is_acknowledged)
        if not memory.sessions():
            assert verb == "purge a session", where
            assert not is_acknowledged, where
            memory.close()
            continue
        assert count_in_use(root) == is_acknowledged, where
        kept = holdings(memory, SESSION, EVERY)
        texts = {str(one.value.get("decision") or one.value.get("content")) for one in kept}
        assert texts >= WANTED - (PURGED if verb == "purge" else set()), where
        memory.close()
    stays_away = verb == "delete an archived session" or verb.endswith("in the archive")
    assert any(acknowledged) != stays_away


# Old versions of a file.

BY_HAND = "  - id: HAND-1\n    decision: by hand\n"
EDITED = "decision: an edit that crossed"


def with_late_bytes(tmp_path: Path) -> Path:
    """Return a tree in which somebody has appended to an old version of a file."""
    root = tmp_path / "base"
    memory = Memory(root)
    session = memory.create_session(id=SESSION)
    session.record_decision(f"{TOKEN} 1", made_by="ada")
    with (root / "active" / SESSION / "decisions.yaml").open("a") as opened:
        session.update("DEC-001", rationale="again")
        opened.write(BY_HAND)
    memory.close()
    return root


def fold(memory: Memory) -> None:
    """Come when the old version may go."""
    (slot,) = (memory.root / ".smp/retired").iterdir()
    wait_until(lambda: time.time() - slot.stat().st_ctime > GRACE_S, "the old version may go")
    memory.session(SESSION).record_decision("the one who folds", made_by="ada")


def test_bytes_in_an_old_version_come_in_once_also_after_a_crash(tmp_path: Path) -> None:
    for steps, root in every_crash(with_late_bytes(tmp_path), fold):
        memory = Memory(root)
        memory.session(SESSION).record_decision("the next", made_by="ada")
        settled(root).close()
        text = (root / "active" / SESSION / "decisions.yaml").read_text()
        assert text.count(BY_HAND) == 1, f"it died before step {steps}"
        assert text.count("decision: the next") == 1
        memory.close()


def test_the_same_bytes_in_an_old_version_and_in_the_file_come_in(tmp_path: Path) -> None:
    """Somebody who gives no ids may have said the same before."""
    root = with_late_bytes(tmp_path)
    path = root / "active" / SESSION / "decisions.yaml"
    with path.open("a") as opened:
        opened.write(BY_HAND)
    settled(root).close()
    assert path.read_text().count(BY_HAND) == 2


def update_while_somebody_edits(memory: Memory) -> None:
    """Change a record while an editor replaces the file, just before the exchange."""
    path = memory.root / "active" / SESSION / "decisions.yaml"
    exchange = Tree.exchange

    def crossed(tree: Tree, one: str, other: str) -> None:
        if EDITED not in path.read_text():
            temporary = path.with_name("of-an-editor")
            temporary.write_text(path.read_text().replace(f"decision: {TOKEN} 1", EDITED))
            temporary.rename(path)
        exchange(tree, one, other)

    Tree.exchange = crossed  # type: ignore[method-assign]  # in a process of its own
    memory.session(SESSION).update("DEC-001", rationale="again")


def test_an_edit_that_crosses_a_change_is_kept_also_after_a_crash(tmp_path: Path) -> None:
    """In the file or, if nobody can tell what belongs where, in quarantine."""
    base = tmp_path / "base"
    session = Memory(base).create_session(id=SESSION)
    session.record_decision(f"{TOKEN} 1", made_by="ada")
    has_crossed = False
    for steps, root in every_crash(base, update_while_somebody_edits, 2):
        active = root / "active" / SESSION / "decisions.yaml"
        slots = [active, *(root / ".smp/retired").iterdir()]
        was_edited = any(EDITED in path.read_text() for path in slots)
        settled(root).close()
        kept = [active, *(root / "quarantine").rglob("*.bytes")]
        is_kept = any(EDITED in path.read_text() for path in kept)
        assert is_kept or not was_edited, f"it died before step {steps}"
        has_crossed |= was_edited
    assert has_crossed


def test_quarantined_bytes_have_their_note_also_after_a_crash(tmp_path: Path) -> None:
    base = tmp_path / "base"
    Memory(base).create_session(id=SESSION).record_decision(f"{TOKEN} 1", made_by="ada")
    with (base / "active" / SESSION / "decisions.yaml").open("a") as opened:
        opened.write("  - id: HAND-1\n    deci")

    def write(memory: Memory) -> None:
        memory.session(SESSION).record_decision("the next", made_by="ada")

    pieces: list[Path] = []
    for steps, root in every_crash(base, write):
        pieces = [*(root / "quarantine").rglob("*.bytes")]
        notes = [piece.with_suffix(".note.yaml") for piece in pieces]
        assert all(note.exists() for note in notes), f"it died before step {steps}"
    assert pieces
