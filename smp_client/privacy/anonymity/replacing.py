"""What of a memory is text that may name somebody, and what is structure and stays: ids, times, types, references, keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ...errors import SMPError
from ...records import RELATIONSHIP, kind_of_file
from ...scopes import ARTIFACTS
from ...session_files import METADATA, parse_artifact
from ...text.format import HEAD, format_of
from ...text.mapping import load_mapping, replace_parts
from ...text.values import BadYaml, Value, decode, load, render_entries
from ..deleting.standing import PROFILE, Standing
from .placeholders import Placeholders

_RECORD = frozenset((
    "id", "timestamp", "decay", "turn", "turn_ref", "memory_refs", "type", "severity", "confidence", "pinned", "updated_at",
    "redacted", "summarizes", "version", "session_id", "agent_id", "last_updated",
))  # fmt: skip
_METADATA = frozenset((
    "id", "created_at", "last_accessed", "status", "status_since", "storage", "decay", "decay_config", "compaction_config",
    "party_mode", "redacted",
))  # fmt: skip
_ENDS = frozenset(("source", "target", "relationship"))
_TAGS = "tags"
# Lines of a head that SMP itself reads, and of which none says who.
_OWN_LINE = re.compile(r"# Conversation History|\*\*(?:Session|Started|Format-Version|Last-Turn):\*\*|[a-z_]+:\s*\d*\s*$")
_NUMBERED = re.compile(r"\d")
_REFERENCE = re.compile(r"(?:DEC|FIND|PREF|LEARN|REL|STATE|GPREF|PAT)-\d{3,12}|turn-\d{1,12}")


class Unreadable(ValueError):
    """What cannot be taken apart, so that nobody can tell what of it is text."""


class Replacing:
    """Puts placeholders into memories; `ids` are further ones that are references wherever they stand alone."""

    def __init__(self, placeholders: Placeholders, ids: Collection[str] = ()) -> None:
        self._placeholders = placeholders
        self._ids = frozenset(memory_id for memory_id in ids if _NUMBERED.search(memory_id))

    def standing(self, one: Standing) -> Mapping[str, Value] | bytes | None:
        """What is to stand in the place of a memory; None where it can stay. Raises Unreadable."""
        if one.id == HEAD:
            head: dict[str, Value] = {**one.value, "content": self.head(str(one.value["content"]))}
            return self._sound_head(one, head) if head != one.value else None
        if not one.is_file:
            record = self.record(one.value, is_relationship=one.file == RELATIONSHIP.file)
            return record if record != one.value else None
        content = self.file(one.file, one.raw)
        return content if content != one.raw else None

    def record(self, value: Mapping[str, Value], *, is_relationship: bool = False) -> dict[str, Value]:
        fixed = _RECORD | _ENDS if is_relationship else _RECORD
        return {name: item if name in fixed else self.value(item, name) for name, item in value.items()}

    def metadata(self, value: Mapping[str, Value]) -> dict[str, Value]:
        return {name: item if name in _METADATA else self.value(item, name) for name, item in value.items()}

    def value(self, value: Any, key: str = "") -> Any:
        """Any value below; keys stay, and so does what refers to a memory."""
        if isinstance(value, str):
            if value in self._ids or _REFERENCE.fullmatch(value):
                return value
            return self._placeholders.tag(value) if key == _TAGS else self._placeholders.text(value, key)
        if isinstance(value, list):
            return [self.value(item, key) for item in value]
        if isinstance(value, dict):
            return {name: self.value(item, name) for name, item in value.items()}
        return value

    def text(self, text: str) -> str:
        return self._placeholders.text(text)

    def head(self, head: str) -> str:
        """What stands before the first record of a file, line by line."""
        return "".join(line if _OWN_LINE.match(line) else self._placeholders.text(line) for line in head.splitlines(keepends=True))

    def file(self, file: str, content: bytes) -> bytes:
        """A file that is one memory."""
        folder, _, _ = file.rpartition("/")
        try:
            if folder == ARTIFACTS:
                return self._artifact(content)
            top, change = _MAPPINGS.get(file, ("agent_state", Replacing.record))
            old = load_mapping(content, top, file)
            new = change(self, old)
            return self._comments(replace_parts(content, top, {name: new[name] for name in old if new[name] != old[name]}, file))
        except (SMPError, BadYaml, UnicodeDecodeError) as error:
            raise Unreadable(str(error)) from error

    def _artifact(self, content: bytes) -> bytes:
        text = content.decode()
        fields, body = parse_artifact(content)
        before = text[: len(text) - len(body)]
        new = self.record(fields)
        if new != fields:
            before = "---\n" + "".join(line + "\n" for line in render_entries(new, 0)) + "---\n"
        return (before + self._placeholders.text(body)).encode()

    def _comments(self, content: bytes) -> bytes:
        """With those lines replaced that are comments: whether they are, reading tells."""
        text = content.decode()
        lines = text.splitlines(keepends=True)
        new = "".join(self._placeholders.text(line) if line.lstrip().startswith("#") else line for line in lines)
        return new.encode() if new != text and load(decode(new.encode())) == load(decode(content)) else content

    def _sound_head(self, one: Standing, new: Mapping[str, Value]) -> Mapping[str, Value]:
        """Where the list could not be read any more, nothing is changed."""
        form = format_of(kind_of_file(one.file))
        after = form.parse(form.rewrite(one.raw, {HEAD: new}, 0))
        before = form.parse(one.raw)
        if len(after.bad) != len(before.bad) or after.head.keys() != before.head.keys() or after.listed != before.listed:
            raise Unreadable("what stands before its first memory cannot be changed in its place")
        return new


_MAPPINGS = {METADATA: ("session", Replacing.metadata), PROFILE: ("user_profile", Replacing.record)}
