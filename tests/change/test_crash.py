"""Death before every change of the disk, for every verb: the old state or the new, never between."""

from __future__ import annotations

import os
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from smp_client import Memory, SMPError
from smp_client.change.holdings import EVERY, holdings
from smp_client.disk.tree import Tree
from smp_client.passes.tidy import tidy

pytestmark = pytest.mark.usefixtures("short_grace")
SESSION = "s1"
TOKEN = "memory number"
_STEPS = ("rename", "rename_new", "exchange", "unlink", "create", "replace", "write_new")
_DONE, _DIED, _FAILED = 0, 1, 2


def crash_after(steps: int, act: Callable[[Memory], Any], root: Path) -> bool:
    """Do something in a process that dies before its n-th change. Return whether it survived."""
    pid = os.fork()
    if pid == 0:
        _die_after(steps, act, root)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (_DONE, _DIED), "it failed instead of dying"
    return status == _DONE


def _die_after(steps: int, act: Callable[[Memory], Any], root: Path) -> None:
    left = steps

    def dying(inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **further: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(_DIED)
            return inner(*given, **further)

        return call

    try:
        for name in _STEPS:
            setattr(Tree, name, dying(getattr(Tree, name)))
        act(Memory(root))
    except SMPError:
        os._exit(_DONE)
    except BaseException:
        traceback.print_exc()
        os._exit(_FAILED)
    os._exit(_DONE)


def every_crash(
    base: Path, act: Callable[[Memory], Any], stride: int = 1
) -> Iterator[tuple[int, Path]]:
    """Yield a copy of a tree for every so many steps at which the act dies; in the last, it is done."""
    for steps in range(0, 400, stride):
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
        session.add_turn("user", f"{TOKEN} {number} a turn")
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
    *(pytest.param(verb, 2) for verb in QUICK),
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
    pytest.param("anonymise", 2),
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
