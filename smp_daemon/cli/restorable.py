"""What can be restored, and until when: `smp restore --list`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from smp_client import Memory


def print_restorable(memory: Memory, session: str | None, *, as_json: bool) -> None:
    """Of one session or all; what is deleted of a session that is put away must wait until that is back."""
    from .output import Column, one_line, print_json, print_table, say, short_time

    problems: list[str] = []
    found = [one for one in (*_sessions(memory), *_memories(memory, problems)) if session is None or one["session"] == session]
    if as_json:
        print_json({"restorable": found, "problems": problems})
    elif found:
        columns = [Column("SESSION", keeps=True), Column("ID"), Column("TYPE"), Column("UNTIL"), Column("DELETED", gives_way=True),
                   Column("BY", gives_way=True), Column("REASON", gives_way=True)]  # fmt: skip
        print_table(columns, [
            (one["session"], one["id"], one["type"], short_time(one["recovery_deadline"]), short_time(one["deleted_at"]),
             one["deleted_by"], one["reason"]) for one in found
        ])  # fmt: skip
        for first in sorted({one["first"] for one in found if one["first"]}):
            say(f"Some of it can be restored after {one_line(first)}.")
    else:
        say("There is nothing to restore.")
    if problems and not as_json:
        for problem in problems:
            click.echo(f"smp: {one_line(problem)}", err=True)
    if problems:
        raise SystemExit(1)


def describe_deleted(memory: Memory) -> list[dict[str, Any]]:
    """The deleted sessions, as `smp sessions` lists those that are not."""
    unknown = dict.fromkeys(("created_at", "last_activity", "quota_bytes", "utilization_pct", "memories", "project", "topic"))
    return [{"id": one.session, "state": "deleted", **unknown, "total_bytes": one.total_bytes} for one in memory.deleted_sessions()]


def _sessions(memory: Memory) -> Iterator[dict[str, Any]]:
    for one in memory.deleted_sessions():
        yield {"session": one.session, "id": None, "type": "session", "recovery_deadline": one.recovery_deadline,
               "deleted_at": one.deleted_at, "deleted_by": one.deleted_by, "reason": one.reason, "first": None}  # fmt: skip


def _memories(memory: Memory, problems: list[str]) -> Iterator[dict[str, Any]]:
    from smp_client import Invalid, SessionNotFound, SMPError
    from smp_client.layout import DELETED

    for name in memory.tree.list(DELETED):
        try:
            if not memory.tree.is_directory(f"{DELETED}/{name}"):
                continue
            try:
                session = memory.session(name)
            except SessionNotFound:
                yield from _of_one_put_away(memory, name, problems)
                continue
            for one in session.deleted():
                yield {"session": name, "id": one.id, "type": one.type, "recovery_deadline": one.recovery_deadline,
                       "deleted_at": one.deleted_at, "deleted_by": one.deleted_by, "reason": one.reason, "first": None}  # fmt: skip
        except Invalid:
            continue  # nothing of ours
        except (SMPError, OSError) as error:
            problems.append(f"{name}: {error}")


def _of_one_put_away(memory: Memory, name: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    from smp_client.maintain.archive import is_archived
    from smp_client.maintain.doomed import doomed_of
    from smp_client.timestamps import render_time

    first = f"smp unarchive {name}" if is_archived(memory.tree, name) else f"smp restore {name}"
    for doomed in doomed_of(memory, name, problems):
        for gone in doomed.memories:
            yield {"session": name, "id": gone.id, "type": gone.type, "recovery_deadline": render_time(doomed.deadline),
                   "deleted_at": doomed.deleted_at, "deleted_by": None, "reason": None, "first": first}  # fmt: skip
