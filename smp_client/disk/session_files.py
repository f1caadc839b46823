"""The files of a session that are not lists of records: metadata, agent states, artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..model.errors import Invalid
from ..model.layout import FORMAT_VERSION
from ..model.layout import METADATA as METADATA
from ..model.record import CONTENT_CAP_BYTES, Kind, state_history
from ..model.times import render_time, time_of
from ..redaction.redact import FIELD, OFF, Redaction, with_counts
from ..text.contents import new_fields, plain_parts
from ..text.mapping import load_mapping, render_mapping, replace_parts
from ..text.values import BadYaml, Value, decode, load, render_lines
from ..text.version import in_present_words, require_known, stated

STATE_BASE_PRIORITY = 0.80


def new_metadata(
    session_id: str, created: datetime, *, user: str | None, agents: list[str], quota_bytes: int,
    context: Mapping[str, Any], last_accessed: datetime | None = None, redaction: Redaction = OFF,
) -> bytes:  # fmt: skip
    """Return `metadata.yaml` with every field, in the order a person would look for them."""
    at = render_time(created)
    present = [{"agent_id": agent, "message_count": 0, "last_active": at} for agent in agents]
    storage = {"total_bytes": 0, "quota_bytes": quota_bytes, "utilization_pct": 0.0}
    decay = {"base_priority": 1.0, "current_priority": 1.0, "decay_rate": 0.05}
    session = {
        "id": session_id,
        "created_at": at,
        "last_accessed": render_time(last_accessed or created),
        "status": "active",
        "storage": {**storage, "last_compaction": None},
        "decay": {**decay, "last_decay_update": at},
        "participants": {"user_id": user, "agents": present},
    }
    given = {key: value for key, value in context.items() if value is not None}
    about, kinds = plain_parts(given, redaction, tagged=True)
    parts = {**plain_parts(session, OFF)[0], "context": about}
    return render_mapping("session", {**parts, FIELD: dict(kinds)} if kinds else parts)


def agents_of(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the agents that the metadata names; none where a person has written something else."""
    participants = metadata.get("participants")
    agents = participants.get("agents") if isinstance(participants, dict) else None
    return [one for one in agents if isinstance(one, dict)] if isinstance(agents, list) else []


def state_file(agent: str) -> str:
    return f"agent-states/{agent}.yaml"


def state_after(
    content: bytes, session_id: str, agent: str, changes: Mapping[str, Any], at: datetime,
    redaction: Redaction,
) -> bytes:  # fmt: skip
    """Return the agent's state with the given parts replaced, without secrets."""
    redaction.require_clean_name("an agent", agent)
    parts, kinds = plain_parts(changes, redaction)
    stamp, priority = render_time(at), STATE_BASE_PRIORITY
    decay: dict[str, Value] = {"priority": priority, "last_accessed": stamp}
    decay |= {"access_count": 0, "base_priority": priority}
    old = load_mapping(content, "agent_state", state_file(agent))
    if kinds:
        parts = with_counts(parts, parts.get(FIELD) or old.get(FIELD), kinds)
    own: dict[str, Value] = {"agent_id": agent, "session_id": session_id, "last_updated": stamp}
    if old:
        changed = {**own, **parts, "decay": old.get("decay") or decay}
        return replace_parts(content, "agent_state", changed, state_file(agent))
    given = {name: value for name, value in parts.items() if value is not None}
    return render_mapping("agent_state", {**own, **given, "decay": decay})


def state_history_entry(
    content: bytes, agent: str, at: datetime, redaction: Redaction
) -> tuple[Kind, dict[str, Value]] | None:
    """Return the old state of an agent as a record of its history; None where it has no state."""
    old = load_mapping(content, "agent_state", state_file(agent))
    if not old:
        return None
    state = {name: value for name, value in old.items() if name != "decay"}
    kind = state_history(agent)
    # A person may have edited the time into another text. The state itself keeps that text.
    stamp = time_of(old.get("last_updated")) or at
    return kind, new_fields(kind, {"state": state}, stamp, redaction)


def artifact_file(artifact_id: str) -> str:
    return f"artifacts/{artifact_id}.md"


def render_artifact(
    artifact_id: str, content: str, fields: Mapping[str, Any], at: datetime,
    redaction: Redaction = OFF,
) -> bytes:  # fmt: skip
    """Return the file of an artifact: the front matter, then the given text without its secrets."""
    redaction.require_clean_name("an artifact", artifact_id)
    if "version" in fields and stated(fields["version"]) != FORMAT_VERSION:
        raise Invalid(["'version' of an artifact is given by SMP"])
    given = {"version": FORMAT_VERSION, "id": artifact_id, "timestamp": at, **fields}
    head, kinds = plain_parts({**given, "content": content}, redaction, tagged=True)
    text = str(head.pop("content"))
    if (size := len(text.encode())) > CONTENT_CAP_BYTES:
        raise Invalid([f"an artifact may hold {CONTENT_CAP_BYTES:,} bytes, not {size:,}"])
    head = with_counts(head, head.get(FIELD), kinds) if kinds else head
    return f"---\n{render_lines(head)}---\n{text}".encode()


def parse_artifact(content: bytes) -> tuple[dict[str, Value], str]:
    """Return the fields in the present format, and the text. Without front matter all is text."""
    fields, begins_at = _front(content)
    version = stated(fields.get("version"))
    if fields and version != FORMAT_VERSION:
        require_known(version, artifact_file(str(fields.get("id", "…"))))
        fields = {**in_present_words("artifact", fields, version), "version": FORMAT_VERSION}
    return fields, content[begins_at:].decode("utf-8", "replace")


def artifact_value(content: bytes) -> dict[str, Value]:
    """Return the fields of an artifact with its text among them."""
    fields, text = parse_artifact(content)
    return {**fields, "content": text}


def _front(content: bytes) -> tuple[dict[str, Value], int]:
    """Return the front matter, named as its version names it, and where the text begins."""
    ends_at = content.find(b"\n---\n", 3) if content.startswith(b"---\n") else -1
    if ends_at < 0:
        return {}, 0
    try:
        fields = load(decode(content[4 : max(ends_at, 4)].decode("utf-8", "replace").encode()))
    except BadYaml:
        return {}, 0
    return (fields, ends_at + 5) if isinstance(fields, dict) else ({}, 0)
