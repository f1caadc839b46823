"""What can be restored, and until when: `smp restore --list`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from smp_client import Memory

_VALUES = "values/"  # before the name of a copy: what it says, as JSON

def print_restorable(memory: Memory, session: str | None, *, as_json: bool) -> None:
    """Of one session or all; what is deleted of a session that is put away must wait until that is back."""
    from .output import Column, one_line, print_json, print_table, say, short_time

    problems: list[str] = []
    every = (*_sessions(memory), *_memories(memory, problems, session))
    found = [{**one, "is_overdue": _is_past(one["recovery_deadline"], memory.options.clock())} for one in every
             if session is None or one["session"] == session]  # fmt: skip
    if as_json:
        print_json({"restorable": found, "problems": problems})
    elif found:
        columns = [Column("SESSION", keeps=True), Column("ID"), Column("TYPE"), Column("UNTIL"), Column("DELETED", gives_way=True),
                   Column("BY", gives_way=True), Column("REASON", gives_way=True), Column("TEXT", gives_way=True)]  # fmt: skip
        print_table(columns, [
            (one["session"], one["id"], one["type"],
             short_time(one["recovery_deadline"]) + (" (overdue)" if one["is_overdue"] else ""), short_time(one["deleted_at"]),
             one["deleted_by"], one["reason"], one["text"]) for one in found
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
    return [
        {"id": one.session, "state": "deleted", **unknown, "total_bytes": one.total_bytes, "deleted_at": one.deleted_at}
        for one in memory.deleted_sessions()
    ]


def _sessions(memory: Memory) -> Iterator[dict[str, Any]]:
    for one in memory.deleted_sessions():
        yield {"session": one.session, "id": None, "type": "session", "recovery_deadline": one.recovery_deadline,
               "deleted_at": one.deleted_at, "deleted_by": one.deleted_by, "reason": one.reason, "first": None,
               "text": None}  # fmt: skip


def _memories(memory: Memory, problems: list[str], only: str | None) -> Iterator[dict[str, Any]]:
    from smp_client import Invalid, SessionNotFound, SMPError
    from smp_client.layout import DELETED

    for name in memory.tree.list(DELETED):
        try:
            if only not in (None, name) or not memory.tree.is_directory(f"{DELETED}/{name}"):
                continue
            try:
                deleted = memory.session(name).deleted()
            except SessionNotFound:
                yield from _of_one_put_away(memory, name, problems)
                continue
            texts = _texts(memory, name) if deleted else {}
            for one in deleted:
                yield {"session": name, "id": one.id, "type": one.type, "recovery_deadline": one.recovery_deadline,
                       "deleted_at": one.deleted_at, "deleted_by": one.deleted_by, "reason": one.reason, "first": None,
                       "text": texts.get((one.id, one.deleted_at))}  # fmt: skip
        except Invalid:
            continue  # nothing of ours
        except (SMPError, OSError) as error:
            problems.append(f"{name}: {error}")


def _of_one_put_away(memory: Memory, name: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    from smp_client.maintain.archive import is_archived
    from smp_client.maintain.doomed import doomed_of
    from smp_client.timestamps import render_time

    first = f"smp unarchive {name}" if is_archived(memory.tree, name) else f"smp restore {name}"
    every = [(doomed, gone) for doomed in doomed_of(memory, name, problems) for gone in doomed.memories]
    texts = _texts(memory, name) if every else {}
    said = {(item["id"], str(item.get("deleted_at"))): item for item in _items(memory, name)} if every else {}
    for doomed, gone in every:
        item = said.get((gone.id, doomed.deleted_at), {})
        yield {"session": name, "id": gone.id, "type": gone.type, "recovery_deadline": render_time(doomed.deadline),
               "deleted_at": doomed.deleted_at, "deleted_by": _text(item.get("deleted_by")),
               "reason": _text(item.get("reason_specific")), "first": first,
               "text": texts.get((gone.id, doomed.deleted_at))}  # fmt: skip


def _items(memory: Memory, name: str) -> list[dict[str, Any]]:
    """What the record says of each memory that was deleted one by one, without what no session can have."""
    from smp_client import Invalid
    from smp_client.maintain.doomed import TOP, as_gone, items_of, record_of
    from smp_client.mapping import load_mapping

    found: list[dict[str, Any]] = []
    for item in items_of(load_mapping(memory.tree.read(record_of(name)), TOP, record_of(name))):
        with suppress(Invalid, ValueError):
            as_gone(item)
            found.append(item)
    return found


def _texts(memory: Memory, name: str) -> dict[tuple[str, str], str]:
    """What each said, by its id and when it was deleted, as far as the backup still tells."""
    from smp_client import SMPError
    from smp_client.maintain.doomed import as_gone, backup_of
    from smp_client.packing import read_members
    from smp_client.records import kind_of_file

    items = [(as_gone(item), str(item.get("deleted_at"))) for item in _items(memory, name)]
    wanted = {f"{_VALUES}{gone.copy}": (gone, deleted_at) for gone, deleted_at in items}
    texts: dict[tuple[str, str], str] = {}
    with suppress(SMPError, OSError):  # what it can be restored from is told by smp check
        for member, content in read_members(memory.tree, backup_of(name)):
            if member in wanted:
                gone, deleted_at = wanted[member]
                with suppress(ValueError, RecursionError):
                    value = json.loads(content)
                    text = value.get(kind_of_file(gone.file).text) if isinstance(value, dict) else None
                    texts[gone.id, deleted_at] = text if isinstance(text, str) else ""
    return texts


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _is_past(deadline: str, now: datetime) -> bool:
    from smp_client.timestamps import parse_time

    try:
        return parse_time(deadline) <= now
    except (ValueError, OverflowError):
        return False
