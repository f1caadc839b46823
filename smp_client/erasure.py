"""`memory.privacy`: deleting, restoring, anonymising, finding and purging, in any session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, Unpack

from .change.restore import delete, delete_everywhere, deleted, restore, restore_batch
from .change.select import Meant, selection
from .model.outcome import Outcome
from .passes.purge import purge, purge_now
from .privacy.anonymise import AnonymousExport, anonymize
from .privacy.find import all_about

if TYPE_CHECKING:
    from .memory import Memory

P = ParamSpec("P")
R = TypeVar("R")


def _of_memory(
    function: Callable[Concatenate[Memory, P], R],
) -> Callable[Concatenate[Privacy, P], R]:
    """Return a function of a memory as a method of its privacy."""

    @wraps(function)
    def method(privacy: Privacy, /, *args: P.args, **options: P.kwargs) -> R:
        return function(privacy.memory, *args, **options)

    return method


class Privacy:
    """A session is named by its id, archived or not; `global` is one, too."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    deleted = _of_memory(deleted)
    restore = _of_memory(restore)
    restore_batch = _of_memory(restore_batch)
    anonymize = _of_memory(anonymize)
    anonymous_export = _of_memory(AnonymousExport)
    find = _of_memory(all_about)
    purge = _of_memory(purge)
    purge_now = _of_memory(purge_now)

    def delete(
        self, session: str, id: str | Sequence[str] | None = None, *,
        reason: str, deleted_by: str = "user", dry_run: bool = False, **meant: Unpack[Meant],
    ) -> Outcome:  # fmt: skip
        """Delete memories, all or none: those with these ids, or all that meet every condition.

        Until their deadline `restore` brings them back.
        """
        chosen = selection(id, **meant)
        return delete(self.memory, session, chosen, reason=reason, by=deleted_by, dry_run=dry_run)

    def delete_everywhere(
        self, *, reason: str, deleted_by: str = "user", dry_run: bool = False,
        **meant: Unpack[Meant],
    ) -> Outcome:  # fmt: skip
        """Delete in `global` and in every session, archived or not, under one batch."""
        chosen = selection(None, **meant)
        return delete_everywhere(self.memory, chosen, reason=reason, by=deleted_by, dry_run=dry_run)
