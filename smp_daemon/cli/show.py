"""`smp show`: a session in short, a memory whole wherever it is, or every place of a text."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from smp_client.model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, LATEST, QUARANTINE

from . import output as out
from .arguments import (
    ANYWHERE,
    KEPT,
    Call,
    check_usage,
    did_you_mean,
    find_id,
    find_scope,
    flag,
    memories_argument,
    option,
    suggesting_ids,
    takes,
)
from .search import said

if TYPE_CHECKING:
    from smp_client import GlobalMemory, Memory, Record, Session
    from smp_client.ask.summary import Summary
    from smp_client.change.holdings import Holding
    from smp_client.change.references import Reference
    from smp_client.privacy.find import Occurrence

SUMMARY_ID = "summary"
_RELATED = 20
_COLOURS = {"active": "green", "unreadable": "red"}


@dataclass(frozen=True)
class _Shown:
    """One thing to show: its bytes if it is a memory, its JSON, and a function that prints it."""

    raw: bytes | None
    json: Callable[[], dict[str, Any]]
    print: Callable[[], None]


@click.command(epilog="""\b
smp show latest
smp show latest DEC-001
smp show report-1 --raw
smp show --all-about "Jane Roe\"""")
@memories_argument(*KEPT, required=False)
@option("--all-about", "Every place where a text stands, in SESSION or in everything, deleted"
        " ones too.", metavar="TEXT")  # fmt: skip
@flag("--raw", "Of a memory, the bytes that it stands in.")
@flag("--no-count", "Do not count it as a reading, which raises the priority.")
@takes()
def show(
    call: Call, session: str | None, ids: tuple[str, ...], all_about: str | None, raw: bool,
    no_count: bool,
) -> None:  # fmt: skip
    """Show a session in short, or memories of it whole.

    An ID alone will do where only one session has it. Memories that hold everywhere are in the
    session "global". Of an archived session, its summary is shown. A memory that is archived,
    evicted or deleted is shown where it is kept.
    """
    check_usage(
        (raw and call.as_json, "Give either --raw or --json."),
        (all_about is not None and bool(ids or raw), "--all-about takes a SESSION, no --raw."),
        (all_about is None and session is None, "Missing argument 'SESSION'."),
    )
    memory = call.memory()
    if all_about is not None:
        _show_occurrences(memory, all_about, session, as_json=call.as_json)
        return
    found = [_found(memory, str(session), one, count_access=not no_count) for one in ids or (None,)]
    if raw and any(one.raw is None for one in found):
        raise click.UsageError("--raw is about memories: give their ids behind the session.")
    if call.as_json:
        out.print_json([one.json() for one in found] if len(found) > 1 else found[0].json())
    elif raw:
        content = b"".join(one.raw or b"" for one in found)
        if out.on_terminal():
            out.say(out.harmless(content.decode("utf-8", "backslashreplace").removesuffix("\n")))
        else:
            click.echo(content, nl=False)
    else:
        for number, one in enumerate(found):
            if number:
                out.say("")
            one.print()


def _found(memory: Memory, session: str, memory_id: str | None, *, count_access: bool) -> _Shown:
    """Return a session, or a memory wherever it is."""
    from smp_client import Invalid, MemoryNotFound, SMPError

    wanted = memory_id
    try:
        if memory_id is None:
            name, wanted = _meant(memory, session)
        else:
            name = find_id(memory, session, *KEPT)
        if wanted in (None, SUMMARY_ID) and (summary := _summary_of(memory, name)):
            return _archived_session(memory, summary)
        target = find_scope(memory, name)
    except SMPError as error:
        if wanted and (kept := _kept(memory, error.session_id or session, wanted)):
            return kept
        raise
    if wanted is None:
        return _session(target)
    try:
        record = target.get(wanted, count_access=count_access)
    except (MemoryNotFound, Invalid) as error:
        if kept := _kept(memory, target.scope.name, wanted):
            return kept
        with suggesting_ids(memory, target.scope.name, [wanted]):
            problem = f"There is no memory {wanted!r} in {target.scope.name}."
            raise error if isinstance(error, MemoryNotFound) else MemoryNotFound(problem) from error
    if place := _place(target, record):
        return _memory(memory, [place], record, target)
    if kept := _kept(memory, target.scope.name, wanted):
        return kept
    raise MemoryNotFound(f"{wanted!r} went while it was read.", session_id=target.scope.name)


def _meant(memory: Memory, name: str) -> tuple[str, str | None]:
    """Return a session by its whole id, else a memory and its session, else a session by a part."""
    from smp_client import Invalid, MemoryNotFound, SessionNotFound, SessionPutAway
    from smp_client.model.record import is_memory_id
    from smp_client.session_name import sessions_in

    known = {GLOBAL, LATEST, *sessions_in(memory, ACTIVE), *sessions_in(memory, ARCHIVED)}
    filters = [{"field": "id", "operator": "equals", "value": name},
               {"field": "type", "operator": "not", "value": SUMMARY_ID}]  # fmt: skip
    found = [] if name in known else memory.query({"filters": filters})
    holders = sorted({record.session for record in found})
    if len(holders) > 1:
        problem = f"{len(holders)} sessions have a memory {name!r}: {out.listed(holders)}."
        raise MemoryNotFound(problem, advice="Give one of them before the id.")
    if holders:
        return holders[0], name
    try:
        return find_id(memory, name, *KEPT), None
    except SessionPutAway:
        raise
    except (SessionNotFound, Invalid) as error:
        asked = {"aggregations": [{"function": "count", "by": "id", "name": "ids"}], "limit": 0}
        ids = filter(is_memory_id, memory.query(asked).aggregations["ids"])
        advice = did_you_mean(name, ids, "There is no memory of this name either.")
        raise SessionNotFound(str(error), advice=advice) from error


# A memory.


def _kept(memory: Memory, session: str, memory_id: str) -> _Shown | None:
    """Return a memory that is archived, evicted, deleted or anonymised, or None."""
    from smp_client.change.holdings import EVERY, holdings
    from smp_client.model.layout import is_session_id

    if session != GLOBAL and not is_session_id(session):
        return None
    found = [one for one in holdings(memory, session, EVERY) if one.id == memory_id]
    return _memory(memory, found) if found else None


def _place(target: Session | GlobalMemory, record: Record) -> Holding | None:
    """Return where a memory stands in its file; None where it is evicted, or gone meanwhile."""
    from smp_client.change.holdings import Holding
    from smp_client.disk.session_files import artifact_file, state_file
    from smp_client.text.format import format_of

    scope = target.scope
    whole = {"artifact": artifact_file, "agent_state": state_file}.get(record.type)
    kind = next((kind for kind in target.kinds if kind.type == record.type), None)
    file = whole(record.id) if whole else kind.file if kind else ""
    content, line = scope.read(file), 1
    if kind is not None:
        located = format_of(kind).find(content, record.id)
        if located is None:
            return None
        line += content.count(b"\n", 0, located.start)
        content = content[located.start : located.end]
    # The text of an artifact is no field of its own.
    value = {**record.data, "content": record.text} if record.type == "artifact" else record.data
    named = (file, record.id, record.type)
    return Holding(scope.name, "active", "", *named, value, content, "", line=line)


def _memory(
    memory: Memory, found: Sequence[Holding], record: Record | None = None,
    target: Session | GlobalMemory | None = None,
) -> _Shown:  # fmt: skip
    """Return a memory with all its copies; one that is in use with its relations and references."""
    one = found[0]
    shown = record or _record(one)
    decay = one.value.get("decay")
    stored = decay.get("priority") if record and isinstance(decay, dict) else None

    def as_json() -> dict[str, Any]:
        further: dict[str, Any] = {"copies": [_place_json(memory, other) for other in found[1:]]}
        if target:
            further = {
                "stored_priority": stored,
                "related": [{"id": near.id, "type": near.type, "text": near.text, "path": near.path}
                            for near in _related(target, one.id)],
                "references": [*map(asdict, _references(target, one.id))],
            }  # fmt: skip
        return {**out.record_json(shown), "data": one.value, **_place_json(memory, one), **further}

    def print_it() -> None:
        named = out.styled(out.one_line(one.id), fg="cyan", bold=True)
        where = f"{out.short_type(one.type)} in {one.session}"
        head = out.marked(where, shown.marks) if record else f"{where}, {one.place}"
        out.say(f"{named}  {head}")
        if record:
            pinned = ", pinned" if record.pinned else ""
            last = "" if stored is None else f", {stored:.2f} as last written"
            out.print_pairs({"priority": f"{record.priority:.2f} now{last}{pinned}"})
        out.print_pairs({"where": _where(memory, one)})
        if one.place != "active":
            happened, back = _how_back(one)
            out.print_pairs({one.place: happened, "bring back": back})
        for other in found[1:]:
            out.print_pairs({"also": f"{_where(memory, other)} ({other.place})"})
        if target:
            states = map(_reference_text, _references(target, one.id))
            out.print_pairs({"references": ", ".join(states)})
            for number, near in enumerate(_related(target, one.id)):
                text = f"{near.path[-1]}: {said(near.type, near.text, near.data)}"
                out.print_pairs({"" if number else "related": text}, cuts=True)
        out.say("")
        out.print_fields(one.value)

    return _Shown(one.raw, as_json, print_it)


def _record(one: Holding) -> Record:
    from smp_client import Record
    from smp_client.model.record import kind_of_file, type_of

    text = one.value.get("content" if one.is_file else kind_of_file(one.file).text)
    text = text if isinstance(text, str) else ""
    return Record(one.id, type_of(one.type), one.session, dict(one.value), text, marks=(one.place,))


def _lines(one: Holding) -> list[int] | None:
    return [one.line, one.line + one.raw.rstrip().count(b"\n")] if one.line else None


def _where(memory: Memory, one: Holding) -> str:
    path = out.short_path(str(memory.root / one.where))
    if one.container:  # a long name, of which the terminal shows the part below the root
        path = f"{one.where if out.on_terminal() else path}, {one.file}"
    first, last = _lines(one) or (0, 0)
    lines = f", line {first}" if first == last else f", lines {first} to {last}"
    return path + (lines if first else "")


def _place_json(memory: Memory, one: Holding) -> dict[str, Any]:
    return {
        "state": one.place, "file": str(memory.root / one.where),
        "member": one.file if one.container else None, "lines": _lines(one),
        "until": one.facts.get("until"), "facts": dict(one.facts),
    }  # fmt: skip


def _how_back(one: Holding) -> tuple[str, str]:
    """Return what has become of a memory, and how it comes back."""
    facts = one.facts
    on = f"on {out.short_time(facts.get('at'))}"
    if one.place == "archived":
        return "with its session", f"smp unarchive {one.session}"
    if one.place == "evicted":
        reason = f": {facts['reason']}" if facts.get("reason") else ""
        return f"{on} by compaction{reason}", f"smp compact {one.session} {one.id} --bring-back"
    alone = bool(facts.get("batch"))
    whole = "" if alone else ", with its session"
    back = f"smp restore {one.session}" + (f" {one.id}" if alone else "")
    until = out.short_time(facts.get("until"))
    return f"{on} by {facts.get('by')}{whole}: {facts.get('why')}", f"{back}, until {until}"


def _related(target: Session | GlobalMemory, memory_id: str) -> Sequence[Record]:
    from smp_client import MemoryNotFound

    with suppress(MemoryNotFound):  # of a file that the index could not read
        return target.related(memory_id, limit=_RELATED)
    return ()


def _references(target: Session | GlobalMemory, memory_id: str) -> list[Reference]:
    from smp_client import MemoryNotFound

    with suppress(MemoryNotFound):
        return target.references(memory_id)
    return []


def _reference_text(reference: Reference) -> str:
    """Return `DEC-001 (deleted 2026-01-15)`."""
    if reference.state == "here":
        return reference.id
    state = "not known" if reference.state == "unknown" else reference.state
    return f"{reference.id} ({state}{f' {reference.at[:10]}' if reference.at else ''})"


# A session.


def _session(target: Session | GlobalMemory) -> _Shown:
    from smp_client import Session, SessionNotFound, SMPError

    about: dict[str, Any] = dict.fromkeys(("id", "state", "metadata", "profile", "size", "problem"))
    about["id"] = target.scope.name
    try:
        if isinstance(target, Session):
            about["state"] = "unreadable"
            about |= {"metadata": target.metadata(), "size": asdict(target.size())}
            about["state"] = target.state
        else:
            about["profile"] = target.profile()
    except SessionNotFound:
        raise
    except SMPError as error:
        about["problem"] = str(error)
    summary = target.summary()
    said = (about, summary)
    return _Shown(None, lambda: _session_json(*said), lambda: _print_session(*said))


def _session_json(about: dict[str, Any], summary: Summary) -> dict[str, Any]:
    return {
        **about, "memories": summary.memories, "participants": summary.participants,
        "first_activity": summary.first_activity, "last_activity": summary.last_activity,
        "topics": [*map(asdict, summary.topics)],
        "decisions": [*map(out.record_json, summary.decisions)],
        "open_findings": [*map(out.record_json, summary.open_findings)],
        "preferences": [*map(out.record_json, summary.preferences)],
    }  # fmt: skip


def _print_session(about: dict[str, Any], summary: Summary) -> None:
    metadata, size = about["metadata"] or {}, about["size"]
    context, people = (part if isinstance(part := metadata.get(name), dict) else {}
                       for name in ("context", "participants"))  # fmt: skip
    project = (context.get("project_name"), context.get("project_phase"))
    tags = context.get("tags")
    first, last = map(out.short_time, (summary.first_activity, summary.last_activity))
    total, quota = ((out.short_size(size[name]) for name in ("total_bytes", "quota_bytes"))
                    if size else ("", ""))  # fmt: skip
    counts = {out.short_type(name): count for name, count in summary.memories.items()}
    _print_head(about["id"], about["state"], {
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
    for title, type, found in (("DECISIONS", "decision", summary.decisions),
                               ("OPEN_FINDINGS", "", summary.open_findings),
                               ("PREFERENCES", "preference", summary.preferences)):  # fmt: skip
        if not found:
            continue
        every = summary.memories.get(type, 0)
        title = f"{title}_({len(found)}_of_{every})" if len(found) < every else title
        out.say("")
        out.print_table(f"{title}@ PRIORITY> TEXT:40", [
            (record.id, f"{record.priority:.2f}",
             f"{severity}: {record.text}" if severity else record.text)
            for record in found for severity in [record.data.get("severity")]
        ])  # fmt: skip
    if about["profile"]:
        out.say("\n" + out.styled("PROFILE", bold=True))
        out.print_fields(about["profile"])


def _summary_of(memory: Memory, name: str) -> Record | None:
    """Return the summary of an archived session, or None."""
    from smp_client.disk.scopes import archived_scope, archived_scopes

    if archived_scope(name) not in archived_scopes(memory):
        return None
    named = [{"field": field, "operator": "equals", "value": value}
             for field, value in (("session", name), ("type", SUMMARY_ID))]  # fmt: skip
    return next(iter(memory.query({"filters": named})), None)


def _archived_session(memory: Memory, summary: Record) -> _Shown:
    from smp_client.disk.inventory import SUMMARY
    from smp_client.disk.scopes import archived_scope

    file = f"{archived_scope(summary.session)}/{SUMMARY}"
    about = {**out.record_json(summary), "state": "archived", "file": str(memory.root / file)}

    def print_it() -> None:
        _print_head(summary.session, "archived", {})
        out.print_fields(summary.data)
        out.tell(f"Its memories are still found. smp unarchive {summary.session} brings it back.")

    return _Shown(memory.tree.read(file), lambda: about, print_it)


def _print_head(name: str, state: str | None, pairs: Mapping[str, object]) -> None:
    shown = f"  {out.styled(state, fg=_COLOURS.get(state, 'yellow'))}" if state else ""
    out.say(out.styled(name, fg="cyan", bold=True) + shown)
    out.print_pairs(pairs)


def _counts(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts)


# Every place of a text.


_MEMORIES = ("active", "archived", "evicted", "global")
_NO_MEMORIES = ("", "metadata", "summary", "unreadable", "directory", "head")
_PASSING = ("journal", "retired", "leaving")  # these go by themselves


def _show_occurrences(memory: Memory, text: str, session: str | None, *, as_json: bool) -> None:
    name = session
    places = (ACTIVE, ARCHIVED, DELETED, QUARANTINE)
    if session is not None and not any(session in memory.tree.list(place) for place in places):
        name = find_id(memory, session, *ANYWHERE)
    every = list(memory.all_about(text, name))
    found = [one for one in every if not one.problem]
    problems = [one for one in every if one.problem]
    if as_json:
        out.print_json({
            "text": text, "session": name, "totals": Counter(one.place for one in found),
            "occurrences": [{key: value or None if key == "until" else value
                             for key, value in asdict(one).items() if key != "problem"}
                            for one in found],
            "problems": [{"session": one.session, "path": one.path, "problem": one.problem}
                         for one in problems],
        })  # fmt: skip
        return
    if not found:
        out.tell(f"{text!r} stands nowhere in {f'session {name}' if name else memory.root}.")
    for group in dict.fromkeys(one.session for one in found):
        _print_occurrences(group, [one for one in found if one.session == group])
    if found:
        by_place = Counter(one.place for one in found)
        counts = ", ".join(f"{count} {place}" for place, count in by_place.items())
        memories = {(one.session, one.type, one.id) for one in found if _is_memory(one, "deleted")}
        ends = out.counted(len(memories), "memory")
        out.tell(f"{out.counted(len(found), 'place')} ({counts}), {ends}.")
    if problems:
        out.say("\n" + out.styled("COULD NOT BE SEARCHED", bold=True))
    for one in problems:
        out.tell(f"{one.path}: {one.problem}")
    for sentence in _advice(text, found):
        out.tell(sentence)


def _is_memory(one: Occurrence, *further: str) -> bool:
    return one.place in (*_MEMORIES, *further) and one.type not in _NO_MEMORIES


def _print_occurrences(session: str, group: Sequence[Occurrence]) -> None:
    out.say(out.styled(out.one_line(session) or "in no session", fg="cyan", bold=True))
    is_packed = any(one.member for one in group)
    rows: list[list[object]] = []
    for one in group:
        line = f":{one.line}" if one.line else ""
        where = [one.path, f"{one.member}{line}"] if one.member else [f"{one.path}{line}", ""]
        type = {"head": "head of the file", "": ""}.get(one.type) or out.short_type(one.type)
        place = "anonymised," if one.action == "anonymize" else one.place
        until = f"{place} until {one.until[:10]}" if one.until else one.place
        times = f" ({one.count} times)" if one.count > 1 else ""
        text = (f"{one.field}: " if one.field else "") + one.excerpt + times
        rows.append([*where[: 1 + is_packed], one.id, type, until, text])
    out.print_table(f"WHERE~ {'PACKED_IN_IT~' if is_packed else ''} ID@ TYPE? PLACE TEXT:40", rows)
    out.say("")


def _advice(text: str, found: Sequence[Occurrence]) -> list[str]:
    """Return how the text is removed: from memories, from deleted ones, and from any other file."""
    advice: list[str] = []
    if sessions := {one.session for one in found if _is_memory(one)}:
        named = next(iter(sessions)) if len(sessions) == 1 else "--all"
        deleting = f"smp delete {named} --text {shlex.quote(text)} --reason …"
        advice.append(f"{deleting} deletes the memories that hold it.")
    deleted = [one for one in found if one.place == "deleted"]
    if deleted:
        advice.append("smp restore --list shows until when deleted memories can be restored.")
    for batch in dict.fromkeys(one.batch for one in deleted if one.batch):
        advice.append(f"smp purge --batch {batch} --now destroys the memories of this batch.")
    for name in dict.fromkeys(one.session for one in deleted if one.action == "delete_session"):
        advice.append(f"smp purge {name} --now destroys the deleted session.")
    if any(not _is_memory(one) and one.place not in ("deleted", "derived", *_PASSING)
           and one.type != "summary" for one in found):  # fmt: skip
        advice.append("smp anonymize replaces names in metadata; edit other files by hand.")
    if any(one.place in _PASSING for one in found):
        advice.append("Files in .smp/ go by themselves, when nobody has them open any more.")
    if any(one.place == "derived" for one in found):
        advice.append("The index still holds it: smp reindex makes it anew from the files.")
    return advice
