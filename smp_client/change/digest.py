"""The facts of an archive: the summary of a packed session for a person.

A pure function of the session's files, so that it can be made again whenever the archive changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..disk.session_files import METADATA, agents_of
from ..model.errors import SMPError
from ..model.priority import is_resolved
from ..model.record import FINDING, RELATIONSHIP, SESSION_KINDS, TURN, Kind
from ..text.format import format_of
from ..text.mapping import load_mapping
from ..text.values import Value

_LISTED = 50  # memories of a kind, the newest
_TOPICS = 20  # the tags that occur most often
_TEXT_CHARACTERS = 1000  # of each; the whole text is in the archive


def digest(session_id: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the facts of a session of these files. A file that cannot be read says nothing."""
    metadata: dict[str, Value] = {}
    with suppress(SMPError):
        metadata = load_mapping(files.get(METADATA, b""), "session", METADATA)
    said = metadata.get("context")
    context = said if isinstance(said, dict) else {}
    counts: dict[str, int] = {}
    actors: Counter[str] = Counter()
    topics: Counter[str] = Counter()
    times: list[str] = []
    lists: dict[str, list[dict[str, Any]]] = {}
    for kind in SESSION_KINDS:
        found: list[dict[str, Value]] = []
        with suppress(SMPError):
            records = format_of(kind).parse(files.get(kind.file, b"")).records
            found = [record.value for record in records if record.has_id]
        counts |= {kind.name: len(found)} if found else {}
        actors.update(str(value[kind.actor]) for value in found if value.get(kind.actor))
        for value in found:
            topics.update(_tags(value))
        times += (str(value["timestamp"]) for value in found if value.get("timestamp"))
        if kind not in (TURN, RELATIONSHIP):
            name = "open_findings" if kind is FINDING else kind.key
            held = [one for one in found if kind is not FINDING or not is_resolved(one)]
            lists[name] = [_line(kind, value) for value in held[: -_LISTED - 1 : -1]]
    return {
        "session_id": session_id, "project": context.get("project_name"),
        "phase": context.get("project_phase"), "topic": context.get("primary_topic"),
        "tags": context.get("tags") or [], "created_at": metadata.get("created_at"),
        "first_activity": min(times, default=None), "last_activity": max(times, default=None),
        "participants": _participants(metadata, actors),
        "topics": [topic for topic, _ in topics.most_common(_TOPICS)],
        "original_size_bytes": sum(map(len, files.values())), "memories": counts, **lists,
    }  # fmt: skip


def _tags(value: Mapping[str, Value]) -> list[str]:
    tags = value.get("tags")
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


def _participants(metadata: Mapping[str, Value], actors: Counter[str]) -> list[str]:
    """Return the user, then the agents of the metadata, then whoever else said something."""
    said = metadata.get("participants")
    user = said.get("user_id") if isinstance(said, dict) else None
    agents = [str(one["agent_id"]) for one in agents_of(metadata) if one.get("agent_id")]
    others = [name for name, _ in actors.most_common() if name != "user"]
    return [*dict.fromkeys([*([str(user)] if user else []), *agents, *others])][:_LISTED]


def _line(kind: Kind, value: dict[str, Value]) -> dict[str, Any]:
    text = " ".join(str(value.get(kind.text, "")).split())
    line: dict[str, Any] = {"id": value["id"], "by": value.get(kind.actor)}
    if kind is FINDING:
        line["severity"] = value.get("severity")
    return {**line, "text": text[:_TEXT_CHARACTERS]}
