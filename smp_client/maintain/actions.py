"""What a pass does, or would do, and why: the same for every pass, so that all are shown, logged and tested alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Action:
    """One decision. `about` names what it is done to: memories, files, or the session itself."""

    session: str
    type: str  # refresh_priorities, become_idle, remove_decayed, summarize_conversation, archive, purge_session…
    about: tuple[str, ...]
    reason: str
    bytes_freed: int = 0


@dataclass(frozen=True)
class MemoryAction(Action):
    """One about memories that were in one place, and go or come back together."""

    batch: str = ""
    place: str = ""  # active, archived, evicted, global
    kinds: tuple[str, ...] = ()  # of each that it is about


@dataclass
class Outcome:
    """What a pass came to, for one session or for all; `problems` says what could not be done, and why, `notes` what is to be known
    although all of it was."""

    actions: list[Action] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    dry_run: bool = False
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def bytes_freed(self) -> int:
        return sum(action.bytes_freed for action in self.actions)

    @property
    def success(self) -> bool:
        return not self.problems
