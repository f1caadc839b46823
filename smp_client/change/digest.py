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
from ..model.record import SESSION_KINDS, name_of
from ..text.format import format_of
from ..text.mapping import load_mapping
from ..text.values import Value

_MEMORIES, _TURNS, _TOPICS = 50, 5, 30  # that are listed, the newest and the most frequent
_TEXT_CHARACTERS, _GIST_CHARACTERS = 1000, 200  # of each; the whole text is in the archive


def digest(session_id: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the facts of a session of these files. A file that cannot be read says nothing."""
    metadata: dict[str, Value] = {}
    with suppress(SMPError):
        metadata = load_mapping(files.get(METADATA, b""), "session", METADATA)
    context, people = (_mapping(metadata.get(name)) for name in ("context", "participants"))
    tags = context.get("tags") or []
    found: dict[str, list[dict[str, Value]]] = {kind.name: [] for kind in SESSION_KINDS}
    actors, topics, times = Counter[str](), Counter[str](), list[str]()
    _count(topics, context.get("tags"), context.get("primary_topic"))
    for kind in SESSION_KINDS:
        with suppress(SMPError):
            for record in format_of(kind).parse(files.get(kind.file, b"")).records:
                value = record.value
                if record.has_id:
                    found[kind.name].append(value)
                    times.append(str(value.get("timestamp") or ""))
                    _count(actors, None, value.get(kind.actor))
                    _count(topics, value.get("tags"), value.get("topic"))
    times = sorted(filter(None, times)) or [""]
    texts = {kind.name: kind.text for kind in SESSION_KINDS}

    def listed(name: str, *fields: str, characters: int = _TEXT_CHARACTERS) -> list[dict[str, Any]]:
        """Return the newest memories of a kind with these fields, the newest first."""
        lines: list[dict[str, Any]] = []
        for value in found[name][: -_MEMORIES - 1 : -1]:
            text = " ".join(str(value.get(texts[name], "")).split())
            text = text if len(text) <= characters else f"{text[: characters - 1].rstrip()}…"
            known = {field: str(value[field]) for field in fields if value.get(field)}
            lines.append({"id": value.get("id"), **known, "text": text})
        return lines

    counts = {name_of(name): len(values) for name, values in found.items() if values}
    found["decision"] = [{**value, "status": status_of(value)} for value in found["decision"]]
    found["finding"] = [value for value in found["finding"] if not is_resolved(value)]
    found["conversation_turn"] = found["conversation_turn"][-_TURNS:]
    turns = listed("conversation_turn", "speaker", characters=_GIST_CHARACTERS)
    return {
        "session_id": session_id, "project": context.get("project_name"),
        "phase": context.get("project_phase"), "topic": context.get("primary_topic"),
        "user": people.get("user_id"), "tags": tags, "created_at": metadata.get("created_at"),
        "first_activity": times[0] or None, "last_activity": times[-1] or None,
        "participants": [{"name": name, "memories": n} for name, n in actors.most_common()],
        "memories": counts,
        "topics": [{"name": name, "mentions": n} for name, n in topics.most_common(_TOPICS)],
        "decisions": listed("decision", "made_by", "timestamp", "status"),
        "open_findings": listed("finding", "severity"),
        "preferences": listed("preference", "confidence"),
        "learnings": listed("learning", "learned_by"),
        "last_turns": turns[::-1],
    }  # fmt: skip


def _count(counter: Counter[str], several: Value, one: Value) -> None:
    names = [*(several if isinstance(several, list) else ()), one]
    counter.update(str(name) for name in names if name)


def _mapping(value: Value) -> dict[str, Value]:
    return value if isinstance(value, dict) else {}
