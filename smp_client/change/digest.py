"""The facts of an archive: the summary of a packed session for a person.

A pure function of the session's files, so that it can be made again whenever the archive changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..disk.session_files import METADATA
from ..model.errors import SMPError
from ..model.priority import is_resolved, status_of
from ..model.record import SESSION_KINDS, Kind, name_of
from ..text.format import format_of
from ..text.mapping import load_mapping
from ..text.values import Value

_MEMORIES, _TURNS, _TOPICS = 50, 5, 30  # that are listed, the newest and the most frequent
_TEXT_CHARACTERS, _GIST_CHARACTERS = 1000, 200  # of each; the whole text is in the archive


def digest(session_id: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the facts of a session of these files. A file that cannot be read says nothing."""
    metadata: dict[str, Value] = {}
    found: dict[str, list[dict[str, Value]]] = {}
    with suppress(SMPError):
        metadata = load_mapping(files.get(METADATA, b""), "session", METADATA)
    for kind in SESSION_KINDS:
        found[kind.name] = []
        with suppress(SMPError):
            records = format_of(kind).parse(files.get(kind.file, b"")).records
            found[kind.name] = [record.value for record in records if record.has_id]
    context, people = _mapping(metadata.get("context")), _mapping(metadata.get("participants"))
    every = [value for values in found.values() for value in values]
    times = sorted(stamp for value in every if isinstance(stamp := value.get("timestamp"), str))
    actors, topics = Counter[str](), Counter[str]()
    for kind in SESSION_KINDS:
        actors.update(str(value[kind.actor]) for value in found[kind.name] if value.get(kind.actor))
    about = {"tags": context.get("tags"), "topic": context.get("primary_topic")}
    for value in [*every, about]:
        tags = value.get("tags")
        names = [*(tags if isinstance(tags, list) else []), value.get("topic")]
        topics.update(str(name) for name in names if name)
    kinds = {kind.name: kind for kind in SESSION_KINDS}

    def newest(name: str, *fields: str) -> list[dict[str, Value]]:
        """Return the newest memories of a kind with these fields, the newest first."""
        values = found[name][: -_MEMORIES - 1 : -1]
        return [_line(kinds[name], value, fields, _TEXT_CHARACTERS) for value in values]

    found["decision"] = [{**value, "status": status_of(value)} for value in found["decision"]]
    counts: dict[str, Any] = {name: len(values) for name, values in found.items() if values}
    found["finding"] = [value for value in found["finding"] if not is_resolved(value)]
    turns = found["conversation_turn"][-_TURNS:]
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
        "participants": [{"name": name, "memories": n} for name, n in actors.most_common()],
        "memories": {name_of(name): count for name, count in counts.items()},
        "topics": [{"name": name, "mentions": n} for name, n in topics.most_common(_TOPICS)],
        "decisions": newest("decision", "made_by", "timestamp", "status"),
        "open_findings": newest("finding", "severity"),
        "preferences": newest("preference", "confidence"),
        "learnings": newest("learning", "learned_by"),
        "last_turns": [_line(kinds["conversation_turn"], value, ("speaker",), _GIST_CHARACTERS)
                       for value in turns],
    }  # fmt: skip


def _line(
    kind: Kind, value: Mapping[str, Value], fields: tuple[str, ...], characters: int
) -> dict[str, Value]:
    text = " ".join(str(value.get(kind.text, "")).split())
    text = text if len(text) <= characters else f"{text[: characters - 1].rstrip()}…"
    known: dict[str, Value] = {name: str(value[name]) for name in fields if value.get(name)}
    return {"id": value.get("id"), **known, "text": text}


def _mapping(value: Value) -> dict[str, Value]:
    return value if isinstance(value, dict) else {}
