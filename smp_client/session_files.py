"""The files of a session that are not lists of records: metadata, agent states, artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .errors import Invalid
from .mapping import load_mapping, render_mapping, replace_parts
from .records import CONTENT_CAP_BYTES, Kind, check_tags, new_fields, plain, state_history
from .timestamps import parse_time, render_time
from .values import BadYaml, Value, decode, load, render_entries

METADATA = "metadata.yaml"
RESTING = ("idle", "decaying")  # what a session is that is not used, and ceases to be when it is
STATE_BASE_PRIORITY = 0.80


def new_metadata(
    session_id: str, created: datetime, *, user: str | None, agents: list[str], quota_bytes: int, context: Mapping[str, Any],
    last_accessed: datetime | None = None,
) -> bytes:  # fmt: skip
    """Every field that `metadata.yaml` has, in the order a person would look for them."""
    problems: list[str] = []
    at = render_time(created)
    participants = {"user_id": user, "agents": [{"agent_id": agent, "message_count": 0, "last_active": at} for agent in agents]}
    session = {
        "id": session_id,
        "created_at": at,
        "last_accessed": render_time(last_accessed or created),
        "status": "active",
        "storage": {"total_bytes": 0, "quota_bytes": quota_bytes, "utilization_pct": 0.0, "last_compaction": None},
        "decay": {"base_priority": 1.0, "current_priority": 1.0, "decay_rate": 0.05, "last_decay_update": at},
        "participants": participants,
        "context": {key: value for key, value in context.items() if value is not None},
    }
    parts = plain(session, "session", problems)
    assert isinstance(parts, dict)
    check_tags(plain(context.get("tags"), "tags", problems), problems)
    if problems:
        raise Invalid(problems)
    return render_mapping("session", parts)


def state_file(agent: str) -> str:
    return f"agent-states/{agent}.yaml"


def state_after(content: bytes, session_id: str, agent: str, changes: Mapping[str, Any], at: datetime) -> bytes:
    """The agent's state with the given parts replaced."""
    problems: list[str] = []
    parts = plain(dict(changes), "state", problems)
    assert isinstance(parts, dict)
    if problems:
        raise Invalid(problems)
    stamp = render_time(at)
    decay: dict[str, Value] = {"priority": STATE_BASE_PRIORITY, "last_accessed": stamp, "access_count": 0,
                               "base_priority": STATE_BASE_PRIORITY}  # fmt: skip
    old = load_mapping(content, "agent_state", state_file(agent))
    own: dict[str, Value] = {"agent_id": agent, "session_id": session_id, "last_updated": stamp}
    if old:
        return replace_parts(content, "agent_state", {**own, **parts, "decay": old.get("decay") or decay}, state_file(agent))
    given = {name: value for name, value in parts.items() if value is not None}
    return render_mapping("agent_state", {**own, **given, "decay": decay})


def state_history_entry(content: bytes, agent: str, at: datetime) -> tuple[Kind, dict[str, Value]] | None:
    """The state that is about to be replaced, as a record of its history; None where there was none."""
    old = load_mapping(content, "agent_state", state_file(agent))
    if not old:
        return None
    state = {name: value for name, value in old.items() if name != "decay"}
    kind = state_history(agent)
    try:
        stamp = parse_time(str(old.get("last_updated")))
    except ValueError:
        # Edited by hand into something that is no time; the state itself keeps it.
        stamp = at
    return kind, new_fields(kind, {"state": state}, stamp)


def artifact_file(artifact_id: str) -> str:
    return f"artifacts/{artifact_id}.md"


def render_artifact(artifact_id: str, content: str, fields: Mapping[str, Any], at: datetime) -> bytes:
    """Front matter, then the text exactly as it was given."""
    problems: list[str] = []
    head = plain({"version": 1, "id": artifact_id, "timestamp": at, **fields}, "artifact", problems)
    assert isinstance(head, dict)
    check_tags(head.get("tags"), problems)
    text = str(plain(content, "content", problems))
    if not problems and len(text.encode()) > CONTENT_CAP_BYTES:
        problems.append(f"an artifact may hold {CONTENT_CAP_BYTES:,} bytes, not {len(text.encode()):,}")
    if problems:
        raise Invalid(problems)
    return ("---\n" + "".join(line + "\n" for line in render_entries(head, 0)) + "---\n" + text).encode()


def parse_artifact(content: bytes) -> tuple[dict[str, Value], str]:
    """Fields and text; a file without front matter is all text."""
    text = content.decode("utf-8", "replace")
    if text.startswith("---\n"):
        head, separator, body = text[4:].partition("\n---\n")
        try:
            fields = load(decode(head.encode()))
        except BadYaml:
            return {}, text
        if separator and isinstance(fields, dict):
            return fields, body
    return {}, text
