"""Questions from a shell: `smp search`, `topics`, `timeline`, `stats` and `context`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from smp_client.model.layout import ACTIVE, GLOBAL

from . import output as out
from .arguments import Call, command, find_scope

if TYPE_CHECKING:
    from smp_client import Memory, Record

_EXPLAINED = ("match", "priority", "importance", "use", "state", "holds")  # as in JSON
_BAR_COLUMNS, _NAME_COLUMNS, _ROWS = 24, 40, 12
_ASKED = (ACTIVE, GLOBAL)


@command(
    "[TEXT]...",
    "--session SESSION  Only this one, or global; else all.",
    "--type",
    "--tag",
    "--all-tags  Of several tags all, not any.",
    "--without-tag TAG...  Only without it; repeat it for several.",
    "--agent WHO...  Only from this agent or person; repeat it for several.",
    "--since",
    "--until",
    "--min-priority 0..1  Only of this priority now.",
    "--only-alive  Only memories that have not decayed.",
    "--confidence WORD...  Only of this confidence; repeat it for several.",
    "--min-relevance 0..1  Only with at least this score.",
    "--sort relevance|priority|importance|newest|oldest:relevance  The order.",
    "--limit N:20  At most N.",
    "--offset COUNT:0  Leave out the first ones.",
    "--explain  Say what each score is made of.",
    places=_ASKED,
)
def search(call: Call) -> None:
    """Find the memories that match a text best.

    Without a text, those that matter most now. Any of the words may match; "a phrase" and +word
    must, -word (behind --) must not, auth* is the beginning of a word, and AND, OR, NOT and ( )
    work too.

    \b
    smp search oauth tokens --type decision --since "last 7 days"
    smp search '"exact phrase" +required' -- -excluded
    smp search --session latest --min-priority 0.5 --sort newest
    """
    text, is_all = " ".join(call.text), call.session is None
    memory = call.memory()
    asked = memory if is_all else find_scope(memory, call.session)
    filters = {"types": call.type, "tags": call.tag, "without_tags": call.without_tag,
               "agents": call.agent, "confidence": call.confidence, "since": call.since,
               "until": call.until, "min_priority": call.min_priority,
               "min_relevance": call.min_relevance}  # fmt: skip
    given = {name: value for name, value in filters.items() if value is not None and value != ()}
    found = asked.search(
        text, include_decayed=not call.only_alive, all_tags=call.all_tags, explain=call.explain,
        sort=call.sort, limit=call.limit, offset=call.offset, **given,
    )  # fmt: skip
    if found.note:
        click.echo(out.one_line(found.note), err=True)
    parts = _EXPLAINED if call.explain else ()
    rows = [(_figure(record.score), record.id, *[record.session][:is_all],
             out.short_type(record.type), out.short_time(record.timestamp),
             *(_figure((record.explanation or {}).get(name)) for name in parts),
             out.marked(text_of(record), record.marks))
            for record in found]  # fmt: skip
    shares = " ".join(f"{name.upper()}>" for name in parts)
    titles = f"SCORE> ID@ {'SESSION~' if is_all else ''} TYPE? WHEN? {shares} TEXT"
    results = [_result_json(memory, record) for record in found] if call.json else []
    call.table(results, titles, rows, "No memory matches.")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _result_json(memory: Memory, record: Record) -> dict[str, Any]:
    names = ("id", "session", "type", "timestamp", "by", "score", "priority", "text", "rationale",
             "tags", "marks", "file")  # fmt: skip
    file = str(memory.root / record.file) if record.file else None
    whole = {**out.record_json(record), "score": record.score, "file": file,
             "rationale": record.data.get("rationale")}  # fmt: skip
    explained = {} if record.explanation is None else {"explanation": record.explanation}
    return {name: whole[name] for name in names} | explained


def text_of(record: Any) -> str:
    """Return the text of a memory or an event; that of a relationship is only its name."""
    if record.type != "relationship":
        return str(record.text)
    fields = getattr(record, "further", None) or getattr(record, "data", {})
    return " ".join(str(fields.get(name) or "?") for name in ("source", "relationship", "target"))


@command("[SESSION]", places=_ASKED)
def topics(call: Call) -> None:
    """List the topics of SESSION, or of everything; the most mentioned first."""
    found = (call.scope() if call.session else call.memory()).topics()
    rows = [(one.name, one.mentions, f"{one.weight:.2f}", out.short_time(one.first_mentioned),
             out.short_time(one.last_mentioned), ", ".join(one.subtopics))
            for one in found]  # fmt: skip
    titles = "TOPIC@ MENTIONS> WEIGHT> FIRST? LAST SUBTOPICS"
    nothing = "There are no topics: no memory has a tag."
    call.table([asdict(topic) for topic in found], titles, rows, nothing)


@command("[SESSION]", "--since", "--until", "--type", "--limit N  Only the last N.", places=_ASKED)
def timeline(call: Call) -> None:
    """List memories in the order of time.

    Without SESSION, those of all. Times are in UTC. Memories without a time are named on stderr.
    """
    is_all, types = call.session is None, call.type
    whole = (call.memory() if is_all else call.scope()).timeline(call.since, call.until)
    every = [event for event in whole if not types or event.type in types]
    found = every[-call.limit :] if call.limit else every
    if len(found) < len(every):
        click.echo(f"{len(every) - len(found):,} earlier ones are not listed.", err=True)
    timeless = [
        f"{name}/{one}" if is_all else one
        for type, name, one in whole.without_time
        if not types or type in types
    ]
    if timeless:
        out.tell(f"Without a time, and not listed: {out.listed(timeless)}.", err=True)
    rows = [(out.short_time(one.timestamp), *[one.session][:is_all], one.ref,
             out.short_type(one.type), one.actor, out.marked(text_of(one), one.marks))
            for one in found]  # fmt: skip
    told = [{"id": one.ref, "session": one.session, "type": one.type, "timestamp": one.timestamp,
             "actor": one.actor or None, "text": one.text, "topics": one.topics,
             "marks": one.marks, **one.further} for one in found]  # fmt: skip
    titles = f"WHEN {'SESSION~' if is_all else ''} ID@ TYPE? WHO? TEXT"
    call.table(told, titles, rows, "Nothing happened then.")


@command("")
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
    names: dict[str, tuple[str, Callable[[Any], str | None]]] = {
        "kind": ("type", out.short_type),
        "project": ("session", _projects(memory).get),
        "agent": ("agent", lambda agent: agent),
        "month": ("timestamp", lambda day: day and day[:7]),
    }
    by: dict[str, dict[str, int]] = {}
    for title, (field, name_of) in names.items():
        counts: Counter[str] = Counter()
        for value, count in found[field].items():
            counts[name_of(value) or "-"] += count
        by[title] = dict(sorted(counts.items()) if title == "month" else counts.most_common())
    memories, sessions = sum(found["type"].values()), len(found["session"])
    if call.json:
        out.print_json({"memories": memories, "sessions": sessions, **by})
        return
    out.say(f"{out.counted(memories, 'memory')} in {out.counted(sessions, 'session')}")
    for title, numbers in by.items() if memories else ():
        rows: list[tuple[object, ...]] = list(numbers.items())
        if out.on_terminal():
            shown = list(numbers.items())
            shown = shown[-_ROWS:] if title == "month" else shown[:_ROWS]
            most = max(count for _, count in shown)
            rows = [(out.cut(out.one_line(name), _NAME_COLUMNS), f"{count:,}",
                     "█" * max(1, round(count / most * _BAR_COLUMNS)))
                    for name, count in shown]  # fmt: skip
        out.say()
        out.print_table(f"{title.upper()}@ MEMORIES> {'_' if out.on_terminal() else ''}", rows)
        if len(rows) < len(numbers):
            out.tell(f"and {len(numbers) - len(rows):,} more; --json has all.")


def _projects(memory: Memory) -> dict[str, str]:
    """Return the project of each session, in use or archived, as far as it can be read."""
    from smp_client import SMPError

    projects = {one.session: one.data.get("project") for one in memory.by_type("summary")}
    for session in memory.sessions():
        try:
            context = session.metadata().get("context")
        except SMPError:
            continue
        projects[session.id] = context.get("project_name") if isinstance(context, dict) else None
    return {session: name for session, name in projects.items() if isinstance(name, str)}


@command(
    "",
    "--session SESSION  For going on with this session: with its own memories, and its project.",
    "--project NAME  Only this project; others only where they match the task.",
    "--all  Every project of the tree.",
    "--agent AGENT  For this agent: with its own state and next steps.",
    "--task TEXT  The task: memories that match it come first.",
    "--topic TOPIC  Of decisions, learnings and preferences, only those about this.",
    "--max-tokens N  At most about N tokens; else 1500.",
    "--explain  Say why each memory is there, and which were left out.",
)
def context(call: Call) -> None:
    """Print what an agent should know, as Markdown for its prompt.

    Without a session it is about the project of the working directory: all sessions of its tree,
    archived ones too.

    \b
    smp context --task "add a login form"
    smp context --agent architect --project Shop --max-tokens 800
    smp context --session latest --explain
    """
    call.check((call.all and call.project is not None, "Give either --project or --all."))
    memory = call.memory()
    about = {
        name: getattr(call, name) for name in ("agent", "task", "topic", "max_tokens", "explain")
    }
    about["session"] = None if call.session is None else memory.session(call.session).id
    about["project"] = "*" if call.all else call.project
    text = memory.context(**about)
    if call.json:
        pairs = {"included": text.included, "left_out": text.left_out}
        reasons = {name: [{"id": id, "why": why} for id, why in found]
                   for name, found in pairs.items()}  # fmt: skip
        out.print_json({**about, "context": str(text), **reasons})
    else:
        out.say(out.harmless(text.removesuffix("\n")))
