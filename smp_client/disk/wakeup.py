"""A session that rests, idle or decaying, is active again with its next use."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..model.errors import SMPError
from ..model.layout import ACTIVE, METADATA
from ..model.times import render_time
from ..text.mapping import load_mapping, replace_parts
from .rewrite import rewrite
from .tree import version_of

if TYPE_CHECKING:
    from ..text.values import Value
    from .scope import Scope

RESTING = ("idle", "decaying")  # the states of a session that is not used
_KNOWN_CAP = 10_000
# The metadata that do not rest, each by its version: a session in use costs one look at a file.
_awake: dict[str, list[int]] = {}


def wake(scope: Scope) -> None:
    """Make the session active if it rests. The use itself never fails for it.

    A pass is not a use. Where the metadata cannot be written, the lifecycle pass does it later.
    """
    if scope.in_upkeep or scope.directory != f"{ACTIVE}/{scope.name}":
        return
    name = f"{scope.tree.path}/{scope.path(METADATA)}"
    with suppress(OSError, SMPError):
        version = version_of(scope.tree.stat(scope.path(METADATA)))
        if _awake.get(name) == version:
            return
        content = scope.tree.read(scope.path(METADATA))
        if any(state.encode() in content for state in RESTING):
            _activate(scope)
        if len(_awake) >= _KNOWN_CAP:
            _awake.clear()
        _awake[name] = version


def _activate(scope: Scope) -> None:
    now = render_time(scope.options.clock())

    def active(content: bytes) -> bytes:
        if load_mapping(content, "session", METADATA).get("status") not in RESTING:
            return content
        reason = f"used at {now}"
        said: dict[str, Value] = {"status": "active", "status_since": now, "status_reason": reason}
        return replace_parts(content, "session", said, METADATA)

    with scope.locked([METADATA], "making the session active"):
        rewrite(scope, METADATA, active)
