"""One file as entries, and back, byte for byte.

What SMP has written itself needs nothing but its values: rendered again they give the same bytes. Where a person has edited the
file, the bytes that differ travel beside the values: those of a record as `written`, those before it as `before`, those behind the
last as `behind`. Put one behind the other they are the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import NewerFormat
from ..layout import FORMAT_VERSION
from ..maintain.putting_back import value_of
from ..records import TURN, Kind
from ..session_files import parse_artifact
from ..text.document import Located
from ..text.format import format_of
from ..text.markdown import render_turn
from ..text.values import BadYaml, Value, canonical, decode, load, render_entries
from ..text.yaml_list import render_record
from .entries import storable_problem

_HEAD_LINE = re.compile(r"\*\*([^*:\n]{1,64}):\*\* ?([^\n]*)")
_TITLE, _RULE = "# Conversation History\n", "\n---\n\n"
_LAST_TURN = "Last-Turn"


class Piece(NamedTuple):
    """A record, and what of its bytes its value does not tell."""

    record: dict[str, Value]
    written: str | None = None
    before: str | None = None


@dataclass
class Pieces:
    """A record file."""

    head: dict[str, Value]
    before: str | None = None  # the bytes of the head, where rendering gives others
    behind: str | None = None
    bad: int = 0  # how many pieces of it are no record
    records: list[Piece] = field(default_factory=list)
    unreadable: int = 0  # records that an export which is not exact has to leave out


def take_apart(kind: Kind, content: bytes) -> Pieces | None:
    """A record file, exactly; None where it can only travel as its bytes."""
    try:
        content.decode()
        found = format_of(kind).parse(content)
    except (UnicodeDecodeError, NewerFormat):
        return None
    records = sorted(found.records, key=lambda record: record.start)
    first = records[0].start if records else len(content)
    pieces = Pieces(_head(kind, found.head, content[:first]), bad=len(found.bad))
    pieces.before = _unless(content[:first], render_head(kind, pieces.head))
    position = first
    for record in records:
        before = content[position : record.start]
        written = _written(kind, record, content)
        if written is _UNFAITHFUL or storable_problem(record.value):
            return None
        pieces.records.append(Piece(record.value, written, before.decode() or None))
        position = record.end
    pieces.behind = _unless(content[position:], b"")
    return pieces


def take_values(kind: Kind, content: bytes) -> Pieces:
    """The same without what rendering does not give, and with the highest number ever given in the head. Raises NewerFormat."""
    form = format_of(kind)
    found = form.parse(content)
    records = sorted(found.records, key=lambda record: record.start)
    sound = [record.value for record in records if record.has_id and not storable_problem(record.value)]
    first = records[0].start if records else len(content)
    head = _head(kind, found.head, content[:first])
    name, last = (_LAST_TURN, str) if kind is TURN else ("last_id", int)
    if (highest := form.highest(found, content)) > 0:
        head = {**head, name: last(highest)}
    return Pieces(head, records=[Piece(value) for value in sound], unreadable=len(found.bad) + len(records) - len(sound))


_UNFAITHFUL = "\0"


def _written(kind: Kind, record: Located, content: bytes) -> str | None:
    """The bytes of a record where rendering gives others; those that say something else when they stand alone cannot travel."""
    raw = content[record.start : record.end]
    if record.has_id and raw == _rendered_or_nothing(kind, record.value):
        return None
    return raw.decode() if is_written(kind, raw, record.value) else _UNFAITHFUL


def _rendered_or_nothing(kind: Kind, value: Mapping[str, Value]) -> bytes:
    try:
        return render(kind, value)
    except (ValueError, KeyError):
        return b""  # a person can write what rendering cannot, such as a turn without a text


def is_written(kind: Kind, raw: bytes, value: Mapping[str, Value]) -> bool:
    """Whether these bytes are those of a record that says this."""
    found = value_of(kind, raw)
    return found is not None and canonical(found) == canonical(dict(value))


def render(kind: Kind, value: Mapping[str, Value]) -> bytes:
    """A record as SMP writes it; raises ValueError or KeyError where it cannot be one."""
    return render_turn(value) if kind is TURN else render_record(value)


def render_head(kind: Kind, head: Mapping[str, Value]) -> bytes:
    if kind is TURN:
        return (_TITLE + "".join(f"**{name}:** {value}\n" for name, value in head.items()) + _RULE).encode()
    return _lines(head) + f"{kind.key}:\n".encode()


def _head(kind: Kind, found: dict[str, Value], content: bytes) -> dict[str, Value]:
    if kind is not TURN:
        return found
    lines = (_HEAD_LINE.fullmatch(line) for line in content.decode("utf-8", "replace").replace("\r", "").split("\n"))
    return {line[1]: line[2] for line in lines if line}


def _unless(content: bytes, usual: bytes) -> str | None:
    return None if content == usual else content.decode()


def _lines(mapping: Mapping[str, Value]) -> bytes:
    return "".join(line + "\n" for line in render_entries(mapping, 0)).encode()


# Files that are one mapping: metadata, an agent's state, the profile.


def take_mapping(content: bytes) -> tuple[dict[str, Value], str | None] | None:
    """The mapping, and the text of the file where rendering gives another; None where it can only travel as its bytes."""
    try:
        value = load(decode(content))
    except BadYaml:
        return None
    if not isinstance(value, dict) or not value or storable_problem(value, 0):
        return None
    version = value.get("version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        return None
    return value, _unless(content, _lines(value))


def mapping_file(mapping: Mapping[str, Value], written: str | None) -> bytes:
    """As it was written, where that still says the same."""
    if written is not None:
        found = take_mapping(written.encode())
        if found and canonical(found[0]) == canonical(dict(mapping)):
            return written.encode()
    return _lines(mapping)


# Artifacts.


class Artifact(NamedTuple):
    head: dict[str, Value] | None
    text: str
    written: str | None = None  # the front matter, where rendering gives another


def take_artifact(content: bytes) -> Artifact | None:
    """None where it can only travel as its bytes."""
    try:
        whole = content.decode()
        head, text = parse_artifact(content)
    except (UnicodeDecodeError, NewerFormat):
        return None
    if len(text) == len(whole):
        return Artifact(None, whole)
    if storable_problem(head, 0):
        return None
    return Artifact(head, text, _unless(whole[: len(whole) - len(text)].encode(), _front(head)))


def artifact_content(head: Mapping[str, Value] | None, text: str, written: str | None) -> bytes:
    if head is None:
        return text.encode()
    if written is not None and _says((content := written.encode() + text.encode()), head, text):
        return content
    return _front(head) + text.encode()


def _says(content: bytes, head: Mapping[str, Value], text: str) -> bool:
    found, body = parse_artifact(content)
    return body == text and canonical(found) == canonical(dict(head))


def _front(head: Mapping[str, Value]) -> bytes:
    return b"---\n" + _lines(head) + b"---\n"
