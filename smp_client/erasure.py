"""`memory.privacy`: deleting, restoring, anonymising, finding and purging, in any session."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .change.restore import delete, delete_everywhere, deleted, restore, restore_batch
from .model.door import guarded
from .passes.purge import purge, purge_now
from .privacy.anonymise import Mask, anonymize, anonymize_everywhere
from .privacy.find import all_about

if TYPE_CHECKING:
    from .memory import Memory


class Privacy:
    """A session is named by its id, archived or not; `global` is one, too."""

    def __init__(self, memory: Memory) -> None:
        self.delete = partial(guarded(delete), memory)
        self.delete_everywhere = partial(guarded(delete_everywhere), memory)
        self.deleted = partial(guarded(deleted), memory)
        self.restore = partial(guarded(restore), memory)
        self.restore_batch = partial(guarded(restore_batch), memory)
        self.anonymize = partial(guarded(anonymize), memory)
        self.anonymize_everywhere = partial(guarded(anonymize_everywhere), memory)
        self.anonymous_export = partial(guarded(Mask, "anonymous_export"), memory)
        self.find = partial(guarded(all_about), memory)
        self.purge = partial(guarded(purge), memory)
        self.purge_now = partial(guarded(purge_now), memory)
