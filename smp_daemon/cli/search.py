"""Questions from a shell: `smp search`, `topics`, `timeline`, `stats` and `context`."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import smp_client

from . import output as out
from .arguments import Call, command, find_scope

if TYPE_CHECKING:
    from smp_client import Memory, Record

_EXPLAINED = ("match", "priority", "importance", "use", "state", "holds")  # as in JSON
_BAR_COLUMNS, _ROWS = 24, 12
_FILTERS = {"type": "types", "tag": "tags", "agent": "agents", "since": "since", "until": "until",
            "min_priority": "min_priority", "min_relevance": "min_relevance"}  # fmt: skip


@command(
    "[TEXT]... --type --tag --since --until",
    "--session SESSION  Only this one, or global; else all.",
    "--agent WHO...  Only from this agent or person; repeat it for several.",
    "--min-priority 0..1  Only of this priority now.",
    "--min-relevance 0..1  Only with at least this score.",
    "--sort relevance|priority|importance|newest|oldest:relevance  The order.",
    "--limit N:20  At most N.",
    "--explain  Say what each score is made of.",
)
def search(call: Call) -> None:
    """Find the memories that match a text best.

    Without a text, those that matter most now. Any of the words may match; "a phrase" and +word
    must, -word (behind --) must not, auth* is the beginning of a word, and AND, OR, NOT and ( )
    work too.

    \b
    smp search oauth tokens --type decision --since "last 7 days"
    smp search '"exact phrase" +required' -- -excluded
    """
    memory = call.memory()
    asked = memory if call.session is None else find_scope(memory, call.session)
    how = {"explain": call.explain, "sort": call.sort, "limit": call.limit}
    found = asked.search(" ".join(call.text), **how, **call.given(_FILTERS))
    if found.note:
        out.tell(found.note, err=True)
    session = "session" if call.session is None else ""
    shares = " ".join(f"{name}>" for name in _EXPLAINED) if call.explain else ""
    columns = f"score> id@ {session} type? timestamp? {shares} text"
    rows = [_result(memory, record) for record in found]
    if not call.json:
        rows = [{**row, **row.get("explanation", {})} for row in rows]
    if call.explain:
        out.tell(f"Searched by {found.by}.", err=True)
    call.table(columns, rows, f"No memory matches; searched by {found.by}.")


def _result(memory: Memory, record: Record) -> dict[str, Any]:
    names = ("id", "session", "type", "timestamp", "by", "score", "priority", "text", "rationale",
             "tags", "marks", "file")  # fmt: skip
    file = str(memory.root / record.file) if record.file else None
    whole = {**out.record_json(record), "score": record.score, "file": file,
             "rationale": record.data.get("rationale")}  # fmt: skip
    explained = {} if record.explanation is None else {"explanation": record.explanation}
    return {name: whole[name] for name in names} | explained


@command("[SESSION]")
def topics(call: Call) -> None:
    """List the topics of SESSION, or of everything; the most mentioned first."""
    found = (call.scope() if call.session else call.memory()).topics()
    columns = "name@ mentions> weight> first_mentioned? last_mentioned subtopics"
    nothing = "There are no topics: no memory has a tag."
    call.table(columns, [asdict(topic) for topic in found], nothing)


@command("[SESSION] --since --until --type", "--limit N  Only the last N.")
def timeline(call: Call) -> None:
    """List memories in the order of time.

    Without SESSION, those of all. Times are in UTC. Memories without a time are left out.
    """
    types = {"agent_state" if type == "state" else type for type in call.type}
    whole = (call.scope() if call.session else call.memory()).timeline(call.since, call.until)
    found = [one for one in whole if not types or one.type in types][-(call.limit or 0) :]
    rows = [{**one.further, "id": one.ref, "session": one.session, "type": one.type,
             "timestamp": one.timestamp, "actor": one.actor or None, "text": out.text_of(one),
             "topics": one.topics, "marks": one.marks} for one in found]  # fmt: skip
    columns = f"timestamp {'' if call.session else 'session'} id@ type? actor? text"
    call.table(columns, rows, "Nothing happened then.")


@command("")
def stats(call: Call) -> None:
    """Count the memories by kind, project, agent and month.

    Archived memories count too, deleted ones do not.
    """
    memory = call.memory()
    fields = {"kind": "type", "project": "session", "agent": "agent", "month": "timestamp"}
    found = memory.query({
        "filters": [{"field": "type", "operator": "not", "value": "summary"}], "limit": 0,
        "aggregations": [{"function": "count", "by": field, "name": title}
                         for title, field in fields.items()],
    }).aggregations  # fmt: skip
    projects = _projects(memory)
    memories, sessions = sum(found["kind"].values()), len(found["project"])
    by: dict[str, dict[str, int]] = {}
    for title, numbers in found.items():
        counts: Counter[str] = Counter()
        for value, count in numbers.items():
            name = projects.get(value) if title == "project" else value
            name = name and {"kind": out.short_type(name), "month": name[:7]}.get(title, name)
            counts[name or "-"] += count
        by[title] = dict(sorted(counts.items()) if title == "month" else counts.most_common())
    if call.json:
        out.print_json({"memories": memories, "sessions": sessions, **by})
        return
    out.say(f"{out.counted(memories, 'memory')} in {out.counted(sessions, 'session')}")
    for title, numbers in by.items() if memories else ():
        shown = [*numbers.items()][-_ROWS:] if title == "month" else [*numbers.items()][:_ROWS]
        most = max(numbers.values())
        out.say()
        out.print_table(f"{title}@ memories> share", [
            {title: name, "memories": count, "share": "█" * round(count / most * _BAR_COLUMNS)}
            for name, count in shown
        ])  # fmt: skip


def _projects(memory: Memory) -> dict[str, str]:
    """Return the project of each session, in use or archived, as far as it can be read."""
    projects = {one.session: one.data.get("project") for one in memory.by_type("summary")}
    for session in memory.sessions():
        context: Any = None
        with suppress(smp_client.SMPError):
            context = session.metadata().get("context")
        projects[session.id] = context.get("project_name") if isinstance(context, dict) else None
    return {session: name for session, name in projects.items() if isinstance(name, str)}


@command(
    "",
    "--session SESSION  For going on with this session: with its own memories, and its project.",
    "--project NAME  Only this project.",
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
    """
    call.check((call.all and call.project is not None, "Give either --project or --all."))
    memory = call.memory()
    names = ("agent", "task", "topic", "max_tokens", "explain")
    about = {name: getattr(call, name) for name in names}
    about["session"] = None if call.session is None else memory.session(call.session).id
    about["project"] = "*" if call.all else call.project
    text = memory.context(**about)
    pairs = {"included": text.included, "left_out": text.left_out}
    reasons = {name: [{"id": id, "why": why} for id, why in found]
               for name, found in pairs.items()}  # fmt: skip
    said = {**about, "context": str(text), **reasons}
    call.print(said, out.harmless(text.removesuffix("\n")))
