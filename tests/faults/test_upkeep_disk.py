"""A disk that fails or is full under the passes over sessions: no false success, nothing lost, and done again all is well."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import SYNCING, WRITING, Call, Outcome, Programs, injection, needs_strace
from programs import PASSES, SESSION, open_later
from test_kill_upkeep import contents, done_again, prepared

from smp_client import SMPError
from smp_client.passes.tidy import tidy

pytestmark = pytest.mark.usefixtures("no_grace")
_CALLS_CAP = 18
MOST = ("archive", "unarchive", "delete_session", "compact", "decay", "take_over", "take_drops")  # of the passes, those that the quick tests try


def places(root: Path) -> list[str]:
    """Where the session is, as every command says."""
    memory = open_later(root)
    found = {
        "active": [session.id for session in memory._sessions()],
        "archived": [one.session for one in memory.archived_sessions()],
        "deleted": [one.session for one in memory.deleted_sessions()],
    }
    return [name for name, ids in found.items() if SESSION in ids]


def tidied(root: Path) -> dict[str, Any]:
    """What there is when only what was cut off is put right."""
    tidy(open_later(root))
    return contents(root)


def differing(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """But for the YAML indexes, which may be missing at any time."""
    names = (name for name in found.keys() | wanted.keys() if "/indexes/" not in name)
    return sorted(name for name in names if found.get(name) != wanted.get(name))


class Failing:
    """Runs of one pass, each of which meets a failure of its own."""

    def __init__(self, operation: str, directory: Path, runner: Programs, variant: str = "sound") -> None:
        self.operation, self._directory, self._runner, self._variant = operation, directory, runner, variant
        self.base = directory / "base"
        prepared(operation, self.base)
        undisturbed = directory / "undisturbed"
        shutil.copytree(self.base, undisturbed)
        self._files = runner.calls(operation, undisturbed, directory / "calls", variant)
        self._done = tidied(undisturbed)
        self._wanted = done_again(operation, undisturbed)

    def calls(self, names: tuple[str, ...], *, each: int = 1, of_index: int) -> list[Call]:
        """One of so many calls with these names; of those that are about the index, which can be made anew, one of more."""
        index, rest = [], []
        for call, path in self._files.items():
            if call[0] in names:
                (index if is_derived(call[0], path) else rest).append(call)
        return rest[::each] + index[::of_index]

    def problems(self, calls: list[Call], error: str, *, on: bool = False) -> Iterator[str]:
        """What is wrong after each of these calls has failed; with all of the same name that come after it, if so wanted."""
        for call in calls:
            root = self._directory / "failed"
            shutil.copytree(self.base, root)
            name, number = call
            what = ("-e", f"trace={name}", "-e", f"inject={name}:error={error}:when={number}+") if on else injection(
                call, f"error={error}")  # fmt: skip
            outcome = self._runner.run(self.operation, root, variant=self._variant, strace=what)
            found = [*self._said(outcome, *call), *self.after(root, acknowledged=bool(outcome.acknowledged))]
            yield from (f"{error} from {name} {number}, {self._files[call]}: {problem}" for problem in found)
            shutil.rmtree(root)

    def _said(self, outcome: Outcome, name: str, number: int) -> Iterator[str]:
        if outcome.status:
            yield f"the run ended with {outcome.status}"
        if outcome.failure not in (None, "StorageFailed", "TransactionPending"):
            yield f"it raised {outcome.failure}"
        # Drops that fail together are tried again one by one, in new files.
        is_meant = self.operation != "take_drops" and not is_derived(name, self._files[name, number])
        if outcome.acknowledged and name in SYNCING and is_meant:
            yield "a failed fsync was not mentioned"

    def after(self, root: Path, *, acknowledged: bool) -> Iterator[str]:
        try:
            if len(found := places(root)) > 1:
                yield f"the session is in {found}"
            if acknowledged and (different := differing(tidied(root), self._done)):
                yield f"it said that all was done, but these differ: {different}"
            if different := differing(done_again(self.operation, root), self._wanted):
                yield f"done again, these differ: {different}"
        except (SMPError, OSError) as error:
            yield f"it cannot be done again: {error!r}"


def is_derived(name: str, path: str) -> bool:
    """What nobody loses by: the index, which alone is synced with fdatasync, and the directory of the locks."""
    return name == "fdatasync" or path.startswith("/.smp/index.db") or path.endswith("/.smp/locks")


@needs_strace
@pytest.mark.parametrize("operation", MOST)
def test_a_disk_that_is_full_from_some_write_on(runner: Programs, operation: str, tmp_path: Path) -> None:
    """ENOSPC from one of its writes and all of that kind after it: the pass says so, the session is in one place, and done again
    when there is room, all is as if nothing had been."""
    failing = Failing(operation, tmp_path, runner)
    assert list(failing.problems(failing.calls(WRITING, each=8, of_index=80), "ENOSPC", on=True)) == []


def _some(calls: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Where there are very many that are alike, as in packing, some that are spread over all."""
    return calls[:: -(-len(calls) // _CALLS_CAP) or 1]


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("operation", PASSES)
def test_a_disk_that_fails_anywhere(runner: Programs, operation: str, tmp_path: Path) -> None:
    """The same for each write, for one write that fails alone, and for EIO from each fsync, which is never left unsaid."""
    failing = Failing(operation, tmp_path, runner)
    writes, syncs = (_some(calls) for calls in (failing.calls(WRITING, of_index=15), failing.calls(SYNCING, of_index=4)))
    found = [*failing.problems(writes, "ENOSPC", on=True), *failing.problems(syncs, "EIO")]
    found += failing.problems(writes[::2], "ENOSPC")
    assert found == []


@needs_strace
def test_the_same_failures_find_a_pass_without_intents(runner: Programs, tmp_path: Path) -> None:
    failing = Failing("compact", tmp_path, runner, "without journal")
    found = failing.problems(failing.calls(WRITING, of_index=1000), "ENOSPC", on=True)
    assert any("done again, these differ" in problem for problem in found)
