"""What the commands show of a session that is archived: its summary, and how it comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smp_client import Memory, Record

    from .output import Shown

SUMMARY_ID = "summary"


def find_summary(memory: Memory, name: str) -> Record | None:
    """Of the archived session with this id; None where there is none, or where its summary cannot be read."""
    from smp_client.scopes import archived_scope, archived_scopes

    if archived_scope(name) not in archived_scopes(memory):
        return None
    named = [{"field": "session", "operator": "equals", "value": name}, {"field": "type", "operator": "equals", "value": "summary"}]
    return next(iter(memory.query({"filters": named})), None)


def describe_archived(memory: Memory) -> list[dict[str, Any]]:
    """The archived sessions, as `smp sessions` lists those that are not."""
    return [_described(record) for record in memory.by_type("summary")]


def show_summary(memory: Memory, summary: Record) -> Shown:
    from smp_client.disk.inventory import SUMMARY
    from smp_client.scopes import archived_scope

    from .output import Shown, record_json

    file = f"{archived_scope(summary.session)}/{SUMMARY}"
    about = {"state": "archived", "file": str(memory.root / file)}
    return Shown(memory.tree.read(file), lambda: {**record_json(summary), **about}, lambda: _print(summary))


def _described(record: Record) -> dict[str, Any]:
    data = record.data
    return {
        "id": record.session, "state": "archived", "created_at": _text(data.get("created_at")),
        "last_activity": _text(data.get("last_activity")), "total_bytes": _number(data.get("total_bytes")), "quota_bytes": None,
        "utilization_pct": None, "project": _text(data.get("project")), "topic": _text(data.get("topic")),
        "memories": sum(count for count in _mapping(data.get("memories")).values() if isinstance(count, int)),
    }  # fmt: skip


def _print(summary: Record) -> None:
    from .output import print_pairs, say, short_size, short_time, styled, tell
    from .read import short_type

    data = summary.data
    total, first, last = data.get("total_bytes"), data.get("first_activity"), data.get("last_activity")
    say(styled(summary.session, fg="cyan", bold=True) + "  " + styled("archived", fg="yellow"))
    pairs = {
        "archived": ": ".join(part for part in (short_time(data.get("archived_at")), _text(data.get("reason")) or "") if part),
        "project": ", ".join(part for part in (_text(data.get("project")), _text(data.get("phase"))) if part),
        "topic": _text(data.get("topic")),
        "user": _text(data.get("user")),
        "created": short_time(data.get("created_at")),
        "active": first and f"{short_time(first)} to {short_time(last)}",
        "size": short_size(total) if isinstance(total, int) else None,
        "memories": ", ".join(f"{short_type(name)} {count}" for name, count in _mapping(data.get("memories")).items()),
        "participants": ", ".join(_counted(data.get("participants"), "memories")),
        "topics": ", ".join(_counted(data.get("topics"), "mentions")),
    }
    print_pairs(pairs)
    _print_items("DECISIONS", data.get("decisions"), ("made_by", "status"))
    _print_items("OPEN FINDINGS", data.get("open_findings"), ("severity",))
    _print_items("PREFERENCES", data.get("preferences"), ("confidence",))
    _print_items("LEARNINGS", data.get("learnings"), ("learned_by",))
    _print_items("LAST TURNS", data.get("last_turns"), ("speaker",))
    say("")
    tell(f"Its memories are still found. Bring the session back with smp unarchive {summary.session}")


def _print_items(title: str, items: Any, fields: Sequence[str]) -> None:
    from .output import Column, print_table, say

    found = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    if not found:
        return
    say("")
    columns = [Column(title, style=lambda _: {"fg": "cyan"}), *(Column(name.upper().replace("_", " ")) for name in fields),
               Column("TEXT", least=40)]  # fmt: skip
    print_table(columns, [[item.get(name) for name in ("id", *fields, "text")] for item in found])


def _counted(items: Any, count: str) -> list[str]:
    found = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return [f"{item.get('name')} {item.get(count)}" for item in found]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
