"""`{session}.jsonl`: one line for each memory, and marks for what was deleted."""

from __future__ import annotations

from ..shaping import Values
from .entries import SINGLE
from .sessions import Held
from .target import Target

ENDING = ".jsonl"


class SingleLayout:
    """Each session into its own file, or the only one into a file of the name that was asked for."""

    way = SINGLE

    def __init__(self, target: Target) -> None:
        self._target = target
        self.entries = 0

    def session(self, held: Held, name: str, marks: list[Values]) -> None:
        target = self._target
        file = "" if target.is_file else f"{name}{ENDING}"
        with target.lines(file) as lines:
            told = [{"id": mark.get("id"), "deleted": True, **mark} for mark in marks]
            # Where the id was given again since, a mark behind it would delete that one.
            for mark in told:
                if _key(mark) in held.live:
                    lines.add(mark)
            for _, entry in held.entries(SINGLE, name):
                self.entries += 1
                lines.add(entry)
            for mark in told:
                if _key(mark) not in held.live:
                    lines.add(mark)
        for beside in held.files:
            held.leave_out(f"file {beside}")
        if held.notes.get("layout") != SINGLE.layout and held.metadata:
            held.leave_out("what is known of the session as a whole")

    def finish(self) -> None:
        """Nothing stands beside the sessions."""


def _key(mark: Values) -> object:
    key = mark.get("id")
    return key if isinstance(key, (str, int)) else None
