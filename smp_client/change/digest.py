"""What a person would want to know of a session that is packed away: the facts of an archive.

A pure function of the session's files, so that it can be made again whenever the archive changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..disk.session_files import METADATA
from ..model.errors import SMPError
from ..model.priority import is_resolved, status_of
from ..model.record import (
    DECISION,
    FINDING,
    LEARNING,
    PREFERENCE,
    SESSION_KINDS,
    TURN,
    Kind,
    name_of,
)
from ..text.format import format_of
from ..text.mapping import load_mapping
from ..text.values import Value

_MEMORIES = 50  # of each kind that is listed, the newest
_TEXT_CHARACTERS = 1000  # of each; the whole text is in the archive
_TURNS, _GIST_CHARACTERS = 5, 200
_TOPICS = 30


def digest(session_id: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what there is to say of a session that consists of these files."""
    metadata = _metadata(files.get(METADATA, b""))
    context, people = _mapping(metadata.get("context")), _mapping(metadata.get("participants"))
    found = {kind: _records(kind, files.get(kind.file, b"")) for kind in SESSION_KINDS}
    every = [value for values in found.values() for value in values]
    times = sorted(stamp for value in every if isinstance(stamp := value.get("timestamp"), str))
    actors = Counter(str(actor) for kind, values in found.items() for value in values
                     if (actor := value.get(kind.actor)))  # fmt: skip
    about = [*every, {"tags": context.get("tags"), "topic": context.get("primary_topic")}]
    topics = Counter(str(name) for value in about
                     for name in [*_listed(value.get("tags")), value.get("topic")] if name)  # fmt: skip
    return {
        "session_id": session_id,
        "project": context.get("project_name"),
        "phase": context.get("project_phase"),
        "topic": context.get("primary_topic"),
        "user": people.get("user_id"),
        "tags": context.get("tags") or [],
        "created_at": metadata.get("created_at"),
        "first_activity": times[0] if times else None,
        "last_activity": times[-1] if times else None,
        "participants": [{"name": name, "memories": count} for name, count in actors.most_common()],
        "memories": {name_of(kind.name): len(values) for kind, values in found.items() if values},
        "topics": [{"name": name, "mentions": count} for name, count in topics.most_common(_TOPICS)],
        "decisions": [_line(DECISION, value, made_by=value.get("made_by"), timestamp=value.get("timestamp"),
                            status=status_of(value)) for value in _newest(found[DECISION])],
        "open_findings": [_line(FINDING, value, severity=value.get("severity"))
                          for value in _newest(found[FINDING]) if not is_resolved(value)],
        "preferences": [_line(PREFERENCE, value, confidence=value.get("confidence"))
                        for value in _newest(found[PREFERENCE])],
        "learnings": [_line(LEARNING, value, learned_by=value.get("learned_by")) for value in _newest(found[LEARNING])],
        "last_turns": [_line(TURN, value, _GIST_CHARACTERS, speaker=value.get("speaker"))
                       for value in found[TURN][-_TURNS:]],
    }  # fmt: skip


def _records(kind: Kind, content: bytes) -> list[dict[str, Value]]:
    try:
        return [record.value for record in format_of(kind).parse(content).records if record.has_id]
    except SMPError:
        return []


def _metadata(content: bytes) -> dict[str, Value]:
    """Return the metadata, and nothing where they cannot be read: the memories say more."""
    try:
        return load_mapping(content, "session", METADATA)
    except SMPError:
        return {}


def _newest(values: list[dict[str, Value]]) -> Iterable[dict[str, Value]]:
    return values[: -_MEMORIES - 1 : -1]


def _line(
    kind: Kind, value: Mapping[str, Value], characters: int = _TEXT_CHARACTERS, **further: Any
) -> dict[str, Value]:
    text = " ".join(str(value.get(kind.text, "")).split())
    text = text if len(text) <= characters else f"{text[: characters - 1].rstrip()}…"
    return {
        "id": value.get("id"),
        **{name: str(said) for name, said in further.items() if said},
        "text": text,
    }


def _mapping(value: Value) -> dict[str, Value]:
    return value if isinstance(value, dict) else {}


def _listed(value: Value) -> list[Value]:
    return value if isinstance(value, list) else []
