"""An export without names: what `exchange/` gives out, changed entry by entry, with the same placeholders all through it.

An export is a stream, so whoever is named in it must be known before it begins: the metadata of its sessions, the user's profile
and who spoke are looked at first, and which placeholders stand in it already. What cannot be looked into, because it is packed or
no text, is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import SMPError
from ...layout import DELETED
from ...records import RELATIONSHIP, TURN
from ...scopes import STATES
from ...session_files import METADATA
from ..deleting.standing import Contents, id_of_file, names_with_memories, value_of_file
from .acquaintance import Acquaintance, profile
from .anonymizing import CANNOT_FIND
from .placeholders import Anonymization, Placeholders, Replacement
from .replacing import Replacing

if TYPE_CHECKING:
    from ...exchange.entries import Entry
    from ...memory import Memory

_SPEAKER = re.compile(rb"^\*\*Speaker:\*\*[ \t]*([^\r\n]+)", re.MULTILINE)
_SUMMARY = frozenset((
    "state", "session_id", "archived_at", "created_at", "first_activity", "last_activity", "memories", "sizes", "total_bytes",
    "phase", "archive", "members",
))  # fmt: skip


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
        kind = entry["entry"]
        if kind == "bytes" and (entry.get("text") is None or entry["place"] == DELETED):
            self.problems.append(f"{entry['session']}/{entry['path']} was left out: it may hold names that cannot be replaced.")
            return None
        new = {name: part for name, part in entry.items() if name not in ("written", "before", "behind")}
        return {**new, **_CHANGES[kind](self._replacing, entry)} if kind in _CHANGES else new

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


def _within(replacing: Replacing, whole: Any, top: str, change: Callable[[Any], Any]) -> Any:
    """A whole file that is one mapping: below its top key as `change` says, beside it everything."""
    if not isinstance(whole, dict):
        return whole
    inner = {top: change(whole[top])} if isinstance(whole.get(top), dict) else {}
    return {name: inner[name] if name in inner else part if name == "version" else replacing.value(part, name)
            for name, part in whole.items()}  # fmt: skip


def _memory(replacing: Replacing, entry: Entry) -> Entry:
    file = entry["item"]["file"] if entry["entry"] == "evicted" else entry["file"]
    return {"record": replacing.record(entry["record"], is_relationship=file == RELATIONSHIP.file)}


def _artifact(replacing: Replacing, entry: Entry) -> Entry:
    head = entry["head"]
    return {"head": head and replacing.record(head), "text": replacing.text(entry["text"])}


def _head(replacing: Replacing, entry: Entry) -> Entry:
    fixed = ("version", "last_id", "Session", "Started", "Format-Version", "Last-Turn")
    return {"head": {name: part if name in fixed else replacing.value(part, name) for name, part in entry["head"].items()}}


def _summary(replacing: Replacing, entry: Entry) -> Entry:
    return {"summary": {name: part if name in _SUMMARY else replacing.value(part, name) for name, part in entry["summary"].items()}}


_CHANGES: dict[str, Callable[[Replacing, Entry], Entry]] = {
    "session": lambda replacing, entry: {"metadata": _within(replacing, entry["metadata"], "session", replacing.metadata)},
    "file": _head,
    "memory": _memory,
    "evicted": _memory,
    "state": lambda replacing, entry: {"state": _within(replacing, entry["state"], "agent_state", replacing.record)},
    "artifact": _artifact,
    "archive": _summary,
    "profile": lambda replacing, entry: {"profile": _within(replacing, entry["profile"], "user_profile", replacing.record)},
    "bytes": lambda replacing, entry: {"text": replacing.text(entry["text"])},
}
