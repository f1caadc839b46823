"""`memory.privacy`: deleting, restoring, anonymising, finding and purging, in any session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from .change.restore import delete, delete_everywhere, deleted, restore, restore_batch
from .model.door import guarded
from .passes.purge import purge, purge_now
from .passes.vanished import settle_now
from .privacy.anonymise import Mask, anonymize, anonymize_everywhere
from .privacy.find import all_about

if TYPE_CHECKING:
    from .memory import Memory


P = ParamSpec("P")
R = TypeVar("R")


def _settled(function: Callable[Concatenate[Memory, P], R]) -> Callable[Concatenate[Memory, P], R]:
    """Return the function so that memories which vanished from their files are deleted ones."""

    @wraps(function)
    def call(memory: Memory, /, *given: P.args, **named: P.kwargs) -> R:
        if not named.get("dry_run"):
            settle_now(memory)
        return function(memory, *given, **named)

    return call


class Privacy:
    """A session is named by its id, archived or not; `global` is one, too."""

    def __init__(self, memory: Memory) -> None:
        self.delete = partial(guarded(delete), memory)
        self.delete_everywhere = partial(guarded(delete_everywhere), memory)
        self.deleted = partial(guarded(deleted), memory)
        self.restore = partial(guarded(restore), memory)
        self.restore_batch = partial(guarded(restore_batch), memory)
        self.anonymize = partial(guarded(_settled(anonymize)), memory)
        self.anonymize_everywhere = partial(guarded(_settled(anonymize_everywhere)), memory)
        self.anonymous_export = partial(guarded(Mask, "anonymous_export"), memory)
        self.find = partial(guarded(all_about), memory)
        self.purge = partial(guarded(purge), memory)
        self.purge_now = partial(guarded(_settled(purge_now)), memory)
