"""`smp stats`: the number of memories by kind, project, agent and month."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from . import output as out
from .arguments import Call, takes

if TYPE_CHECKING:
    from smp_client import Memory

_BAR_COLUMNS, _NAME_COLUMNS, _ROWS = 24, 40, 12


@click.command()
@takes()
def stats(call: Call) -> None:
    """Count the memories by kind, project, agent and month.

    Archived memories count too, deleted ones do not.
    """
    memory = call.memory()
    fields = ("type", "session", "agent", "timestamp")
    found = memory.query({
        "filters": [{"field": "type", "operator": "not", "value": "summary"}], "limit": 0,
        "aggregations": [{"function": "count", "by": field, "name": field} for field in fields],
    }).aggregations  # fmt: skip
    projects = _projects(memory)
    by = {
        "kind": _added((out.short_type(str(name)), count) for name, count in found["type"].items()),
        "project": _added((projects.get(name), count) for name, count in found["session"].items()),
        "agent": _added(found["agent"].items()),
        "month": _added((day and day[:7], count) for day, count in found["timestamp"].items()),
    }
    by["month"] = dict(sorted(by["month"].items()))
    memories, sessions = sum(found["type"].values()), len(found["session"])
    if call.as_json:
        out.print_json({"memories": memories, "sessions": sessions, **by})
        return
    out.say(f"{out.counted(memories, 'memory')} in {out.counted(sessions, 'session')}")
    for title, counts in by.items() if memories else ():
        out.say("")
        _print_counts(title, counts)


def _added(counts: Iterable[tuple[str | None, int]]) -> dict[str, int]:
    """Return the counts by name, the largest first; memories without a name are under `-`."""
    whole: Counter[str] = Counter()
    for name, count in counts:
        whole[name or "-"] += count
    return dict(whole.most_common())


def _projects(memory: Memory) -> dict[str, str | None]:
    """Return the project of each session, in use or archived, as far as it can be read."""
    from smp_client import SMPError

    projects: dict[str, str | None] = {}
    for session in memory.sessions():
        try:
            context = session.metadata().get("context")
        except SMPError:
            continue
        name = context.get("project_name") if isinstance(context, dict) else None
        projects[session.id] = name if isinstance(name, str) else None
    for summary in memory.by_type("summary"):
        name = summary.data.get("project")
        projects.setdefault(summary.session, name if isinstance(name, str) else None)
    return projects


def _print_counts(title: str, counts: Mapping[str, int]) -> None:
    """Print a table; on a terminal with bars, and with the rest of a long list in one row."""
    rows = list(counts.items())
    if not out.on_terminal():
        out.print_table(f"{title.upper()} MEMORIES>", rows)
        return
    if len(rows) > _ROWS and title == "month":
        rest, rows = rows[: -(_ROWS - 1)], rows[-(_ROWS - 1) :]
        rows.insert(0, (f"{len(rest)} before", sum(count for _, count in rest)))
    elif len(rows) > _ROWS:
        rest, rows = rows[_ROWS - 1 :], rows[: _ROWS - 1]
        rows.append((f"{len(rest)} more", sum(count for _, count in rest)))
    most = max(count for _, count in rows)
    out.print_table(f"{title.upper()}@ MEMORIES> _?", [
        (out.cut(out.one_line(name), _NAME_COLUMNS), f"{count:,}",
         "█" * max(1, round(count / most * _BAR_COLUMNS))) for name, count in rows
    ])  # fmt: skip
