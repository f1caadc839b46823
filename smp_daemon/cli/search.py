"""Questions from a shell: `smp search`, `show`, `topics`, `timeline`, `stats` and `context`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import smp_client

from . import output as out
from .arguments import ANYWHERE, KEPT, Call, command, find_id, find_scope

if TYPE_CHECKING:
    from smp_client import Memory, Record
    from smp_client.agents.context import Context
    from smp_client.change.holdings import Holding
    from smp_client.text.revision import Revision

_EXPLAINED = ("match", "priority", "importance", "use", "state", "holds")  # as in JSON
_ROWS, _RELATED, _BAR_COLUMNS = 12, 20, 24
_NEARLY = 10  # memories without room on a page that are named
_FILTERS = {"type": "types", "tag": "tags", "all_tags": "all_tags", "without_tag": "without_tags",
            "agent": "agents", "since": "since", "until": "until", "confidence": "confidence",
            "project": "project", "min_priority": "min_priority",
            "min_importance": "min_importance", "min_relevance": "min_relevance"}  # fmt: skip


@command(
    "[TEXT]... --type --tag --since --until",
    "--session SESSION  Only this one, or global; else all.",
    "--project NAME  Only of this project, of no project, and what holds everywhere.",
    "--agent WHO...  Only from this agent or person; repeat it for several.",
    "--all-tags TAG...  Only with this tag too; repeat it for all of several.",
    "--without-tag TAG...  Only without this tag and those below it; repeat it.",
    "--exact-tags  Tags match themselves alone, not those below them.",
    "--confidence WORD...  Only with this confidence, as explicit or high; repeat it for any.",
    "--min-priority 0..1  Only of this priority now.",
    "--min-importance 0..1  Only of this importance, which time does not change.",
    "--min-relevance 0..1  Only with at least this score.",
    "--sort relevance|priority|importance|newest|oldest:relevance  The order.",
    "--limit N:20  At most N.",
    "--offset NUMBER:0  Leave out the first ones.",
    "--explain  Say what each score is made of.",
)
def search(call: Call) -> None:
    """Find the memories that match a text best.

    Without a text, those that matter most now. Any of the words may match; "a phrase" and +word
    must, -word (behind --) must not. auth*, *ization and depr?cated are forms of words. AND, OR,
    NOT and ( ) are written in capitals.

    \b
    smp search oauth tokens --type decision --since "last 7 days"
    smp search '"exact phrase" +required' -- -excluded
    """
    memory = call.memory()
    asked = memory if call.session is None else find_scope(memory, call.session)
    how = {"explain": call.explain, "sort": call.sort, "limit": call.limit,
           "offset": call.offset, "exact_tags": call.exact_tags, "with_total": True}  # fmt: skip
    found = asked.search(" ".join(call.text), **how, **call.given(_FILTERS))
    if found.note:
        out.tell(found.note, err=True)
    session = "session" if call.session is None else ""
    columns = f"score> id {session} type? timestamp? text"
    rows = [_result(memory, record) for record in found]
    if call.explain:
        columns = columns.replace("text", " ".join(f"{name}>" for name in _EXPLAINED) + " text")
        rows = rows if call.json else [{**row, **row["explanation"]} for row in rows]
        out.tell(f"Searched by {found.by}.", err=True)
    if not call.json:
        rows = [{**row, "text": out.excerpt(row["text"], call.text)} for row in rows]
    nothing = f"No memory matches; searched by {found.by}."
    if found.total and not found:
        nothing = f"There are only {found.total:,}: --offset {call.offset} leaves out all of them."
    call.table(columns, rows, nothing)
    _tell_more(call.offset + len(found), found.total or 0)


def _tell_more(end: int, total: int) -> None:
    """Say how many hits there are behind the last one that is shown."""
    if total > end > 0:
        more = f"{total - end:,} more; --offset {end} shows the next, --limit N more at once."
        out.tell(more, err=True)


def _result(memory: Memory, record: Record) -> dict[str, Any]:
    found = {**out.record_json(record), "score": record.score}
    data = found.pop("data")
    found["rationale"] = data.get("rationale")
    if record.type == "finding":
        found["severity"] = data.get("severity")
    found["file"] = str(memory.root / record.file) if record.file else None
    return found if record.explanation is None else {**found, "explanation": record.explanation}


@command("[SESSION]")
def topics(call: Call) -> None:
    """List the topics of SESSION, or of everything; the most mentioned first."""
    found = (call.scope() if call.session else call.memory()).topics()
    columns = "name mentions> weight> first_mentioned? last_mentioned subtopics"
    nothing = "There are no topics: no memory has a tag."
    call.table(columns, [asdict(topic) for topic in found], nothing)


@command("[SESSION] --since --until --type", "--limit N  Only the last N.")
def timeline(call: Call) -> None:
    """List memories in the order of time.

    Without SESSION, those of all. Times are in UTC.
    """
    types = {"agent_state" if type == "state" else type for type in call.type}
    whole = (call.scope() if call.session else call.memory()).timeline(call.since, call.until)
    found = [one for one in whole if not types or one.type in types][-(call.limit or 0) :]
    rows = [{**one.further, "id": one.ref, "session": one.session, "type": one.type,
             "timestamp": one.timestamp, "actor": one.actor or None, "text": out.text_of(one),
             "topics": one.topics, "marks": one.marks} for one in found]  # fmt: skip
    columns = f"timestamp {'' if call.session else 'session'} id type? actor? text"
    call.table(columns, rows, "Nothing happened then.")


@command("")
def stats(call: Call) -> None:
    """Count the memories by kind, project, agent and month.

    Archived memories count too, deleted ones do not.
    """
    from smp_client.ask.overview import in_use

    memory = call.memory()
    fields = {"kind": "type", "project": "session", "agent": "agent", "month": "timestamp"}
    found = memory.query({
        "filters": [{"field": "type", "operator": "not", "value": "summary"}], "limit": 0,
        "aggregations": [{"function": "count", "by": field, "name": title}
                         for title, field in fields.items()],
    }).aggregations  # fmt: skip
    projects = {one.session: one.data.get("project") for one in memory.by_type("summary")}
    projects |= {one.id: one.project for one in in_use(memory)}
    memories, sessions = sum(found["kind"].values()), len(found["project"])
    by: dict[str, Counter[str]] = {title: Counter() for title in fields}
    for title, numbers in found.items():
        for value, count in numbers.items():
            name = projects.get(value) if title == "project" else value
            name = name and {"kind": out.short_type(name), "month": name[:7]}.get(title, name)
            by[title][name or "-"] += count
    if call.json:
        out.print_json({"memories": memories, "sessions": sessions, "by": by})
        return
    out.say(f"{out.counted(memories, 'memory')} in {out.counted(sessions, 'session')}")
    for title, counts in by.items() if memories else ():
        rows = sorted(counts.items())[-_ROWS:] if title == "month" else counts.most_common(_ROWS)
        most = max(counts.values())
        out.say()
        out.print_table(f"{title} memories> share", [
            {title: name, "memories": count, "share": "█" * round(count / most * _BAR_COLUMNS)}
            for name, count in rows
        ])  # fmt: skip


@command(
    "",
    "--session SESSION  For going on with this session: with its own memories, and its project.",
    "--project NAME  Only this project.",
    "--all  Every project of the tree.",
    "--agent AGENT  For this agent: with its own state and next steps.",
    "--task TEXT  The task: memories that match it come first.",
    "--topic TOPIC  Of decisions, learnings and preferences, only those about this.",
    "--max-tokens N  At most about N tokens; else 1500.",
    "--explain  Say why each memory is on the page, and which ones nearly were.",
    "--no-count  Do not count readings of the memories on the page, which raise their priorities.",
)
def context(call: Call) -> None:
    """Print what an agent should know, as Markdown for its prompt.

    Without a session it is about the project of the working directory: all sessions of its tree,
    archived ones too.
    """
    call.check((call.all and call.project is not None, "Give either --project or --all."))
    memory = call.memory()
    if call.no_count:
        memory = memory.with_options(count_access=False)
    names = ("agent", "task", "topic", "max_tokens")
    about = {name: getattr(call, name) for name in names}
    about["session"] = None if call.session is None else memory.session(call.session).id
    about["project"] = "*" if call.all else call.project
    text = memory.context(**about)
    if text.note:
        out.tell(text.note, err=True)
    said = {**about, "context": str(text), "included": text.included, "left_out": text.left_out}
    if call.explain:
        said |= {"reasons": dict(text.reasons), "hidden": dict(text.hidden)}
    call.print(said, out.harmless(text.removesuffix("\n")))
    if call.explain and not call.json:
        out.say()
        out.print_table("id why", _explained(text))


def _explained(page: Context) -> list[dict[str, str]]:
    """Return a row for each memory on a page with its reason, and for those that nearly were."""
    rows = [{"id": name, "why": page.reasons.get(name, "")} for name in page.included]
    nearly = [one for one in page.left_out if one not in page.included][:_NEARLY]
    return rows + [{"id": one, "why": f"no room: {page.reasons.get(one, '')}"} for one in nearly]


@command(
    "[SESSION] [ID]...",
    "--all-about TEXT  Every place where a text stands, in SESSION or in all, deleted ones too.",
    "--no-count  Do not count it as a reading, which raises the priority.",
    "--history  What stood in each memory before its changes, and who changed it.",
)
def show(call: Call) -> None:
    """Show a session in short, or memories of it whole.

    An ID alone will do where only one session has it. Memories that hold everywhere are in the
    session "global". Of an archived session, its summary is shown. A memory that is archived,
    evicted or deleted is shown where it is kept.
    """
    is_named = call.session is not None
    call.check((not is_named and call.all_about is None, "Missing argument 'SESSION'."))
    memory, ids = call.memory(), call.id
    if call.all_about is not None:
        name = find_id(memory, call.session, *ANYWHERE) if is_named else None
        _show_occurrences(call, memory, name)
        return
    name, ids = _meant(memory, call.session, ids)
    if not ids:
        call.check((call.history, "Missing argument 'ID': whose history?"))
        _show_session(call, memory, name)
        return
    if call.history:
        _show_history(call, memory, [f"{name}/{one}" for one in ids])
        return
    found = [_described(memory, _held(memory, name, one), is_read=not call.no_count) for one in ids]
    if call.json:
        out.print_json(found if len(found) > 1 else found[0])
        return
    for one in found:
        _print_memory(one)


def _meant(memory: Memory, name: str, ids: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the session that is named, and the ids. A name alone may be one of a memory."""
    try:
        return find_id(memory, name, *(ANYWHERE if ids else KEPT)), ids
    except (smp_client.SessionNotFound, smp_client.Invalid) as error:
        from smp_client.ask.text import IDENTIFIER

        try:
            record = memory.get(name, count_access=False)
        except smp_client.MemoryNotFound as missing:
            raise missing if IDENTIFIER.fullmatch(name) else error from None
        except smp_client.Invalid:
            raise error from None
        return record.session, (record.id, *ids)


def _held(memory: Memory, session: str, memory_id: str) -> Holding:
    """Return a memory that is in use, else one in a bundle: archived, evicted, deleted, undo."""
    from smp_client.ask.engine import two_of
    from smp_client.change.holdings import EVERY, holdings, in_use, is_in_use, missing
    from smp_client.model.record import FOLDERS, split_folder

    if is_in_use(memory, session):  # without reading the rest of a large session
        for one in in_use(memory, session, [memory_id]):
            return one
    type, bare = split_folder(memory_id)
    fitting = (one for one in holdings(memory, session, EVERY) if one.id == bare)
    named = [one for one in fitting if type in ("", one.type)]
    if not named:
        raise missing(memory._scope(session), memory_id)
    if {*FOLDERS.values()} <= {one.type for one in named if one.place == "active"}:
        raise two_of(memory_id)
    return named[0]


def _described(memory: Memory, one: Holding, *, is_read: bool) -> dict[str, Any]:
    """Return all that is known of a memory: its fields, its place and its neighbours."""
    from smp_client.model.record import FOLDERS, type_of

    text = out.held_text(one)
    record = smp_client.Record(one.id, type_of(one.type), one.session, {}, text, marks=(one.place,))
    related: list[dict[str, Any]] = []
    with suppress(smp_client.SMPError):  # one that the index could not read is shown as it stands
        if one.place in ("active", "archived", "evicted"):
            folder = next((name for name, type in FOLDERS.items() if type == one.type), None)
            name = f"{folder}/{one.id}" if folder else one.id
            record = memory.get(f"{one.session}/{name}", count_access=is_read)
        if one.place == "active":
            near = find_scope(memory, one.session).related(one.id, limit=_RELATED)
            related = [{"id": other.id, "type": other.type, "text": out.text_of(other),
                        "path": other.path} for other in near]  # fmt: skip
    return {**out.record_json(record), "data": one.value, "state": one.place,
            "file": str(memory.root / one.where), "member": one.file if one.container else None,
            "facts": dict(one.facts), "related": related}  # fmt: skip


def _print_memory(said: Mapping[str, Any]) -> None:
    name, session, place, facts = (said[key] for key in ("id", "session", "state", "facts"))
    marks = f" [{out.one_line(', '.join(said['marks']))}]" if said["marks"] else ""
    out.say(f"{out.one_line(name)}  {out.short_type(said['type'])} in {session}{marks}")

    member = f", {said['member']}" if said["member"] else ""
    pinned = ", pinned" if said["data"].get("pinned") else ""
    now = f"{said['priority']:.2f} now{pinned}" if place == "active" else ""
    out.print_pairs({"priority": now, "where": said["file"] + member})
    if place != "active":
        back = {
            "archived": f"smp unarchive {session}",
            "evicted": f"smp compact {session} {name} --bring-back",
        }.get(place, f"smp restore {session}" + (f" {name}" if facts.get("batch") else ""))
        until = f", until {out.short_time(facts['until'])}" if facts.get("until") else ""
        why = facts.get("reason") or facts.get("why")
        on = f"on {out.short_time(facts.get('at'))} by {facts.get('by')}: {why}"
        out.print_pairs({place: on, "bring back": back + until})
    for near in said["related"]:
        out.print_pairs({"related": f"{near['path'][-1]}: {near['text']}"})
    out.say()
    out.print_fields(said["data"])


def _show_history(call: Call, memory: Memory, names: Sequence[str]) -> None:
    found = {name: memory.history(name) for name in names}
    if call.json:
        rows = [_revision_json(name, one) for name, many in found.items() for one in many]
        out.print_json(rows)
        return
    for name, revisions in found.items():
        if not revisions:
            out.say(f"{out.one_line(name)} {_unchanged(memory, name)}")
        for one in revisions:
            on = out.short_time(_revision_json(name, one)["at"])
            out.say(f"{on}  {out.one_line(name)} {out.one_line(f'{one.change} by {one.by}')}")
            out.print_fields({"before": dict(one.before)})


def _unchanged(memory: Memory, name: str) -> str:
    """Return why a memory has no history. That of a deleted one was deleted with it."""
    session, memory_id = name.split("/", 1)
    if _held(memory, session, memory_id).place == "deleted":
        return "is deleted. Its history comes back with it: smp restore."
    return "has not changed since it was written."


def _revision_json(name: str, one: Revision) -> dict[str, Any]:
    from smp_client.model.times import render_time

    at = render_time(one.at) if one.at else None
    return {**one._asdict(), "memory": name, "at": at}


def _show_session(call: Call, memory: Memory, name: str) -> None:
    try:
        target = find_scope(memory, name)
    except smp_client.SessionPutAway:
        packed = next((one for one in memory.by_type("summary") if one.session == name), None)
        if packed is None:  # its archive cannot be read
            raise
        if call.json:
            file = str(memory.root / str(packed.file))
            out.print_json({**out.record_json(packed), "state": "archived", "file": file})
        else:
            out.say(f"{name}  archived")
            out.print_fields(packed.data)
        return
    about: dict[str, Any] = {"id": name, "state": None}
    metadata: Mapping[str, Any] = {}
    if isinstance(target, smp_client.Session):
        metadata = target.metadata()
        about |= {"state": target.state, "size": target.size()._asdict()}
    else:
        about["profile"] = target.profile()
    context, people = (out.part(metadata, key) for key in ("context", "participants"))
    summary = target.summary()
    about |= {
        "project": context.get("project_name"), "topic": context.get("primary_topic"),
        "tags": context.get("tags"), "user": people.get("user_id"),
        "first_activity": summary.first_activity, "last_activity": summary.last_activity,
        "memories": summary.memories, "participants": summary.participants,
        "topics": {topic.name: topic.mentions for topic in summary.topics},
    }  # fmt: skip
    groups = {"decisions": summary.decisions, "open_findings": summary.open_findings,
              "preferences": summary.preferences}  # fmt: skip
    lists = {key: [*map(out.record_json, found)] for key, found in groups.items()}
    if call.json:
        out.print_json({**about, "metadata": metadata or None, **lists})
        return
    out.say(f"{name}  {about.pop('state') or ''}".rstrip())
    if size := about.pop("size", None):
        about["size"] = f"{out.short_size(size['total_bytes'])}, {size['utilization_pct']}% full"
    out.print_pairs({key: value for key, value in about.items() if key != "id"})
    for key, rows in lists.items():
        if rows:
            out.say()
            named = [{**row, key: row["id"], "severity": row["data"].get("severity")}
                     for row in rows]  # fmt: skip
            out.print_table(f"{key} priority> severity? text", named)


def _show_occurrences(call: Call, memory: Memory, name: str | None) -> None:
    text = call.all_about
    every = [{**asdict(one), "where": one.where} for one in memory.privacy.find(text, name)]
    found = [one for one in every if not one["problem"]]
    problems = [one for one in every if one["problem"]]
    if call.json:
        out.print_json({"text": text, "session": name, "occurrences": found, "problems": problems})
        return
    if found:
        out.print_table("where id type? place until? excerpt", found)
        counts = Counter(one["place"] for one in found)
        places = ", ".join(f"{place} {count}" for place, count in counts.items())
        out.tell(f"{out.counted(len(found), 'place')} ({places}).")
        if counts.keys() & {*KEPT, "evicted"}:
            delete = f"smp delete --all --text {shlex.quote(text)} --reason …"
            out.tell(f"{delete} deletes the memories that hold it.")
    else:
        out.tell(f"{text!r} stands nowhere in {f'session {name}' if name else memory.root}.")
    for one in problems:
        out.tell(f"not searched: {one['path']}: {one['problem']}")
