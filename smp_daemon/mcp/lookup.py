"""The five tools that read: short lists first, then whole memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from smp_client import Record, SMPError
from smp_client.agents.context import LEAST_TOKENS
from smp_client.agents.page import fenced, plain_name
from smp_client.ask.options import QueryOptions
from smp_client.ask.summary import by_session
from smp_client.disk.session_files import agents_of
from smp_client.model.layout import GLOBAL
from smp_client.text.format import format_of

from .answer import DATA_NOTE, Answer, cut, first_bytes, fitting, hit, line, when, whole
from .desk import EVERY, Desk

Given = Mapping[str, Any]
_MATCHES = 0.1  # below this score a session has a memory with a chance word
_TELLING = ("decision", "finding", "learning")
_LATEST = 200  # memories that match, whose sessions are meant
PERSON = "person"  # who asks where no agent does: for a resource or a prompt
_LEAST_ROOM = 400  # bytes in which a memory can be shown
NOTHING = "Nothing is remembered yet. memory_record begins."


def search(desk: Desk, given: Given) -> Answer:
    """Return the memories that match a text best, in short."""
    limit = given["limit"]
    options = _options(desk, given) | {"limit": limit + 1}
    found = desk.memory.search(given["query"], **options)
    note = f" {fenced(found.note)}" if found.note else ""

    def build(records: Sequence[Record]) -> Answer:
        has_more = len(records) < len(found)
        more = " There is more: raise limit, or ask more narrowly." if has_more else ""
        said = DATA_NOTE if records else "Nothing matches."
        scope = desk.scope(given["project"]) + note + more
        lines = "\n".join([said, *map(line, records), scope])
        hits = [hit(record) for record in records]
        return Answer(lines, {"hits": hits, "more": has_more, "scope": f"{said} {scope}"})

    return fitting(found[:limit], build, desk.budget)


def get(desk: Desk, given: Given) -> Answer:
    """Return memories whole, as Markdown, each in its share of the budget."""
    records = list(map(desk.memory.get, dict.fromkeys(given["ids"])))
    scope = desk.scope(given.get("project"))
    room = desk.budget - len(f"{DATA_NOTE}\n\n\n\n{scope}".encode()) - 80
    shown = records[: max(room // _LEAST_ROOM, 1)]
    parts = [DATA_NOTE]
    for place, record in enumerate(shown):
        share = room // (len(shown) - place) - 2
        part = whole(record, _relations(desk, record), _place(desk, record), share)
        part += _around(desk, record, given["around"], share - len(part.encode()))
        parts.append(part)
        room -= len(part.encode()) + 2
    if len(shown) < len(records):
        left = len(records) - len(shown)
        parts.append(f"{left} more have no room here: ask for fewer at a time.")
    return Answer("\n\n".join([*parts, scope]))


def context(desk: Desk, given: Given) -> Answer:
    """Return the context of the project for an agent, as Markdown."""
    scope = desk.scope(given.get("project"))
    room = desk.budget - len(scope.encode()) - 2
    tokens = min(given["max_tokens"], max(room // 4, LEAST_TOKENS))
    client = given["client"] if given["client"] != PERSON else None
    about = {"agent": given["agent"] or client, "topic": given["topic"], "task": given["task"],
             "project": desk.asked_project(given["project"]) or EVERY}  # fmt: skip
    page = desk.memory.context(max_tokens=tokens, **about)
    while len(page.encode()) > room and tokens > LEAST_TOKENS:  # a character can be four bytes
        tokens = max(min(tokens * room // len(page.encode()), tokens - 1), LEAST_TOKENS)
        page = desk.memory.context(max_tokens=tokens, **about)
    return Answer(f"{first_bytes(page, room).rstrip()}\n\n{scope}")


def timeline(desk: Desk, given: Given) -> Answer:
    """Return the latest memories, oldest first, a line for each."""
    limit, session = given["limit"], desk.session_id(given["session"])
    found = _asked(desk, session, limit + 1, **_options(desk, given, session))

    def build(records: Sequence[Record]) -> Answer:
        scope = desk.scope(given["project"], session)
        if not records:
            return Answer(f"Nothing happened then. {scope}")
        lines = [line(record, form="%Y-%m-%d %H:%M") for record in reversed(records)]
        if len(records) < len(found):
            last = when(records[-1], "%Y-%m-%dT%H:%M:%SZ")
            lines.append(f"There is more: give until {last} for what was before.")
        return Answer("\n".join([DATA_NOTE, *lines, scope]))

    return fitting(found[:limit], build, desk.budget)


def sessions(desk: Desk, given: Given) -> Answer:
    """Return the sessions that fit, the one with the newest memory first."""
    options = _options(desk, given)
    asked = desk.memory._asker().answer(
        lambda view, want: by_session(view, want, _TELLING), cast("QueryOptions", options)
    )
    said = asked.aggregations
    last = {session: time for session, time in said["last"].items() if session != GLOBAL}
    chosen = sorted(last, key=lambda session: last[session], reverse=True)
    if given["query"] is not None:
        found = desk.memory.search(given["query"], limit=_LATEST, min_relevance=_MATCHES, **options)
        chosen = [one for one in dict.fromkeys(one.session for one in found) if one in last]
    limit = given["limit"]
    described = [_described(desk, session, said) for session in chosen[:limit]]

    def build(entries: Sequence[Given]) -> Answer:
        note, scope = DATA_NOTE if entries else "No session fits.", desk.scope(given["project"])
        data = {"sessions": list(entries), "more": len(entries) < len(chosen),
                "scope": f"{note} {scope}"}  # fmt: skip
        short = [f"- [{one['id']}, {one['when']}] {one['memories']} memories."
                 f" {one.get('about', '')}" for one in entries]  # fmt: skip
        return Answer("\n".join([note, *short, scope]), data)

    return fitting(described, build, desk.budget)


def _options(desk: Desk, given: Given, session: str | None = None) -> dict[str, Any]:
    """Return the conditions of a question, in the words of the library."""
    names = {"kinds": "types", "tags": "tags", "agent": "agents", "since": "since",
             "until": "until"}  # fmt: skip
    options = {ours: given[theirs] for theirs, ours in names.items() if given.get(theirs)}
    return options | (within(desk, given["project"]) if session is None else {})


def within(desk: Desk, project: str | None) -> dict[str, Any]:
    """Return the condition that keeps a question to the project that is meant."""
    named = desk.asked_project(project)
    return {} if named is None else {"project": named}


def _asked(
    desk: Desk, session: str | None, limit: int, *filters: Given, **options: Any
) -> list[Record]:
    """Return memories by their time, the latest first, of one session or of all."""
    named = [{"field": "session", "operator": "equals", "value": session}] if session else []
    sort = [{"field": "timestamp", "direction": "desc"}]
    asked = {"filters": [*filters, *named], "sort": sort, "limit": limit}
    return desk.memory.query(asked, **options)


def _described(desk: Desk, session: str, known: Mapping[str, Given]) -> dict[str, Any]:
    metadata: Mapping[str, Any] = {}
    state = "archived"
    with suppress(SMPError):
        metadata = desk.memory._session(session).metadata()
        state = str(metadata.get("status", "active"))
    about: dict[str, Any] = said if isinstance(said := metadata.get("context"), dict) else {}
    agents = [plain_name(str(one.get("agent_id"))) for one in agents_of(metadata)]
    texts = {"project": about.get("project_name"), "topic": about.get("primary_topic")}
    shown = {
        "id": session, "state": fenced(state), "when": known["last"][session][:10] or "no day",
        "memories": known["memories"][session],
        **{name: text and fenced(str(text)[:200]) for name, text in texts.items()},
        "agents": agents[:8], "about": cut(known["about"].get(session, ""), 120),
    }  # fmt: skip
    return {part: value for part, value in shown.items() if value}


def _relations(desk: Desk, record: Record) -> list[str]:
    with suppress(SMPError):
        related = desk.files(record.session).related(record.id, limit=10)
        return [f"- {one.path[-1]}" for one in related]
    return []


def _place(desk: Desk, record: Record) -> str:
    """Return the file and line in which a memory stands; of one that is archived, the archive."""
    path = f"{desk.memory.root}/{record.file or ''}"
    with suppress(SMPError):
        files = desk.files(record.session)
        for kind in (kind for kind in files.kinds if kind.type == record.type):
            content = files.scope.read(kind.file)
            if located := format_of(kind).find(content, record.id):
                number = content.count(b"\n", 0, located.start) + 1
                return f"{path}:{number}"
    return path


def _around(desk: Desk, record: Record, count: int, room: int) -> str:
    """Return the turns just before and after a memory, as many as there is room for."""
    if not count or record.timestamp is None:
        return ""
    last = [record]
    if record.type != "turn":
        last = _asked(desk, record.session, 1, types=["turn"], until=record.timestamp)
    number = last[0].data.get("turn", 0) if last else 0
    places = [*range(number - count, number + count + 1)]
    wanted = {"field": "turn", "operator": "in", "value": places}
    turns = _asked(desk, record.session, len(places), wanted, types=["turn"])
    text = ""
    for said in [line(one) for one in reversed(turns) if one.id != record.id]:
        if len(f"{text}\n{said}".encode()) > room - 20:
            return f"\nAround it:{text}\n- …"
        text += f"\n{said}"
    return f"\nAround it:{text}" if text else ""
