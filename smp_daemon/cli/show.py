"""`smp show`: a session in short, a memory whole wherever it is, or every place of a text."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

import smp_client

from . import output as out
from .arguments import ANYWHERE, KEPT, Call, command, find_id, find_scope

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.change.holdings import Holding

_RELATED = 20


@command(
    "[SESSION] [ID]...",
    "--all-about TEXT  Every place where a text stands, in SESSION or in all, deleted ones too.",
    "--no-count  Do not count it as a reading, which raises the priority.",
)
def show(call: Call) -> None:
    """Show a session in short, or memories of it whole.

    An ID alone will do where only one session has it. Memories that hold everywhere are in the
    session "global". Of an archived session, its summary is shown. A memory that is archived,
    evicted or deleted is shown where it is kept.
    """
    is_named = call.session is not None
    call.check((not is_named and call.all_about is None, "Missing argument 'SESSION'."))
    memory = call.memory()
    if call.all_about is not None:
        name = find_id(memory, call.session, *ANYWHERE) if is_named else None
        _show_occurrences(call, memory, name)
        return
    name, ids = _meant(memory, call.session, call.id)
    if not ids:
        _show_session(call, memory, name)
        return
    found = [_described(memory, _held(memory, name, one), count_access=not call.no_count)
             for one in ids]  # fmt: skip
    if call.json:
        out.print_json(found if len(found) > 1 else found[0])
        return
    for one in found:
        _print_memory(one)


def _meant(memory: Memory, name: str, ids: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the session, and the memories of it; a name alone may be one of a memory."""
    if ids:
        return find_id(memory, name, *ANYWHERE), ids
    try:
        return find_id(memory, name, *KEPT), ()
    except (smp_client.SessionNotFound, smp_client.Invalid) as error:
        try:
            record = memory.get(name, count_access=False)
        except (smp_client.MemoryNotFound, smp_client.Invalid):
            raise error from None
        return record.session, (record.id,)


def _held(memory: Memory, session: str, memory_id: str) -> Holding:
    """Return a memory that is in use, else one that is archived, evicted or deleted."""
    from smp_client.change.holdings import EVERY, holdings, in_use, is_in_use

    if is_in_use(memory, session):  # without reading the rest of a large session
        for one in in_use(memory, session, [memory_id]):
            content = memory._scope(session).read(one.file)
            return replace(one, line=1 + content.count(b"\n", 0, content.find(one.raw)))
    for one in holdings(memory, session, EVERY):
        if one.id == memory_id:
            return one
    advice = f"smp search --session {session} lists memories."
    raise smp_client.MemoryNotFound(
        f"There is no memory {memory_id!r} in {session}.", advice=advice
    )


def _described(memory: Memory, one: Holding, *, count_access: bool) -> dict[str, Any]:
    """Return all that is known of a memory: its fields, its place and its neighbours."""
    from smp_client.model.record import type_of

    text = out.held_text(one)
    record = smp_client.Record(one.id, type_of(one.type), one.session, {}, text, marks=(one.place,))
    with suppress(
        smp_client.SMPError
    ):  # a memory that the index could not read is shown as it stands
        if one.place in ("active", "archived", "evicted"):
            record = memory.get(f"{one.session}/{one.id}", count_access=count_access)
    related, references = [], []
    with suppress(smp_client.MemoryNotFound):
        if one.place == "active":
            scope = find_scope(memory, one.session)
            references = [other._asdict() for other in scope.references(one.id)]
            related = [{"id": near.id, "type": near.type, "text": out.text_of(near),
                        "path": near.path}
                       for near in scope.related(one.id, limit=_RELATED)]  # fmt: skip
    last = one.line + one.raw.rstrip().count(b"\n")
    return {**out.record_json(record), "data": one.value, "state": one.place,
            "file": str(memory.root / one.where), "member": one.file if one.container else None,
            "lines": [one.line, last] if one.line else None, "facts": dict(one.facts),
            "until": one.facts.get("until"), "related": related,
            "references": references}  # fmt: skip


def _print_memory(said: Mapping[str, Any]) -> None:
    name, session, place, facts = (said[key] for key in ("id", "session", "state", "facts"))
    marks = f" [{out.one_line(', '.join(said['marks']))}]" if said["marks"] else ""
    named = click.style(out.one_line(name), fg="cyan", bold=True)
    out.say(f"{named}  {out.short_type(said['type'])} in {session}{marks}")
    first, last = said["lines"] or (0, 0)
    lines = f", lines {first} to {last}" if first else ""
    member = f", {said['member']}" if said["member"] else ""
    pinned = ", pinned" if said["data"].get("pinned") else ""
    now = f"{said['priority']:.2f} now{pinned}" if place == "active" else ""
    out.print_pairs({"priority": now, "where": said["file"] + member + lines})
    if place != "active":
        back = {
            "archived": f"smp unarchive {session}",
            "evicted": f"smp compact {session} {name} --bring-back",
        }.get(place, f"smp restore {session}" + (f" {name}" if facts.get("batch") else ""))
        until = f", until {out.short_time(said['until'])}" if said["until"] else ""
        why = facts.get("reason") or facts.get("why")
        on = f"on {out.short_time(facts.get('at'))} by {facts.get('by')}: {why}"
        out.print_pairs({place: on, "bring back": back + until})
    states = [one["id"] if one["state"] == "here" else f"{one['id']} ({one['state']})"
              for one in said["references"]]  # fmt: skip
    out.print_pairs({"references": states})
    for near in said["related"]:
        out.print_pairs({"related": f"{near['path'][-1]}: {near['text']}"})
    out.say()
    out.print_fields(said["data"])


def _show_session(call: Call, memory: Memory, name: str) -> None:
    head = click.style(name, fg="cyan", bold=True)
    try:
        target = find_scope(memory, name)
    except smp_client.SessionPutAway:
        packed = next(one for one in memory.by_type("summary") if one.session == name)
        if call.json:
            file = str(memory.root / str(packed.file))
            out.print_json({**out.record_json(packed), "state": "archived", "file": file})
        else:
            out.say(f"{head}  archived")
            out.print_fields(packed.data)
        return
    about: dict[str, Any] = {"id": name, "state": None, "problem": None}
    metadata: Mapping[str, Any] = {}
    try:
        if isinstance(target, smp_client.Session):
            about["state"] = "unreadable"
            metadata = target.metadata()
            about |= {"state": target.state, "size": target.size().as_dict()}
        else:
            about["profile"] = target.profile()
    except smp_client.SMPError as error:
        about["problem"] = str(error)
    context, people = (part if isinstance(part := metadata.get(key), dict) else {}
                       for key in ("context", "participants"))  # fmt: skip
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
    out.say(f"{head}  {about.pop('state') or ''}".rstrip())
    size, profile = about.pop("size", None), about.pop("profile", None)
    if size:
        about["size"] = f"{out.short_size(size['total_bytes'])}, {size['utilization_pct']}% full"
    out.print_pairs({key: value for key, value in about.items() if key != "id"})
    for key, rows in lists.items():
        if rows:
            out.say()
            named = [{**row, key: row["id"], "severity": row["data"].get("severity")}
                     for row in rows]  # fmt: skip
            out.print_table(f"{key}@ priority> severity? text", named)
    if profile:
        out.say()
        out.print_fields(profile)


def _show_occurrences(call: Call, memory: Memory, name: str | None) -> None:
    text = call.all_about
    every = [{**asdict(one), "where": one.where, "until": one.until or None}
             for one in memory.privacy.find(text, name)]  # fmt: skip
    found = [one for one in every if not one["problem"]]
    problems = [one for one in every if one["problem"]]
    by_place = Counter(one["place"] for one in found)
    if call.json:
        out.print_json({"text": text, "session": name, "totals": by_place,
                        "occurrences": found, "problems": problems})  # fmt: skip
        return
    if found:
        out.print_table("where id@ type? place until? excerpt", found)
        counts = ", ".join(f"{place} {count}" for place, count in by_place.items())
        out.tell(f"{out.counted(len(found), 'place')} ({counts}).")
        quoted = shlex.quote(text)
        out.tell(f"smp delete --all --text {quoted} --reason … deletes the memories that hold it.")
    else:
        out.tell(f"{text!r} stands nowhere in {f'session {name}' if name else memory.root}.")
    for one in problems:
        out.tell(f"not searched: {one['path']}: {one['problem']}")
