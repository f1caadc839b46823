"""Death before a change of the disk: between two of them a kill makes no difference."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from smp_client.disk import tree

_CHANGES = ("write", "pwrite", "fsync", "rename", "unlink", "mkdir", "rmdir", "ftruncate", "link")


class Death:
    """This process kills itself before it changes the disk for the n-th time from now on."""

    def __init__(self) -> None:
        self._left: int | None = None
        for name in _CHANGES:
            setattr(os, name, self._deadly(getattr(os, name)))
        tree._rename_with = self._deadly(tree._rename_with)

    def arm(self, changes: int | None) -> None:
        """Die before so many changes; None is for not dying."""
        self._left = changes

    def _deadly(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **further: Any) -> Any:
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return inner(*given, **further)

        return call


def die_before(change: int) -> None:
    """Have this process kill itself before it changes the disk for the n-th time."""
    Death().arm(change)
