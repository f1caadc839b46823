"""`archived/{session}/summary.yaml`: what stays in sight of a session when its memories are packed away.

A person who comes back after a year, or a question to all sessions, finds here what the session was about, and whether it is worth
bringing back. `archived.py` says what a question makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from ..archived import TOP, load
from ..decay import status_of
from ..errors import CorruptionDetected, NewerFormat
from ..records import DECISION, LEARNING, PREFERENCE, TURN, Record, name_of
from ..text.mapping import render_mapping
from ..text.values import Value
from ..timestamps import render_time

if TYPE_CHECKING:
    from ..packing import Member
    from ..questions.priorities import View
    from ..session import Session

__all__ = ["ArchiveState", "content", "load", "render"]

ArchiveState = Literal["archiving", "archived", "restoring"]
_MEMORIES = 50  # of each kind that is listed, those that matter most
_TEXT_CHARACTERS = 1000  # of each: the whole of it is in the archive
_TURNS, _GIST_CHARACTERS = 5, 200
_TOPICS = 30


def content(session: Session) -> dict[str, Value]:
    """All that there is to say of the session as it is now."""
    metadata = _metadata(session)
    context, people = (_mapping(metadata.get(name)) for name in ("context", "participants"))
    size = session.size()
    told = session._asker().ask(_told)
    return {
        "session_id": session.id,
        "project": context.get("project_name"),
        "phase": context.get("project_phase"),
        "topic": context.get("primary_topic"),
        "user": people.get("user_id"),
        "tags": context.get("tags") or [],
        "created_at": metadata.get("created_at"),
        **told,
        "sizes": {"session_bytes": size.total_bytes, "quota_bytes": size.quota_bytes, **size.components},
    }


def render(
    content: Mapping[str, Value], *, state: str, reason: str, archived_at: datetime | str,
    members: Sequence[Member | Mapping[str, Any]], archive: Member | Mapping[str, Any] | None,
) -> bytes:  # fmt: skip
    """The file. `members` are what is packed, each also as `{path, bytes, sha256}`; `archive` is the pack, also with `file`."""
    listed = [_member("path", member) for member in members]
    packed: dict[str, Value] = {
        "state": state,
        "archived_at": archived_at if isinstance(archived_at, str) else render_time(archived_at),
        "reason": reason,
    }
    behind: dict[str, Value] = {
        "total_bytes": sum(int(str(member["bytes"])) for member in listed),
        "archive": None if archive is None else _member("file", archive),
        "members": [*listed],
    }
    # What was loaded from such a file may be given again, in another state.
    said = {name: value for name, value in content.items() if name not in packed and name not in behind}
    return render_mapping(TOP, {**packed, **said, **behind})


def _member(name: str, member: Member | Mapping[str, Any]) -> dict[str, Value]:
    if isinstance(member, Mapping):
        return dict(member)
    return {name: member.path, "bytes": member.size_bytes, "sha256": member.sha256}


def _metadata(session: Session) -> dict[str, Value]:
    """Nothing where it cannot be read: a session can be archived all the same, and its memories have more to say."""
    try:
        return session.metadata()
    except (CorruptionDetected, NewerFormat):
        return {}


# What its memories say, of one moment.


def _told(view: View) -> dict[str, Value]:
    from ..questions.summary import summarise

    summary = summarise(view, _TOPICS)
    return {
        "first_activity": summary.first_activity,
        "last_activity": summary.last_activity,
        "participants": [{"name": name, "memories": count} for name, count in summary.participants.items()],
        "memories": {name_of(type): count for type, count in summary.memories.items()},
        "topics": [{"name": topic.name, "mentions": topic.mentions} for topic in summary.topics],
        "decisions": [
            _said(record, made_by=record.data.get("made_by"), timestamp=record.data.get("timestamp"), status=status_of(record.data))
            for record in _most(view, DECISION.name)
        ],
        "open_findings": [_said(record, severity=record.data.get("severity")) for record in _open_findings(view)],
        "preferences": [_said(record, confidence=record.data.get("confidence")) for record in _most(view, PREFERENCE.name)],
        "learnings": [_said(record, learned_by=record.data.get("learned_by")) for record in _most(view, LEARNING.name)],
        "last_turns": [
            {"id": turn.id, "speaker": str(turn.data.get("speaker") or ""), "text": _cut(turn.text, _GIST_CHARACTERS)}
            for turn in reversed(_last_turns(view))
        ],
    }


def _said(record: Record, **further: Any) -> dict[str, Value]:
    told = {name: str(value) for name, value in further.items() if value}
    return {"id": record.id, **told, "text": _cut(record.text, _TEXT_CHARACTERS)}


def _cut(text: str, characters: int) -> str:
    """On one line, and no longer than this."""
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[: characters - 1].rstrip()}…"


def _most(view: View, type: str) -> Iterable[Record]:
    """Those that matter most."""
    from ..questions.engine import find
    from ..questions.query import Wanted, one_of

    return find(view, Wanted((one_of("m.type", [type]),), limit=_MEMORIES))


def _open_findings(view: View) -> Iterable[Record]:
    """The most severe first."""
    from ..questions.query import Wanted
    from ..relevant import findings

    return findings(view, Wanted(limit=_MEMORIES))


def _last_turns(view: View) -> list[Record]:
    """The newest first."""
    from ..questions.engine import find
    from ..questions.query import Wanted, one_of

    return find(view, Wanted((one_of("m.type", [TURN.name]),), order="m.start DESC", limit=_TURNS))


def _mapping(value: Value) -> dict[str, Value]:
    return value if isinstance(value, dict) else {}
