"""What time does to sessions, on a bad day: a full or failing disk, a clock that jumps, kills, other writers, a tree that is gone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import SYNCING, WRITING, Call, Outcome, Programs, injection, needs_strace
from programs import PASSES, SESSION, open_later
from test_kill_upkeep import _no_grace, contents, done_again, prepared  # noqa: F401

from smp_client import Memory, SMPError
from smp_client.tidy import tidy

# A disk that fails or is full.

MOVED = ("archive", "unarchive", "delete_session", "compact", "decay")  # of the passes those that the quick tests try


def places(memory: Memory) -> list[str]:
    """Where the session is, as every command says."""
    found = {
        "active": [session.id for session in memory.sessions()],
        "archived": [one.session for one in memory.archived_sessions()],
        "deleted": [one.session for one in memory.deleted_sessions()],
    }
    return [name for name, ids in found.items() if SESSION in ids]


def tidied(root: Path) -> dict[str, Any]:
    """What there is when only what was cut off is put right."""
    tidy(open_later(root))
    return contents(root)


class Failing:
    """Runs of one pass, each of which meets one failure."""

    def __init__(self, runner: Programs, operation: str, directory: Path, variant: str = "sound") -> None:
        self._runner, self._operation, self._directory, self._variant = runner, operation, directory, variant
        self._base = directory / "base"
        prepared(operation, self._base)
        undisturbed = directory / "undisturbed"
        shutil.copytree(self._base, undisturbed)
        self.calls = runner.calls(operation, undisturbed, directory / "calls", variant)
        self._done = tidied(undisturbed)
        self._wanted = done_again(operation, undisturbed)

    def problems(self, calls: Sequence[Call], error: str, *, on: bool = False) -> Iterator[str]:
        """What is wrong after each of these calls has failed, with all of the same name that come after it if so wanted."""
        for name, number in calls:
            root = self._directory / "failed"
            shutil.copytree(self._base, root)
            what = injection((name, f"{number}+" if on else number), f"error={error}")  # type: ignore[arg-type]
            outcome = self._runner.run(self._operation, root, variant=self._variant, strace=what)
            yield from (f"{error} from {name} {number}: {problem}" for problem in self._after(root, name, outcome))
            shutil.rmtree(root)

    def _after(self, root: Path, name: str, outcome: Outcome) -> Iterator[str]:
        if outcome.status:
            yield f"the run ended with {outcome.status}"
        if outcome.failure not in (None, "StorageFailed", "TransactionPending"):
            yield f"it raised {outcome.failure}"
        if outcome.acknowledged and name in SYNCING:
            yield "a failed fsync was not mentioned"
        if len(found := places(open_later(root))) > 1:
            yield f"the session is in {found}"
        try:
            if outcome.acknowledged and (different := _differing(tidied(root), self._done)):
                yield f"it said that all was done, but these differ: {different}"
            if different := _differing(done_again(self._operation, root), self._wanted):
                yield f"done again, these differ: {different}"
        except (SMPError, OSError) as error:
            yield f"it cannot be done again: {error!r}"


def _differing(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("operation", PASSES)
@pytest.mark.parametrize(("error", "names", "on"), [("ENOSPC", WRITING, False), ("ENOSPC", WRITING, True), ("EIO", SYNCING, False)])
def test_a_disk_that_fails_anywhere(
    runner: Programs, operation: str, error: str, names: tuple[str, ...], on: bool, tmp_path: Path
) -> None:
    failing = Failing(runner, operation, tmp_path)
    calls = [call for call in failing.calls if call[0] in names]
    print(operation, len(calls))
    assert list(failing.problems(calls, error, on=on)) == []
