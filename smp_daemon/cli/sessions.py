"""`smp sessions`: which there are, how they stand and how full they are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from .arguments import json_option, open_memory, root_option
from .deletion import describe_deleted
from .show_archived import describe_archived

if TYPE_CHECKING:
    from smp_client import Memory, Session

_COLOURS = {"active": "green", "unreadable": "red"}
_STATES = ("created", "active", "idle", "decaying", "archived", "deleted", "unreadable")
_CROWDED_PCT = 80
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@click.command()
@click.option("--state", type=click.Choice(_STATES), help="Only those in this state.")
@click.option("--all", "with_put_away", is_flag=True, help="Also those that are archived or deleted.")
@root_option
@json_option
def sessions(state: str | None, with_put_away: bool, root: str | None, as_json: bool) -> None:
    """List the sessions, the one that was used last first.

    Reading is a use as well. `latest` is the one that changed last, which may be another.
    """
    from .output import print_json

    memory = open_memory(root)
    found = _described(memory)
    if with_put_away or state == "archived":
        found += describe_archived(memory)
    if with_put_away or state == "deleted":
        found += describe_deleted(memory)
    found = [{**session, "deleted_at": session.get("deleted_at")} for session in found if state in (None, session["state"])]
    if as_json:
        print_json(found)
    elif not found:
        click.echo(f"No sessions are {state}." if state else "There are no sessions; smp new makes one.", err=True)
    else:
        _print(found)


def _print(found: list[dict[str, Any]]) -> None:
    from .output import Column, print_table, short_size, short_time

    columns = [
        Column("ID", ends=True), Column("STATE", style=lambda state: {"fg": _COLOURS.get(state, "yellow")}),
        Column("CREATED", spare=True), Column("LAST ACTIVITY"), Column("SIZE", right=True, spare=True),
        Column("FULL", right=True, spare=True, style=_crowded), Column("MEMORIES", right=True), Column("PROJECT", spare=True),
        Column("TOPIC", least=20),
    ]  # fmt: skip
    rows = [
        (each["id"], each["state"], short_time(each["created_at"]), _last_seen(each),
         None if each["total_bytes"] is None else short_size(each["total_bytes"]),
         None if each["utilization_pct"] is None else f"{each['utilization_pct']}%",
         each["memories"], each["project"], each["topic"])
        for each in found
    ]  # fmt: skip
    print_table(columns, rows)


def _last_seen(session: dict[str, Any]) -> str | None:
    """Of a deleted session, when it was deleted: nothing else is known of it."""
    from .output import short_time

    if session["deleted_at"] is not None:
        return short_time(session["deleted_at"])
    return short_time(session["last_activity"]) or None


def _crowded(share: str) -> dict[str, Any]:
    return {"fg": "red"} if share != "-" and float(share.rstrip("%")) >= _CROWDED_PCT else {}


def _described(memory: Memory) -> list[dict[str, Any]]:
    from smp_client import SessionNotFound
    from smp_client.passes.lifecycle import activities

    counts = _counts(memory)
    sessions = memory._sessions()
    used = activities(memory, [session.id for session in sessions])
    found: list[dict[str, Any]] = []
    for session in sessions:
        try:
            found.append({**_describe(session, used.get(session.id)), "memories": counts.get(session.id, 0)})
        except SessionNotFound:  # it went while we looked
            continue
    return sorted(found, key=lambda each: used.get(each["id"], _LONG_AGO), reverse=True)


def _describe(session: Session, used: datetime | None) -> dict[str, Any]:
    from smp_client import SessionNotFound, SMPError
    from smp_client.timestamps import render_time

    try:
        metadata: dict[str, Any] | None = dict(session.metadata())
    except SessionNotFound:
        raise
    except SMPError:
        metadata = None
    size = _size(session)
    known = metadata or {}
    context = known.get("context")
    about = context if isinstance(context, dict) else {}
    return {
        "id": session.id,
        "state": "unreadable" if metadata is None else str(known.get("status", "active")),
        "created_at": _text(known.get("created_at")),
        "last_activity": render_time(used) if used else None,
        **size,
        "project": _text(about.get("project_name")),
        "topic": _text(about.get("primary_topic")),
    }


def _size(session: Session) -> dict[str, Any]:
    """Nothing where what says how large it may be is of a later version."""
    from smp_client import SMPError

    try:
        size = session.size()
    except SMPError:
        return dict.fromkeys(("total_bytes", "quota_bytes", "utilization_pct"))
    return {"total_bytes": size.total_bytes, "quota_bytes": size.quota_bytes, "utilization_pct": size.utilization_pct}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _counts(memory: Memory) -> dict[str, int]:
    """How many memories each session has now."""
    answer = memory.query({"aggregations": [{"function": "count", "by": "session", "name": "memories"}], "limit": 0})
    counts: dict[str, int] = answer.aggregations["memories"]
    return counts
