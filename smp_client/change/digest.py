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

_MEMORIES, _TOPICS = 50, 30  # that are listed, the newest and the most frequent
_TEXT_CHARACTERS = 1000  # of each; the whole text is in the archive
_LISTED = {  # by kind: the list, and the fields of a memory beside its id and text
    "decision": ("decisions", ("made_by", "timestamp", "status")),
    "finding": ("open_findings", ("severity",)),
    "preference": ("preferences", ("confidence",)),
    "learning": ("learnings", ("learned_by",)),
}


def digest(session_id: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the facts of a session of these files. A file that cannot be read says nothing."""
    metadata: dict[str, Value] = {}
    with suppress(SMPError):
        metadata = load_mapping(files.get(METADATA, b""), "session", METADATA)
    said = metadata.get("context")
    context = said if isinstance(said, dict) else {}
    actors, topics, counts = Counter[str](), Counter[str](), Counter[str]()
    times: list[str] = []
    lists: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in _LISTED.values()}
    _count(topics, context.get("tags"), context.get("primary_topic"))
    for kind in SESSION_KINDS:
        found: list[dict[str, Value]] = []
        with suppress(SMPError):
            records = format_of(kind).parse(files.get(kind.file, b"")).records
            found = [record.value for record in records if record.has_id]
        counts[name_of(kind.name)] += len(found)
        for value in found:
            times.append(str(value.get("timestamp") or ""))
            _count(actors, None, value.get(kind.actor))
            _count(topics, value.get("tags"), value.get("topic"))
        if kind.name in _LISTED:
            name, fields = _LISTED[kind.name]
            if name == "open_findings":
                found = [value for value in found if not is_resolved(value)]
            for value in found[: -_MEMORIES - 1 : -1]:
                about = {**value, "status": status_of(value)}
                known = {field: str(about[field]) for field in fields if about.get(field)}
                text = " ".join(str(value.get(kind.text, "")).split())[:_TEXT_CHARACTERS]
                lists[name].append({"id": value.get("id"), **known, "text": text})
    times = sorted(filter(None, times)) or [""]
    return {
        "session_id": session_id, "project": context.get("project_name"),
        "phase": context.get("project_phase"), "topic": context.get("primary_topic"),
        "tags": context.get("tags") or [], "created_at": metadata.get("created_at"),
        "first_activity": times[0] or None, "last_activity": times[-1] or None,
        "participants": [{"name": name, "memories": n} for name, n in actors.most_common()],
        "memories": dict(+counts),
        "topics": [{"name": name, "mentions": n} for name, n in topics.most_common(_TOPICS)],
        **lists,
    }  # fmt: skip


def _count(counter: Counter[str], several: Value, one: Value) -> None:
    names = [*(several if isinstance(several, list) else ()), one]
    counter.update(str(name) for name in names if name)
