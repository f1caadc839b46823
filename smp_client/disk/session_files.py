"""The files of a session that are not lists of records: metadata, agent states, artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..model.errors import Invalid
from ..model.layout import FORMAT_VERSION
from ..model.record import CONTENT_CAP_BYTES, Kind, state_history
from ..model.times import parse_time, render_time
from ..redaction.redact import FIELD, OFF, Redaction, with_counts
from ..text.contents import check_tags, new_fields, plain, plain_parts
from ..text.mapping import load_mapping, render_mapping, replace_parts
from ..text.values import BadYaml, Value, decode, load, render_entries
from ..text.version import in_present_words, require_known, stated

METADATA = "metadata.yaml"
RESTING = ("idle", "decaying")  # what a session is that is not used, and ceases to be when it is
STATE_BASE_PRIORITY = 0.80


def new_metadata(
    session_id: str, created: datetime, *, user: str | None, agents: list[str], quota_bytes: int, context: Mapping[str, Any],
    last_accessed: datetime | None = None, redaction: Redaction = OFF,
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
    }
    given = plain({key: value for key, value in context.items() if value is not None}, "context", problems)
    about, kinds = redaction.redacted_value(given) if not problems else (given, {})
    parts = plain(session, "session", problems)
    assert isinstance(parts, dict)
    assert isinstance(about, dict)
    check_tags(about.get("tags"), problems)
    if problems:
        raise Invalid(problems)
    return render_mapping("session", {**parts, "context": about, **({FIELD: dict(kinds)} if kinds else {})})


def state_file(agent: str) -> str:
    return f"agent-states/{agent}.yaml"


def state_after(
    content: bytes, session_id: str, agent: str, changes: Mapping[str, Any], at: datetime, redaction: Redaction
) -> bytes:
    """The agent's state with the given parts replaced, without secrets."""
    redaction.require_clean_name("an agent", agent)
    parts, kinds = plain_parts(changes, redaction)
    stamp = render_time(at)
    decay: dict[str, Value] = {"priority": STATE_BASE_PRIORITY, "last_accessed": stamp, "access_count": 0,
                               "base_priority": STATE_BASE_PRIORITY}  # fmt: skip
    old = load_mapping(content, "agent_state", state_file(agent))
    if kinds:
        parts = with_counts(parts, parts.get(FIELD) or old.get(FIELD), kinds)
    own: dict[str, Value] = {"agent_id": agent, "session_id": session_id, "last_updated": stamp}
    if old:
        return replace_parts(content, "agent_state", {**own, **parts, "decay": old.get("decay") or decay}, state_file(agent))
    given = {name: value for name, value in parts.items() if value is not None}
    return render_mapping("agent_state", {**own, **given, "decay": decay})


def state_history_entry(content: bytes, agent: str, at: datetime, redaction: Redaction) -> tuple[Kind, dict[str, Value]] | None:
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
    return kind, new_fields(kind, {"state": state}, stamp, redaction)


def artifact_file(artifact_id: str) -> str:
    return f"artifacts/{artifact_id}.md"


def render_artifact(
    artifact_id: str, content: str, fields: Mapping[str, Any], at: datetime, redaction: Redaction = OFF
) -> bytes:
    """Front matter, then the text exactly as it was given, but for its secrets."""
    redaction.require_clean_name("an artifact", artifact_id)
    problems: list[str] = []
    if "version" in fields and stated(fields["version"]) != FORMAT_VERSION:
        problems.append("'version' of an artifact is given by SMP")
    given = plain({"id": artifact_id, "timestamp": at, **fields}, "artifact", problems)
    text = str(plain(content, "content", problems))
    assert isinstance(given, dict)
    head: dict[str, Value] = {"version": FORMAT_VERSION, **given}
    if not problems:
        head, kinds = redaction.redacted_value(head)
        text, found = redaction.redacted_text(text)
        head = with_counts(head, head.get(FIELD), kinds + found) if kinds or found else head
    check_tags(head.get("tags"), problems)
    if not problems and len(text.encode()) > CONTENT_CAP_BYTES:
        problems.append(f"an artifact may hold {CONTENT_CAP_BYTES:,} bytes, not {len(text.encode()):,}")
    if problems:
        raise Invalid(problems)
    return ("---\n" + "".join(line + "\n" for line in render_entries(head, 0)) + "---\n" + text).encode()


def parse_artifact(content: bytes) -> tuple[dict[str, Value], str]:
    """Fields, as they are said now, and text; a file without front matter is all text."""
    front = parse_front(content)
    if front is None:
        return {}, content.decode("utf-8", "replace")
    fields, begins_at = front
    version = stated(fields.get("version"))
    if version != FORMAT_VERSION:
        require_known(version, artifact_file(str(fields.get("id", "…"))))
        fields = {**in_present_words("artifact", fields, version), "version": FORMAT_VERSION}
    return fields, content[begins_at:].decode("utf-8", "replace")


def parse_front(content: bytes) -> tuple[dict[str, Value], int] | None:
    """The front matter in the words of its version, and where the text begins; None where there is none."""
    ends_at = content.find(b"\n---\n", 3) if content.startswith(b"---\n") else -1
    if ends_at < 0:
        return None
    try:
        fields = load(decode(content[4 : max(ends_at, 4)].decode("utf-8", "replace").encode()))
    except BadYaml:
        return None
    return (fields, ends_at + 5) if isinstance(fields, dict) else None
