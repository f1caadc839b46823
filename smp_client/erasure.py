"""`memory.privacy`: deleting, restoring, anonymising, finding and purging, in any session."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .change.restore import delete, delete_everywhere, deleted, restore, restore_batch
from .passes.purge import purge, purge_now
from .privacy.anonymise import Mask, anonymize
from .privacy.find import all_about

if TYPE_CHECKING:
    from .memory import Memory


class Privacy:
    """A session is named by its id, archived or not; `global` is one, too."""

    def __init__(self, memory: Memory) -> None:
        self.delete = partial(delete, memory)
        self.delete_everywhere = partial(delete_everywhere, memory)
        self.deleted = partial(deleted, memory)
        self.restore = partial(restore, memory)
        self.restore_batch = partial(restore_batch, memory)
        self.anonymize = partial(anonymize, memory)
        self.anonymous_export = partial(Mask, memory)
        self.find = partial(all_about, memory)
        self.purge = partial(purge, memory)
        self.purge_now = partial(purge_now, memory)
