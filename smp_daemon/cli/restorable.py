"""What can be restored, and until when: `smp restore --list`, and what the shell completes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL

from .arguments import complete_memory_id, find_id, given_session

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from smp_client import Memory
    from smp_client.privacy.deleting.store import Deleted, Store

_ACTIONS = {"delete": "deleted", "anonymize": "anonymised"}
_KINDS = {"head": "head of the file"}
_KEPT_BY_SMP = frozenset((
    "id", "timestamp", "decay", "version", "session_id", "agent_id", "created_at", "last_updated", "last_accessed", "status",
    "status_since", "status_reason", "storage",
))  # fmt: skip


def print_restorable(memory: Memory, session: str | None, *, as_json: bool) -> None:
    """Of one session or all; what is deleted of a session that is deleted itself must wait until that is back."""
    from .output import one_line, print_json, say, tell

    problems: list[str] = []
    every = (*_sessions(memory), *_memories(memory, problems, session))
    found = [{**one, "is_overdue": _is_past(one["recovery_deadline"], memory.options.clock())} for one in every
             if session is None or one["session"] == session]  # fmt: skip
    if as_json:
        print_json({"restorable": found, "problems": problems})
    elif found:
        _print_table(found)
        for first in sorted({one["first"] for one in found if one["first"]}):
            tell(f"Some of it can be restored after {one_line(first)}.")
    else:
        say("There is nothing to restore.")
    if problems and not as_json:
        for problem in problems:
            tell(f"smp: {one_line(problem)}", err=True)
    if problems:
        raise SystemExit(1)


def _print_table(found: list[dict[str, Any]]) -> None:
    """What was done to it, and where it was, only where that is not the same of all."""
    from .output import Column, print_table, short_time
    from .read import short_type

    is_told = {"ACTION": any(one["action"] != "deleted" for one in found),
               "PLACE": any(one["place"] in ("archived", "evicted") for one in found)}  # fmt: skip
    columns = [Column("SESSION", ends=True), Column("ID"), Column("TYPE", spare=True), Column("UNTIL"), Column("BATCH"),
               *(Column(title) for title, told in is_told.items() if told), Column("DELETED", spare=True),
               Column("BY", spare=True), Column("REASON", least=20), Column("TEXT", least=20)]  # fmt: skip
    print_table(columns, [
        (one["session"], None if one["type"] == "head" else one["id"], _KINDS.get(one["type"]) or short_type(one["type"]),
         short_time(one["recovery_deadline"]) + (" (overdue)" if one["is_overdue"] else ""), one["batch"],
         *(one[title.lower()] for title, told in is_told.items() if told), short_time(one["deleted_at"]),
         one["deleted_by"], one["reason"], one["text"]) for one in found
    ])  # fmt: skip


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
               "deleted_at": one.deleted_at, "deleted_by": one.deleted_by, "reason": one.reason, "batch": None,
               "place": "deleted", "action": "deleted", "first": None, "text": None}  # fmt: skip


def _memories(memory: Memory, problems: list[str], only: str | None) -> Iterator[dict[str, Any]]:
    from smp_client import Invalid, SMPError
    from smp_client.layout import DELETED

    for name in memory.tree.list(DELETED):
        try:
            if only in (None, name) and memory.tree.is_directory(f"{DELETED}/{name}"):
                yield from _of_one(memory, name)
        except Invalid:
            continue  # nothing of ours
        except (SMPError, OSError) as error:
            problems.append(f"{name}: {error}")


def _of_one(memory: Memory, name: str) -> Iterator[dict[str, Any]]:
    """What was deleted of `global`, or of a session, wherever that is."""
    from smp_client.layout import GLOBAL, check_session_id
    from smp_client.privacy.deleting.standing import Contents
    from smp_client.privacy.deleting.store import Store, as_deleted

    contents = Contents(memory, name if name == GLOBAL else check_session_id(name))
    store = Store(memory, name)
    items = store.items(contents)
    place = GLOBAL if name == GLOBAL else "archived" if contents.is_archived else "active" if contents.is_there else "deleted"
    first = None if contents.is_there else f"smp restore {name}"
    for item, text in zip(items, _texts(store, items), strict=True):
        one = as_deleted(name, item)
        yield {"session": name, "id": one.id, "type": one.type, "recovery_deadline": one.recovery_deadline,
               "deleted_at": one.deleted_at, "deleted_by": one.deleted_by, "reason": one.reason, "batch": one.batch or None,
               "place": one.place or place, "action": _ACTIONS.get(one.action, one.action), "first": first,
               "text": text}  # fmt: skip


def _texts(store: Store, items: list[dict[str, Any]]) -> list[str]:
    """What each said, as far as the backup still tells: what it can be restored from is told by smp check."""
    from smp_client import SMPError

    texts = [""] * len(items)
    with suppress(SMPError, OSError):
        members = store.members() if items else {}
        for place, item in enumerate(items):
            with suppress(SMPError):
                texts[place] = _said(item, *store.copy(item, members))
    return texts


def _said(item: dict[str, Any], raw: bytes, value: dict[str, Any]) -> str:
    from smp_client.privacy.deleting.standing import is_record_file, value_of_file
    from smp_client.records import kind_of_file

    file = str(item["file"])
    is_record = is_record_file(file)
    value = value if is_record else value_of_file(file, raw)
    told = value.get(kind_of_file(file).text if is_record else "content")
    return str(told) if told else "; ".join(_named_values(value))


def _named_values(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield each field with what it says, without those that SMP keeps for itself."""
    from smp_client.privacy.deleting.fitting import texts_of

    for name, part in value.items():
        if isinstance(part, dict) and name not in _KEPT_BY_SMP:
            yield from _named_values(part)
        elif name not in _KEPT_BY_SMP and (texts := ", ".join(texts_of(part))):
            yield f"{name.replace('_', ' ')}: {texts}"


def _is_past(deadline: str, now: datetime) -> bool:
    from smp_client.timestamps import parse_time

    try:
        return parse_time(deadline) <= now
    except (ValueError, OverflowError):
        return False


# For the shell. None where anything goes wrong: an error would be printed into what is being typed.


def complete_deleted_id(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The deleted memories of the session that was given already."""
    with suppress(Exception):
        return _beginning(incomplete, (one.id for one in _deleted_of(ctx, given_session(ctx))))
    return []


def complete_erasable_id(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same, and those that are not deleted yet."""
    from click.shell_completion import CompletionItem

    gone = complete_deleted_id(ctx, param, incomplete)
    known = complete_memory_id(ctx, param, incomplete) if given_session(ctx) else []
    return [*(CompletionItem(one) for one in gone), *(item for item in known if item.value not in gone)]


def complete_batch(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from smp_client import Memory
    from smp_client.layout import DELETED

    with suppress(Exception):
        session = given_session(ctx)
        names = [session] if session else Memory(ctx.params.get("root")).tree.list(DELETED)
        return _beginning(incomplete, (one.batch for name in names for one in _deleted_of(ctx, name)))
    return []


def _deleted_of(ctx: click.Context, session: str | None) -> list[Deleted]:
    from smp_client import Memory

    with suppress(Exception):
        memory = Memory(ctx.params.get("root"))
        return memory.deleted(find_id(memory, str(session), ACTIVE, ARCHIVED, DELETED, GLOBAL))
    return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name and name.startswith(incomplete)]
