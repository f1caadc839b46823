"""`memory.privacy`: deleting, restoring, anonymising, finding and purging, in any session."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .change.restore import delete, delete_everywhere, deleted, restore, restore_batch
from .change.select import Selection
from .model.outcome import Outcome
from .passes.purge import purge, purge_now
from .privacy.anonymise import Mask, anonymize
from .privacy.find import all_about

if TYPE_CHECKING:
    from .memory import Memory


class Privacy:
    """A session is named by its id, archived or not; `global` is one, too."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.deleted = partial(deleted, memory)
        self.restore = partial(restore, memory)
        self.restore_batch = partial(restore_batch, memory)
        self.anonymize = partial(anonymize, memory)
        self.anonymous_export = partial(Mask, memory)
        self.find = partial(all_about, memory)
        self.purge = partial(purge, memory)
        self.purge_now = partial(purge_now, memory)

    def delete(
        self, session: str, id: str | Sequence[str] | None = None, *,
        reason: str, deleted_by: str = "user", dry_run: bool = False, **meant: Any,
    ) -> Outcome:  # fmt: skip
        """Delete memories, all or none: those with these ids, or all that meet every condition:
        `topic`, `agent`, `since`, `until`, `types`, `tags`, `text`.

        Until their deadline `restore` brings them back.
        """
        chosen = Selection(id, **meant)
        return delete(self.memory, session, chosen, reason=reason, by=deleted_by, dry_run=dry_run)

    def delete_everywhere(
        self, *, reason: str, deleted_by: str = "user", dry_run: bool = False, **meant: Any
    ) -> Outcome:
        """Delete in `global` and in every session, archived or not, under one batch."""
        chosen = Selection(**meant)
        return delete_everywhere(self.memory, chosen, reason=reason, by=deleted_by, dry_run=dry_run)
