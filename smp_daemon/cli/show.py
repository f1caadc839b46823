"""`smp show`: a session in short, a memory whole wherever it is, or every place of a text."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from . import output as out
from .arguments import ANYWHERE, KEPT, Call, command, find_id, find_scope
from .search import text_of

if TYPE_CHECKING:
    from smp_client import Memory, Record
    from smp_client.change.holdings import Holding
    from smp_client.privacy.find import Occurrence

_RELATED = 20


@command(
    "[SESSION] [ID]...",
    "--all-about TEXT  Every place where a text stands, in SESSION or in all, deleted ones too.",
    "--raw  Of a memory, the bytes that it stands in.",
    "--no-count  Do not count it as a reading, which raises the priority.",
    places=KEPT,
)
def show(call: Call) -> None:
    """Show a session in short, or memories of it whole.

    An ID alone will do where only one session has it. Memories that hold everywhere are in the
    session "global". Of an archived session, its summary is shown. A memory that is archived,
    evicted or deleted is shown where it is kept.

    \b
    smp show latest
    smp show latest DEC-001
    smp show report-1 --raw
    smp show --all-about "Jane Roe"
    """
    about = call.all_about
    call.check(
        (call.raw and call.json, "Give either --raw or --json."),
        (about is not None and (call.id or call.raw), "--all-about takes a SESSION, no --raw."),
        (about is None and call.session is None, "Missing argument 'SESSION'."),
    )
    memory = call.memory()
    if about is not None:
        name = None if call.session is None else find_id(memory, call.session, *ANYWHERE)
        _show_occurrences(call, memory, about, name)
        return
    name, ids = _meant(memory, call.session, call.id)
    call.check((call.raw and not ids, "--raw is about memories: give their ids too."))
    if not ids:
        _show_session(call, memory, name)
        return
    found = [_held(memory, name, one) for one in ids]
    if call.raw:
        content = b"".join(held[0].raw for held in found)
        if out.on_terminal():
            out.say(out.harmless(content.decode("utf-8", "backslashreplace").removesuffix("\n")))
        else:
            click.echo(content, nl=False)
        return
    told = [_described(memory, held, _read(memory, held, count_access=not call.no_count))
            for held in found]  # fmt: skip
    if call.json:
        out.print_json(told if len(told) > 1 else told[0])
        return
    for number, one in enumerate(told):
        if number:
            out.say()
        _print_memory(one, str(memory.root))


def _meant(memory: Memory, name: str, ids: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the session, and the memories of it; a name alone may be one of a memory."""
    from smp_client import Invalid, MemoryNotFound, SessionNotFound, SessionPutAway

    if ids:
        return find_id(memory, name, *ANYWHERE), ids
    try:
        return find_id(memory, name, *KEPT), ()
    except SessionPutAway:
        raise
    except (SessionNotFound, Invalid) as error:
        try:
            record = memory.get(name, count_access=False)
        except (MemoryNotFound, Invalid):
            raise error from None
        return record.session, (record.id,)


# A memory.


def _held(memory: Memory, session: str, memory_id: str) -> list[Holding]:
    """Return a memory that is in use, else every copy of it elsewhere."""
    from smp_client import MemoryNotFound
    from smp_client.change.holdings import EVERY, holdings, in_use, is_in_use

    if is_in_use(memory, session):  # without reading the rest of a large session
        for one in in_use(memory, session, [memory_id]):
            content = memory._scope(session).read(one.file)
            return [replace(one, line=1 + content.count(b"\n", 0, content.find(one.raw)))]
    found = [one for one in holdings(memory, session, EVERY) if one.id == memory_id]
    if not found:
        advice = f"smp search --session {session} lists memories."
        raise MemoryNotFound(f"There is no memory {memory_id!r} in {session}.", advice=advice)
    return found


def _read(memory: Memory, held: Sequence[Holding], *, count_access: bool) -> Record | None:
    """Return a memory as questions answer it; None where it is deleted."""
    from smp_client import SMPError

    with suppress(SMPError):
        if held[0].place in ("active", "archived", "evicted"):
            return memory.get(f"{held[0].session}/{held[0].id}", count_access=count_access)
    return None


def _described(memory: Memory, held: Sequence[Holding], record: Record | None) -> dict[str, Any]:
    """Return all that is known of a memory: its fields, its places and its neighbours."""
    from smp_client import Record as Made
    from smp_client.model.record import type_of

    one = held[0]
    text = out.held_text(one)
    made = record or Made(one.id, type_of(one.type), one.session, {}, text, marks=(one.place,))
    places = [{
        "state": other.place, "file": str(memory.root / other.where),
        "member": other.file if other.container else None,
        "lines": [other.line, other.line + other.raw.rstrip().count(b"\n")] if other.line else None,
        "until": other.facts.get("until"), "facts": dict(other.facts),
    } for other in held]  # fmt: skip
    decay = one.value.get("decay")
    return {
        **out.record_json(made), "data": one.value, **places[0], "copies": places[1:],
        "stored_priority": decay.get("priority") if isinstance(decay, dict) else None,
        "related": [{"id": near.id, "type": near.type, "text": text_of(near), "path": near.path}
                    for near in _around(memory, one, "related")],
        "references": [asdict(other) for other in _around(memory, one, "references")],
    }  # fmt: skip


def _print_memory(told: Mapping[str, Any], root: str) -> None:
    name, session, place, facts = (told[key] for key in ("id", "session", "state", "facts"))
    where = f"{out.short_type(told['type'])} in {session}"
    named = out.styled(out.one_line(name), fg="cyan", bold=True)
    out.say(f"{named}  {out.marked(where, told['marks'])}")
    if place == "active":
        stored = told["stored_priority"]
        last = "" if stored is None else f", {stored:.2f} as last written"
        pinned = ", pinned" if told["data"].get("pinned") else ""
        out.print_pairs({"priority": f"{told['priority']:.2f} now{last}{pinned}"})
    for number, one in enumerate((told, *told["copies"])):
        path = out.short_path(one["file"])
        if one["member"]:  # a long name, of which a terminal shows the part below the root
            path = one["file"].removeprefix(f"{root}/") if out.on_terminal() else path
            path += f", {one['member']}"
        first, last_line = one["lines"] or (0, 0)
        lines = f", line {first}" if first == last_line else f", lines {first} to {last_line}"
        kept = f" ({one['state']})" if number else ""
        out.print_pairs({"also" if number else "where": path + (lines if first else "") + kept})
    if place != "active":
        by_batch = bool(facts.get("batch"))
        whole = "" if by_batch or place != "deleted" else ", with its session"
        on = f"on {out.short_time(facts.get('at'))} by {facts.get('by')}{whole}"
        back = {
            "archived": f"smp unarchive {session}",
            "evicted": f"smp compact {session} {name} --bring-back",
        }.get(place, f"smp restore {session}" + (f" {name}" if by_batch else ""))
        until = f", until {out.short_time(told['until'])}" if told["until"] else ""
        why = facts.get("reason") or facts.get("why")
        out.print_pairs({place: f"{on}: {why}", "bring back": back + until})
    states: list[str] = []
    for near in told["references"]:
        state = {"here": "", "unknown": "not known"}.get(near["state"], near["state"])
        on = f" {near['at'][:10]}" if near["at"] else ""
        states.append(f"{near['id']} ({state}{on})" if state else near["id"])
    out.print_pairs({"references": ", ".join(states)})
    for number, near in enumerate(told["related"]):
        out.print_pairs({"" if number else "related": f"{near['path'][-1]}: {near['text']}"})
    out.say()
    out.print_fields(told["data"])


def _around(memory: Memory, one: Holding, name: str) -> Sequence[Any]:
    """Return the related memories of one that is in use, or the memories that it refers to."""
    from smp_client import MemoryNotFound

    if one.place == "active":
        with suppress(MemoryNotFound):  # of a file that the index could not read
            scope = find_scope(memory, one.session)
            return scope.references(one.id) if name == "references" else scope.related(
                one.id, limit=_RELATED)  # fmt: skip
    return ()


# A session.


def _show_session(call: Call, memory: Memory, name: str) -> None:
    from smp_client import Session, SessionPutAway, SMPError

    try:
        target = find_scope(memory, name)
    except SessionPutAway:
        _show_archived(call, memory, name)
        return
    about: dict[str, Any] = dict.fromkeys(("id", "state", "metadata", "profile", "size", "problem"))
    about["id"] = name
    try:
        if isinstance(target, Session):
            about["state"] = "unreadable"
            about |= {"metadata": target.metadata(), "size": asdict(target.size())}
            about["state"] = target.state
        else:
            about["profile"] = target.profile()
    except SMPError as error:
        about["problem"] = str(error)
    summary = target.summary()
    groups = {"decisions": summary.decisions, "open_findings": summary.open_findings,
              "preferences": summary.preferences}  # fmt: skip
    if call.json:
        plain = ("memories", "participants", "first_activity", "last_activity")
        told = {**about, **{name: getattr(summary, name) for name in plain}}
        told["topics"] = [asdict(topic) for topic in summary.topics]
        lists = {key: [*map(out.record_json, found)] for key, found in groups.items()}
        out.print_json({**told, **lists})
        return
    metadata, size = about["metadata"] or {}, about["size"]
    context, people = (part if isinstance(part := metadata.get(name), dict) else {}
                       for name in ("context", "participants"))  # fmt: skip
    project = (context.get("project_name"), context.get("project_phase"))
    tags = context.get("tags")
    first, last = map(out.short_time, (summary.first_activity, summary.last_activity))
    total, quota = (out.short_size(size and size[f"{key}_bytes"]) for key in ("total", "quota"))
    counts = {out.short_type(type): count for type, count in summary.memories.items()}
    out.say(f"{out.styled(name, fg='cyan', bold=True)}  {about['state'] or ''}".rstrip())
    out.print_pairs({
        "problem": about["problem"],
        "project": ", ".join(str(part) for part in project if part),
        "topic": context.get("primary_topic"),
        "tags": ", ".join(map(str, tags)) if isinstance(tags, list) else tags,
        "user": people.get("user_id"),
        "created": out.short_time(metadata.get("created_at")),
        "active": first and f"{first} to {last}",
        "size": size and f"{total} of {quota}, {size['utilization_pct']}% full",
        "memories": _counts(counts.items()) or "none",
        "participants": _counts(summary.participants.items()),
        "topics": _counts((topic.name, topic.mentions) for topic in summary.topics),
    })  # fmt: skip
    for key, found in groups.items():
        every = summary.memories.get(key.removesuffix("s"), 0)
        more = f"_({len(found)}_of_{every})" if len(found) < every else ""
        rows = [(one.id, f"{one.priority:.2f}", f"{severity}: {one.text}" if severity else one.text)
                for one in found for severity in [one.data.get("severity")]]  # fmt: skip
        if rows:
            out.say()
            out.print_table(f"{key.upper()}{more}@ PRIORITY> TEXT", rows)
    if about["profile"]:
        out.say("\n" + out.styled("PROFILE", bold=True))
        out.print_fields(about["profile"])


def _counts(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts)


def _show_archived(call: Call, memory: Memory, name: str) -> None:
    """Print the summary of an archived session."""
    summary = next(one for one in memory.by_type("summary") if one.session == name)
    if call.json:
        file = str(memory.root / str(summary.file))
        out.print_json({**out.record_json(summary), "state": "archived", "file": file})
        return
    out.say(out.styled(name, fg="cyan", bold=True) + "  archived")
    out.print_fields(summary.data)
    out.tell(f"Its memories are still found. smp unarchive {name} brings it back.")


# Every place of a text.


def _show_occurrences(call: Call, memory: Memory, text: str, name: str | None) -> None:
    every = list(memory.privacy.find(text, name))
    found = [one for one in every if not one.problem]
    problems = [one for one in every if one.problem]
    by_place = Counter(one.place for one in found)
    if call.json:
        said = [{**asdict(one), "until": one.until or None} for one in every]
        out.print_json({"text": text, "session": name, "totals": by_place,
                        "occurrences": [one for one in said if not one["problem"]],
                        "problems": [one for one in said if one["problem"]]})  # fmt: skip
        return
    if not found:
        out.tell(f"{text!r} stands nowhere in {f'session {name}' if name else memory.root}.")
    for session in dict.fromkeys(one.session for one in found):
        out.say(out.styled(out.one_line(session) or "in no session", fg="cyan", bold=True))
        rows = [(one.where, one.id, one.type and out.short_type(one.type),
                 f"{one.place} until {one.until[:10]}" if one.until else one.place,
                 (f"{one.field}: " if one.field else "") + one.excerpt)
                for one in found if one.session == session]  # fmt: skip
        out.print_table("WHERE ID@ TYPE? PLACE TEXT", rows)
        out.say()
    if found:
        counts = ", ".join(f"{count} {place}" for place, count in by_place.items())
        memories = {(one.session, one.type, one.id) for one in found if one.id}
        ends = out.counted(len(memories), "memory")
        out.tell(f"{out.counted(len(found), 'place')} ({counts}), {ends}.")
    if problems:
        out.say("\n" + out.styled("COULD NOT BE SEARCHED", bold=True))
    for one in problems:
        out.tell(f"{one.path}: {one.problem}")
    for sentence in _advice(text, found):
        out.tell(sentence)


def _advice(text: str, found: Sequence[Occurrence]) -> list[str]:
    """Return how the text is removed: from memories, from deleted ones, and from any other file."""
    advice: list[str] = []
    kept = {one.session for one in found if one.id and one.place != "deleted"}
    if kept:
        named = kept.pop() if len(kept) == 1 else "--all"
        deleting = f"smp delete {named} --text {shlex.quote(text)} --reason …"
        advice.append(f"{deleting} deletes the memories that hold it.")
    gone = [one for one in found if one.place == "deleted"]
    for name in dict.fromkeys(f"--batch {one.batch}" if one.batch else one.session for one in gone):
        advice.append(f"smp purge {name} --now destroys memories that were deleted.")
    if any(not one.id and one.place != "deleted" for one in found):
        advice.append("smp anonymize replaces names in metadata; edit other files by hand.")
    return advice
