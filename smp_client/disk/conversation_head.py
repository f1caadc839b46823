"""The head of `conversation.md`: its participants follow whoever speaks later."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..model.record import TURN
from ..text.markdown import Conversation
from ..text.version import HEAD_BYTES
from .rewrite import rewrite

if TYPE_CHECKING:
    from .scope import Scope


def follow_speakers(scope: Scope, names: Sequence[str]) -> bool:
    """Add speakers that the head does not name yet. Return whether there were any.

    Only the head is read unless there are some.
    """
    form = Conversation()
    path = scope.path(TURN.file)
    if not names or not scope.tree.exists(path):
        return False
    with scope.tree.opened(path) as descriptor:
        head = os.pread(descriptor, HEAD_BYTES, 0)
    if form.with_participants(head, names) == head:
        return False
    with scope.locked([TURN.file], "naming the participants"):
        rewrite(scope, TURN.file, lambda content: form.with_participants(content, names))
    return True
