"""`kill -9` of a pass at every rename and unlink: done again, it ends where it would have ended undisturbed."""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from bytes_left import files_with
from harness import CHANGING, MOVING, Programs, kill_and_repeat, left_behind, needs_strace
from programs import PASSES, SECRET, build, open_later

from smp_client import SMPError
from smp_client.passes.tidy import tidy

pytestmark = pytest.mark.usefixtures("no_grace")
# The names of batches and of evicted bundles. A number that was taken before a failure is not
# given again, so a drop may get the next.
_RANDOM = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6,8}|LEARN-\d+|last_id: \d+")
_KILLS_CAP = 35


def prepared(operation: str, root: Path) -> None:
    build(root)
    memory = open_later(root)
    for action in PASSES[operation][:-1]:
        action(memory)
    tidy(memory)


def done_again(operation: str, root: Path) -> dict[str, Any]:
    """What there is after whoever comes next has tidied up and done it again."""
    memory = open_later(root)
    tidy(memory)
    failed = ""
    try:
        PASSES[operation][-1](memory)
    except SMPError as error:
        failed = str(error)
    tidy(memory)
    memory.close()
    secret = files_with(root, SECRET) if operation.startswith("purge_") else []
    secret = [name for name in secret if not name.startswith("quarantine/")]  # somebody else may have put it there
    return {"failed": failed, "left": left_behind(root), "secret": secret, **contents(root)}


def contents(root: Path) -> dict[str, Any]:
    """Every file that is not SMP's own, without names and times that are chosen at random."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file() and not name.startswith((".smp/", "audit.log")):  # in which every attempt has its line
            packed = members(path) if name.endswith(".tar.gz") else {"": path.read_bytes()}
            name = _RANDOM.sub("", name)
            name += "+" if name in found else ""
            found[name] = {inner: _RANDOM.sub("", content.decode("utf-8", "replace")) for inner, content in packed.items()}
    return found


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(fileobj=BytesIO(gzip.decompress(path.read_bytes()))) as archive:
        return {member.name: opened.read() for member in archive if (opened := archive.extractfile(member))}


def kill_everywhere(
    runner: Programs, operation: str, directory: Path, calls_at: tuple[str, ...], variant: str = "sound", cap: int = _KILLS_CAP
) -> Iterator[str]:
    prepared(operation, directory / "base")
    again = partial(done_again, operation)
    return kill_and_repeat(runner, operation, directory / "base", calls_at, again, variant=variant, cap=cap)


# Every pass has its turn in the slow test below, at every call that changes anything.
@needs_strace
@pytest.mark.parametrize("operation", ["decay", "archive", "delete_session", "forget"])
def test_a_pass_that_is_killed_and_done_again_ends_where_it_would_have_ended(
    runner: Programs, operation: str, tmp_path: Path
) -> None:
    """Nothing is lost, nothing is there twice, nothing is left behind, at whichever rename or unlink, of some, it was killed."""
    assert list(kill_everywhere(runner, operation, tmp_path, MOVING, cap=5)) == []


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("operation", PASSES)
def test_a_pass_that_is_killed_anywhere(runner: Programs, operation: str, tmp_path: Path) -> None:
    """The same for every call that changes the disk."""
    assert list(kill_everywhere(runner, operation, tmp_path, CHANGING)) == []


@needs_strace
def test_a_compaction_without_its_intent_would_be_noticed(runner: Programs, tmp_path: Path) -> None:
    """With nothing recorded before, a kill leaves memories evicted and standing at once."""
    assert any("evicted" in problem for problem in kill_everywhere(runner, "compact", tmp_path, MOVING, "without journal"))
