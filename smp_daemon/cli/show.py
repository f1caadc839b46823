"""`smp show`: a session in short, or one memory with all that it holds, where it stands and what it is related to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import ACTIVE, ARCHIVED, GLOBAL, LATEST

from .arguments import find_id, find_scope, json_option, memories_argument, open_memory, root_option
from .holding import reference_text, references_of, show_holding
from .nearby import did_you_mean
from .occurrences import show_occurrences
from .output import Shown, present, print_fields, print_pairs, short_path
from .show_archived import SUMMARY_ID, find_summary, show_summary

if TYPE_CHECKING:
    from smp_client import GlobalMemory, Memory, Record, Session
    from smp_client.questions.asking import Asking
    from smp_client.questions.summary import Summary
    from smp_client.quota import Size

_PLACES = (ACTIVE, ARCHIVED, GLOBAL)
_RELATED = 20


@click.command(epilog="""\b
smp show latest
smp show latest DEC-001
smp show report-1 --raw
smp show --all-about "Jane Roe\"""")
@memories_argument(*_PLACES, required=False)
@click.option("--all-about", metavar="TEXT", help="Every place where a text stands, of SESSION or of everything, deleted ones too.")
@click.option("--raw", is_flag=True, help="Of a memory, the bytes that it stands in.")
@click.option("--no-count", is_flag=True, help="Do not count it as reading, which makes a memory matter more.")
@root_option
@json_option
def show(
    session: str | None, ids: tuple[str, ...], all_about: str | None, raw: bool, no_count: bool, root: str | None, as_json: bool
) -> None:
    """Show a session in short, or memories of it whole.

    An ID alone will do where only one session has it. What holds everywhere is in the session "global". Of a session that is
    archived, its summary is shown. A memory that is archived, taken out or deleted is shown where it is kept.
    """
    if raw and as_json:
        raise click.UsageError("Give either --raw or --json.")
    if all_about is not None:
        if ids or raw:
            raise click.UsageError("--all-about takes a SESSION at most, and no --raw.")
        show_occurrences(open_memory(root), all_about, session, as_json=as_json)
        return
    if session is None:
        raise click.UsageError("Missing argument 'SESSION'.")
    memory = open_memory(root)
    found = [_found(memory, session, wanted, count_access=not no_count) for wanted in ids or (None,)]
    if raw and any(one.raw is None for one in found):
        raise click.UsageError("--raw is about memories: give their ids behind the session.")
    present(found, raw=raw, as_json=as_json)


def _found(memory: Memory, session: str, memory_id: str | None, *, count_access: bool) -> Shown:
    """Return what there is to show of a session, or of a memory wherever it is kept."""
    from smp_client import MemoryNotFound, SMPError

    wanted = memory_id
    try:
        name, wanted = _meant(memory, session) if memory_id is None else (find_id(memory, session, *_PLACES), memory_id)
        if wanted in (None, SUMMARY_ID) and (summary := find_summary(memory, name)):
            return show_summary(memory, summary)
        target = find_scope(memory, name)
    except SMPError as error:
        if wanted and (kept := show_holding(memory, error.session_id or session, wanted)):
            return kept
        raise
    if wanted is None:
        about, summary_of = _about(target), target.summary()
        return Shown(None, lambda: _scope_json(about, summary_of), lambda: _print_scope(about, summary_of))
    try:
        record = _get(target, wanted, count_access=count_access)
    except MemoryNotFound:
        if kept := show_holding(memory, target.scope.name, wanted):
            return kept
        raise
    place = _place(target, record)
    return Shown(place.content, lambda: _record_json(target, record, place), lambda: _print_record(target, record, place))


# What is meant.


def _meant(memory: Memory, name: str) -> tuple[str, str | None]:
    """Return a session by its whole id, else a memory and its session, else a session by a part of its id."""
    from smp_client import Invalid, MemoryNotFound, SessionNotFound, SessionPutAway
    from smp_client.session_name import sessions_in

    if name in (GLOBAL, LATEST):
        return find_id(memory, name, *_PLACES), None
    if any(name in sessions_in(memory, place) for place in (ACTIVE, ARCHIVED)):
        return name, None
    # The summary of an archived session has one name everywhere, and is shown with its session.
    called = {"field": "id", "operator": "equals", "value": name}
    asked = {"filters": [called, {"field": "type", "operator": "not", "value": "summary"}]}
    holders = sorted({record.session for record in memory.query(asked)})
    if len(holders) > 1:
        named = ", ".join(holders[:5]) + (", …" if len(holders) > 5 else "")
        problem = f"{len(holders)} sessions have a memory {name!r}: {named}."
        raise MemoryNotFound(problem, advice="Give one of them before the id.")
    if holders:
        return holders[0], name
    try:
        return find_id(memory, name, *_PLACES), None
    except SessionPutAway:
        raise
    except (SessionNotFound, Invalid) as error:
        if name == SUMMARY_ID:
            problem = "Every archived session has a summary, so say which."
            raise SessionNotFound(problem, advice="smp show SESSION summary; smp sessions --state archived lists them.") from error
        advice = did_you_mean(name, _known_ids(memory), "There is no memory of this name either.")
        raise SessionNotFound(str(error), advice=advice) from error


def _get(target: Session | GlobalMemory, memory_id: str, *, count_access: bool) -> Record:
    from smp_client import Invalid, MemoryNotFound

    try:
        return target.get(memory_id, count_access=count_access)
    except (MemoryNotFound, Invalid) as error:
        if isinstance(error, MemoryNotFound) and error.advice != MemoryNotFound.advice:
            raise  # it was deleted, or taken out, and the error says how it comes back
        where = target.scope.name
        advice = did_you_mean(memory_id, _known_ids(target), f"See what there is with smp search --session {where}.")
        raise MemoryNotFound(f"There is no memory {memory_id!r} in {where}.", advice=advice, session_id=where) from error


def _known_ids(asked: Asking) -> list[str]:
    """Return the ids that can be asked for: one that somebody wrote by hand may hold what would drive the terminal."""
    from smp_client.records import is_memory_id

    counted = asked.query({"aggregations": [{"function": "count", "by": "id"}], "limit": 0})
    return [name for name in counted.aggregations["count_by_id"] if is_memory_id(name)]


# One memory.


@dataclass(frozen=True)
class _Place:
    """The bytes that a memory stands in, and where they are; lines count from 1."""

    path: str
    content: bytes
    first_line: int

    @property
    def last_line(self) -> int:
        return self.first_line + self.content.rstrip().count(b"\n")


def _place(target: Session | GlobalMemory, record: Record) -> _Place:
    """Found in the file itself: the index may be of another moment, or not there at all."""
    from smp_client import MemoryNotFound
    from smp_client.session_files import artifact_file, state_file
    from smp_client.text.format import format_of

    scope = target.scope
    whole = {"artifact": artifact_file, "agent_state": state_file}.get(record.type)
    kind = next((kind for kind in target.kinds if kind.type == record.type), None)
    file = whole(record.id) if whole else kind.file if kind else ""
    content = scope.read(file)
    path = str(scope.tree.root / scope.path(file))
    if kind is None:
        return _Place(path, content, 1)
    located = format_of(kind).find(content, record.id)
    if located is None:
        raise MemoryNotFound(f"{record.id!r} went while it was being read.", session_id=scope.name)
    return _Place(path, content[located.start : located.end], content.count(b"\n", 0, located.start) + 1)


def _related(target: Session | GlobalMemory, record: Record) -> Sequence[Record]:
    from smp_client import MemoryNotFound

    try:
        return target.related(record.id, limit=_RELATED)
    except MemoryNotFound:  # of a file that the index could not read
        return ()


def _fields(record: Record) -> dict[str, Any]:
    """All of it: the text of an artifact is no field of its own."""
    return {**record.data, "content": record.text} if record.type == "artifact" else record.data


def _stored_priority(record: Record) -> float | None:
    decay = record.data.get("decay")
    value = decay.get("priority") if isinstance(decay, dict) else None
    return float(value) if isinstance(value, (int, float)) else None


def _record_json(target: Session | GlobalMemory, record: Record, place: _Place) -> dict[str, Any]:
    from .output import record_json

    related = [{"id": other.id, "type": other.type, "text": other.text, "path": other.path} for other in _related(target, record)]
    return {
        **record_json(record), "data": _fields(record), "stored_priority": _stored_priority(record), "file": place.path,
        "lines": [place.first_line, place.last_line], "related": related,
        "references": [asdict(reference) for reference in references_of(target, record.id)],
    }  # fmt: skip


def _print_record(target: Session | GlobalMemory, record: Record, place: _Place) -> None:
    from .output import marked, one_line, say, styled
    from .read import said, short_type

    stored = _stored_priority(record)
    priority = f"{record.priority:.2f} now" + ("" if stored is None else f", {stored:.2f} as last written")
    lines = f"line {place.first_line}" if place.first_line == place.last_line else f"lines {place.first_line} to {place.last_line}"
    name = styled(one_line(record.id), fg="cyan", bold=True)
    say(f"{name}  {marked(f'{short_type(record.type)} in {record.session}', record.marks)}")
    print_pairs({"priority": priority + (", pinned" if record.pinned else ""), "where": f"{short_path(place.path)}, {lines}"})
    print_pairs({"references": ", ".join(map(reference_text, references_of(target, record.id)))})
    for number, other in enumerate(_related(target, record)):
        print_pairs({"" if number else "related": f"{other.path[-1]}: {said(other.type, other.text, other.data)}"}, cuts=True)
    say("")
    print_fields(_fields(record))


# A session.


def _scope_json(about: dict[str, Any], summary: Summary) -> dict[str, Any]:
    from .output import record_json

    size: Size | None = about["size"]
    return {
        **about, "size": asdict(size) if size else None, "memories": summary.memories, "participants": summary.participants,
        "first_activity": summary.first_activity, "last_activity": summary.last_activity,
        "topics": [asdict(topic) for topic in summary.topics],
        "decisions": [*map(record_json, summary.decisions)], "open_findings": [*map(record_json, summary.open_findings)],
        "preferences": [*map(record_json, summary.preferences)],
    }  # fmt: skip


def _about(target: Session | GlobalMemory) -> dict[str, Any]:
    """What there is to say but for its memories; what cannot be read is None, with the reason as `problem`."""
    from smp_client import Session, SessionNotFound, SMPError

    about: dict[str, Any] = dict.fromkeys(("id", "state", "metadata", "profile", "size", "problem"))
    about["id"] = target.scope.name
    try:
        if isinstance(target, Session):
            about["state"] = "unreadable"
            about |= {"metadata": target.metadata(), "size": target.size()}
            about["state"] = target.state
        else:
            about["profile"] = target.profile()
    except SessionNotFound:
        raise
    except SMPError as error:
        about["problem"] = str(error)
    return about


def _print_scope(about: dict[str, Any], summary: Summary) -> None:
    from .output import say, short_size, short_time, styled
    from .read import short_type

    metadata: dict[str, Any] = about["metadata"] or {}
    size: Size | None = about["size"]
    colour = {"active": "green", "unreadable": "red"}.get(about["state"], "yellow")
    say(styled(about["id"], fg="cyan", bold=True) + (f"  {styled(about['state'], fg=colour)}" if about["state"] else ""))
    context, people = (part if isinstance(part := metadata.get(name), dict) else {} for name in ("context", "participants"))
    tags = context.get("tags")
    print_pairs({
        "problem": about["problem"],
        "project": ", ".join(str(context[name]) for name in ("project_name", "project_phase") if context.get(name)),
        "topic": context.get("primary_topic"),
        "tags": ", ".join(map(str, tags)) if isinstance(tags, list) else tags,
        "user": people.get("user_id"),
        "created": short_time(metadata.get("created_at")),
        "active": summary.first_activity and f"{short_time(summary.first_activity)} to {short_time(summary.last_activity)}",
        "size": size and f"{short_size(size.total_bytes)} of {short_size(size.quota_bytes)}, {size.utilization_pct}% full",
        "memories": _counted({short_type(name): count for name, count in summary.memories.items()}) or "none",
        "participants": _counted(summary.participants),
        "topics": _counted({topic.name: topic.mentions for topic in summary.topics}),
    })  # fmt: skip
    _print_memories(_shown("DECISIONS", summary.decisions, summary.memories.get("decision", 0)), summary.decisions)
    _print_memories("OPEN FINDINGS", summary.open_findings)
    _print_memories(_shown("PREFERENCES", summary.preferences, summary.memories.get("preference", 0)), summary.preferences)
    if about["profile"]:
        say("\n" + styled("PROFILE", bold=True))
        print_fields(about["profile"])


def _shown(title: str, found: Sequence[Record], total: int) -> str:
    return f"{title} ({len(found)} of {total})" if found and len(found) < total else title


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _print_memories(title: str, found: Sequence[Record]) -> None:
    from .output import Column, print_table, say

    if not found:
        return
    say("")
    columns = [Column(title, style=lambda _: {"fg": "cyan"}), Column("PRIORITY", right=True), Column("TEXT", least=40)]
    severities = [f"{severity}: " if isinstance(severity := record.data.get("severity"), str) else "" for record in found]
    print_table(columns, [
        (record.id, f"{record.priority:.2f}", severity + record.text) for record, severity in zip(found, severities, strict=True)
    ])  # fmt: skip
