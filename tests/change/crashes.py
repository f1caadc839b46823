"""A process that dies before its n-th change of the disk, and what is in the tree afterwards."""

from __future__ import annotations

import os
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from smp_client import Memory, SMPError
from smp_client.change.holdings import EVERY, holdings
from smp_client.disk.tree import Tree
from smp_client.passes.tidy import tidy

SESSION = "s1"
TOKEN = "memory number"
_STEPS = ("rename", "rename_new", "exchange", "unlink", "create", "replace", "write_new",
          "replace_derived")  # fmt: skip
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
