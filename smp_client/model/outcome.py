"""The result of every pass and every verb: one shape, so that one printer prints all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Action:
    """One decision. `about` names the memories, the files or the session that it is done to."""

    session: str
    type: str  # delete, restore, remove_decayed, summarize_conversation, archive, purge_session …
    about: tuple[str, ...]
    reason: str
    bytes_freed: int = 0
    batch: str = ""  # memories that go together can be restored together by this name
    place: str = ""  # where the memories were: active, archived or evicted
    kinds: tuple[str, ...] = ()  # the type of each memory that it is about


@dataclass
class Outcome:
    """Everything that was done, or would be done, with the reasons for anything that was not."""

    actions: list[Action] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    dry_run: bool = False
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    batch: str = ""  # of a deletion or an anonymisation: the name by which it is restored

    @property
    def bytes_freed(self) -> int:
        return sum(action.bytes_freed for action in self.actions)

    @property
    def success(self) -> bool:
        return not self.problems

    @property
    def ids(self) -> list[str]:
        """The ids of all memories that the actions are about, in their order."""
        return [memory_id for action in self.actions for memory_id in action.about]

    def add(self, other: Outcome) -> None:
        """Take the results of another step into this one."""
        self.actions += other.actions
        self.problems += other.problems
        self.notes += other.notes
        self.counts.update(other.counts)
