"""An export without names: what `exchange/` gives out, changed entry by entry, with the same placeholders all through it.

An export is a stream, so whoever is named in it must be known before it begins: the metadata of its sessions, the user's profile
and who spoke are looked at first, and which placeholders stand in it already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...errors import SMPError
from ...records import RELATIONSHIP, TURN
from ...scopes import STATES
from ...session_files import METADATA
from ..deleting.standing import Contents, id_of_file, names_with_memories, value_of_file
from .acquaintance import Acquaintance, profile
from .anonymizing import CANNOT_FIND
from .placeholders import Anonymization, Placeholders, Replacement
from .replacing import Replacing

if TYPE_CHECKING:
    from ...exchange.entry import Entry
    from ...memory import Memory

_SPEAKER = re.compile(rb"^\*\*Speaker:\*\*[ \t]*([^\r\n]+)", re.MULTILINE)


class AnonymousExport:
    """Give it to an export as its `transform`; afterwards it says what it has replaced, and what it has left out."""

    anonymizes = True

    def __init__(
        self, memory: Memory, sessions: Sequence[str] | None = None, *, names: Iterable[str] = (), projects: Iterable[str] = (),
        config: Anonymization | None = None,
    ) -> None:  # fmt: skip
        self.problems: list[str] = []
        self._known = Acquaintance()
        self._known.give(names, projects)
        self._known.meet_profile(profile(memory))
        wanted = names_with_memories(memory) if sessions is None else list(sessions)
        for name in wanted:
            self._each_file(memory, name, self._meet)
        self._placeholders = Placeholders(self._known.names(), config)
        for name in wanted:
            self._each_file(memory, name, lambda _, content: self._placeholders.avoid(content.decode("utf-8", "replace")))
            if self._placeholders.finds(name):
                self.problems.append(f"The id of the session {name} holds a known name, and stays.")
        self._replacing = Replacing(self._placeholders, wanted)

    @property
    def cannot_find(self) -> tuple[str, ...]:
        return (*self._known.told_passed_over(), *CANNOT_FIND)

    @property
    def agents(self) -> list[str]:
        return self._known.agents

    def replacements(self) -> list[Replacement]:
        return self._placeholders.replacements(telling=False)

    def counts(self) -> dict[str, int]:
        return self._placeholders.counts()

    def __call__(self, entry: Entry) -> Entry | None:
        """Return an entry with placeholders; a tombstone names nobody."""
        change = _CHANGES.get(entry["entry"])
        return {**entry, **change(self._replacing, entry)} if change else entry

    def _meet(self, file: str, content: bytes) -> None:
        folder, _, _ = file.rpartition("/")
        if file == METADATA:
            self._known.meet_metadata(value_of_file(file, content))
        elif file == TURN.file:
            for line in dict.fromkeys(_SPEAKER.findall(content)):
                self._known.meet_speaker(_unquoted(line.decode("utf-8", "replace").strip()))
        elif folder == STATES:
            self._known.meet_agent(id_of_file(file))

    def _each_file(self, memory: Memory, name: str, do: Callable[[str, bytes], None]) -> None:
        try:
            contents = Contents(memory, name)
            for file in contents.files() if contents.is_there else ():
                do(file, contents.read(file))
        except (SMPError, OSError) as error:
            self.problems.append(f"{name} cannot be read, so whom it names is not known: {error}")


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        return text


_CHANGES: dict[str, Callable[[Replacing, Entry], Entry]] = {
    "session": lambda replacing, entry: {"metadata": replacing.metadata(entry["metadata"] or {})},
    "memory": lambda replacing, entry: {
        "record": replacing.record(entry["record"], is_relationship=entry["file"] == RELATIONSHIP.file)
    },
}
